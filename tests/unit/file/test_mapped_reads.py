"""A few rows of a mapped file are the same by the kernel for them and in the general way.

reader.read(fields, rows)     by the plans of columns, where they have some
general.read(fields, rows)    the same file, read without a map
"""

from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lancelet import kernels
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.errors import CorruptDataError, LanceletError
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.selection import OpenFields
from lancelet.file.v2.writer import WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.local import LocalStore
from lancelet.io.metered import IoMeter, metered
from tests.kit.strategies import assert_same_rows, tables

ROWS = 5000
MANY_ROWS = [
    np.arange(0, ROWS, 3),
    np.flatnonzero(np.random.default_rng(8).random(ROWS) < 0.6),
    np.flatnonzero(np.random.default_rng(9).random(ROWS) < 0.01),
]
RANGES = [(0, ROWS), (1, ROWS - 3), (1000, 2100), (4095, 4097)]
VERSIONS = [FileVersion.V2_0, FileVersion.V2_1, FileVersion.V2_2, FileVersion.V2_3]


def write_file(store, table, **options):
    options = WriterOptions(**options)
    schema = Schema.from_arrow(table.schema, blob_v2=options.version.value >= "2.2")
    writer = create_data_file(store, "f.lance", schema, options)
    writer.write(table)
    writer.finish()


@pytest.fixture
def local(tmp_path):
    return LocalStore(tmp_path, sync=False)


def open_general(store, **options):
    """Open the file without plans."""
    reader = open_data_file(store, "f.lance", **options)
    reader._opened = OpenFields()
    reader._planned = lambda fields: [None] * len(fields)
    return reader


def open_remote(store, **options):
    """Open the file so that plans read it by ranges."""
    reader = open_data_file(store, "f.lance", **options)
    reader._mapped = None
    return reader


def rows_of(reader, rows, names=None):
    fields = [field for field in reader.schema.fields if names is None or field.name in names]
    arrays = reader.read(fields, RowIndices(np.array(rows, np.int64)))
    for array in arrays:
        array.validate(full=True)
    return pa.Table.from_arrays(arrays, names=[field.name for field in fields])


def is_read_by_kernel(reader, rows):
    """Whether rows of all fields are; True without the kernel."""
    selection = reader._select(reader.schema.fields)
    rows = RowIndices(np.array(rows, np.int64))
    found = reader._read_planned(selection, rows, range(len(selection.units)))
    return not kernels.NATIVE or all(array is not None for array in found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("checksums", [True, False])
@settings(max_examples=12)
@given(data=st.data())
def test_rows_of_any_table_are_those_of_the_general_way(version, checksums, data, tmp_path_factory):
    table = data.draw(tables(version, rows_max=1300))
    store = LocalStore(tmp_path_factory.mktemp("few"), sync=False)
    cache = data.draw(st.sampled_from([None, 20_000]))
    write_file(store, table, version=version, checksums=checksums, data_cache_bytes=cache)
    if not table.num_rows:
        return
    reader, general = open_data_file(store, "f.lance"), open_general(store)
    remote = open_remote(store)
    picks = st.lists(st.integers(0, table.num_rows - 1), min_size=1, max_size=70)
    for _ in range(4):
        rows = data.draw(picks)
        expected = rows_of(general, rows)
        assert_same_rows(rows_of(reader, rows), expected)
        assert_same_rows(rows_of(remote, rows), expected)


@settings(max_examples=12)
@given(data=st.data())
def test_ranges_of_any_table_are_those_of_the_general_way(data, tmp_path_factory):
    version = data.draw(st.sampled_from(VERSIONS))
    table = data.draw(tables(version, rows_max=600))
    store = LocalStore(tmp_path_factory.mktemp("few"), sync=False)
    write_file(store, table, version=version)
    if not table.num_rows:
        return
    reader, general = open_data_file(store, "f.lance"), open_general(store)
    remote = open_remote(store)
    start = data.draw(st.integers(0, table.num_rows - 1))
    stop = data.draw(st.integers(start + 1, min(start + 300, table.num_rows)))
    expected = range_of(general, start, stop)
    for _ in range(4):
        assert_same_rows(range_of(reader, start, stop), expected)
        assert_same_rows(range_of(remote, start, stop), expected)


def range_of(reader, start, stop):
    batches = list(reader.iter_batches(reader.schema.fields, RowRange(start, stop)))
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches)


def texts(rng, count, size):
    letters = np.array(list("abcdefghij äöü"))
    return ["".join(letters[rng.integers(0, len(letters), size)]) for _ in range(count)]


