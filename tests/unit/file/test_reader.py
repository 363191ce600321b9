"""Reading 2.x files: rows by range and by index, few requests, and damage that is refused.

Files are written by this library into memory. `remote` is a store that copies ranges and counts
requests, which determine the cost of remote reads.
"""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import (
    CorruptDataError,
    FieldNotFoundError,
    InvalidInputError,
    LanceletError,
    MemoryLimitError,
    ObjectNotFoundError,
)
from lancelet.file.open import StoredFields, create_data_file, open_data_file
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.memory import MemoryStore
from tests.kit.strategies import assert_same_rows, stored_table, tables

VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2]
ROWS = 50_000


def nested_table(rows=ROWS):
    rng = np.random.default_rng(3)
    numbers = pa.array(rng.integers(0, 1 << 50, rows))
    words = pa.array([f"word {value}" for value in rng.integers(0, 10**6, rows)])
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * 2)
    lists = pa.ListArray.from_arrays(offsets, pa.array(rng.integers(0, 9, 2 * rows)))
    structs = pa.StructArray.from_arrays([numbers, words, lists], ["n", "w", "l"])
    return pa.table({"number": numbers, "word": words, "list": lists, "struct": structs})


@pytest.fixture(scope="module", params=VERSIONS)
def file(request):
    """A file in a store that is mapped, and the table that is in it."""
    store = MemoryStore(f"reader-{request.param.value}")
    table = nested_table()
    schema = Schema.from_arrow(table.schema)
    writer = create_data_file(store, "f.lance", schema, WriterOptions(version=request.param))
    writer.write(table)
    writer.finish()
    return store, table


def as_table(reader, fields, arrays):
    return pa.Table.from_arrays(arrays, schema=pa.schema([field.to_arrow() for field in fields]))


def test_ranges_are_slices_of_the_whole(file):
    store, table = file
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields
    assert (reader.num_rows, reader.path) == (ROWS, "f.lance")
    for start, stop in [(0, ROWS), (0, 0), (ROWS, ROWS), (1, 2), (4095, 4097), (20_000, 49_999)]:
        found = as_table(reader, fields, reader.read(fields, RowRange(start, stop)))
        assert found.equals(table.slice(start, stop - start))


@given(rows=st.lists(st.integers(0, ROWS - 1), max_size=40))
@settings(max_examples=15)
def test_rows_by_index_are_takes_of_the_whole(file, rows):
    store, table = file
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields
    indices = np.array(rows, np.int64)
    found = as_table(reader, fields, reader.read(fields, RowIndices(indices)))
    assert found.equals(table.take(pa.array(indices)))


def test_many_rows_by_index_are_read_in_tasks_and_come_in_order(file):
    store, table = file
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields
    indices = np.random.default_rng(5).integers(0, ROWS, 60_000)
    found = as_table(reader, fields, reader.read_chunks(fields, RowIndices(indices)))
    assert found.equals(table.take(pa.array(indices)))


@pytest.mark.parametrize("batch_size", [1, 1000, 4096, 33_333, 10**6, None])
def test_batches_hold_all_rows_in_order(file, batch_size):
    store, table = file
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields[:2]
    rows = RowRange(17, 2017 if batch_size == 1 else ROWS)
    batches = list(reader.iter_batches(fields, rows, batch_size))
    expected = table.select([0, 1]).slice(17, len(rows))
    assert pa.Table.from_batches(batches).equals(expected)
    if batch_size is not None:
        assert {batch.num_rows for batch in batches[:-1]} <= {batch_size}
        assert batches[-1].num_rows <= batch_size


@pytest.mark.parametrize("batch_size", [3, None])
def test_batches_of_rows_by_index_keep_the_order_requested(file, batch_size):
    store, table = file
    reader = open_data_file(store, "f.lance")
    indices = np.array([7, 3, 7, 49_999, 0, 3, 1])
    batches = list(reader.iter_batches(reader.schema.fields, RowIndices(indices), batch_size))
    assert pa.Table.from_batches(batches).equals(table.take(pa.array(indices)))
    if batch_size:
        assert [batch.num_rows for batch in batches] == [3, 3, 1]


def test_nested_leaves_are_read_alone(file):
    store, table = file
    reader = open_data_file(store, "f.lance")
    for path in ("struct.n", "struct.w", "struct.l"):
        (field,) = reader.schema.project([path]).fields
        (found,) = reader.read([field], RowRange(10, 500))
        name = path.split(".")[1]
        assert found.type.num_fields == 1
        whole = pa.concat_arrays(table["struct"].chunks)
        assert found.field(name).equals(whole.field(name)[10:500])


