"""Files of version 0.1 round trip, by the rules of a format without nulls."""

import contextlib
import itertools
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import (
    CorruptDataError,
    FieldNotFoundError,
    InvalidInputError,
    LanceletError,
    UnsupportedError,
)
from lancelet.file.open import StoredFields, open_data_file
from lancelet.file.v0_1 import LegacyFileWriter, LegacyWriterOptions, create_file
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore

PATH = "data/a.lance"


def write(table, *, schema=None, **options):
    store = MemoryStore()
    schema = schema or Schema.from_arrow(table.schema)
    writer = create_file(store, PATH, schema, LegacyWriterOptions(**options))
    writer.write(table)
    summary = writer.finish()
    assert summary.num_rows == table.num_rows
    assert summary.size_bytes == len(store.read(PATH))
    return store


def read(store, rows=None, **options):
    reader = open_data_file(store, PATH, **options)
    rows = RowRange(0, reader.num_rows) if rows is None else rows
    arrays = reader.read(reader.schema.fields, rows)
    for array in arrays:
        array.validate(full=True)
        assert len(array) == len(rows)
    return pa.table(arrays, names=reader.schema.names)


def metadata_of(data: bytes) -> tuple[int, file_pb.Metadata]:
    (position,) = struct.unpack("<q", data[-16:-8])
    (size,) = struct.unpack_from("<I", data, position)
    return position, file_pb.Metadata.FromString(data[position + 4 : position + 4 + size])


# --- round trips ------------------------------------------------------------------------------

LEAVES = {
    pa.int8(): (st.integers(-128, 127), 0),
    pa.uint64(): (st.integers(0, 2**64 - 1), 0),
    pa.float64(): (st.floats(allow_nan=False), 0.0),
    pa.bool_(): (st.booleans(), False),
    pa.string(): (st.text(min_size=1, max_size=6), None),
    pa.large_binary(): (st.binary(min_size=1, max_size=6), None),
    pa.binary(2): (st.binary(min_size=2, max_size=2), b"\0\0"),
    pa.decimal128(9, 1): (st.integers(0, 99).map(Decimal), Decimal(0)),
    pa.null(): (st.none(), None),
}


@st.composite
def columns(draw):
    """Draw a type, values to write, and the same values as the format must return them."""
    return draw(_columns(draw(st.integers(0, 2))))


@st.composite
def _columns(draw, depth):
    kind = draw(
        st.sampled_from(["leaf", "fixed", "list", "struct"] if depth else ["leaf", "fixed"])
    )
    count = draw(st.integers(0, 12))
    if kind == "leaf":
        data_type = draw(st.sampled_from(list(LEAVES)))
        values, zero = LEAVES[data_type]
        written = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        return data_type, written, [zero if value is None else value for value in written]
    if kind == "fixed":
        lists = st.lists(st.none() | st.booleans(), min_size=3, max_size=3)
        written = draw(st.lists(st.none() | lists, min_size=count, max_size=count))
        read_back = [[bool(item) for item in value or [None] * 3] for value in written]
        return pa.list_(pa.bool_(), 3), written, read_back
    data_type, written, read_back = draw(_columns(depth - 1))
    if kind == "struct":
        return (
            pa.struct([("f", data_type)]),
            [{"f": value} for value in written],
            [{"f": value} for value in read_back],
        )
    cuts = sorted(draw(st.lists(st.integers(0, len(written)), max_size=6)))
    edges = [0, *cuts, len(written)]
    lists = [(written[a:b], read_back[a:b]) for a, b in itertools.pairwise(edges)]
    nulls = draw(st.sets(st.integers(0, len(lists) - 1)))
    make = draw(st.sampled_from([pa.list_, pa.large_list]))
    return (
        make(data_type),
        [None if i in nulls else own for i, (own, _) in enumerate(lists)],
        [[] if i in nulls else back for i, (_, back) in enumerate(lists)],
    )


