"""Goal: blobs of every storage kind are read as files, bytes or descriptions, as in pylance."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.blob import Blob, BlobColumn, BlobFile, blob_array, blob_field
from lancelet.errors import FieldNotFoundError
from lancelet.scan import blobs
from lancelet.scan.take import RowNotFoundError

OUTSIDE = b"0123456789" * 10
VALUES = [b"abc", None, b"", b"x" * 200_000, b"y" * 5_000_000]


def v2_table(folder: Path) -> lancelet.LanceDataset:
    """One blob of each kind: inline, null, empty, packed, dedicated, and two outside."""
    (folder / "outside.bin").write_bytes(OUTSIDE)
    uri = f"file://{folder}/outside.bin"
    blobs = blob_array([*VALUES, Blob.from_uri(uri, 3, 4), uri])
    table = pa.table(
        [blobs, list(range(7))], schema=pa.schema([blob_field("b"), ("n", pa.int64())])
    )
    return lancelet.write_dataset(
        table, folder / "v2", data_storage_version="2.2", allow_external_blob_outside_bases=True
    )


def v1_table(folder: Path, version: str = "2.1") -> lancelet.LanceDataset:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    schema = pa.schema([field, ("n", pa.int64())])
    table = pa.table([pa.array(VALUES, pa.large_binary()), list(range(5))], schema=schema)
    return lancelet.write_dataset(
        table, folder / "v1", data_storage_version=version, max_rows_per_file=3
    )


def test_blobs_of_every_kind_are_read_as_files(tmp_path: Path) -> None:
    ds = v2_table(tmp_path)
    found = ds.take_blobs("b", indices=range(7))
    assert [None if file is None else file.size() for file in found] == [
        3, None, 0, 200_000, 5_000_000, 4, 100,
    ]  # fmt: skip
    assert [None if file is None else file.read() for file in found] == [
        *VALUES,
        OUTSIDE[3:7],
        OUTSIDE,
    ]
    assert repr(found[0]) == "<BlobFile size=3>"


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_blobs_of_older_files_are_read_too(tmp_path: Path, version: str) -> None:
    ds = v1_table(tmp_path, version)
    assert ds.read_blobs("b", indices=[4, 0, 1, 0]) == [
        ((1 << 32) + 1, VALUES[4]),
        (0, VALUES[0]),
        (1, None),
        (0, VALUES[0]),
    ]
    assert ds.to_table(blob_handling="all_binary")["b"].to_pylist() == VALUES


def test_blobs_are_named_by_id_address_or_place(tmp_path: Path) -> None:
    ds = v1_table(tmp_path)
    ds.delete("n = 0")
    last = (1 << 32) + 1
    for rows in ({"ids": [last]}, {"addresses": pa.array([last])}, {"indices": [3]}):
        assert ds.read_blobs("b", **rows) == [(last, VALUES[4])]
    for rows in ({"ids": [0]}, {"addresses": [99]}, {"indices": [4]}):
        with pytest.raises(RowNotFoundError):
            ds.take_blobs("b", **rows)
    for wrong in ({}, {"ids": [1], "indices": [1]}):
        with pytest.raises(ValueError, match="Exactly one"):
            ds.take_blobs("b", **wrong)
    with pytest.raises(ValueError, match="not a blob column"):
        ds.take_blobs("n", indices=[0])
    with pytest.raises(FieldNotFoundError):
        ds.take_blobs("q", indices=[0])
    assert ds.take_blobs("b", indices=[]) == ds.read_blobs("b", indices=[]) == []


@pytest.mark.parametrize("buffer_size", [0, 16, 1 << 20])
def test_a_blob_file_behaves_like_any_file(tmp_path: Path, buffer_size: int) -> None:
    ds = v2_table(tmp_path)
    (file,) = ds.take_blobs("b", indices=[6], buffer_size=buffer_size)
    model = io.BytesIO(OUTSIDE)
    for step in (
        lambda each: each.read(3),
        lambda each: each.tell(),
        lambda each: each.seek(5, io.SEEK_CUR),
        lambda each: each.read1(4),
        lambda each: each.seek(-2, io.SEEK_END),
        lambda each: each.read(),
        lambda each: each.read(),
        lambda each: each.seek(200),
        lambda each: each.read(1),
        lambda each: each.seek(0),
        lambda each: each.readinto(bytearray(150)),
        lambda each: (each.readable(), each.seekable(), each.closed),
    ):
        assert step(file) == step(model)
    assert file.read_ranges([(98, 2), (0, 1), (50, 0)]) == [b"89", b"0", b""]
    assert file.read_range(10, 3) == b"012"
    for wrong in ((99, 2), (101, 0)):
        with pytest.raises(ValueError, match="exceeds blob size"):
            file.read_range(*wrong)
    with pytest.raises(OverflowError):
        file.read_range(-1, 2)
    with pytest.raises(ValueError, match="negative seek"):
        file.seek(-1)
    file.close()
    assert file.closed
    for call in (file.read, lambda: file.read_range(0, 1)):
        with pytest.raises(ValueError, match="closed"):
            call()


def test_opening_blobs_reads_no_bytes_of_them(tmp_path: Path) -> None:
    ds = v2_table(tmp_path)
    ds.take_blobs("b", indices=[0])
    ds.io_stats_incremental()
    (file,) = ds.take_blobs("b", indices=[4])
    assert ds.io_stats_incremental().read_bytes < 1000
    assert file.read_range(10, 3) == b"yyy"
    assert ds.io_stats_incremental().read_bytes == 3


def test_parts_of_blobs_are_read_together(tmp_path: Path) -> None:
    ds = v2_table(tmp_path)
    requests = [(6, 1, 2), (0, 0, 3), (1, 0, 1)]
    found = ds.read_blob_ranges("b", requests, selector="indices")
    assert found == [(0, 6, b"12"), (1, 0, b"abc"), (2, 1, None)]
    with pytest.raises(ValueError, match="exceeds"):
        ds.read_blob_ranges("b", [(0, 0, 4)], selector="indices")
    with pytest.raises(ValueError, match="selector"):
        ds.read_blob_ranges("b", [], selector="rows")


def test_ranges_of_one_file_are_one_request(tmp_path: Path, monkeypatch) -> None:
    field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [bytes([row]) * 200 for row in range(40)]
    rows = pa.table([values], schema=pa.schema([field]))
    ds = lancelet.write_dataset(rows, tmp_path / "t", max_rows_per_file=20)
    read, requests = blobs._read_file, []
    monkeypatch.setattr(blobs, "_read_file", lambda parts: requests.append(parts) or read(parts))
    wanted = [(row, 3, 190) for row in range(40)]
    found = ds.read_blob_ranges("b", wanted, selector="indices")
    assert [data for _, _, data in found] == [value[3:193] for value in values]
    assert [len(parts) for parts in requests] == [20, 20]


def test_scans_return_places_or_bytes(tmp_path: Path) -> None:
    ds = v2_table(tmp_path)
    places = ds.to_table(columns=["b"])["b"].to_pylist()
    assert [None if place is None else place["kind"] for place in places] == [
        0,
        None,
        0,
        1,
        2,
        3,
        3,
    ]
    table = ds.to_table(["n", "b"], filter="n < 3", blob_handling="all_binary", with_row_id=True)
    assert table.to_pydict() == {"n": [0, 1, 2], "b": VALUES[:3], "_rowid": [0, 1, 2]}
    scanner = ds.scanner(columns=["b"], blob_handling="all_binary", limit=1)
    assert scanner.projected_schema.field("b").type == pa.large_binary()
    assert scanner.head(5)["b"].to_pylist() == [b"abc"]
    renamed = ds.to_table({"c": "b"}, blob_handling="all_binary", limit=1)
    assert renamed.to_pydict() == {"c": [b"abc"]}
    with pytest.raises(ValueError, match="Invalid blob_handling"):
        ds.scanner(blob_handling="some")


def test_data_frames_hold_files_bytes_or_places(tmp_path: Path) -> None:
    ds = v2_table(tmp_path)
    frame = ds.to_pandas(columns=["n", "b"])
    assert list(frame.columns) == ["n", "b"]
    assert isinstance(frame["b"][0], BlobFile)
    assert (frame["b"][1], frame["b"][5].read()) == (None, b"3456")
    assert ds.to_pandas(blob_mode="bytes", limit=1)["b"][0] == b"abc"
    assert ds.to_pandas(blob_mode="descriptions", limit=1)["b"][0]["size"] == 3
    assert ds.get_fragment(0).to_pandas(limit=1)["b"][0].read() == b"abc"
    with pytest.raises(ValueError, match="blob_mode"):
        ds.to_pandas(blob_mode="eager")


def test_blobs_elsewhere_need_a_base_or_a_promise(tmp_path: Path) -> None:
    (tmp_path / "cold").mkdir()
    (tmp_path / "cold/x.bin").write_bytes(b"cold bytes")
    table = pa.table([blob_array([f"{tmp_path}/cold/x.bin"])], schema=pa.schema([blob_field("b")]))
    with pytest.raises(OSError, match="outside registered external bases"):
        lancelet.write_dataset(table, tmp_path / "t", data_storage_version="2.2")
    inside = pa.table([blob_array([b"a", None])], schema=table.schema)
    assert lancelet.write_dataset(inside, tmp_path / "u").count_rows() == 2
    base = lancelet.DatasetBasePath(tmp_path / "cold", name="cold")
    ds = lancelet.write_dataset(
        table, tmp_path / "t", data_storage_version="2.2", initial_bases=[base]
    )
    ds.insert(table)
    assert [data for _, data in ds.read_blobs("b", indices=[0, 1])] == [b"cold bytes"] * 2


def test_values_that_are_no_blobs_are_rejected() -> None:
    made = blob_array([b"a", bytearray(b"b"), memoryview(b"c"), "u", None, Blob.empty()]).storage
    shown = [row and (row["data"], row["uri"]) for row in made.to_pylist()]
    assert shown == [(b"a", None), (b"b", None), (b"c", None), (None, "u"), None, (b"", None)]
    for wrong in (
        Blob,
        lambda: Blob(b"a", "u"),
        lambda: Blob.from_uri(""),
        lambda: Blob.from_uri("u", 1),
        lambda: Blob.from_uri("u", -1, 2),
        lambda: Blob.from_uri("u", 0, 0),
        lambda: Blob(b"a", position=1, size=2),
        lambda: blob_field("b", dedicated_size_threshold=0),
        lambda: blob_field("b", inline_size_threshold="1"),
        lambda: blob_array([1]),
    ):
        with pytest.raises(ValueError, match=r"."):
            wrong()


def test_binary_columns_are_files_value_by_value() -> None:
    column = BlobColumn(pa.chunked_array([[b"a", None], [b"bc"]]))
    assert [None if file is None else file.read() for file in column] == [b"a", None, b"bc"]
    for wrong in ([b"a"], pa.array([1])):
        with pytest.raises(ValueError, match="Expected"):
            BlobColumn(wrong)