@pytest.mark.parametrize(
    "rows",
    [
        RowRange(0, ROWS + 1),
        RowRange(-1, 3),
        RowRange(5, 4),
        RowIndices(np.array([ROWS])),
        RowIndices(np.array([3, -1])),
    ],
)
def test_rows_outside_of_the_file_are_rejected(file, rows):
    store, _ = file
    reader = open_data_file(store, "f.lance")
    for read in (reader.read, reader.encoded_bytes):
        with pytest.raises(InvalidInputError) as caught:
            read(reader.schema.fields, rows)
        assert caught.value.facts["num_rows"] == ROWS
    with pytest.raises(InvalidInputError):
        list(reader.iter_batches(reader.schema.fields, rows))


def test_reading_no_field_or_an_unknown_one_is_rejected(file):
    store, _ = file
    reader = open_data_file(store, "f.lance")
    with pytest.raises(InvalidInputError, match="at least one field"):
        reader.read([], RowRange(0, 1))
    (other,) = Schema.from_arrow(pa.schema([("other", pa.int8())]), first_id=99).fields
    with pytest.raises(FieldNotFoundError, match="no column of the field") as caught:
        reader.read([other], RowRange(0, 1))
    assert caught.value.facts["path"] == "f.lance"
    with pytest.raises(InvalidInputError, match="at least one row"):
        list(reader.iter_batches(reader.schema.fields, RowRange(0, 1), 0))


def test_encoded_bytes_grow_with_the_rows(file):
    store, _ = file
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields
    whole = reader.encoded_bytes(fields, RowRange(0, ROWS))
    assert 0 < reader.encoded_bytes(fields, RowRange(0, ROWS // 10)) < whole
    assert reader.encoded_bytes(fields, RowIndices(np.arange(10))) < whole
    assert whole <= store.size("f.lance")


def test_fixed_width_values_come_straight_from_a_map(store, write):
    vectors = np.random.default_rng(0).normal(size=(3000, 128)).astype(np.float32)
    values = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), 128)
    write(store, pa.table({"v": values}))
    data = np.frombuffer(store.read("f.lance"), np.uint8)
    reader = open_data_file(store, "f.lance")
    (found,) = reader.read_chunks(reader.schema.fields, RowRange(0, 3000))
    start, stop = data.ctypes.data, data.ctypes.data + data.nbytes
    for chunk in found.chunks:
        assert start <= chunk.flatten().buffers()[1].address < stop


# --- requests ---------------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_opening_is_one_request_when_the_size_is_known(remote, write, version):
    write(remote, nested_table(1000), version=version)
    remote.requests.clear()
    open_data_file(remote, "f.lance", size=remote.size("f.lance"))
    assert len(remote.requests) == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_a_small_file_is_read_by_the_request_that_opens_it(remote, write, version):
    table = nested_table(20)
    write(remote, table, version=version)
    remote.requests.clear()
    reader = open_data_file(remote, "f.lance", size=remote.size("f.lance"))
    fields = reader.schema.fields
    found = as_table(reader, fields, reader.read(fields, RowRange(0, 20)))
    assert found.equals(table)
    found = as_table(reader, fields, reader.read(fields, RowIndices(np.array([5, 19]))))
    assert found.equals(table.take([5, 19]))
    assert len(remote.requests) == 1


@pytest.mark.parametrize("version", VERSIONS[1:])
def test_values_cost_two_rounds_and_again_one(remote, write, version):
    table = nested_table(20_000)
    write(remote, table, version=version)
    reader = open_data_file(remote, "f.lance", size=remote.size("f.lance"))
    fields = reader.schema.fields
    for rows in (RowRange(100, 200), RowIndices(np.array([5, 19_999]))):
        remote.requests.clear()
        reader.read(fields, rows)
        assert len(remote.requests) <= 2, "all columns together: heads, then values"
        remote.requests.clear()
        reader.read(fields, rows)
        assert len(remote.requests) == 1, "heads are kept"


def test_opening_a_wide_file_reads_the_metadata_of_selected_columns_only(remote, write):
    names = [f"column_{index}_{'x' * 200}" for index in range(2000)]
    table = pa.table({name: pa.array([index]) for index, name in enumerate(names)})
    write(remote, table, version=FileVersion.V2_1)
    size = remote.size("f.lance")
    remote.requests.clear()
    stored = Schema.from_arrow(table.schema)
    reader = open_data_file(
        remote,
        "f.lance",
        size=size,
        stored=StoredFields(stored, {field.id: field.id for field in stored.fields}),
    )
    assert len(remote.requests) <= 3
    assert reader.read([stored.fields[1700]], RowRange(0, 1))[0].to_pylist() == [1700]


