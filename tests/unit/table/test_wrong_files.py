"""Files of other tables under the right names: what manifests say of them is compared."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.query.indexing.segments import IndexUnusableWarning

COUNT = 200


def table(folder: Path, first: int, width: int) -> lancelet.LanceDataset:
    texts = [f"{number:0{width}}" for number in range(first, first + COUNT)]
    rows = pa.table({"a": range(first, first + COUNT), "s": texts})
    return lancelet.write_dataset(rows, str(folder))


def only(folder: Path, pattern: str) -> Path:
    (found,) = folder.glob(pattern)
    return found


def test_a_data_file_of_another_size_is_refused(tmp_path):
    table(tmp_path / "t", 0, 6)
    table(tmp_path / "u", 0, 9)
    wrong = only(tmp_path / "u", "data/*")
    shutil.copy(wrong, only(tmp_path / "t", "data/*"))
    with pytest.raises(CorruptDataError, match="another size"):
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
        shutil.copy(others[name], own[name])
    with pytest.warns(IndexUnusableWarning, match="another size"):
        assert lancelet.dataset(str(tmp_path / "t")).count_rows(text) == expected
