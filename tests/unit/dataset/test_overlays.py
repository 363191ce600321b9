"""Overlays: reads, and later operations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.bitmap import Bitmap
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.file import LanceFileWriter
from lancelet.fragment import DataFile, FragmentMetadata

Operation = lancelet.LanceOperation


def _table(rows: int = 10) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int32()),
            "val": pa.array(np.arange(rows) * 10, pa.int32()),
            "s": [{"a": row, "b": str(row)} for row in range(rows)],
        }
    )


def _values(dataset: lancelet.LanceDataset, name: str, rows: pa.Table, ids: list[int]) -> DataFile:
    """Write the values of an overlay."""
    path = Path(dataset.uri.removeprefix("file://")) / "data" / name
    with LanceFileWriter(str(path)) as writer:
        writer.write_batch(rows)
    version = dataset.get_fragments()[0].metadata.files[0]
    return DataFile(
        path=name,
        fields=ids,
        column_indices=list(range(len(ids))),
        file_major_version=version.file_major_version,
        file_minor_version=version.file_minor_version,
        file_size_bytes=path.stat().st_size,
    )


def _laid(dataset, offsets, columns: dict, ids: list[int], *, fragment: int = 0):
    name = f"{dataset.version}.lance"
    file = _values(dataset, name, pa.table(columns), ids)
    overlay = Operation.DataOverlayFile(file, offsets=offsets)
    operation = Operation.DataOverlay([Operation.DataOverlayGroup(fragment, [overlay])])
    return lancelet.LanceDataset.commit(dataset, operation, read_version=dataset.version)


def _ints(*values: int) -> pa.Array:
    return pa.array(values, pa.int32())


@pytest.fixture
def dataset(tmp_path: Path) -> lancelet.LanceDataset:
    return lancelet.write_dataset(_table(), str(tmp_path / "t"))


def test_the_newest_overlay_is_read(dataset) -> None:
    first = _laid(dataset, [4, 1], {"val": _ints(111, 444)}, [1])
    second = _laid(first, Bitmap({1, 7}), {"val": _ints(999, 777)}, [1])
    expected = [0, 999, 20, 30, 444, 50, 60, 777, 80, 90]
    assert second.to_table()["val"].to_pylist() == expected
    assert second.to_table()["id"].to_pylist() == list(range(10))
    assert second.take([7, 1, 7, 0], columns=["val"])["val"].to_pylist() == [777, 999, 777, 0]
    batches = second.to_batches(columns=["val"], batch_size=3)
    assert [value for batch in batches for value in batch["val"].to_pylist()] == expected
    assert first.to_table()["val"].to_pylist()[1] == 111


def test_filters_see_new_values_with_statistics_and_indices_of_old_ones(dataset) -> None:
    dataset.create_scalar_index("val", "BTREE")
    laid = _laid(dataset, [2], {"val": _ints(5000)}, [1])
    assert laid.to_table(filter="val = 5000")["id"].to_pylist() == [2]
    assert laid.to_table(filter="val = 20").num_rows == 0
    assert laid.count_rows(filter="val > 80") == 2
    laid.create_scalar_index("val", "BTREE", replace=True)
    assert laid.to_table(filter="val = 5000")["id"].to_pylist() == [2]
    assert "ScalarIndexQuery" in laid.scanner(filter="val = 5000").explain_plan()


def test_each_field_may_have_rows_of_its_own(dataset) -> None:
    columns = {"id": _ints(777, 888), "val": _ints(330, 990)}
    laid = _laid(dataset, [[2, 5], [3, 9]], columns, [0, 1])
    assert laid.to_table()["id"].to_pylist() == [0, 1, 777, 3, 4, 888, 6, 7, 8, 9]
    assert laid.to_table()["val"].to_pylist() == [0, 10, 20, 330, 40, 50, 60, 70, 80, 990]


def test_parts_of_structs_and_whole_ones_are_laid_over(dataset) -> None:
    leaf = _laid(dataset, [2], {"a": pa.array([99], pa.int64())}, [3])
    assert leaf.to_table()["s"].to_pylist()[2] == {"a": 99, "b": "2"}
    whole = _laid(leaf, [2, 3], {"s": [{"a": 7, "b": "seven"}, None]}, [3, 4])
    assert whole.to_table()["s"].to_pylist()[1:4] == [
        {"a": 1, "b": "1"},
        {"a": 7, "b": "seven"},
        None,
    ]


def test_deleted_rows_stay_deleted_and_rows_count_with_them(dataset) -> None:
    dataset.delete("id in (0, 4)")
    laid = _laid(dataset, [4, 5], {"val": _ints(1, 2)}, [1])
    assert laid.to_table()["val"].to_pylist() == [10, 20, 30, 2, 60, 70, 80, 90]


def test_new_base_values_replace_overlays(dataset) -> None:
    laid = _laid(dataset, [1], {"id": _ints(5), "val": _ints(111)}, [0, 1])
    file = _values(laid, "new.lance", pa.table({"val": _ints(*range(10))}), [1])
    operation = Operation.DataReplacement([Operation.DataReplacementGroup(0, file)])
    after = lancelet.LanceDataset.commit(laid, operation, read_version=laid.version)
    assert after.to_table()["val"].to_pylist() == list(range(10))
    assert after.to_table()["id"].to_pylist()[1] == 5
    keys = pa.table({"id": _ints(3), "val": _ints(33)})
    after.merge_insert("id").when_matched_update_all().execute(keys)
    assert sorted(after.to_table()["val"].to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9, 33]


def test_compaction_writes_new_values_into_the_rows(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_table(), str(tmp_path / "t"), max_rows_per_file=5)
    dataset.create_scalar_index("id", "BTREE")
    laid = _laid(dataset, [1], {"val": _ints(666)}, [1], fragment=1)
    before = laid.to_table()
    laid.optimize.compact_files()
    assert [fragment.metadata.overlays for fragment in laid.get_fragments()] == [[]]
    assert laid.to_table() == before
    assert laid.to_table(filter="id = 6")["val"].to_pylist() == [666]


def test_fragments_are_not_compacted_while_an_index_has_older_values(tmp_path: Path) -> None:
    dataset = lancelet.write_dataset(_table(), str(tmp_path / "t"), max_rows_per_file=5)
    dataset.create_scalar_index("val", "BTREE")
    laid = _laid(dataset, [1], {"val": _ints(666)}, [1], fragment=1)
    laid.optimize.compact_files()
    assert laid.to_table(filter="val = 666")["id"].to_pylist() == [6]
    assert laid.to_table(filter="val = 60").num_rows == 0
    laid.create_scalar_index("val", "BTREE", replace=True)
    laid.optimize.compact_files()
    assert len(laid.get_fragments()) == 1
    assert laid.to_table(filter="val = 666")["id"].to_pylist() == [6]


@pytest.mark.parametrize("merged", [0, 1])
def test_optimising_indexes_new_values(dataset, merged: int) -> None:
    dataset.create_scalar_index("val", "BTREE")
    laid = _laid(dataset, [2], {"val": _ints(5000)}, [1])
    laid.optimize.optimize_indices(num_indices_to_merge=merged)
    assert laid.stats.index_stats("val_idx")["num_unindexed_rows"] == 0
    for value, ids in ((5000, [2]), (20, []), (30, [3])):
        assert laid.to_table(filter=f"val = {value}")["id"].to_pylist() == ids
    laid.optimize.optimize_indices(num_indices_to_merge=10)
    laid.optimize.compact_files()
    assert laid.to_table(filter="val in (20, 5000)")["id"].to_pylist() == [2]


def test_overlays_travel_with_their_fragment(dataset) -> None:
    laid = _laid(dataset, [1, 4], {"val": _ints(111, 444)}, [1])
    metadata = laid.get_fragments()[0].metadata
    (overlay,) = metadata.overlays
    assert (overlay.offsets, overlay.committed_version) == ([1, 4], 2)
    again = FragmentMetadata.from_json(json.dumps(metadata.to_json()))
    assert again == metadata
    operation = Operation.Overwrite(laid.schema, [again])
    after = lancelet.LanceDataset.commit(laid, operation, read_version=laid.version)
    assert after.to_table()["val"].to_pylist()[:5] == [0, 111, 20, 30, 444]


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ([1, 1], "must be unique"),
        ([[1, 1]], "must be unique"),
        ([0, [1]], "must be an iterable of ints"),
        (5, "must be an iterable of ints"),
        ([-1], "unsigned"),
    ],
)
def test_rows_that_are_none_are_rejected(dataset, offsets, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        _laid(dataset, offsets, {"val": _ints(9)}, [1])


def test_input_that_cannot_be_read_is_an_error(dataset) -> None:
    with pytest.raises(InvalidInputError, match="does not exist"):
        _laid(dataset, [1], {"val": _ints(9)}, [1], fragment=7)
    with pytest.raises(CorruptDataError, match="more rows than it has values"):
        _laid(dataset, [1, 2], {"val": _ints(9)}, [1]).to_table()


def test_new_values_within_lists_are_rejected_when_read(tmp_path: Path) -> None:
    rows = pa.table({"l": [[{"a": 1, "b": 2}], [{"a": 3, "b": 4}]]})
    dataset = lancelet.write_dataset(rows, str(tmp_path / "t"))
    laid = _laid(dataset, [1], {"a": pa.array([9], pa.int64())}, [2])
    with pytest.raises(UnsupportedError, match="part of a field"):
        laid.to_table()
