"""Spans: which rows of a column are wanted, as ranges in ascending order.

Rows that were asked for one by one are merged where they touch, so that a scan is one span and
a take of scattered rows is one span a row. The rows of a list column become spans of its items,
which are spans again.

    rows     3 4 5 9        lists  0:[a b] 1:[c] 2:[] 3:[d e f]     rows 0 1 3
    spans    (3, 3) (9, 1)  spans of items  (0, 3) (3, 3)  ->  merged (0, 6)
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s, Ranges
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Spans:
    """Ranges of rows, ascending and apart; none is empty."""

    start: Int64s
    count: Int64s

    @cached_property
    def num_rows(self) -> int:
        """Return how many rows there are in all."""
        return int(self.count.sum())

    def __len__(self) -> int:
        """Return how many spans there are."""
        return len(self.start)

    @staticmethod
    def all(num_rows: int) -> Spans:
        """Return the rows from 0 to `num_rows`."""
        return Spans.merged(np.zeros(1, np.int64), np.array([num_rows], np.int64))

    @staticmethod
    def merged(start: Int64s, count: Int64s) -> Spans:
        """Drop empty ranges and join those that touch.

        >>> spans = Spans.merged(np.array([0, 2, 2, 7]), np.array([2, 0, 3, 1]))
        >>> spans.start.tolist(), spans.count.tolist()
        ([0, 7], [5, 1])
        """
        full = count > 0
        if not full.all():
            start, count = start[full], count[full]
        if len(start) < 2:
            return Spans(start, count)
        stop = start + count
        opens = np.concatenate(([True], start[1:] != stop[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        merged_start = start[opens]
        return Spans(merged_start, stop[closes] - merged_start)

    @staticmethod
    def of_rows(rows: Rows, *, num_rows: int) -> Spans:
        """Return the spans of rows that a caller asked for, out of `num_rows`.

        >>> spans = Spans.of_rows(RowIndices(np.array([3, 4, 5, 9])), num_rows=10)
        >>> spans.start.tolist(), spans.count.tolist()
        ([3, 9], [3, 1])
        """
        match rows:
            case RowRange(start, stop):
                first, last = start, stop - 1
                spans = Spans.merged(
                    np.array([start], np.int64), np.array([stop - start], np.int64)
                )
            case RowIndices(indices):
                if not len(indices):
                    return Spans.all(0)
                first, last = int(indices[0]), int(indices[-1])
                if (np.diff(indices) <= 0).any():
                    raise InvalidInputError("rows must ascend, each at most once")
                spans = Spans.merged(indices, np.ones(len(indices), np.int64))
        if first < 0 or last >= num_rows:
            # Whoever asks knows how many rows the file has, so the column is what is wrong.
            raise CorruptDataError(
                "a column does not have the rows that its file has",
                first_row=first,
                last_row=last,
                num_rows=num_rows,
            )
        return spans

    def within(self, start: int, stop: int) -> Spans:
        """Return the part of the spans that lies within rows `start <= row < stop`.

        Rows of the result count from `start`.

        >>> part = Spans(np.array([2, 8]), np.array([4, 4])).within(4, 10)
        >>> part.start.tolist(), part.count.tolist()
        ([0, 4], [2, 2])
        """
        ends = self.start + self.count
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(self.start, stop, side="left"))
        inner_start = np.maximum(self.start[first:last], start)
        inner_stop = np.minimum(ends[first:last], stop)
        return Spans(inner_start - start, inner_stop - inner_start)

    def split(self, bounds: Int64s) -> Pieces:
        """Cut the spans where parts of the column meet; part i holds `bounds[i]` and on.

        >>> pieces = Spans(np.array([1]), np.array([4])).split(np.array([0, 3, 3, 9]))
        >>> pieces.part.tolist(), pieces.start.tolist(), pieces.count.tolist()
        ([0, 2], [1, 0], [2, 2])
        """
        stop = self.start + self.count
        first = np.searchsorted(bounds, self.start, side="right") - 1
        parts = np.searchsorted(bounds, stop, side="left") - first
        part = expand(first, parts)
        start = np.maximum(np.repeat(self.start, parts), bounds[part])
        count = np.minimum(np.repeat(stop, parts), bounds[part + 1]) - start
        full = count > 0
        part, start = part[full], start[full]
        return Pieces(part, start - bounds[part], count[full])

    def times(self, dimension: int) -> Spans:
        """Return the spans of items, when every row has `dimension` of them."""
        return Spans(self.start * dimension, self.count * dimension)

    def byte_ranges(self, position: int | Int64s, width: int) -> Ranges:
        """Return where the values are, `width` bytes each, from `position` on (one per span)."""
        return Ranges(position + self.start * width, self.count * width)

    def bit_ranges(self, position: int | Int64s, width: int) -> Ranges:
        """Return the whole bytes that hold the values, `width` bits each."""
        first = (self.start * width) >> 3
        last = ((self.start + self.count) * width + 7) >> 3
        return Ranges(position + first, last - first)

    def indices(self) -> Int64s:
        """Return every row of the spans.

        >>> Spans(np.array([3, 9]), np.array([3, 1])).indices().tolist()
        [3, 4, 5, 9]
        """
        return expand(self.start, self.count)


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Ranges of rows, each within one part of a column and counted from its beginning."""

    part: Int64s
    start: Int64s
    count: Int64s

    def __len__(self) -> int:
        """Return how many pieces there are."""
        return len(self.part)


def expand(start: Int64s, count: Int64s) -> Int64s:
    """Return `start[i], start[i] + 1, ...`, `count[i]` numbers of each, end to end."""
    before = count.cumsum() - count
    found: Int64s = (start - before).repeat(count) + np.arange(int(count.sum()), dtype=np.int64)
    return found
