"""Rows by index, from slices of all types and of nested lists."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.encodings.take import (
    decode_dictionary,
    filter_batch,
    join_arrays,
    scatter_rows,
    take_ascending,
    take_from_batch,
    take_from_table,
    take_rows,
)
from lancelet.errors import ArrayOverflowError, UnsupportedError


def sliced_lists(inner_start, outer_start, rows=20):
    values = pa.array(np.arange(600), pa.int32())
    inner = pa.FixedSizeListArray.from_arrays(values, 2)[inner_start:]
    outer = pa.FixedSizeListArray.from_arrays(inner[: len(inner) // 5 * 5], 5)
    return outer[outer_start : outer_start + rows]


@given(st.integers(0, 3), st.integers(0, 10), st.lists(st.integers(0, 19), max_size=30))
def test_rows_of_nested_lists_are_taken_from_slices(inner_start, outer_start, picks):
    lists = sliced_lists(inner_start, outer_start)
    for array in (lists, pa.StructArray.from_arrays([lists], ["a"])):
        found = take_rows(array, pa.array(picks, pa.int64()))
        everything = array.to_pylist()
        assert found.to_pylist() == [everything[pick] for pick in picks]


@pytest.mark.parametrize("chunks", [1, 2])
def test_rows_of_batches_and_tables_are_taken_from_slices(chunks):
    columns = {"row": pa.array(range(20)), "lists": sliced_lists(1, 3)}
    batch = pa.RecordBatch.from_pydict(columns)[2:]
    kept = np.arange(18) % 3 == 1
    picks = np.flatnonzero(kept)
    expected = [batch.to_pylist()[pick] for pick in picks]
    assert take_from_batch(batch, pa.array(picks)).to_pylist() == expected
    assert filter_batch(batch, kept).to_pylist() == expected
    table = pa.Table.from_batches([batch[: 18 // chunks], batch[18 // chunks :]])
    assert take_from_table(table, pa.array(picks)).to_pylist() == expected


@given(st.sets(st.integers(0, 99)), st.integers(0, 5))
def test_ascending_rows_are_taken_whether_they_follow_each_other_or_not(picks, start):
    values = pa.array([None if i % 7 == 3 else i for i in range(110)])[start : start + 100]
    rows = np.array(sorted(picks), np.int64)
    assert take_ascending(values, rows).equals(values.take(pa.array(rows)))


@given(
    st.sampled_from([pa.string(), pa.large_binary(), pa.binary(), pa.large_string(), pa.int32()]),
    st.lists(st.lists(st.one_of(st.none(), st.integers(0, 999)), max_size=9), min_size=1),
    st.randoms(),
)
def test_rows_of_several_arrays_come_to_their_places(kind, values, chance):
    texts = [pa.array([None, *part]).cast(pa.string()) for part in values]
    chunks = [text[1:].cast(kind) for text in texts]
    places = list(range(sum(map(len, chunks))))
    chance.shuffle(places)
    found = scatter_rows(chunks, np.array(places, np.int64))
    found.validate(full=True)
    expected = dict(
        zip(places, (each for chunk in chunks for each in chunk.to_pylist()), strict=True)
    )
    assert found.to_pylist() == [expected[place] for place in sorted(expected)]
    assert found.type == kind


@given(
    st.sampled_from(
        [pa.list_(pa.int32()), pa.large_list(pa.float64()), pa.list_(pa.float32(), 96)]
    ),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.booleans(),
    st.randoms(),
)
def test_rows_of_several_lists_and_vectors_are_scattered(kind, sizes, with_nulls, chance):
    def row(number):
        if with_nulls and number % 5 == 3:
            return None
        return [number + n for n in range(96 if pa.types.is_fixed_size_list(kind) else number % 7)]

    ends = np.cumsum([0, *(size + 1 for size in sizes)])
    chunks = [
        pa.array([row(number) for number in range(start, stop)], kind)[1:]
        for start, stop in itertools.pairwise(ends)
    ]
    positions = list(range(sum(sizes)))
    chance.shuffle(positions)
    found = scatter_rows(chunks, np.array(positions, np.int64))
    found.validate(full=True)
    values = [each for chunk in chunks for each in chunk.to_pylist()]
    assert [found[position].as_py() for position in positions] == values
    assert found.type == kind


def test_bytes_that_32_bit_offsets_cannot_number_are_rejected():
    large = pa.array([b"x" * (1 << 20)]).take(pa.array(np.zeros(1025, np.int64)))
    with pytest.raises(ArrayOverflowError):
        scatter_rows([large, large], np.arange(2050))


def test_a_few_rows_do_not_hold_the_others():
    values = pa.array(np.arange(1000))
    most, few = (
        take_ascending(values, np.arange(200, 900)),
        take_ascending(values, np.arange(200, 210)),
    )
    assert most.buffers()[1].address == values.buffers()[1].address
    assert few.buffers()[1].size < values.nbytes


def test_rows_of_batches_without_columns_are_counted():
    batch = pa.RecordBatch.from_struct_array(pa.array([{}] * 3))
    assert take_from_batch(batch, pa.array([0, 2])).num_rows == 2


def test_dictionaries_too_large_together_are_joined_if_the_items_in_use_fit():
    keys = pa.array([3, 4], pa.int8())
    pages = [
        pa.DictionaryArray.from_arrays(keys, [f"{page}-{item}" for item in range(100)])
        for page in range(3)
    ]
    joined = join_arrays(pages)
    assert joined.type == pages[0].type
    assert joined.to_pylist() == [f"{page}-{item}" for page in range(3) for item in (3, 4)]
    everything = pa.array(range(100), pa.int8())
    full = [pa.DictionaryArray.from_arrays(everything, page.dictionary) for page in pages]
    with pytest.raises(UnsupportedError, match="do not fit into one array"):
        join_arrays(full)


@given(
    st.lists(st.none() | st.text(max_size=20) | st.sampled_from(["a", "b"]), max_size=60),
    st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]),
    st.integers(0, 5),
)
def test_dictionaries_of_strings_are_decoded(values, data_type, start):
    array = pa.array(values).cast(pa.string()).cast(data_type).dictionary_encode()[start:]
    decoded = decode_dictionary(array)
    decoded.validate(full=True)
    assert decoded.equals(array.dictionary_decode())
    sliced = pa.DictionaryArray.from_arrays(
        pa.array([0, None, 0, 1], pa.int8()), pa.array(["x", "yy", "zzz"], data_type)[1:]
    )
    assert decode_dictionary(sliced).equals(pa.array(["yy", None, "yy", "zzz"], data_type))
