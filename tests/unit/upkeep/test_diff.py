"""Differences between versions, as values and as text."""

from pathlib import Path

import pyarrow as pa

import lancelet
from lancelet.upkeep.diff import DifferenceKind


def _table(tmp_path: Path, **options) -> lancelet.LanceDataset:
    rows = pa.table({"id": [1, 2, 3], "s": [{"a": 1}, {"a": 2}, None]})
    return lancelet.write_dataset(rows, tmp_path / "t", **options)


def test_a_version_does_not_differ_from_itself(tmp_path: Path) -> None:
    dataset = _table(tmp_path)
    found = dataset.diff(1, 1)
    assert not found
    assert str(found) == "version 1 -> 1\nrows: 3 -> 3 (0 inserted, 0 updated, 0 deleted)"


def test_every_kind_of_difference_is_reported_in_both_directions(tmp_path: Path) -> None:
    dataset = _table(tmp_path, enable_stable_row_ids=True)
    dataset.update_config({"lance.auto_cleanup.interval": "20"})
    dataset.update_metadata({"owner": "us"})
    dataset.add_columns(pa.field("b", pa.int32()))
    dataset.alter_columns({"path": "s.a", "name": "c"})
    dataset.update({"b": "7"}, where="id = 2")
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 1")
    found = dataset.diff(1)
    assert [str(each) for each in found.schema] == ["~ s.a -> s.c: int64 -> int64", "+ b: int32"]
    assert [str(each) for each in found.config] == ["+ lance.auto_cleanup.interval: '20'"]
    assert [str(each) for each in found.metadata] == ["+ table.owner: 'us'"]
    assert [each.name for each in found.indices] == ["id_idx"]
    kinds = sorted((each.side, each.after) for each in found.files if each.name.startswith("data/"))
    assert kinds == [(DifferenceKind.ADDED, "data file")]
    rows = found.rows
    assert (rows.before, rows.after) == (3, 2)
    assert (rows.inserted, rows.updated, rows.deleted) == (0, 1, 1)
    assert "rows: 3 -> 2 (0 inserted, 1 updated, 1 deleted)" in str(found)
    back = dataset.diff(dataset.version, 1)
    assert [each.side for each in back.schema] == [DifferenceKind.CHANGED, DifferenceKind.REMOVED]
    assert (back.rows.inserted, back.rows.updated, back.rows.deleted) == (1, 1, 0)


def test_undetectable_row_changes_are_reported(tmp_path: Path) -> None:
    dataset = _table(tmp_path)
    dataset.update({"id": "9"}, where="id = 2")
    found = dataset.diff(1)
    assert found.rows.inserted is None
    assert "without stable row ids" in str(found)
    assert found
