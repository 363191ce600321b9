"""The repetition index: the first and last chunk of each row in pages of lists.

Two numbers per chunk: the number of rows that end in it, and the number of entries after the last
end, which belong to a row that continues in the next chunk.

    entries   chunk 0: [r0 r0 r1]   chunk 1: [r1 r1]   chunk 2: [r1 r2]
    ends      1                     0                  2
    open      1                     2                  0

The number of rows that start in a chunk is the number of ends, plus one if its last row is open,
minus one if the last row of the previous chunk is open. Row 1 starts in chunk 0 and ends in chunk
2.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.levels import Levels
from lancelet.encodings.row_ranges import RowRanges
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

DEPTH = 1
"""Only top-level rows are indexed; no writer uses a deeper index."""

ENTRY_BYTES = 16
"""Size of the index per chunk, in bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class RepetitionIndex:
    """Numbers of rows started and ended before each chunk and at the end of the page."""

    started: Int64s
    ended: Int64s

    @property
    def num_rows(self) -> int:
        """Return the number of rows of the page."""
        return int(self.ended[-1])

    def chunks_of_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of chunks with any of the rows."""
        first = int(np.searchsorted(self.started, start, side="right")) - 1
        last = int(np.searchsorted(self.ended, stop - 1, side="right"))
        return first, last

    def chunks_of_rows(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Return the chunks in which each row starts and ends."""
        first = np.searchsorted(self.started, rows, side="right") - 1
        last = np.searchsorted(self.ended, rows, side="right") - 1
        return first, last


def parse_repetition_index(data: Bytes, *, num_chunks: int, num_rows: int) -> RepetitionIndex:
    """Parse the index of a page.

    >>> index = parse_repetition_index(
    ...     np.array([1, 1, 0, 2, 2, 0], "<u8").view(np.uint8), num_chunks=3, num_rows=3)
    >>> index.started.tolist(), index.ended.tolist()
    ([0, 2, 2, 3], [0, 1, 1, 3])
    """
    if len(data) != num_chunks * ENTRY_BYTES:
        raise CorruptDataError(
            "the repetition index of a page does not match its chunks",
            expected_bytes=num_chunks * ENTRY_BYTES,
            found_bytes=len(data),
        )
    pairs = np.frombuffer(data.tobytes(), "<u8").reshape(-1, 2)
    ends, is_open = pairs[:, 0], pairs[:, 1] > 0
    if len(pairs) and (int(ends.max()) > num_rows or bool(is_open[-1])):
        raise CorruptDataError(
            "the repetition index has more rows than the page",
            rows=num_rows,
            chunk_rows_max=int(ends.max()),
        )
    ended = np.zeros(num_chunks + 1, np.int64)
    np.cumsum(ends.astype(np.int64), out=ended[1:])
    begun = ended.copy()
    begun[1:] += is_open
    if int(ended[-1]) != num_rows or bool(np.any(np.diff(begun) < 0)):
        raise CorruptDataError(
            "the repetition index does not match the rows of the page",
            expected_rows=num_rows,
            found_rows=int(ended[-1]),
        )
    return RepetitionIndex(begun, ended)


def build_repetition_index(repetition: Levels, first_entry: Int64s, rep_max: int) -> Bytes:
    """Build the index of a page; chunk i starts at entry `first_entry[i]`.

    The last item of `first_entry` is the number of entries.

    >>> levels = np.array([1, 0, 1, 0, 0, 0, 1], np.uint16)
    >>> build_repetition_index(levels, np.array([0, 3, 5, 7]), 1).view("<u8").tolist()
    [1, 1, 0, 2, 2, 0]
    """
    row_starts = np.flatnonzero(repetition == rep_max)
    begun = np.searchsorted(row_starts, first_entry)
    # A row ends where the next one starts; at the end of the page all rows have ended.
    opens_row = np.append(repetition[first_entry[:-1]] == rep_max, True)
    ended = np.where(opens_row, begun, begun - 1)
    last_start = row_starts[np.maximum(begun[1:] - 1, 0)]
    open_entries = first_entry[1:] - np.maximum(last_start, first_entry[:-1])
    open_entries[opens_row[1:]] = 0
    pairs = np.empty((len(first_entry) - 1, 2), "<u8")
    pairs[:, 0] = np.diff(ended)
    pairs[:, 1] = open_entries
    return pairs.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkLevels:
    """Concatenated repetition levels of chunks, with row lookup by the index."""

    index: RepetitionIndex
    chunks: Int64s
    repetition: Levels
    num_levels: Int64s
    rep_max: int

    def entries_of_range(self, start: int, stop: int) -> slice:
        """Return the entries of contiguous rows; all their chunks must be included."""
        starts_row = self.repetition == self.rep_max
        begun = np.diff(self.index.started)[self.chunks]
        before, total = int(self.index.started[self.chunks[0]]), int(begun.sum())
        # A range starts in the first chunk, and often ends with the last one.
        first = np.flatnonzero(starts_row[: self.num_levels[0]])
        start, stop = start - before, stop - before
        agrees = len(first) == begun[0] and np.count_nonzero(starts_row) == total
        if not agrees or start >= len(first) or stop < total:
            first = self._row_starts()
        return slice(int(first[start]), int(first[stop]) if stop < total else len(starts_row))

    def entries_of_rows(self, rows: Int64s) -> Int64s:
        """Return the entries of single rows; all their chunks must be included."""
        row_starts = self._row_starts()
        stops_of_chunks = np.cumsum(self.num_levels)
        begun = np.diff(self.index.started)[self.chunks]
        begun_before = np.cumsum(begun) - begun
        begins, ends = self.index.chunks_of_rows(rows)
        positions = np.searchsorted(self.chunks, begins)
        row_numbers = begun_before[positions] + rows - self.index.started[begins]
        start = row_starts[row_numbers]
        # The next row may start in a chunk that was not read.
        next_start = np.append(row_starts, len(self.repetition))[row_numbers + 1]
        stop = np.minimum(next_start, stops_of_chunks[np.searchsorted(self.chunks, ends)])
        return RowRanges(start, stop - start).indices()

    def _row_starts(self) -> Int64s:
        """Return the first entry of each row, validated against the index."""
        row_starts = np.flatnonzero(self.repetition == self.rep_max)
        num_starts = np.diff(np.searchsorted(row_starts, np.cumsum(self.num_levels)), prepend=0)
        indexed_starts = np.diff(self.index.started)[self.chunks]
        if not np.array_equal(num_starts, indexed_starts):
            chunk = int(np.flatnonzero(num_starts != indexed_starts)[0])
            raise CorruptDataError(
                "the repetition levels of a chunk do not match the rows of its index",
                chunk=int(self.chunks[chunk]),
                expected_rows=int(indexed_starts[chunk]),
                found_rows=int(num_starts[chunk]),
            )
        return row_starts
