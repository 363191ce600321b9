"""An index of a list column is not used for fragments with replaced lists."""

import contextlib

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError

LISTS = pa.list_(pa.int64())
ROWS = pa.table({"id": [0, 1, 2, 3], "tags": pa.array([[1], [2], [1, 2], []], LISTS)})


@pytest.fixture
def dataset(tmp_path):
    made = lancelet.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=2)
    made.create_scalar_index("tags", "LABEL_LIST")
    return made


def found(dataset) -> list[int]:
    rows = dataset.to_table(columns=["id"], filter="array_has(tags, 7)", prefilter=True)
    return sorted(rows["id"].to_pylist())


def test_replaced_lists_are_found(dataset):
    dataset.replace_columns({1: pa.table({"tags": pa.array([[7], [2]], LISTS)})})
    assert found(dataset) == [2]
    assert list(dataset.check()) == []


def test_merged_lists_are_found(dataset):
    rows = pa.table({"id": [1], "tags": pa.array([[7, 8]], LISTS)})
    dataset.merge_insert("id").when_matched_update_all().execute(rows)
    assert found(dataset) == [1]
    assert list(dataset.check()) == []


def test_lists_that_a_partial_merge_rewrote_in_place_are_found(tmp_path):
    wide = ROWS.append_column("n", pa.array([1, 2, 3, 4]))
    dataset = lancelet.write_dataset(wide, tmp_path / "w", max_rows_per_file=2)
    dataset.create_scalar_index("tags", "LABEL_LIST")
    rows = pa.table({"id": [1], "tags": pa.array([[7, 8]], LISTS)})
    dataset.merge_insert("id").when_matched_update_all().execute(rows)
    assert found(dataset) == [1]
    assert list(dataset.check()) == []


def test_an_index_built_during_a_replacement_does_not_cover_it(tmp_path):
    dataset = lancelet.write_dataset(ROWS, tmp_path / "b", max_rows_per_file=2)
    other = lancelet.dataset(dataset.uri)
    dataset.replace_columns({1: pa.table({"tags": pa.array([[7], [2]], LISTS)})})
    with contextlib.suppress(CommitConflictError):
        other.create_scalar_index("tags", "LABEL_LIST")
    latest = lancelet.dataset(dataset.uri)
    assert found(latest) == [2]
    assert list(latest.check()) == []