@given(column=columns(), rows_per_batch=st.integers(1, 9), data=st.data())
def test_values_come_back_and_nulls_by_the_rules(column, rows_per_batch, data) -> None:
    data_type, written, expected = column
    table = pa.table({"x": pa.array(written, data_type)})
    store = write(table, max_rows_per_group=rows_per_batch)
    assert read(store)["x"].to_pylist() == expected
    start = data.draw(st.integers(0, len(expected)))
    stop = data.draw(st.integers(start, len(expected)))
    assert read(store, RowRange(start, stop))["x"].to_pylist() == expected[start:stop]
    chosen = sorted(data.draw(st.sets(st.integers(0, max(0, len(expected) - 1)))))
    chosen = chosen if expected else []
    rows = RowIndices(np.array(chosen, np.int64))
    assert read(store, rows)["x"].to_pylist() == [expected[row] for row in chosen]


def test_an_empty_string_is_a_null_unless_the_field_has_none() -> None:
    schema = pa.schema([pa.field("a", pa.string()), pa.field("b", pa.string(), nullable=False)])
    table = pa.table({"a": ["", "x"], "b": ["", "x"]}, schema=schema)
    assert read(write(table)).to_pylist() == [{"a": None, "b": ""}, {"a": "x", "b": "x"}]


def test_bytes_under_nulls_do_not_reach_the_file() -> None:
    secret = pa.array([0x5EC2E75EC2E7], pa.int64())
    hidden = pa.Array.from_buffers(pa.int64(), 1, [pa.py_buffer(b"\0"), secret.buffers()[1]])
    store = write(pa.table({"x": hidden}))
    assert store.read(PATH)[:8] == bytes(8)


def test_batches_of_writes_do_not_show_in_the_file() -> None:
    table = pa.table({"x": range(10), "s": [str(i) for i in range(10)]})
    store = MemoryStore()
    schema = Schema.from_arrow(table.schema)
    writer = LegacyFileWriter(
        store.open_writer(PATH), schema, LegacyWriterOptions(max_rows_per_group=4)
    )
    for start in range(0, 10, 3):
        writer.write(table.slice(start, 3))
    writer.finish()
    assert store.read(PATH) == write(table, max_rows_per_group=4).read(PATH)
    assert metadata_of(store.read(PATH))[1].batch_offsets == [0, 4, 8, 10]


def test_a_file_without_rows_can_be_read() -> None:
    store = write(pa.table({"x": pa.array([], pa.int32()), "s": pa.array([], pa.string())}))
    assert read(store).num_rows == 0


def test_dictionaries_of_batches_become_one() -> None:
    batches = [
        pa.DictionaryArray.from_arrays(pa.array(keys, pa.int8()), pa.array(values))
        for keys, values in [([0, 1], ["r", "g"]), ([1, 0], ["r", "b"]), ([0, 2], ["b", "g", "x"])]
    ]
    schema = Schema.from_arrow(pa.schema([("d", batches[0].type)]))
    store = MemoryStore()
    writer = LegacyFileWriter(store.open_writer(PATH), schema)
    for batch in batches:
        writer.write(pa.record_batch([batch], ["d"]))
    writer.finish()
    assert writer.dictionaries[0].to_pylist() == ["r", "g", "b", "x"]
    assert read(store)["d"].to_pylist() == ["r", "g", "b", "r", "b", "x"]
    reader = open_data_file(store, PATH)
    assert reader.dictionary_values(reader.schema.fields[0]).equals(writer.dictionaries[0])


def test_a_second_file_continues_with_the_values_of_the_first() -> None:
    table = pa.table({"d": pa.array(["b", "a"]).dictionary_encode()})
    store = write(table, dictionaries={0: pa.array(["a", "z"])})
    assert read(store)["d"].to_pylist() == ["b", "a"]
    assert read(store)["d"].chunk(0).indices.to_pylist() == [2, 0]


def test_a_null_key_is_read_as_the_first_value() -> None:
    table = pa.table({"d": pa.array(["b", None]).dictionary_encode()})
    assert read(write(table))["d"].to_pylist() == ["b", "b"]


def test_a_dictionary_of_nulls_only_stays_null() -> None:
    table = pa.table({"d": pa.array([None, None], pa.string()).dictionary_encode()})
    assert read(write(table))["d"].to_pylist() == [None, None]


def test_a_dictionary_cannot_outgrow_its_keys() -> None:
    first = (
        pa.array([str(i) for i in range(100)])
        .dictionary_encode()
        .cast(pa.dictionary(pa.int8(), pa.string()))
    )
    second = pa.array([str(i) for i in range(100, 200)]).dictionary_encode().cast(first.type)
    schema = Schema.from_arrow(pa.schema([("d", first.type)]))
    writer = LegacyFileWriter(
        MemoryStore().open_writer(PATH), schema, LegacyWriterOptions(max_rows_per_group=100)
    )
    writer.write(pa.table({"d": first}))
    with pytest.raises(UnsupportedError, match="exceeds the range of its keys"):
        writer.write(pa.table({"d": second}))


