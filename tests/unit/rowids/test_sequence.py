"""Laws of row id sequences: every form of a segment holds the same numbers, and so do slices."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import CorruptDataError
from lancelet.format.protos import rowids_pb
from lancelet.rowids.segment import Numbers, Range, RangeWithBitmap, RangeWithHoles, segment_of
from lancelet.rowids.sequence import RowIdSequence


def ids(values):
    return np.array(values, np.uint64)


NEARBY = st.integers(0, 300).flatmap(
    lambda base: st.lists(st.integers(base, base + 200), unique=True, max_size=120)
)
SORTED = NEARBY.map(sorted)
FAR = st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=20)
RUNS = st.tuples(st.integers(0, 2**40), st.integers(0, 300)).map(
    lambda run: list(range(run[0], run[0] + run[1]))
)
HOLED = st.tuples(RUNS, st.integers(1, 9)).map(lambda c: [v for v in c[0] if v % 11 != c[1]])
VALUES = st.one_of(NEARBY, SORTED, FAR, RUNS, HOLED).map(ids)
SEQUENCES = st.lists(VALUES, max_size=4).map(
    lambda parts: RowIdSequence(tuple(segment_of(part) for part in parts))
)


@given(SEQUENCES)
def test_the_wire_form_gives_the_sequence_back(sequence):
    again = RowIdSequence.parse(sequence.render(), expected_rows=len(sequence))
    assert again == sequence
    assert [type(segment) for segment in again.segments] == [
        type(segment) for segment in sequence.segments
    ]


def test_the_largest_row_id_can_be_stored():
    largest = np.array([2**64 - 1], np.uint64)
    sequence = RowIdSequence((segment_of(largest),))
    again = RowIdSequence.parse(sequence.render(), expected_rows=1)
    assert again.to_array().tolist() == largest.tolist()


@given(VALUES)
def test_a_segment_holds_its_numbers_in_order(values):
    segment = segment_of(values)
    assert segment.to_array().tolist() == values.tolist()
    assert len(segment) == len(values)


@given(SEQUENCES, st.data())
def test_slices_and_drops_are_those_of_the_array(sequence, data):
    whole = sequence.to_array()
    start = data.draw(st.integers(0, len(whole)))
    stop = data.draw(st.integers(start, len(whole)))
    assert sequence.slice(start, stop).to_array().tolist() == whole[start:stop].tolist()
    gone = np.flatnonzero(
        data.draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
    )
    assert sequence.without(gone).to_array().tolist() == np.delete(whole, gone).tolist()
    assert sequence.take(gone).tolist() == whole[gone].tolist()


@given(st.lists(SEQUENCES, max_size=3))
def test_joined_sequences_hold_all_numbers(sequences):
    joined = RowIdSequence.concat(sequences)
    expected = [value for sequence in sequences for value in sequence.to_array().tolist()]
    assert joined.to_array().tolist() == expected


def test_ranges_that_continue_each_other_become_one():
    parts = [
        RowIdSequence.of_range(0, 5),
        RowIdSequence.of_range(5, 9),
        RowIdSequence.of_range(2, 3),
    ]
    assert RowIdSequence.concat(parts).segments == (Range(0, 9), Range(2, 3))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (range(5, 90), Range),
        ([v for v in range(100) if v != 50], RangeWithHoles),
        (range(0, 100, 2), RangeWithBitmap),
        ([0, 1000, 5000], Numbers),
        ([3, 2, 1], Numbers),
        ([1, 1, 2], Numbers),
    ],
)
def test_the_smallest_form_is_chosen(values, kind):
    assert isinstance(segment_of(ids(list(values))), kind)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_a_sequence_or_corrupt(data):
    try:
        sequence = RowIdSequence.parse(data)
    except CorruptDataError:
        return
    assert len(sequence) >= 0


@given(SEQUENCES, st.integers(0, 2**32), st.integers(0, 255))
def test_damaged_sequences_are_a_sequence_or_corrupt(sequence, place, value):
    data = bytearray(sequence.render())
    if not data:
        return
    data[place % len(data)] = value
    with contextlib.suppress(CorruptDataError):
        assert len(RowIdSequence.parse(bytes(data))) < 2**36


SEGMENT = rowids_pb.U64Segment
ARRAY = rowids_pb.EncodedU64Array


@pytest.mark.parametrize(
    "segment",
    [
        SEGMENT(),
        SEGMENT(range=SEGMENT.Range(start=5, end=4)),
        SEGMENT(range=SEGMENT.Range(start=0, end=2**63)),
        SEGMENT(range_with_bitmap=SEGMENT.RangeWithBitmap(start=0, end=9, bitmap=b"\0")),
        SEGMENT(array=ARRAY(u16_array=ARRAY.U16Array(offsets=b"abc"))),
        SEGMENT(array=ARRAY(u64_array=ARRAY.U64Array(values=b"abcd"))),
        SEGMENT(array=ARRAY(u32_array=ARRAY.U32Array(base=2**64 - 1, offsets=b"\1\0\0\0"))),
        SEGMENT(
            range_with_holes=SEGMENT.RangeWithHoles(
                start=0, end=5, holes=ARRAY(u16_array=ARRAY.U16Array(base=7, offsets=b"\0\0"))
            )
        ),
        SEGMENT(
            range_with_holes=SEGMENT.RangeWithHoles(
                start=0, end=5, holes=ARRAY(u16_array=ARRAY.U16Array(offsets=b"\2\0\2\0"))
            )
        ),
    ],
)
def test_an_invalid_segment_is_corrupt(segment):
    data = rowids_pb.RowIdSequence(segments=[segment]).SerializeToString()
    with pytest.raises(CorruptDataError):
        RowIdSequence.parse(data)


def test_a_sequence_of_another_length_than_its_fragment_is_corrupt():
    data = RowIdSequence.of_range(0, 5).render()
    with pytest.raises(CorruptDataError):
        RowIdSequence.parse(data, expected_rows=4)
