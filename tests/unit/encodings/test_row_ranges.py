"""Row ranges: every split preserves each row once and in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.buffers import ByteSlices
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.encodings.gather import gather, gather_bits
from lancelet.encodings.row_ranges import RowRanges
from lancelet.errors import CorruptDataError, InvalidInputError

row_sets = st.sets(st.integers(0, 60)).map(lambda rows: np.array(sorted(rows), np.int64))


@given(row_sets)
def test_spans_hold_each_row_once_and_touch_nowhere(rows) -> None:
    spans = RowRanges.of_rows(RowIndices(rows), num_rows=61)
    assert spans.indices().tolist() == rows.tolist()
    assert spans.num_rows == len(rows)
    assert (spans.start[1:] > (spans.start + spans.count)[:-1]).all()
    assert (spans.count > 0).all()


@given(row_sets, st.integers(0, 61), st.integers(0, 61))
def test_the_part_within_a_page_counts_from_the_page(rows, start, stop) -> None:
    part = RowRanges.of_rows(RowIndices(rows), num_rows=61).within(start, max(start, stop))
    assert part.indices().tolist() == [row - start for row in rows if start <= row < stop]


@given(row_sets, st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_pieces_are_the_rows_of_each_part(rows, lengths) -> None:
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    rows = rows[rows < bounds[-1]]
    pieces = RowRanges.of_rows(RowIndices(rows), num_rows=int(bounds[-1])).split(bounds)
    found = [
        int(bounds[part]) + row
        for part, start, count in zip(pieces.part, pieces.start, pieces.count, strict=True)
        for row in range(start, start + count)
    ]
    assert found == rows.tolist()
    assert (pieces.start + pieces.count <= np.diff(bounds)[pieces.part]).all()


@given(row_sets, st.binary(min_size=8, max_size=8))
def test_bits_are_gathered_from_the_bytes_that_hold_them(rows, data) -> None:
    source = np.frombuffer(data, np.uint8)
    spans = RowRanges.of_rows(RowIndices(rows), num_rows=64)
    ranges = spans.bit_ranges(0, 1)
    bits = gather_bits(ByteSlices(source, ranges.position, ranges.size), spans)
    expected = np.unpackbits(source, bitorder="little")[rows]
    found = np.unpackbits(bits, bitorder="little")[: len(rows)]
    assert found.tolist() == expected.tolist()


@given(st.lists(st.tuples(st.integers(0, 16), st.integers(0, 8)), max_size=6))
def test_slices_are_gathered_end_to_end(pairs) -> None:
    source = np.arange(24, dtype=np.uint8)
    position, size = np.array(pairs, np.int64).reshape(-1, 2).T.copy()
    expected = [byte for start, count in pairs for byte in range(start, start + count)]
    assert gather(ByteSlices(source, position, size)).tolist() == expected


@pytest.mark.parametrize(
    "rows",
    [RowRange(2, 11), RowRange(-1, 3), RowIndices(np.array([3, 10])), RowIndices(np.array([-1]))],
)
def test_a_column_without_the_rows_is_corrupt(rows) -> None:
    with pytest.raises(CorruptDataError, match="does not have"):
        RowRanges.of_rows(rows, num_rows=10)


@pytest.mark.parametrize("rows", [[3, 3], [4, 2]])
def test_rows_must_ascend(rows) -> None:
    with pytest.raises(InvalidInputError, match="ascend"):
        RowRanges.of_rows(RowIndices(np.array(rows)), num_rows=10)
