"""Row ranges: the requested rows of a column as ascending ranges.

Adjacent rows are merged: a scan is one range, and a take of scattered rows is one range per row.
Rows of a list column are converted to ranges of items, which are merged again.

    rows     3 4 5 9        lists  0:[a b] 1:[c] 2:[] 3:[d e f]     rows 0 1 3
    ranges   (3, 3) (9, 1)  ranges of items  (0, 3) (3, 3)  ->  merged (0, 6)
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import ByteRanges, Int64s
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class RowRanges:
    """Ascending, disjoint and non-empty row ranges."""

    start: Int64s
    count: Int64s

    @cached_property
    def num_rows(self) -> int:
        """Return the total number of rows."""
        return int(self.count.sum())

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.start)

    @staticmethod
    def all(num_rows: int) -> RowRanges:
        """Return the range from 0 to `num_rows`."""
        return RowRanges.merged(np.zeros(1, np.int64), np.array([num_rows], np.int64))

    @staticmethod
    def merged(start: Int64s, count: Int64s) -> RowRanges:
        """Drop empty ranges and merge adjacent ones.

        >>> ranges = RowRanges.merged(np.array([0, 2, 2, 7]), np.array([2, 0, 3, 1]))
        >>> ranges.start.tolist(), ranges.count.tolist()
        ([0, 7], [5, 1])
        """
        full = count > 0
        if not full.all():
            start, count = start[full], count[full]
        if len(start) < 2:
            return RowRanges(start, count)
        stop = start + count
        opens = np.concatenate(([True], start[1:] != stop[:-1]))
        closes = np.concatenate((opens[1:], [True]))
        merged_start = start[opens]
        return RowRanges(merged_start, stop[closes] - merged_start)

    @staticmethod
    def of_rows(rows: Rows, *, num_rows: int) -> RowRanges:
        """Return the ranges of requested rows, which must be less than `num_rows`.

        >>> ranges = RowRanges.of_rows(RowIndices(np.array([3, 4, 5, 9])), num_rows=10)
        >>> ranges.start.tolist(), ranges.count.tolist()
        ([3, 9], [3, 1])
        """
        match rows:
            case RowRange(start, stop):
                first, last = start, stop - 1
                ranges = RowRanges.merged(
                    np.array([start], np.int64), np.array([stop - start], np.int64)
                )
            case RowIndices(indices):
                if not len(indices):
                    return RowRanges.all(0)
                first, last = int(indices[0]), int(indices[-1])
                if (np.diff(indices) <= 0).any():
                    raise InvalidInputError("row indices must be strictly ascending")
                ranges = RowRanges.merged(indices, np.ones(len(indices), np.int64))
        if first < 0 or last >= num_rows:
            # Callers validate rows against the file, so the column must be damaged.
            raise CorruptDataError(
                "a column does not have as many rows as its file",
                first_row=first,
                last_row=last,
                num_rows=num_rows,
            )
        return ranges

    def within(self, start: int, stop: int) -> RowRanges:
        """Return the intersection with rows `start <= row < stop`, relative to `start`.

        >>> part = RowRanges(np.array([2, 8]), np.array([4, 4])).within(4, 10)
        >>> part.start.tolist(), part.count.tolist()
        ([0, 4], [2, 2])
        """
        ends = self.start + self.count
        first = int(np.searchsorted(ends, start, side="right"))
        last = int(np.searchsorted(self.start, stop, side="left"))
        inner_start = np.maximum(self.start[first:last], start)
        inner_stop = np.minimum(ends[first:last], stop)
        return RowRanges(inner_start - start, inner_stop - inner_start)

    def split(self, bounds: Int64s) -> PartRanges:
        """Split the ranges at part boundaries; part i starts at row `bounds[i]`.

        >>> ranges = RowRanges(np.array([1]), np.array([4])).split(np.array([0, 3, 3, 9]))
        >>> ranges.part.tolist(), ranges.start.tolist(), ranges.count.tolist()
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
        return PartRanges(part, start - bounds[part], count[full])

    def times(self, dimension: int) -> RowRanges:
        """Return the ranges of items for rows with `dimension` items each."""
        return RowRanges(self.start * dimension, self.count * dimension)

    def byte_ranges(self, position: int | Int64s, width: int) -> ByteRanges:
        """Return the byte ranges of values of `width` bytes; `position` may be per range."""
        return ByteRanges(position + self.start * width, self.count * width)

    def bit_ranges(self, position: int | Int64s, width: int) -> ByteRanges:
        """Return the byte ranges that cover values of `width` bits."""
        first = (self.start * width) >> 3
        last = ((self.start + self.count) * width + 7) >> 3
        return ByteRanges(position + first, last - first)

    def indices(self) -> Int64s:
        """Return all row indices.

        >>> RowRanges(np.array([3, 9]), np.array([3, 1])).indices().tolist()
        [3, 4, 5, 9]
        """
        return expand(self.start, self.count)


@dataclass(frozen=True, slots=True, eq=False)
class PartRanges:
    """Row ranges within parts of a column, relative to the start of the part."""

    part: Int64s
    start: Int64s
    count: Int64s

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.part)


def expand(start: Int64s, count: Int64s) -> Int64s:
    """Return the concatenation of `start[i], start[i] + 1, ...` with `count[i]` numbers each."""
    before = count.cumsum() - count
    indices: Int64s = (start - before).repeat(count) + np.arange(int(count.sum()), dtype=np.int64)
    return indices
