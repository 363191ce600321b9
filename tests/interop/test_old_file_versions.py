"""Goal: files of versions 0.1 and 2.0 are read alike by the reference and by us, whoever wrote.

Method: one column of each type, in several batches and with nulls. 2.0 files are read directly;
the reference reads 0.1 files only as part of a dataset, so ours takes the place of its own there.
What it writes in version 0.1 is also compared byte by byte: pages, page table and statistics.
"""

import shutil
import struct
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v0_1 import LegacyFileWriter, LegacyWriterOptions
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore

pytestmark = pytest.mark.interop

ROWS = 300
BATCH = 64


def some(values, data_type=None, *, every=5):
    """Return values with a null in every few places."""
    return pa.array(
        [None if i % every == 3 else value for i, value in enumerate(values)], data_type
    )


def texts(count, *, distinct=10**6):
    return [("ab€ü" * 40)[: i * 7 % 90] + str(i % distinct) for i in range(count)]


def lists(items, data_type):
    edges = np.cumsum([0, *(i % 4 for i in range(ROWS))])
    parts = [items[a:b] for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    return some(parts, data_type)


COLUMNS = {
    "int64": pa.array(range(ROWS)),
    "int8": some([i % 100 - 50 for i in range(ROWS)], pa.int8()),
    "uint32": some(range(ROWS), pa.uint32()),
    "bool": some([i % 3 == 0 for i in range(ROWS)]),
    "float16": pa.array(np.arange(ROWS, dtype=np.float16)),
    "float32": some([float("nan") if i % 7 == 0 else i / 3 for i in range(ROWS)], pa.float32()),
    "zeros": pa.array([0.0, -0.0] * (ROWS // 2)),
    "string": some(texts(ROWS)),
    "large_string": some(texts(ROWS), pa.large_string()),
    "binary": some([text.encode() for text in texts(ROWS)]),
    "long_binary": some([b"\xff" * (i % 70) for i in range(ROWS)], pa.large_binary()),
    "repeating": some(texts(ROWS, distinct=1), every=11),
    "fixed_binary": some([bytes([i % 256] * 3) for i in range(ROWS)], pa.binary(3)),
    "decimal128": some(range(ROWS)).cast(pa.decimal128(30, 2)),
    "decimal256": some(range(ROWS)).cast(pa.decimal256(60, 2)),
    "date32": some(range(ROWS), pa.date32()),
    "date64": some([i * 86_400_000 for i in range(ROWS)], pa.date64()),
    "timestamp": some(range(0, 1000 * ROWS, 1000), pa.timestamp("ns", "+05:30")),
    "time64": some(range(ROWS), pa.time64("us")),
    "duration": some(range(ROWS), pa.duration("ms")),
    "null": pa.nulls(ROWS),
    "null_strings": pa.nulls(ROWS, pa.string()),
    "null_numbers": pa.nulls(ROWS, pa.int32()),
    "list": lists(list(range(2 * ROWS)), pa.list_(pa.int32())),
    "large_list": lists(texts(2 * ROWS), pa.large_list(pa.string())),
    "list_of_list": lists([[i, None] for i in range(2 * ROWS)], pa.list_(pa.list_(pa.int16()))),
    "empty_lists": pa.array([[]] * ROWS, pa.list_(pa.int16())),
    "struct": pa.array([{"a": i, "b": {"c": str(i)}} for i in range(ROWS)]),
    "list_of_struct": lists(
        [{"a": i, "b": "x" * (i % 3)} for i in range(2 * ROWS)],
        pa.list_(pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ),
    "vector": some([[i, i / 2] for i in range(ROWS)], pa.list_(pa.float32(), 2)),
    "nested_vector": pa.array([[[1, 2], [3, i % 9]] for i in range(ROWS)]).cast(
        pa.list_(pa.list_(pa.int8(), 2), 2)
    ),
    "bool_vector": pa.array([[i % 2 == 0] * 3 for i in range(ROWS)], pa.list_(pa.bool_(), 3)),
    "dictionary": some([f"v{i % 7}" for i in range(ROWS)]).dictionary_encode(),
    "number_dictionary": pa.array([i % 5 for i in range(ROWS)], pa.int16()).dictionary_encode(),
}


def whole(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def check_all_ways(reader, expected: pa.Array) -> None:
    """Compare all rows, a range across batches, and single rows."""
    fields, count = reader.schema.fields, len(expected)
    rows = np.array([0, 1, 63, 64, 200, count - 1])
    for read, wanted in (
        (reader.read(fields, RowRange(0, count)), expected),
        (reader.read(fields, RowRange(60, 210)), expected.slice(60, 150)),
        (reader.read(fields, RowIndices(rows)), expected.take(pa.array(rows))),
    ):
        (array,) = read
        array.validate(full=True)
        assert array.type == wanted.type
        # Text, since NaN is not equal to itself.
        assert str(array.to_pylist()) == str(wanted.to_pylist())


def write_2_0(store: LocalStore, path: str, table: pa.Table, **options):
    schema = Schema.from_arrow(table.schema)
    writer = create_data_file(
        store, path, schema, WriterOptions(version=FileVersion.V2_0, **options)
    )
    writer.write(table)
    writer.finish()
    return writer


@pytest.mark.parametrize("name", COLUMNS)
def test_version_2_0_goes_both_ways(tmp_path: Path, name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    store = LocalStore(tmp_path)
    with LanceFileWriter(str(tmp_path / "theirs.lance"), table.schema, version="2.0") as writer:
        for start in range(0, ROWS, BATCH):
            # Slices of structs make the reference panic, so these are copies.
            stop = min(start + BATCH, ROWS)
            writer.write_batch(table.take(pa.array(range(start, stop))))
    theirs = LanceFileReader(str(tmp_path / "theirs.lance")).read_all().to_table()
    check_all_ways(open_data_file(store, "theirs.lance"), whole(theirs[name]))
    write_2_0(store, "ours.lance", table)
    check_all_ways(open_data_file(store, "ours.lance"), COLUMNS[name])
    read = LanceFileReader(str(tmp_path / "ours.lance"))
    assert str(read.read_all().to_table()[name].to_pylist()) == str(table[name].to_pylist())
    taken = read.take_rows([0, 100, 299]).to_table()[name]
    assert str(taken.to_pylist()) == str(table[name].take([0, 100, 299]).to_pylist())


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_of_many_small_pages_are_read_by_the_reference(tmp_path: Path, name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    write_2_0(LocalStore(tmp_path), "ours.lance", table, max_page_bytes=100)
    check_all_ways(open_data_file(LocalStore(tmp_path), "ours.lance"), COLUMNS[name])
    read = LanceFileReader(str(tmp_path / "ours.lance"))
    assert str(read.read_all().to_table()[name].to_pylist()) == str(table[name].to_pylist())
    taken = read.take_rows([0, 100, 299]).to_table()[name]
    assert str(taken.to_pylist()) == str(table[name].take([0, 100, 299]).to_pylist())


STRUCT = pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])


@pytest.mark.parametrize(
    "data_type",
    [
        pa.int8(),
        pa.list_(pa.list_(pa.int8())),
        STRUCT,
        pa.list_(STRUCT),
        pa.list_(pa.list_(STRUCT)),
    ],
    ids=str,
)
@pytest.mark.parametrize("values", [[], [[]] * 3, [None] * 3, [[], None]], ids=str)
def test_columns_without_values_are_read_by_the_reference(
    tmp_path: Path, data_type: pa.DataType, values: list
) -> None:
    if values and not pa.types.is_list(data_type):
        values = [None] * 3 if data_type == pa.int8() else [{"a": None, "l": None}]
    table = pa.table({"x": pa.array(values, data_type)})
    write_2_0(LocalStore(tmp_path), "ours.lance", table)
    read = LanceFileReader(str(tmp_path / "ours.lance")).read_all().to_table()
    assert read["x"].to_pylist() == values
    reader = open_data_file(LocalStore(tmp_path), "ours.lance")
    assert reader.read(reader.schema.fields, RowRange(0, len(values)))[0].to_pylist() == values


ASKED = {
    "zstd": (pa.string(), {"lance-encoding:compression": "zstd"}),
    "lz4": (pa.binary(), {"lance-encoding:compression": "lz4"}),
    "fsst": (pa.string(), {"lance-encoding:compression": "fsst"}),
    "blob": (pa.large_binary(), {"lance-encoding:blob": "true"}),
}


@pytest.mark.parametrize("name", ASKED)
def test_encoding_options_of_fields_work_in_version_2_0(tmp_path: Path, name: str) -> None:
    data_type, metadata = ASKED[name]
    array = some(texts(ROWS)).cast(data_type)
    table = pa.table([array], pa.schema([pa.field(name, data_type, metadata=metadata)]))
    with LanceFileWriter(str(tmp_path / "theirs.lance"), table.schema, version="2.0") as writer:
        writer.write_batch(table)
    store = LocalStore(tmp_path)
    check_all_ways(open_data_file(store, "theirs.lance"), array)
    writer = write_2_0(store, "ours.lance", table)
    kind = {"blob": "packed_struct"}.get(name, name)
    assert all(kind in choice.encoding for choice in writer.encoding_report())
    read = LanceFileReader(str(tmp_path / "ours.lance")).read_all().to_table()
    assert read[name].to_pylist() == array.to_pylist()


def test_packed_structs_of_version_2_0_go_both_ways(tmp_path: Path) -> None:
    kind = pa.struct([("x", pa.int32()), ("v", pa.list_(pa.float32(), 2)), ("z", pa.uint8())])
    field = pa.field("p", kind, metadata={"packed": "true"})
    array = pa.array([{"x": i, "v": [i, 1], "z": i % 200} for i in range(ROWS)], kind)
    table = pa.table([array], pa.schema([field]))
    with LanceFileWriter(str(tmp_path / "theirs.lance"), table.schema, version="2.0") as writer:
        writer.write_batch(table)
    store = LocalStore(tmp_path)
    check_all_ways(open_data_file(store, "theirs.lance"), array)
    write_2_0(store, "ours.lance", table)
    read = LanceFileReader(str(tmp_path / "ours.lance")).read_all().to_table()
    assert read["p"].to_pylist() == array.to_pylist()


@pytest.mark.parametrize("name", COLUMNS)
def test_version_0_1_goes_both_ways_and_is_byte_for_byte_alike(tmp_path: Path, name: str) -> None:
    table = pa.table({name: COLUMNS[name]})
    lance.write_dataset(table, tmp_path / "d", data_storage_version="0.1", max_rows_per_group=BATCH)
    (file,) = (tmp_path / "d" / "data").iterdir()
    expected = whole(lance.dataset(tmp_path / "d").to_table()[name])
    store = LocalStore(tmp_path)
    check_all_ways(open_data_file(store, f"d/data/{file.name}"), expected)
    writer = LegacyFileWriter(
        store.open_writer("ours.lance"),
        Schema.from_arrow(table.schema),
        LegacyWriterOptions(max_rows_per_group=BATCH),
    )
    writer.write(table)
    writer.finish()
    theirs, ours = file.read_bytes(), (tmp_path / "ours.lance").read_bytes()
    described = manifest_position(theirs)
    assert ours[:described] == theirs[:described]
    shutil.copy(tmp_path / "ours.lance", file)
    replaced = lance.dataset(tmp_path / "d").to_table()[name]
    assert str(replaced.to_pylist()) == str(expected.to_pylist())


def manifest_position(data: bytes) -> int:
    """Return where the pages, tables, statistics and dictionaries of a 0.1 file end."""
    (position,) = struct.unpack("<q", data[-16:-8])
    (size,) = struct.unpack_from("<I", data, position)
    return file_pb.Metadata.FromString(data[position + 4 : position + 4 + size]).manifest_position


def test_columns_that_were_added_in_version_0_1_are_read(tmp_path: Path) -> None:
    table = pa.table({"i": range(150), "s": [str(i) for i in range(150)]})
    lance.write_dataset(table, tmp_path, data_storage_version="0.1", max_rows_per_group=BATCH)
    dataset = lance.dataset(tmp_path)
    dataset.add_columns({"j": "i + 1"})
    (fragment,) = lance.dataset(tmp_path).get_fragments()
    first, second = fragment.data_files()
    store = LocalStore(tmp_path)
    old = open_data_file(store, f"data/{first.path}")
    new = open_data_file(store, f"data/{second.path}")
    assert new.field_ids == tuple(second.fields) == (2,)
    assert new.batch_lengths.tolist() == old.batch_lengths.tolist() == [64, 64, 22]
    assert new.read(new.schema.fields, RowRange(0, 150))[0].to_pylist() == list(range(1, 151))
    # The same column by us, with the batches of the first file.
    writer = LegacyFileWriter(
        store.open_writer("ours.lance"),
        new.schema,
        LegacyWriterOptions(batch_lengths=old.batch_lengths.tolist()),
    )
    writer.write(pa.table({"j": range(1, 151)}))
    writer.finish()
    shutil.copy(tmp_path / "ours.lance", tmp_path / "data" / second.path)
    assert lance.dataset(tmp_path).to_table()["j"].to_pylist() == list(range(1, 151))