# --- files of tables --------------------------------------------------------------------------


def test_batches_can_be_those_of_another_file() -> None:
    table = pa.table({"x": range(7)})
    store = write(table, batch_lengths=[3, 1, 3])
    assert open_data_file(store, PATH).batch_lengths.tolist() == [3, 1, 3]
    assert read(store)["x"].to_pylist() == list(range(7))
    with pytest.raises(InvalidInputError, match="more rows"):
        write(table, batch_lengths=[3, 1])


def test_the_page_table_of_an_added_column_begins_with_its_id() -> None:
    arrow = pa.schema([("s", pa.struct([("a", pa.int8())])), ("t", pa.string())])
    schema = Schema.from_arrow(arrow, first_id=9)
    table = pa.table({"s": [{"a": 1}, {"a": 2}], "t": ["x", "yz"]}, schema=arrow)
    store = write(table, schema=schema)
    data = store.read(PATH)
    _, metadata = metadata_of(data)
    cells = np.frombuffer(data, "<i8", 6, metadata.page_table_position)
    # Ids 9 (a struct, without pages), 10 and 11.
    assert cells.tolist() == [0, 0, 0, 2, 5, 2]
    assert read(store).equals(table)
    assert open_data_file(store, PATH).field_ids == (9, 10, 11)
    assert create_file(store, PATH, schema).placement == {9: 0, 10: 1, 11: 2}


def test_a_table_may_know_the_fields_under_other_names() -> None:
    store = write(pa.table({"x": [1, 2], "y": [3, 4]}))
    renamed = Schema.from_arrow(pa.schema([("p", pa.int64()), ("q", pa.int64())]))
    stored = StoredFields(renamed, {0: 0, 1: 1})
    reader = open_data_file(store, PATH, stored=stored)
    (q,) = reader.read([reader.schema.fields[1]], RowRange(0, 2))
    assert q.to_pylist() == [3, 4]


def test_ids_that_were_dropped_leave_the_table_where_it_is() -> None:
    store = write(pa.table({"x": [1, 2], "y": [3, 4]}))
    stored = StoredFields(
        Schema.from_arrow(pa.schema([("y", pa.int64())]), first_id=1), {-2: 0, 1: 1}
    )
    reader = open_data_file(store, PATH, stored=stored)
    assert reader.read(reader.schema.fields, RowRange(0, 2))[0].to_pylist() == [3, 4]


def test_a_field_that_the_file_lacks_is_not_found() -> None:
    store = write(pa.table({"x": [1, 2]}))
    other = Schema.from_arrow(pa.schema([("z", pa.int64())]), first_id=4)
    reader = open_data_file(store, PATH)
    with pytest.raises(FieldNotFoundError, match="field='z'"):
        reader.read(other.fields, RowRange(0, 2))


class RefusingStore(MemoryStore):
    def open_writer(self, path):
        raise AssertionError(path)


@pytest.mark.parametrize(
    ("data_type", "column"),
    [
        (pa.map_(pa.string(), pa.int8()), "x"),
        (pa.list_(pa.struct([("a", pa.int8())]), 1), "x"),
        (pa.list_(pa.string(), 1), "x"),
        (pa.struct([("e", pa.struct([]))]), "x.e"),
        (pa.dictionary(pa.int8(), pa.bool_()), "x"),
    ],
)
def test_input_that_cannot_be_stored_is_rejected_before_a_byte(data_type, column) -> None:
    schema = Schema.from_arrow(pa.schema([("x", data_type)]))
    with pytest.raises(UnsupportedError, match=f"column='{column}'"):
        create_file(RefusingStore(), PATH, schema)


# --- layout and damage ------------------------------------------------------------------------