@cache
def columns():
    """Return arrays by name, with the requested encoding, one of each kind."""
    rng = np.random.default_rng(11)
    words = np.array(texts(rng, 60, 12))
    numbers = rng.integers(0, 1000, ROWS)
    floats = rng.random((ROWS, 4)).astype(np.float32)
    long = texts(rng, 200, 300)
    return {
        "packed": (pa.array(numbers), {}),
        "narrow": (pa.array(numbers % 100, pa.uint8()), {}),
        "plain": (pa.array(rng.integers(-(2**62), 2**62, ROWS)), {"compression": "none"}),
        "runs": (pa.array(np.repeat(numbers[: ROWS // 50], 50)), {"rle-threshold": "0.9"}),
        "split": (pa.array(np.arange(ROWS) * 1.5), {"bss": "on", "compression": "lz4"}),
        "frames": (pa.array(rng.random(ROWS).round(1)), {"compression": "zstd"}),
        "bits": (pa.array(numbers % 3 == 0), {}),
        "wide": (pa.array([b"%016d" % number for number in numbers], pa.binary(16)), {}),
        "decimal": (pa.array(numbers).cast(pa.decimal128(25, 2)), {}),
        "items": (pa.array(words[numbers % 60]), {}),
        "few": (pa.array((numbers % 7) * 10**15), {"dict-divisor": "2"}),
        "text": (pa.array(texts(rng, ROWS, 10)), {"compression": "none"}),
        "codes": (pa.array(texts(rng, ROWS, 20)), {"compression": "fsst"}),
        "squeezed": (pa.array(texts(rng, ROWS, 20), pa.large_string()), {"compression": "zstd"}),
        "bytes": (pa.array([word.encode() for word in texts(rng, ROWS, 5)]), {}),
        "zipped": (
            pa.array([long[at % 200] for at in numbers]),
            {"structural-encoding": "fullzip"},
        ),
        "vector": (pa.FixedSizeListArray.from_arrays(pa.array(floats.reshape(-1)), 4), {}),
        "far": (
            pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(floats.reshape(-1), 32)), 128),
            {"structural-encoding": "fullzip"},
        ),
        "same": (pa.array(np.full(ROWS, 7)), {}),
        "same flag": (pa.array(np.ones(ROWS, np.bool_)), {}),
        "same text": (pa.array(["über"] * ROWS), {}),
        "same nothing": (pa.array([""] * ROWS, pa.large_string()), {}),
    }


def with_nulls(array, nulls):
    """Return an array with nulls whose levels are stored packed or as runs."""
    random = np.random.default_rng(5).random(len(array))
    mask = random < 0.3 if nulls == "many" else np.repeat(random[::500] < 0.3, 500)
    return array.take(pa.array(np.arange(len(array)), mask=mask))


@pytest.mark.parametrize("version", [FileVersion.V2_1, FileVersion.V2_2])
@pytest.mark.parametrize("nulls", [None, "many", "runs"])
@pytest.mark.parametrize("name", columns())
def test_common_encodings_are_read_by_the_kernel(local, write, version, nulls, name):
    array, wishes = columns()[name]
    array = with_nulls(array, nulls) if nulls else array
    metadata = {f"lance-encoding:{key}": value for key, value in wishes.items()}
    table = pa.table([array], pa.schema([pa.field(name, array.type, metadata=metadata)]))
    write(local, table, version=version)
    reader, remote = open_data_file(local, "f.lance"), open_remote(local)
    for rows in ([0], [ROWS - 1], [17, 17, 3, 4200, 4], list(range(900, 950)), *MANY_ROWS):
        assert is_read_by_kernel(reader, rows)
        expected = array.take(pa.array(rows))
        assert rows_of(reader, rows)[name].combine_chunks().equals(expected)
        assert rows_of(remote, rows)[name].combine_chunks().equals(expected)
    for start, stop in RANGES:
        assert range_of(reader, start, stop)[name].combine_chunks().equals(array[start:stop])
        assert range_of(remote, start, stop)[name].combine_chunks().equals(array[start:stop])


def nested_tables():
    """Return tables of lists and structs within each other, with nulls and empty lists of all."""
    rng = np.random.default_rng(7)

    def some(make, none=0.1):
        return [None if rng.random() < none else make(row) for row in range(ROWS)]

    def struct(row):
        return {"x": row if row % 7 else None, "s": f"text {row % 90}" if row % 5 else None}

    item = pa.struct([("x", pa.int64()), ("s", pa.string())])
    numbers = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.float32(), 3))])
    kinds = {
        "struct": (item, struct),
        "list": (pa.list_(pa.int32()), lambda row: [row + n for n in range(row % 4)]),
        "long": (
            pa.list_(pa.int64()),
            lambda row: list(range(3000 if row % 999 == 5 else row % 3)),
        ),
        "texts": (pa.large_list(pa.string()), lambda row: [f"{row} {n}" for n in range(row % 5)]),
        "structs": (pa.list_(item), lambda row: [struct(row + n) for n in range(row % 4)]),
        "deep": (
            pa.list_(pa.struct([("own", pa.list_(pa.bool_())), ("more", numbers)])),
            lambda row: [
                {"own": [True, None][: row % 3], "more": {"a": n, "b": [row, n, 0.5]}}
                for n in range(row % 3)
            ],
        ),
    }
    return {
        name: pa.table({name: pa.array(some(make), kind)}) for name, (kind, make) in kinds.items()
    }


