"""A table that was moved is whole: its branches follow, and bases elsewhere can be renamed."""

import shutil

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet import DatasetBasePath
from lancelet.errors import InvalidInputError

ROWS = pa.table({"x": range(3)})
MORE = pa.table({"x": [10, 11]})


@pytest.fixture(params=["ours", "theirs"])
def moved(request, tmp_path):
    """A table with a branch, and a branch of that, which was moved to another folder."""
    module = lancelet if request.param == "ours" else lance
    old, new = str(tmp_path / "old.lance"), str(tmp_path / "new.lance")
    module.write_dataset(ROWS, old)
    module.dataset(old).create_branch("a/tree/b").insert(MORE)
    inner = module.dataset(old).checkout_version(("a/tree/b", None))
    inner.create_branch("c").insert(MORE)
    shutil.move(old, new)
    return new


def test_branches_of_a_moved_table_are_read_and_written(moved):
    dataset = lancelet.dataset(moved)
    assert dataset.count_rows() == 3
    for name, count in (("a/tree/b", 5), ("c", 7)):
        branch = dataset.checkout_version((name, None))
        assert branch.to_table().num_rows == count
        branch.insert(MORE)
        assert lancelet.dataset(f"{moved}/tree/{name}").to_table().num_rows == count + 2
    assert lancelet.dataset(moved).checkout_version(("c", None)).to_table().num_rows == 9


def test_a_branch_of_a_moved_table_is_brought_back(moved):
    lancelet.dataset(moved).branches.fast_forward("a/tree/b")
    after = lancelet.dataset(moved)
    assert after.to_table().column("x").to_pylist() == [0, 1, 2, 10, 11]
    assert lance.dataset(moved).to_table() == after.to_table()
    assert after.base_paths() == {}


def test_a_base_that_is_there_is_the_one_that_is_read(tmp_path):
    source, clone = str(tmp_path / "s.lance"), str(tmp_path / "c.lance")
    lancelet.write_dataset(ROWS, source)
    lancelet.dataset(source).shallow_clone(clone, 1)
    lancelet.dataset(clone).create_branch("a")
    assert lancelet.dataset(clone).checkout_version(("a", None)).to_table() == ROWS
    shutil.rmtree(source)
    with pytest.raises(FileNotFoundError):
        lancelet.dataset(clone).to_table()


def test_a_base_has_its_current_path(tmp_path):
    uri, hot, cold = (str(tmp_path / name) for name in ("t.lance", "hot", "cold"))
    dataset = lancelet.write_dataset(
        ROWS, uri, initial_bases=[DatasetBasePath(hot, name="hot")], target_bases=["hot"]
    )
    shutil.move(hot, cold)
    with pytest.raises(FileNotFoundError):
        lancelet.dataset(uri).to_table()
    report = dataset.update_base_paths({"hot": cold}, dry_run=True)
    assert report.operation == "UpdateBases"
    assert lancelet.dataset(uri).version == 1
    assert dataset.update_base_paths({"hot": cold}).version == 2
    assert dataset.base_paths() == {1: DatasetBasePath(cold, "hot", False, 1)}
    assert lancelet.dataset(uri).to_table() == lance.dataset(uri).to_table() == ROWS
    for key in (1, cold):
        dataset.update_base_paths({key: tmp_path / "cold"})
        assert lancelet.dataset(uri).to_table() == ROWS


@pytest.mark.parametrize(
    "paths", [{}, {7: "x"}, {"none": "x"}, {1: "x", "hot": "y"}, {1: "same", 2: "same"}]
)
def test_base_paths_that_make_no_sense_are_rejected(tmp_path, paths):
    bases = [DatasetBasePath(str(tmp_path / name), name=name) for name in ("hot", "cold")]
    dataset = lancelet.write_dataset(ROWS, str(tmp_path / "t.lance"), initial_bases=bases)
    with pytest.raises(InvalidInputError):
        dataset.update_base_paths(paths)
    assert dataset.version == 1


def test_a_clone_stores_the_given_source_name(tmp_path):
    uri = str(tmp_path / "s.lance")
    dataset = lancelet.write_dataset(ROWS, uri)
    dataset.tags.create("v1", 1)
    for reference, name in (("v1", "v1"), (1, None)):
        target = str(tmp_path / f"{name}.lance")
        dataset.shallow_clone(target, reference)
        (base,) = lancelet.dataset(target).base_paths().values()
        assert base.name == name
        assert lance.dataset(target).to_table() == ROWS
