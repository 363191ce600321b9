"""Blobs since 2.2 are stored by size, and their column has their locations."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from lancelet.encodings import v2_1
from lancelet.encodings.base import FileVersion, RowIndices, RowRange
from lancelet.errors import InternalError, InvalidInputError
from tests.kit.field_file import field_file

BLOB_V2 = {"ARROW:extension:name": "lance.blob.v2"}
SMALL_THRESHOLDS = BLOB_V2 | {
    "lance-encoding:blob-inline-size-threshold": "4",
    "lance-encoding:blob-dedicated-size-threshold": "8",
}
BLOB = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
RANGED = pa.struct([*BLOB, ("position", pa.uint64()), ("size", pa.uint64())])


def blob_file(rows, data_type=BLOB, *, metadata=None, version=FileVersion.V2_2):
    wanted = pa.field("f", data_type, metadata=metadata or BLOB_V2)
    return field_file(pa.array(rows, data_type), version, arrow_field=wanted)


def data_of(*values):
    return [None if value is None else {"data": value, "uri": None} for value in values]


@pytest.mark.parametrize("version", [FileVersion.V2_2, FileVersion.V2_3])
def test_size_decides_where_bytes_live(version):
    values = [b"abc", b"", b"packed", None, b"more", b"dedicated", b"packet"]
    file = blob_file(data_of(*values), metadata=SMALL_THRESHOLDS, version=version)
    found = file.read(RowRange(0, len(values))).to_pylist()
    inline, empty, packed, null, more, dedicated, packet = found
    assert null is None
    assert [row["kind"] for row in found if row] == [0, 0, 1, 0, 2, 1]
    assert (empty["position"], empty["size"]) == (0, 0)
    for row, value in ((inline, b"abc"), (more, b"more")):
        assert row["blob_id"] == 0
        assert file.data[row["position"] : row["position"] + row["size"]] == value
        assert row["position"] % 64 == 0
    for row, value in ((packed, b"packed"), (packet, b"packet")):
        assert row["blob_id"] == 1
        assert file.sink.packed[row["position"] : row["position"] + row["size"]] == value
    assert (dedicated["position"], dedicated["size"]) == (0, 9)
    assert file.sink.dedicated[dedicated["blob_id"]] == b"dedicated"
    assert all(row["blob_uri"] == "" for row in found if row)


def test_a_scan_shows_the_descriptors():
    file = blob_file(data_of(b"abc", None))
    names = [field.name for field in file.reader().data_type]
    assert names == ["kind", "position", "size", "blob_id", "blob_uri"]
    assert file.read(RowIndices(np.array([1]))).to_pylist() == [None]


def test_objects_elsewhere_are_named_by_uri_and_range():
    rows = [
        {"data": None, "uri": "s3://a/whole", "position": None, "size": None},
        {"data": None, "uri": "s3://a/part", "position": 7, "size": 9},
        {"data": b"x", "uri": None, "position": None, "size": None},
    ]
    whole, part, inline = blob_file(rows, RANGED).read(RowRange(0, 3)).to_pylist()
    assert whole == {"kind": 3, "position": 0, "size": 0, "blob_id": 0, "blob_uri": "s3://a/whole"}
    assert part == {"kind": 3, "position": 7, "size": 9, "blob_id": 0, "blob_uri": "s3://a/part"}
    assert (inline["kind"], inline["size"], inline["blob_uri"]) == (0, 1, "")


@pytest.mark.parametrize("row", [{"data": None, "uri": None}, {"data": b"x", "uri": "s3://a"}])
def test_a_blob_is_either_bytes_or_a_uri(row):
    with pytest.raises(InvalidInputError, match="exactly one"):
        blob_file([row])


def test_all_null_blobs_and_blobs_in_structs_and_lists_read_back():
    assert blob_file(data_of(None, None)).read(RowRange(0, 2)).to_pylist() == [None, None]
    inner = pa.field("b", BLOB, metadata=BLOB_V2)
    for data_type, rows in (
        (pa.struct([inner]), [{"b": data_of(b"abc")[0]}, None, {"b": None}]),
        (pa.list_(inner), [data_of(b"abc", None), [], None]),
    ):
        wanted = pa.field("f", data_type)
        file = field_file(pa.array(rows, data_type), FileVersion.V2_2, arrow_field=wanted)
        found = file.read(RowRange(0, 3)).to_pylist()
        first = found[0]["b"] if pa.types.is_struct(data_type) else found[0][0]
        assert (first["kind"], first["size"]) == (0, 3)
        assert found[1:] == rows[1:]


def test_blobs_need_a_place():
    file = blob_file(data_of(b"abc"))
    with pytest.raises(InternalError, match="without a blob writer"):
        v2_1.encode_field(pa.array(data_of(b"abc"), BLOB), file.field, FileVersion.V2_2, blobs=None)


@pytest.mark.parametrize(
    "row",
    [
        {"data": b"x", "uri": "s3://b/x"},
        {"data": None, "uri": None},
        {"data": b"x", "position": 1, "size": 2},
        {"position": 1, "size": 2},
        {"uri": "s3://b/x", "position": 1},
        {"uri": "s3://b/x", "size": 1},
        {"uri": "s3://b/x", "position": 1, "size": 0},
        {"uri": ""},
    ],
)
def test_rows_without_blob_locations_are_rejected(row):
    whole = {"data": None, "uri": None, "position": None, "size": None}
    with pytest.raises(InvalidInputError, match="row=1") as caught:
        blob_file([whole | {"data": b"y"}, whole | row], RANGED)
    assert isinstance(caught.value, OSError)
