"""Jobs that write columns store what a repetition needs, and leave nothing behind."""

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.change.columns.job import ColumnJob, Written
from lancelet.errors import UnsupportedError
from lancelet.format.paths import blob_folder
from lancelet.io.memory import MemoryStore


def data_files(uri) -> set[str]:
    return {path.name for path in Path(uri, "data").iterdir()}


def test_a_finished_fragment_is_not_written_again(tmp_path) -> None:
    uri, state = str(tmp_path / "t"), tmp_path / "job.sqlite"
    lancelet.write_dataset(pa.table({"a": range(6)}), uri, max_rows_per_file=3)
    fails = [True]

    @lancelet.batch_udf(checkpoint_file=state, output_schema=pa.schema([("b", pa.int64())]))
    def plus_one(batch):
        if fails[0] and 3 in batch["a"].to_pylist():
            raise RuntimeError("stopped")
        return pa.record_batch([pa.compute.add(batch["a"], 1)], ["b"])

    with pytest.raises(RuntimeError, match="stopped"):
        lancelet.dataset(uri).add_columns(plus_one)
    with sqlite3.connect(state) as database:
        assert [row[0] for row in database.execute("SELECT fragment_id FROM fragments")] == [0]
    before = data_files(uri)
    fails[0] = False
    lancelet.dataset(uri).add_columns(plus_one)
    assert len(data_files(uri) - before) == 1
    assert lancelet.dataset(uri).to_table()["b"].to_pylist() == list(range(1, 7))


def test_an_unused_file_is_deleted_with_its_blobs() -> None:
    store = MemoryStore.unnamed()
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), "memory://discarded-blobs/t")
    fragment = dataset.snapshot.fragments[0]
    written = Written(fragment, fragment.files[0])
    path = f"data/{fragment.files[0].path}"
    store.put(path, b"file")
    store.put(f"{blob_folder(path)}/1.blob", b"blob")
    job = ColumnJob(store, lambda _: None)
    job._written[0] = written
    job._discard(job._written)
    assert list(store.list("")) == []
    assert job._written == {}


def test_columns_that_are_null_have_no_file(tmp_path) -> None:
    dataset = lancelet.write_dataset(pa.table({"a": [1, 2]}), str(tmp_path / "t"))
    dataset.add_columns({"none": "CAST(NULL AS INT)", "b": "a + 1"})
    ids = {field.name: field.id for field in dataset.snapshot.schema.fields}
    stored = {each for file in dataset.snapshot.fragments[0].files for each in file.fields}
    assert stored == {ids["a"], ids["b"]}
    assert dataset.to_table()["none"].to_pylist() == [None, None]


def test_nulls_within_structs_are_rejected_in_old_files(tmp_path) -> None:
    uri = str(tmp_path / "t")
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), uri, data_storage_version="0.1")
    added = pa.table(
        {"s": [{"x": {"y": None}}]},
        pa.schema([("s", pa.struct([("x", pa.struct([("y", pa.int64())]))]))]),
    )
    with pytest.raises(UnsupportedError, match=r"'s\.x\.y' has null values"):
        dataset.add_columns(added.to_reader())


def test_a_part_of_a_struct_in_lists_is_cast(tmp_path) -> None:
    rows = [[{"x": 1, "y": "a"}, None], None, [], [{"x": None, "y": None}]]
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))
    dataset = lancelet.write_dataset(
        pa.table({"l": pa.array(rows, kind), "a": range(4)}), str(tmp_path / "t")
    )
    dataset.alter_columns(
        {"path": "l.item.x", "data_type": pa.int32()}, {"path": "a", "data_type": pa.int32()}
    )
    assert dataset.to_table()["l"].to_pylist() == rows
    assert dataset.to_table()["a"].type == pa.int32()


def test_a_part_of_a_struct_in_lists_is_cast_although_rows_were_deleted(tmp_path) -> None:
    """Deleted rows keep the lengths of their lists, which the parts of a struct share."""
    rows = [[{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], [{"x": 3, "y": "c"}], [], None]
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.string())]))
    dataset = lancelet.write_dataset(
        pa.table({"l": pa.array(rows * 3, kind), "id": range(12)}), str(tmp_path / "t")
    )
    dataset.delete("id IN (0, 3, 5, 8)")
    expected = dataset.to_table()["l"].to_pylist()
    dataset.alter_columns({"path": "l.item.x", "data_type": pa.int32()})
    found = dataset.to_table()["l"]
    assert found.type.value_type.field("x").type == pa.int32()
    assert found.to_pylist() == expected