NESTED = cache(nested_tables)


@pytest.mark.parametrize("version", [FileVersion.V2_1, FileVersion.V2_2])
@pytest.mark.parametrize("nulls", ["none", "some", "runs"])
@pytest.mark.parametrize("name", ["struct", "list", "long", "texts", "structs", "deep"])
def test_nested_columns_are_read_by_the_kernel(local, write, version, nulls, name):
    table = NESTED()[name]
    if nulls != "some":
        table = table.filter(table[name].is_valid())
    if nulls == "runs":
        places = np.arange(table.num_rows)
        table = table.take(pa.array(places, mask=places % 1000 < 300))
    write(local, table, version=version)
    reader, general = open_data_file(local, "f.lance"), open_general(local)
    last = table.num_rows - 1
    picks = ([0], [last], [17, 17, 3, 4200, 4], list(range(900, 950)), [5, 6, 1004, 5, 4])
    remote = open_remote(local)
    for rows in (*picks, *(each[each <= last] for each in MANY_ROWS)):
        assert is_read_by_kernel(reader, rows)
        found = rows_of(reader, rows)
        assert found.equals(table.take(rows).combine_chunks())
        assert found.equals(rows_of(general, rows))
        assert found.equals(rows_of(remote, rows))
    for start, end in RANGES:
        stop = min(end, last)
        expected = table.slice(start, stop - start).combine_chunks()
        assert range_of(reader, start, stop).combine_chunks().equals(expected)
        assert range_of(remote, start, stop).combine_chunks().equals(expected)


def test_rows_of_several_pages_are_read_by_the_kernel(local, write):
    table = pa.table({"x": np.arange(200_000) % 900, "s": [f"s{n}" for n in range(200_000)]})
    write(local, table, data_cache_bytes=100_000)
    reader = open_data_file(local, "f.lance")
    assert is_read_by_kernel(reader, [1, 2])
    far = [199_999, 5, 100_000]
    for _ in range(12):
        assert rows_of(reader, far).equals(table.take(far))
    assert is_read_by_kernel(reader, far)


def test_rows_in_no_order_of_compressed_chunks_are_read_by_the_kernel(local, write):
    """Read more chunks than are cached, with other columns in between."""
    rng = np.random.default_rng(2)
    count = 300_000
    metadata = {"lance-encoding:compression": "zstd"}
    arrays = {
        "a": pa.array(rng.random(count).round(3)),
        "b": pa.array([f"{n:09} {n % 977}" for n in range(count)]),
        "c": pa.array(rng.random(count).round(2), mask=rng.random(count) < 0.001),
    }
    fields = [pa.field(name, array.type, metadata=metadata) for name, array in arrays.items()]
    table = pa.table(list(arrays.values()), pa.schema(fields))
    write(local, table)
    reader = open_data_file(local, "f.lance")
    for rows in (rng.integers(0, count, 256), rng.integers(0, count, 80).repeat(3)):
        rng.shuffle(rows)
        assert is_read_by_kernel(reader, rows)
        assert rows_of(reader, rows).equals(table.take(rows).replace_schema_metadata())


def test_columns_that_the_kernel_does_not_know_come_in_their_place(local, write):
    table = pa.table(
        {
            "a": np.arange(ROWS),
            "list": [[n, n + 1] for n in range(ROWS)],
            "b": [f"b{n}" for n in range(ROWS)],
            "struct": [{"x": n} for n in range(ROWS)],
        }
    )
    write(local, table)
    reader = open_data_file(local, "f.lance")
    for _ in range(5):
        assert rows_of(reader, [9, 2]).equals(table.take([9, 2]))


def test_rows_outside_of_the_file_are_rejected_as_ever(local, write):
    write(local, pa.table({"x": np.arange(ROWS)}))
    reader, general = open_data_file(local, "f.lance"), open_general(local)
    for row in (ROWS, -1, 2**62):
        for _ in range(3):
            rows_of(reader, [3])
        with pytest.raises(LanceletError) as expected:
            rows_of(general, [3, row])
        with pytest.raises(type(expected.value)) as found:
            rows_of(reader, [3, row])
        assert found.value.facts == expected.value.facts