def test_the_table_maps_fields_to_columns(store, write):
    write(store, pa.table({"a": pa.array([1, 2]), "b": pa.array(["x", "y"])}))
    renamed = Schema.from_arrow(pa.schema([("new", pa.string())]), first_id=40)
    reader = open_data_file(store, "f.lance", stored=StoredFields(renamed, {40: 1}))
    assert reader.field_ids == (40,)
    assert reader.read(renamed.fields, RowRange(0, 2))[0].to_pylist() == ["x", "y"]
    wrong = open_data_file(store, "f.lance", stored=StoredFields(renamed, {40: 7}))
    with pytest.raises(CorruptDataError, match="exceeds the number of columns"):
        wrong.read(renamed.fields, RowRange(0, 2))


def test_a_missing_file_is_reported(store):
    with pytest.raises(ObjectNotFoundError):
        open_data_file(store, "none.lance")


# --- damage without checksums -----------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_cut_files_are_rejected(store, write, version):
    write(store, nested_table(100), version=version)
    data = store.read("f.lance")
    for kept in (0, 1, 7, 39, 40, 100, len(data) // 2, len(data) - 1):
        for part in (data[:kept], data[len(data) - kept :] if kept < len(data) - 1 else b""):
            store.put("f.lance", part)
            with pytest.raises(LanceletError) as caught:
                open_data_file(store, "f.lance")
            assert caught.value.facts["path"] == "f.lance"


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_metadata_are_rejected_or_harmless(store, write, version):
    """Without checksums a flipped bit may give wrong values, but never anything but our errors."""
    table = nested_table(500)
    write(store, table, version=version, checksums=False)
    data = store.read("f.lance")
    reader = open_data_file(store, "f.lance")
    start = int(reader.metadata.buffers.position[0])
    rng = np.random.default_rng(2)
    for place in rng.integers(start, len(data), 300).tolist():
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        store.put("f.lance", bytes(damaged))
        try:
            reader = open_data_file(store, "f.lance")
            rows = RowRange(0, min(reader.num_rows, 1000))
            for field in reader.schema.fields:
                reader.read([field], rows)
        except (LanceletError, pa.ArrowInvalid):
            continue


# --- generated tables -------------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_takes_and_ranges_of_any_table_agree_with_the_table(version, data):
    table = data.draw(tables(version, rows_max=1100))
    store = MemoryStore("generated")
    writer = create_data_file(
        store, "f.lance", Schema.from_arrow(table.schema), WriterOptions(version=version)
    )
    writer.write(table)
    writer.finish()
    expected = stored_table(table)
    reader = open_data_file(store, "f.lance")
    fields = reader.schema.fields
    start = data.draw(st.integers(0, table.num_rows))
    stop = data.draw(st.integers(start, table.num_rows))
    found = as_table(reader, fields, reader.read(fields, RowRange(start, stop)))
    assert_same_rows(found, expected.slice(start, stop - start))
    if table.num_rows:
        picks = data.draw(st.lists(st.integers(0, table.num_rows - 1), max_size=12))
        found = as_table(reader, fields, reader.read(fields, RowIndices(np.array(picks, np.int64))))
        rows = [expected.slice(pick, 1) for pick in picks]
        assert_same_rows(found, pa.concat_tables([expected.slice(0, 0), *rows]))


@pytest.mark.parametrize("version", [FileVersion.V2_1, FileVersion.V2_2])
def test_rows_that_memory_cannot_hold_are_read_in_batches_only(monkeypatch, version):
    """A page of one value is a few bytes however many rows it has."""
    store = MemoryStore(f"many-{version.value}")
    table = pa.table({"x": pa.nulls(1 << 20, pa.int32())})
    writer = create_data_file(
        store, "f.lance", Schema.from_arrow(table.schema), WriterOptions(version=version)
    )
    writer.write(table)
    writer.finish()
    reader = open_data_file(store, "f.lance")
    monkeypatch.setattr("lancelet.file.rows._CHECKED_BYTES_MIN", 1000)
    monkeypatch.setattr("lancelet.file.rows.machine_memory_bytes", lambda: 1 << 20)
    with pytest.raises(MemoryLimitError, match="read them in batches"):
        reader.read(reader.schema.fields, RowRange(0, reader.num_rows))
    first = next(reader.iter_batches(reader.schema.fields, RowRange(0, reader.num_rows), 100))
    assert first.num_rows == 100
    (last,) = reader.read(reader.schema.fields, RowRange(reader.num_rows - 3, reader.num_rows))
    assert last.null_count == 3
