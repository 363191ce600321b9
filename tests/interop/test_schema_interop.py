"""Goal: every type the reference writes is read as the same schema, and written as it writes it.

Method: an empty table per type; its manifest's fields are parsed to our values, shown as Arrow
and compared with what the reference shows, and made anew from the Arrow schema and compared
with what the reference stored.
"""

import struct
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancelet.errors import LanceletError
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema

pytestmark = pytest.mark.interop

STRUCT = pa.struct([pa.field("a", pa.int8()), pa.field("b", pa.string(), nullable=False)])
INNER = pa.field("zz", STRUCT, nullable=False, metadata={"k": "v"})
NAME, META = "ARROW:extension:name", "ARROW:extension:metadata"

TYPES = {
    **{str(t): t for t in (
        pa.null(), pa.bool_(), pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(),
        pa.uint32(), pa.int64(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view(),
        pa.binary_view(), pa.binary(5), pa.date32(), pa.date64(), pa.time32("s"),
        pa.time32("ms"), pa.time64("us"), pa.time64("ns"), pa.timestamp("s"),
        pa.timestamp("ms", "UTC"), pa.timestamp("us", "Europe/Berlin"),
        pa.timestamp("ns", "+05:30"), pa.duration("s"), pa.duration("ms"), pa.duration("us"),
        pa.duration("ns"), pa.decimal128(10, 2), pa.decimal128(5, -2), pa.decimal256(60, 3),
        pa.struct([]), STRUCT, pa.list_(pa.int8()), pa.large_list(pa.string()),
        pa.list_(STRUCT), pa.large_list(INNER), pa.list_(pa.list_(pa.list_(pa.int8()))),
        pa.list_(pa.float32(), 4), pa.list_(pa.list_(pa.int8(), 2), 3), pa.list_(STRUCT, 2),
        pa.list_(INNER, 2), pa.list_(pa.bool_(), 8), pa.list_(pa.binary(3), 2),
        pa.list_(pa.timestamp("us"), 2), pa.list_(pa.string(), 2), pa.list_(pa.decimal128(5, 2), 2),
        pa.list_(pa.list_(pa.float32(), 4)), pa.list_(pa.list_(STRUCT, 2)),
        pa.list_(pa.dictionary(pa.int8(), pa.string()), 2),
        pa.dictionary(pa.int8(), pa.string()), pa.dictionary(pa.uint16(), pa.large_string()),
        pa.dictionary(pa.int64(), pa.int32()), pa.dictionary(pa.uint8(), pa.bool_()),
        pa.map_(pa.string(), pa.int32()), pa.list_(pa.map_(pa.string(), STRUCT)),
        pa.map_(pa.field("kk", pa.string(), nullable=False), pa.field("vv", pa.int8(), False)),
        pa.json_(), pa.list_(pa.json_()), pa.json_(pa.large_string()), pa.uuid(), pa.bool8(),
        pa.fixed_shape_tensor(pa.float32(), [2, 3]), pa.opaque(pa.binary(), "a", "b"),
        pa.list_(pa.uuid()), pa.struct([pa.field("j", pa.json_(), metadata={"z": "y"})]),
    )},
    "unregistered": pa.field("x", pa.string(), metadata={NAME: "a.b", META: "zz"}),
    "json by metadata": pa.field("x", pa.string(), metadata={NAME: "arrow.json", "k": "v"}),
    "stored json": pa.field("x", pa.large_binary(), metadata={NAME: "lance.json", "k": "v"}),
    "json name on text": pa.field("x", pa.string(), metadata={NAME: "lance.json"}),
    "json view": pa.json_(pa.string_view()),
    "packed": pa.field("x", STRUCT, metadata={"lance-encoding:packed": "true"}),
    "blob": pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true", "a": "b"}),
    "blob of text": pa.field("x", pa.string(), metadata={"lance-encoding:blob": "true"}),
    "blob by its key": pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "false"}),
    "nested blob": pa.struct([
        pa.field("x", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    ]),
    "blob v2": lance.blob_field("x"),
    **{f"key {index}": pa.field("x", pa.int64(), nullable=False, metadata=metadata)
       for index, metadata in enumerate((
           {"lance-schema:unenforced-primary-key": "true"},
           {"lance-schema:unenforced-primary-key": "YES",
            "lance-schema:unenforced-primary-key:position": "3"},
           {"lance-schema:unenforced-primary-key": "no"},
           {"lance-schema:unenforced-primary-key:position": "1"},
           {"lance-schema:unenforced-primary-key:position": "0"},
           {"lance-schema:unenforced-primary-key:position": "x"},
           {"lance-schema:unenforced-clustering-key": "true"},
           {"lance-schema:unenforced-clustering-key:position": "2"},
       ))},
}  # fmt: skip

