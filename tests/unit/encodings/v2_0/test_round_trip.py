"""Decoding undoes encoding, for every type that version 2.0 can store."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices, run
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.v2_0 import writer

WITH_FIXTURES = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

LEAVES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint16(): st.integers(0, 65535),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=8),
    pa.large_string(): st.text(max_size=8),
    pa.binary(): st.binary(max_size=8),
    pa.large_binary(): st.binary(max_size=8),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(20, 2): st.integers(-(10**17), 10**17).map(lambda v: Decimal(v).scaleb(-2)),
    pa.timestamp("us", "UTC"): st.integers(0, 2**40),
    pa.null(): st.none(),
}


def nullable(values):
    return st.none() | values


def list_of(inner):
    data_type, values = inner
    make = st.sampled_from([pa.list_, pa.large_list])
    return make.map(lambda kind: (kind(data_type), nullable(st.lists(values, max_size=4))))


def fixed_list_of(inner):
    data_type, values = inner
    items = nullable(st.lists(nullable(values), min_size=2, max_size=2))
    return pa.list_(data_type, 2), items


def struct_of(children):
    fields = [pa.field(f"f{index}", data_type) for index, (data_type, _) in enumerate(children)]
    values = {f"f{index}": values for index, (_, values) in enumerate(children)}
    return pa.struct(fields), st.fixed_dictionaries(values)


leaves = st.sampled_from(list(LEAVES)).map(lambda kind: (kind, nullable(LEAVES[kind])))
fixed_lists = st.sampled_from([pa.int8(), pa.float32(), pa.bool_()]).map(
    lambda kind: fixed_list_of((kind, LEAVES[kind]))
)
types = st.recursive(
    leaves | fixed_lists,
    lambda inner: inner.flatmap(list_of) | st.lists(inner, max_size=3).map(struct_of),
    max_leaves=4,
)


@st.composite
def arrays(draw):
    """Draw an array that may begin within its buffers."""
    data_type, values = draw(types)
    array = pa.array(draw(st.lists(values, max_size=30)), data_type)
    start = draw(st.integers(0, len(array)))
    return array.slice(start)


@WITH_FIXTURES
@given(array=arrays())
def test_decoding_undoes_encoding(store, array) -> None:
    assert store(array).read().equals(array)


@WITH_FIXTURES
@given(array=arrays(), data=st.data())
def test_a_range_of_rows_is_a_slice_of_all(store, array, data) -> None:
    start = data.draw(st.integers(0, len(array)))
    stop = data.draw(st.integers(start, len(array)))
    assert store(array).read(RowRange(start, stop)).equals(array.slice(start, stop - start))


@WITH_FIXTURES
@given(array=arrays(), data=st.data())
def test_single_rows_are_taken_from_all(store, array, data) -> None:
    chosen = data.draw(st.sets(st.integers(0, max(0, len(array) - 1)), max_size=len(array)))
    rows = np.array(sorted(chosen), np.int64)
    expected = array.take(pa.array(rows)) if len(rows) else array.slice(0, 0)
    assert store(array).read(RowIndices(rows)).equals(expected)


@WITH_FIXTURES
@given(array=arrays(), page_bytes=st.integers(1, 64), data=st.data())
def test_pages_can_be_cut_anywhere(store, array, page_bytes, data) -> None:
    # Lists are the hard part: the items of a page of offsets begin within a page of items.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "PAGE_BYTES_MAX", page_bytes)
        stored = store(array)
    assert stored.read().equals(array)
    start = data.draw(st.integers(0, len(array)))
    stop = data.draw(st.integers(start, len(array)))
    assert stored.read(RowRange(start, stop)).equals(array.slice(start, stop - start))
    rows = np.arange(start, stop, 2)
    assert stored.read(RowIndices(rows)).equals(array.take(pa.array(rows)))


@WITH_FIXTURES
@given(
    values=st.lists(nullable(st.sampled_from(["a", "bb", "", "ü"])), min_size=100, max_size=140),
    rows=st.sets(st.integers(0, 99)),
)
def test_strings_that_repeat_become_a_dictionary(store, values, rows) -> None:
    array = pa.array(values, pa.string())
    stored = store(array)
    assert len(stored.columns[0].pages[0].size) == 3
    assert stored.read().equals(array)
    chosen = np.array(sorted(rows), np.int64)
    assert stored.read(RowIndices(chosen)).to_pylist() == [values[row] for row in chosen]


@WITH_FIXTURES
@given(
    keys=st.lists(nullable(st.integers(0, 3)), max_size=20),
    values=st.sampled_from([["x", "y", None, ""], [1, 2, 3, None], [b"q", b"", b"r", b"s"]]),
    key_type=st.sampled_from([pa.int8(), pa.uint16(), pa.int64()]),
)
def test_dictionary_columns_keep_their_values(store, keys, values, key_type) -> None:
    array = pa.DictionaryArray.from_arrays(pa.array(keys, key_type), pa.array(values))
    read = store(array).read()
    assert read.type == array.type
    assert read.to_pylist() == array.to_pylist()
    assert read.null_count == sum(value is None for value in array.to_pylist())


def test_a_dictionary_is_cached_for_the_next_read(store) -> None:
    kept = {}

    class Everything:
        def get(self, key, kind):
            return kept.get((key, kind))

        def put(self, key, value, *, value_bytes):
            assert value_bytes > 0
            kept[key, type(value)] = value

    array = pa.array(["a", "b", None] * 50)
    stored, header_cache = store(array), Everything()
    assert stored.read(header_cache=header_cache).equals(array)
    assert stored.rounds == 2
    assert stored.read(RowRange(7, 9), header_cache).equals(array[7:9])
    assert stored.rounds == 1


@pytest.mark.parametrize("scheme", ["zstd", "lz4", "fsst"])
def test_strings_are_compressed_if_the_field_requests_it(store, scheme) -> None:
    array = pa.array([None if i % 7 == 0 else f"some text {i % 3}{i}" for i in range(2000)])
    stored = store(array, metadata={"lance-encoding:compression": scheme})
    plain = store(array)
    assert len(stored.data) < len(plain.data)
    assert stored.read().equals(array)
    assert stored.read(RowRange(1500, 1503)).equals(array[1500:1503])
    rows = np.array([3, 700, 1999])
    assert stored.read(RowIndices(rows)).equals(array.take(pa.array(rows)))


def test_packed_structs_lie_row_by_row(store) -> None:
    kind = pa.struct([("x", pa.uint8()), ("v", pa.list_(pa.int16(), 2)), ("y", pa.int32())])
    array = pa.array([{"x": i, "v": [i, -i], "y": 1000 + i} for i in range(5)], kind)
    stored = store(array, metadata={"lance-encoding:packed": "true"})
    assert bytes(stored.data[9:18]) == b"\x01\x01\x00\xff\xff\xe9\x03\x00\x00"
    assert stored.read().equals(array)
    assert stored.read(RowIndices(np.array([0, 3]))).equals(array.take(pa.array([0, 3])))


def test_blobs_are_stored_outside_of_pages(store) -> None:
    array = pa.array([b"first", None, b"", b"last"], pa.large_binary())
    stored = store(array, metadata={"lance-encoding:blob": "true"})
    assert stored.read().equals(array)
    assert stored.read(RowIndices(np.array([1, 3]))).equals(array.take(pa.array([1, 3])))
    assert bytes(stored.data[64:68]) == b"last"


def test_rounds_of_requests_grow_with_nesting_only(store) -> None:
    depths = {
        pa.int32(): (7, 1),
        pa.string(): ("x", 2),
        pa.list_(pa.int32()): ([7], 2),
        pa.list_(pa.list_(pa.string())): ([["x"]], 4),
    }
    for data_type, (value, rounds) in depths.items():
        for count in (3, 3000):
            stored = store(pa.array([value] * count, data_type))
            stored.read()
            # Many equal strings are a dictionary, whose items take a round of their own.
            assert stored.rounds <= rounds, (data_type, count)


def test_a_scan_of_fixed_width_values_copies_nothing(store) -> None:
    stored = store(pa.array(range(1000), pa.int64()))
    source = np.frombuffer(bytes(stored.data), np.uint8)
    reading = stored.open().read(RowRange(8, 900))
    array = run(reading, lambda ranges: ByteSlices(source, ranges.position, ranges.size))
    assert array.buffers()[1].address == source.ctypes.data + 64
