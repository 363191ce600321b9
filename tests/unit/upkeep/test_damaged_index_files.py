"""Damaged files of indices: answers stay right, a warning names the file, check sees it.

They do not prevent compaction and updates of other indices.
"""

from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.scan.indexing.segments import IndexUnusableWarning

QUESTIONS = {
    "BTREE": ("i", "i = 55"),
    "BITMAP": ("b", "b = 3"),
    "ZONEMAP": ("i", "i < 5"),
    "BLOOMFILTER": ("i", "i = 9"),
    "NGRAM": ("t", "contains(t, 'text 29')"),
    "FM": ("t", "contains(t, '29')"),
    "LABEL_LIST": ("l", "array_has(l, 2)"),
}
DAMAGE = {
    "missing": Path.unlink,
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "empty": lambda file: file.write_bytes(b""),
    "zeros": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    "one byte": lambda file: file.write_bytes(_with_byte_turned(file.read_bytes())),
}


def _with_byte_turned(data):
    place = len(data) // 3
    return data[:place] + bytes([data[place] ^ 255]) + data[place + 1 :]


@pytest.fixture(scope="module")
def rows():
    numbers = range(3000)
    return pa.table(
        {
            "i": [None if k % 10 == 3 else k for k in numbers],
            "b": [k % 5 for k in numbers],
            "t": [f"some text {k}" for k in numbers],
            "l": [[k % 3] for k in numbers],
        }
    )


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_damaged_file_changes_no_answer_and_is_seen_by_check_and_repair(
    tmp_path, rows, kind, damage
):
    column, text = QUESTIONS[kind]
    path = str(tmp_path / "t")
    lancelet.write_dataset(rows, path, max_rows_per_file=1000).create_scalar_index(column, kind)
    file = next(Path(path, "_indices").rglob("*_*.lance"), None) or next(
        Path(path, "_indices").rglob("*.lance")
    )
    DAMAGE[damage](file)
    dataset = lancelet.dataset(path)
    with pytest.warns(IndexUnusableWarning, match=file.name):
        found = dataset.to_table(filter=text)
    expected = dataset.to_table(filter=text, use_scalar_index=False)
    assert found == expected
    assert expected.num_rows
    seen = [finding for finding in lancelet.dataset(path).check() if file.name in finding.what]
    assert seen
    assert {finding.index for finding in seen} == {f"{column}_idx"}
    dataset.repair(rebuild_indices=[f"{column}_idx"], dry_run=False)
    mended = lancelet.dataset(path)
    assert mended.check() == []
    assert "ScalarIndexQuery" in mended.scanner(filter=text).explain_plan()
    assert mended.to_table(filter=text) == expected


@pytest.mark.parametrize("damage", ["missing", "one byte"])
@pytest.mark.parametrize("kind", QUESTIONS)
def test_a_damaged_file_hinders_neither_compaction_nor_other_indices(tmp_path, rows, kind, damage):
    column, text = QUESTIONS[kind]
    path = str(tmp_path / "t")
    dataset = lancelet.write_dataset(rows, path, max_rows_per_file=1000)
    dataset.create_scalar_index(column, kind, name="damaged")
    for file in Path(path, "_indices").rglob("*.lance"):
        DAMAGE[damage](file)
    dataset.create_scalar_index("b", "BTREE", name="sound")
    expected = dataset.to_table(filter=text, use_scalar_index=False)
    dataset = lancelet.dataset(path)
    if kind in {"ZONEMAP", "BLOOMFILTER"}:  # zones are not read when rows move
        dataset.optimize.compact_files()
    else:
        with pytest.warns(IndexUnusableWarning, match="damaged"):
            dataset.optimize.compact_files()
    dataset.insert(rows.slice(0, 10))
    with pytest.warns(IndexUnusableWarning, match="damaged"):
        dataset.optimize.optimize_indices()
    with pytest.raises((CorruptDataError, ObjectNotFoundError)):
        dataset.optimize.optimize_indices(index_names=["damaged"])
    assert dataset.stats.index_stats("sound")["num_unindexed_rows"] == 0
    grown = dataset.to_table(filter=text, use_scalar_index=False)
    assert grown.num_rows >= expected.num_rows
    assert dataset.to_table(filter=text) == grown
    dataset.optimize.optimize_indices(index_names=["damaged"], retrain=True)
    assert lancelet.dataset(path).check() == []
    assert lancelet.dataset(path).to_table(filter=text) == grown


def test_damaged_rows_are_no_damage_of_an_index(tmp_path, rows):
    path = str(tmp_path / "t")
    dataset = lancelet.write_dataset(rows, path, max_rows_per_file=1000)
    dataset.create_scalar_index("i", "BTREE")
    dataset.insert(rows.slice(0, 10))
    last = dataset.get_fragments()[-1].metadata.files[0].path
    Path(path, "data", last).unlink()
    with pytest.raises(ObjectNotFoundError, match="data/"):
        lancelet.dataset(path).optimize.optimize_indices()