def damaged_table(name, nulls):
    if name in NESTED():
        return NESTED()[name].slice(0, 1500)
    array, wishes = columns()[name]
    array = array.slice(0, 1500)
    array = with_nulls(array, nulls) if nulls else array
    metadata = {f"lance-encoding:{key}": value for key, value in wishes.items()}
    return pa.table([array], pa.schema([pa.field(name, array.type, metadata=metadata)]))


@pytest.mark.parametrize("name", [*columns(), *NESTED()])
@settings(max_examples=15)
@given(data=st.data())
def test_damage_ends_as_it_does_in_the_general_way(name, data, tmp_path_factory):
    """Without checksums: in the same values, or in the same error."""
    table = damaged_table(name, data.draw(st.sampled_from([None, "many", "runs"])))
    store = LocalStore(tmp_path_factory.mktemp("few"), sync=False)
    write_file(store, table, checksums=False, zone_rows=None)
    reader = open_data_file(store, "f.lance")
    position, size = reader.column(0).pages[0].position, reader.column(0).pages[0].size
    stored = bytearray(store.read("f.lance"))
    part = data.draw(st.integers(0, max(0, len(position) - 1)))
    if not len(position) or size[part] == 0:
        return
    for _ in range(data.draw(st.integers(1, 3))):
        at = int(position[part]) + data.draw(st.integers(0, int(size[part]) - 1))
        stored[at] ^= data.draw(st.integers(1, 255))
    store.put("f.lance", bytes(stored))
    damaged = {
        "damaged": open_data_file(store, "f.lance"),
        "remote": open_remote(store),
        "general": open_general(store),
    }
    for rows in ([5], [5], [700], [1499, 3, 3, 900], [0], range(0, 1500, 2), range(1500)):
        found = {}
        for way, opened in damaged.items():
            try:
                found[way] = rows_of(opened, rows).to_pydict()
            except (LanceletError, pa.ArrowInvalid) as error:
                found[way] = type(error)
        # The general reader may reject rows that were not requested.
        for way in ("damaged", "remote"):
            assert str(found[way]) == str(found["general"]) or isinstance(found["general"], type)


@pytest.mark.parametrize("name", ["plain", "codes", "far", "zipped"])
def test_a_flipped_bit_in_a_block_that_was_not_read_is_found(local, write, name):
    array, wishes = columns()[name]
    metadata = {f"lance-encoding:{key}": value for key, value in wishes.items()}
    behind = pa.array(np.random.default_rng(3).integers(-(2**62), 2**62, 20_000)).view("int64")
    fields = [pa.field(name, array.type, metadata=metadata), pa.field("behind", pa.binary(32))]
    wide = pa.Array.from_buffers(pa.binary(32), ROWS, [None, behind.buffers()[1]])
    write(local, pa.table([array, wide], pa.schema(fields)))
    page = open_data_file(local, "f.lance").column(0).pages[0]
    largest = int(page.size.argmax())
    stored = bytearray(local.read("f.lance"))
    stored[int(page.position[largest]) + int(page.size[largest]) * 3 // 5] ^= 16
    local.put("f.lance", bytes(stored))
    reader = open_data_file(local, "f.lance")
    for _ in range(3):
        assert rows_of(reader, [0], [name])[name].combine_chunks().equals(array.slice(0, 1))
    for _ in range(3):
        with pytest.raises(CorruptDataError, match="checksum mismatch"):
            rows_of(reader, range(0, ROWS, 100), [name])


def test_a_file_that_became_shorter_is_not_touched(local, write, tmp_path):
    write(local, pa.table({"x": np.arange(ROWS)}))
    reader = open_data_file(local, "f.lance")
    for _ in range(3):
        rows_of(reader, [3])
    with (tmp_path / "f.lance").open("r+b") as file:
        file.truncate(100)
    with pytest.raises(CorruptDataError, match="truncated or overwritten"):
        rows_of(reader, [3])


def test_reads_are_counted_as_in_the_general_way(local, write):
    write(local, pa.table({"x": np.arange(ROWS), "s": [f"s{n}" for n in range(ROWS)]}))
    meters = IoMeter(), IoMeter()
    reader = open_data_file(metered(local, meters[0]), "f.lance")
    general = open_general(metered(local, meters[1]))
    for rows in ([1], [1], [2], [4000, 7], [7, 8, 9]):
        for each in (reader, general):
            rows_of(each, rows)
        assert meters[0].counts == meters[1].counts


def test_ranges_are_never_few_rows(local, write):
    table = pa.table({"x": np.arange(ROWS)})
    write(local, table)
    reader = open_data_file(local, "f.lance")
    (array,) = reader.read(reader.schema.fields, RowRange(5, 9))
    assert array.to_pylist() == [5, 6, 7, 8]