REFUSED = {
    str(t): t
    for t in (
        pa.month_day_nano_interval(), pa.decimal32(5, 2), pa.list_view(pa.int8()),
        pa.run_end_encoded(pa.int32(), pa.int8()),
        pa.map_(pa.string(), pa.int8(), keys_sorted=True),
        pa.dictionary(pa.int8(), pa.timestamp("us")), pa.dictionary(pa.int8(), pa.binary(3)),
        pa.dictionary(pa.int8(), STRUCT), pa.list_(pa.list_(pa.int8()), 2),
        pa.list_(pa.map_(pa.string(), pa.int8()), 2), pa.list_(pa.list_(STRUCT, 2), 3),
    )
} | {
    "nullable key": pa.field("x", pa.int64(), metadata={
        "lance-schema:unenforced-primary-key": "1"}),
    "key in a list": pa.field("x", pa.list_(pa.field("item", pa.int8(), nullable=False, metadata={
        "lance-schema:unenforced-primary-key": "1"})), nullable=False),
    "key that is a struct": pa.field("x", pa.struct([pa.field("a", pa.int8(), nullable=False)]),
        nullable=False, metadata={"lance-schema:unenforced-primary-key": "1"}),
    "dotted": pa.field("a.b", pa.int8()),
}  # fmt: skip


def field_of(kind: pa.DataType | pa.Field) -> pa.Field:
    return kind if isinstance(kind, pa.Field) else pa.field("x", kind)


def write_empty(schema: pa.Schema, folder: Path) -> Path:
    reader = pa.RecordBatchReader.from_batches(schema, [])
    lance.write_dataset(reader, folder, data_storage_version="2.2")
    return next((folder / "_versions").glob("*.manifest"))


def stored_fields(manifest: Path) -> list[file_pb.Field]:
    """Read the fields of a manifest through the one message type that holds just them."""
    data = manifest.read_bytes()
    (position,) = struct.unpack("<Q", data[-16:-8])
    return list(file_pb.Schema.FromString(data[position + 4 : -16]).fields)


@pytest.mark.parametrize("name", TYPES)
def test_a_type_is_read_and_written_as_the_reference_does(name: str, tmp_path: Path) -> None:
    arrow = pa.schema([pa.field("first", pa.int8()), field_of(TYPES[name])], {"m": "n"})
    theirs = stored_fields(write_empty(arrow, tmp_path / "t"))
    schema = Schema.from_protos(theirs, {"m": b"n"})
    assert schema.to_protos() == theirs
    assert schema.to_arrow().equals(lance.dataset(tmp_path / "t").schema, check_metadata=True)
    assert Schema.from_arrow(arrow, blob_v2=True).to_protos() == theirs


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_is_rejected_as_the_reference_does(name: str, tmp_path: Path) -> None:
    arrow = pa.schema([field_of(REFUSED[name])])
    with pytest.raises(OSError, match="LanceError"):
        write_empty(arrow, tmp_path / "t")
    with pytest.raises(LanceletError):
        Schema.from_arrow(arrow)
