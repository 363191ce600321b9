"""Blobs within structs and lists, and blobs that are given by URI."""

import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.maintenance.settings import DatasetBasePath
from lancelet.errors import InvalidInputError

VALUES = [b"small", b"x" * 70_000, None, b""]


def struct_of_blobs(values):
    fields = [pa.field("n", pa.int64()), lancelet.blob_field("blob")]
    parts = [pa.array(range(len(values)), pa.int64()), lancelet.blob_array(values)]
    return pa.StructArray.from_arrays(parts, fields=fields)


@pytest.fixture
def nested(tmp_path):
    info = struct_of_blobs(VALUES)
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 2, 3, 4], pa.int32()), info, mask=pa.array([False, True, False, False])
    )
    table = pa.table({"id": [0, 1, 2, 3], "info": info, "lists": lists})
    return lancelet.write_dataset(
        table, tmp_path / "t", data_storage_version="2.2", max_rows_per_file=3
    )


def expected_lists():
    rows = [{"n": number, "blob": value} for number, value in enumerate(VALUES)]
    return [rows[:2], None, rows[2:3], rows[3:]]


def test_bytes_of_all_kinds_of_blobs_are_read(nested):
    found = nested.to_table(blob_handling="all_binary")
    assert found["info"].to_pylist() == [{"n": n, "blob": v} for n, v in enumerate(VALUES)]
    assert found["lists"].to_pylist() == expected_lists()
    frame = nested.to_pandas()
    opened = [row["blob"] and row["blob"].readall() for row in frame["info"]]
    assert opened == VALUES
    assert frame["lists"][2] == [{"n": 2, "blob": None}]
    assert [data for _, data in nested.read_blobs("info.blob", indices=range(4))] == VALUES


def test_rows_with_blobs_in_lists_are_compacted_and_updated(nested):
    nested.delete("id = 0")
    nested.optimize.compact_files()
    (nested.merge_insert("id").when_matched_update_all().execute(pa.table({"id": [3]})))
    found = nested.to_table(blob_handling="all_binary").sort_by("id")
    assert found["lists"].to_pylist() == expected_lists()[1:]


def test_blobs_in_a_base_are_stored_with_the_base_id(tmp_path):
    (tmp_path / "cold").mkdir()
    (tmp_path / "cold/x.bin").write_bytes(b"0123456789")
    uri = (tmp_path / "cold/x.bin").as_uri()
    blobs = lancelet.blob_array([lancelet.Blob.from_uri(uri, 2, 3), uri, b"own"])
    dataset = lancelet.write_dataset(
        pa.table({"b": blobs}),
        tmp_path / "t",
        data_storage_version="2.2",
        initial_bases=[DatasetBasePath((tmp_path / "cold").as_uri(), "cold", id=1)],
    )
    stored = dataset.to_table()["b"].to_pylist()
    assert [row["blob_uri"] for row in stored] == ["x.bin", "x.bin", ""]
    assert [row["blob_id"] for row in stored] == [1, 1, 0]
    assert [data for _, data in dataset.read_blobs("b", indices=[0, 1, 2])] == [
        *(b"234", b"0123456789", b"own")
    ]


def test_external_blobs_are_copied_on_request_and_rejected_otherwise(tmp_path):
    (tmp_path / "x.bin").write_bytes(b"0123456789")
    uri = (tmp_path / "x.bin").as_uri()
    rows = pa.table({"b": lancelet.blob_array([uri, lancelet.Blob.from_uri(uri, 1, 2), None])})
    options = {"data_storage_version": "2.2"}
    with pytest.raises(InvalidInputError, match="outside registered external bases"):
        lancelet.write_dataset(rows, tmp_path / "t", **options)
    with pytest.raises(OSError, match="only applies when"):
        lancelet.write_dataset(
            rows,
            tmp_path / "t",
            external_blob_mode="ingest",
            allow_external_blob_outside_bases=True,
            **options,
        )
    dataset = lancelet.write_dataset(rows, tmp_path / "t", external_blob_mode="ingest", **options)
    (tmp_path / "x.bin").unlink()
    found = [data for _, data in dataset.read_blobs("b", indices=[0, 1, 2])]
    assert found == [b"0123456789", b"12", None]


def test_sizes_of_shared_files_and_of_appended_blobs(tmp_path):
    field = lancelet.blob_field("b", pack_file_size_threshold=150_000)
    rows = pa.table({"b": lancelet.blob_array([b"x" * 70_000] * 4)}, schema=pa.schema([field]))
    dataset = lancelet.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    assert len(list((tmp_path / "t").rglob("*.blob"))) == 2
    other = pa.schema([lancelet.blob_field("b", pack_file_size_threshold=1000)])
    with pytest.raises(OSError, match="blob threshold metadata"):
        dataset.insert(pa.table(rows.columns, schema=other))
    lancelet.write_dataset(
        pa.table({"b": lancelet.blob_array([b"x" * 70_000] * 4)}),
        tmp_path / "u",
        data_storage_version="2.2",
        blob_pack_file_size_threshold=70_000,
    )
    assert len(list((tmp_path / "u").rglob("*.blob"))) == 4