def test_the_bytes_of_a_small_file_are_those_of_the_format() -> None:
    table = pa.table({"i": pa.array([1, None], pa.int16()), "s": ["ab", None], "b": [True, True]})
    data = write(table, statistics=False).read(PATH)
    edges = struct.pack("<3q", 4, 6, 6)
    page_table = struct.pack("<6q", 0, 2, 6, 2, 30, 2)
    assert data[: 31 + 48] == b"\1\0\0\0" + b"ab" + edges + b"\3" + page_table
    position, metadata = metadata_of(data)
    assert metadata.page_table_position == 31
    assert list(metadata.batch_offsets) == [0, 2]
    assert not metadata.HasField("statistics")
    assert data[-16:] == struct.pack("<qHH4s", position, 0, 2, b"LANC")
    assert FileVersion.from_numbers(0, 2) is FileVersion.V0_1


SAMPLE = pa.table(
    {
        "i": pa.array([1, None, 3, 4, 5], pa.int32()),
        "b": [True, False, None, True, True],
        "s": ["ab", None, "", "xyz", "q"],
        "l": pa.array([[1], None, [2, 3], [], [4]], pa.list_(pa.int8())),
        "ls": [["a"], [], ["bc", "d"], None, ["e"]],
        "st": [{"f": 1.0, "g": "x"}] * 5,
        "d": pa.array(["x", "y", "x", None, "z"]).dictionary_encode(),
        "v": pa.array([[1.0, 2.0]] * 5, pa.list_(pa.float32(), 2)),
    }
)
SAMPLE_BYTES = write(SAMPLE, max_rows_per_group=2).read(PATH)


def read_everything(data: bytes) -> None:
    store = MemoryStore()
    store.put(PATH, data)
    reader = open_data_file(store, PATH)
    for field in reader.schema.fields:
        for rows in (RowRange(0, reader.num_rows), RowIndices(np.array([0, 3]))):
            (array,) = reader.read([field], rows)
            array.validate(full=True)
            assert len(array) == len(rows)
        reader.zone_statistics(field)


@given(
    position=st.integers(0, len(SAMPLE_BYTES) - 1),
    value=st.integers(0, 255),
    width=st.sampled_from([1, 4, 8]),
)
def test_damage_is_an_error_or_sound_arrays(position, value, width) -> None:
    damaged = bytearray(SAMPLE_BYTES)
    damaged[position : position + width] = bytes([value]) * min(width, len(damaged) - position)
    with contextlib.suppress(LanceletError):
        read_everything(bytes(damaged))


@given(st.integers(0, len(SAMPLE_BYTES) - 1))
def test_a_file_that_was_cut_short_is_corrupt(size) -> None:
    with pytest.raises(LanceletError):
        read_everything(SAMPLE_BYTES[:size])


def page_cell(field_id: int, batch: int, *, num_batches: int) -> int:
    _, metadata = metadata_of(SAMPLE_BYTES)
    return metadata.page_table_position + 16 * (field_id * num_batches + batch)


@pytest.mark.parametrize("field_id", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("position", [-1, 2**40, 2**63 - 1])
def test_pages_outside_of_the_file_are_corrupt(field_id, position) -> None:
    damaged = bytearray(SAMPLE_BYTES)
    struct.pack_into("<q", damaged, page_cell(field_id, 1, num_batches=3), position)
    with pytest.raises(CorruptDataError, match="exceeds the file"):
        read_everything(bytes(damaged))


@pytest.mark.parametrize("length", [-1, 1, 3, 2**40, 2**63 - 1])
def test_pages_have_the_rows_of_their_batch(length) -> None:
    damaged = bytearray(SAMPLE_BYTES)
    struct.pack_into("<q", damaged, page_cell(0, 0, num_batches=3) + 8, length)
    with pytest.raises(CorruptDataError):
        read_everything(bytes(damaged))


@pytest.mark.parametrize("extremes", [(2**62, -(2**62) - 1), (2**63 - 1, -(2**63))])
def test_offsets_whose_differences_wrap_around_are_corrupt(extremes) -> None:
    """A decrease of more than 63 bits overflows to an increase when subtracted."""
    store = write(pa.table({"s": [f"text {row}" for row in range(20)]}))
    whole = bytearray(store.read(PATH))
    (first, *_, last) = (whole.index(b"text 0"), whole.rindex(b"text 19") + len(b"text 19"))
    position = whole.index(struct.pack("<qq", first, first + len(b"text 0")))
    assert struct.unpack_from("<q", whole, position + 20 * 8) == (last,)
    struct.pack_into("<qq", whole, position + 8 * 9, *extremes)
    with pytest.raises(CorruptDataError, match="ascend"):
        read_everything(bytes(whole))
