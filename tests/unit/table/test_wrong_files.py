"""Files of other tables under the right names are compared with the manifest."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.scan.indexing.segments import IndexUnusableWarning

COUNT = 200


def put_over(other: Path, own: Path) -> None:
    """Replace a file by a copy of another one; open handles keep the old file."""
    own.with_name("other").write_bytes(other.read_bytes())
    own.with_name("other").replace(own)


def table(folder: Path, first: int, width: int) -> lancelet.LanceDataset:
    texts = [f"{number:0{width}}" for number in range(first, first + COUNT)]
    rows = pa.table({"a": range(first, first + COUNT), "s": texts})
    return lancelet.write_dataset(rows, str(folder))


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_a_data_file_of_another_size_is_rejected(tmp_path):
    table(tmp_path / "t", 0, 6)
    table(tmp_path / "u", 0, 9)
    wrong = only(tmp_path / "u", "data/*")
    put_over(wrong, only(tmp_path / "t", "data/*"))
    with pytest.raises(CorruptDataError, match="differs from the recorded size"):
        lancelet.dataset(str(tmp_path / "t")).to_table()


@pytest.mark.parametrize(
    ("kind", "column", "text"),
    [
        ("BTREE", "s", "s = '000050'"),
        ("BITMAP", "s", "s = '000050'"),
        ("NGRAM", "s", "contains(s, '0005')"),
    ],
)
def test_an_index_file_of_another_size_is_passed_over(tmp_path, kind, column, text):
    expected = table(tmp_path / "t", 0, 6).count_rows(text)
    assert expected
    for name, dataset in (
        ("t", lancelet.dataset(str(tmp_path / "t"))),
        ("u", table(tmp_path / "u", 7000, 12)),
    ):
        dataset.create_scalar_index(column, kind)
        assert (tmp_path / name / "_indices").exists()
    del dataset
    own = {each.name: each for each in (tmp_path / "t" / "_indices").rglob("*.lance")}
    others = {each.name: each for each in (tmp_path / "u" / "_indices").rglob("*.lance")}
    assert own.keys() == others.keys()
    differ = {name for name in own if own[name].stat().st_size != others[name].stat().st_size}
    assert differ
    for name in differ:
        put_over(others[name], own[name])
    with pytest.warns(IndexUnusableWarning, match="differs from the recorded size"):
        assert lancelet.dataset(str(tmp_path / "t")).count_rows(text) == expected


def alike(folder: Path, first: int, **options: object) -> lancelet.LanceDataset:
    """Write a table with files of the same size as others: its numbers have 11 bits."""
    rows = pa.table({"a": pa.array(range(1024 + first, 1024 + first + COUNT), pa.int64())})
    return lancelet.write_dataset(rows, str(folder), **options)


def opened_anew(folder: Path) -> lancelet.LanceDataset:
    """Open a table as another process would, without cached files."""
    return lancelet.dataset(str(folder), session=lancelet.Session())


def put_in_place_of(own: Path, other: Path) -> None:
    assert own.stat().st_size == other.stat().st_size
    put_over(other, own)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_a_data_file_of_the_same_size_is_rejected(tmp_path, version):
    alike(tmp_path / "t", 0, data_storage_version=version)
    alike(tmp_path / "u", COUNT, data_storage_version=version)
    put_in_place_of(only(tmp_path / "t", "data/*"), only(tmp_path / "u", "data/*"))
    table = opened_anew(tmp_path / "t")
    with pytest.raises(CorruptDataError, match="another name"):
        table.to_table()
    assert "another name" in str(table.check("footers"))


def test_data_files_of_many_small_fragments_are_distinguished(tmp_path):
    alike(tmp_path / "t", 0, max_rows_per_file=10)
    first, second, *_ = sorted((tmp_path / "t" / "data").iterdir())
    put_in_place_of(first, second)
    with pytest.raises(CorruptDataError, match="another name"):
        opened_anew(tmp_path / "t").to_table()


def test_a_file_of_added_columns_of_the_same_size_is_rejected(tmp_path):
    for name, first in (("t", 0), ("u", COUNT)):
        alike(tmp_path / name, first).add_columns({"b": "a + 1"})
    own, other = (sorted((tmp_path / name / "data").iterdir()) for name in "tu")
    for path in own:
        sizes = {each.stat().st_size: each for each in other}
        put_over(sizes[path.stat().st_size], path)
    with pytest.raises(CorruptDataError, match="another name"):
        opened_anew(tmp_path / "t").to_table(columns=["b"])


@pytest.mark.parametrize("step", [2, 1], ids=["arrow", "bitmap"])
def test_a_deletion_file_of_the_same_size_is_rejected(tmp_path, step):
    count = 12_000
    rows = pa.table({"a": range(count)})
    for name, rest in (("t", 0), ("u", 1)):
        table = lancelet.write_dataset(rows, str(tmp_path / name))
        table.delete(f"a % {2 * step} = {rest}" if step == 1 else f"a < 100 and a % 2 = {rest}")
    suffix = "bin" if step == 1 else "arrow"
    pattern = f"_deletions/*.{suffix}"
    put_in_place_of(only(tmp_path / "t", pattern), only(tmp_path / "u", pattern))
    table = opened_anew(tmp_path / "t")
    with pytest.raises(CorruptDataError, match="another name"):
        table.to_table()
    assert "another name" in str(table.check("footers"))


@pytest.mark.parametrize("kind", ["BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"])
def test_an_index_file_of_the_same_size_is_passed_over(tmp_path, kind):
    for name, first in (("t", 0), ("u", COUNT)):
        alike(tmp_path / name, first).create_scalar_index("a", kind)
    own = {each.name: each for each in (tmp_path / "t" / "_indices").rglob("*.lance")}
    others = {each.name: each for each in (tmp_path / "u" / "_indices").rglob("*.lance")}
    for name, path in own.items():
        put_over(others[name], path)
    with pytest.warns(IndexUnusableWarning, match="another"):
        assert opened_anew(tmp_path / "t").count_rows("a = 1051") == 1


def test_files_keep_their_names_in_copies_branches_and_clones(tmp_path):
    table = alike(tmp_path / "t", 0, max_rows_per_file=60)
    table.create_scalar_index("a", "BTREE")
    table.delete("a % 7 = 0")
    table.add_columns({"b": "a + 1"})
    expected = table.to_table()
    shutil.copytree(tmp_path / "t", tmp_path / "copied")
    table.shallow_clone(str(tmp_path / "shallow"), table.version)
    table.deep_clone(str(tmp_path / "deep"), table.version)
    for name in ("copied", "shallow", "deep"):
        found = lancelet.dataset(str(tmp_path / name))
        assert found.to_table().equals(expected)
        assert found.count_rows("a = 1051") == 1
        found.optimize.compact_files(compaction_mode="try_binary_copy")
        assert not found.check()
    branch = table.create_branch("b")
    branch.delete("a % 5 = 0")
    assert not branch.check()


def test_a_file_that_is_written_alone_may_be_renamed(tmp_path):
    rows = pa.table({"a": range(COUNT)})
    with lancelet.file.LanceFileWriter(str(tmp_path / "x.lance"), rows.schema) as writer:
        writer.write_batch(rows)
    (tmp_path / "x.lance").rename(tmp_path / "y.lance")
    found = lancelet.file.LanceFileReader(str(tmp_path / "y.lance")).read_all().to_table()
    assert found.equals(rows)
