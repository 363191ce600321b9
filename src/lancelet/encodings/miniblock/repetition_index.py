"""The repetition index: in which chunks the rows of a page of lists begin and end.

Two numbers per chunk: how many rows end in it, and how many entries after the last end belong to
a row that goes on in the next chunk.

    entries   chunk 0: [r0 r0 r1]   chunk 1: [r1 r1]   chunk 2: [r1 r2]
    ends      1                     0                  2
    left      1                     2                  0

Rows that begin in a chunk: those that end in it, plus one that is left open, less one that was
open before. So row 1 begins in chunk 0 and ends in chunk 2.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.levels import Levels
from lancelet.encodings.spans import expand
from lancelet.errors import CorruptDataError
from lancelet.values import dataclass

DEPTH = 1
"""Rows are found at the top level only; no writer goes deeper."""

ENTRY_BYTES = 16
"""The bytes of the index for each chunk."""


@dataclass(frozen=True, slots=True, eq=False)
class RepetitionIndex:
    """How many rows have begun, and have ended, before each chunk and at the end of the page."""

    begun: Int64s
    ended: Int64s

    @property
    def num_rows(self) -> int:
        """Return how many rows the page has."""
        return int(self.ended[-1])

    def chunks_of_range(self, start: int, stop: int) -> tuple[int, int]:
        """Return the first chunk that holds any of the rows, and the one after the last."""
        first = int(np.searchsorted(self.begun, start, side="right")) - 1
        last = int(np.searchsorted(self.ended, stop - 1, side="right"))
        return first, last

    def chunks_of_rows(self, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Return for each row the chunk in which it begins and the one in which it ends."""
        first = np.searchsorted(self.begun, rows, side="right") - 1
        last = np.searchsorted(self.ended, rows, side="right") - 1
        return first, last


def parse_repetition_index(data: Bytes, *, num_chunks: int, num_rows: int) -> RepetitionIndex:
    """Read the index of a page.

    >>> index = parse_repetition_index(
    ...     np.array([1, 1, 0, 2, 2, 0], "<u8").view(np.uint8), num_chunks=3, num_rows=3)
    >>> index.begun.tolist(), index.ended.tolist()
    ([0, 2, 2, 3], [0, 1, 1, 3])
    """
    if len(data) != num_chunks * ENTRY_BYTES:
        raise CorruptDataError(
            "the repetition index of a page does not belong to its chunks",
            expected_bytes=num_chunks * ENTRY_BYTES,
            found_bytes=len(data),
        )
    pairs = np.frombuffer(data.tobytes(), "<u8").reshape(-1, 2)
    ends, is_open = pairs[:, 0], pairs[:, 1] > 0
    if len(pairs) and (int(ends.max()) > num_rows or bool(is_open[-1])):
        raise CorruptDataError(
            "the repetition index counts rows that the page does not have",
            rows=num_rows,
            most_in_a_chunk=int(ends.max()),
        )
    ended = np.zeros(num_chunks + 1, np.int64)
    np.cumsum(ends.astype(np.int64), out=ended[1:])
    begun = ended.copy()
    begun[1:] += is_open
    if int(ended[-1]) != num_rows or bool(np.any(np.diff(begun) < 0)):
        raise CorruptDataError(
            "the repetition index does not add up to the rows of the page",
            expected_rows=num_rows,
            found_rows=int(ended[-1]),
        )
    return RepetitionIndex(begun, ended)


def build_repetition_index(repetition: Levels, first_entry: Int64s, rep_max: int) -> Bytes:
    """Return the index of a page whose chunk i holds entries from `first_entry[i]` on.

    `first_entry` has the number of entries as its last item.

    >>> levels = np.array([1, 0, 1, 0, 0, 0, 1], np.uint16)
    >>> build_repetition_index(levels, np.array([0, 3, 5, 7]), 1).view("<u8").tolist()
    [1, 1, 0, 2, 2, 0]
    """
    row_starts = np.flatnonzero(repetition == rep_max)
    begun = np.searchsorted(row_starts, first_entry)
    # A row ends where the next one begins; at the end of the page all have ended.
    opens_row = np.append(repetition[first_entry[:-1]] == rep_max, True)
    ended = np.where(opens_row, begun, begun - 1)
    last_start = row_starts[np.maximum(begun[1:] - 1, 0)]
    left = first_entry[1:] - np.maximum(last_start, first_entry[:-1])
    left[opens_row[1:]] = 0
    pairs = np.empty((len(first_entry) - 1, 2), "<u8")
    pairs[:, 0] = np.diff(ended)
    pairs[:, 1] = left
    return pairs.reshape(-1).view(np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class ChunkLevels:
    """The repetition levels of some chunks, joined, in which rows are found by the index."""

    index: RepetitionIndex
    chunks: Int64s
    repetition: Levels
    num_levels: Int64s
    rep_max: int

    def entries_of_range(self, start: int, stop: int) -> slice:
        """Return the entries of neighbouring rows, whose chunks are all there."""
        row_starts = self._row_starts()
        before = int(self.index.begun[self.chunks[0]])
        is_last = stop - before == len(row_starts)
        end = len(self.repetition) if is_last else int(row_starts[stop - before])
        return slice(int(row_starts[start - before]), end)

    def entries_of_rows(self, rows: Int64s) -> Int64s:
        """Return the entries of single rows, whose chunks are all there."""
        row_starts = self._row_starts()
        stops_of_chunks = np.cumsum(self.num_levels)
        begun = np.diff(self.index.begun)[self.chunks]
        begun_before = np.cumsum(begun) - begun
        begins, ends = self.index.chunks_of_rows(rows)
        at = np.searchsorted(self.chunks, begins)
        which = begun_before[at] + rows - self.index.begun[begins]
        start = row_starts[which]
        # The row that follows may begin in a chunk that was not read.
        next_start = np.append(row_starts, len(self.repetition))[which + 1]
        stop = np.minimum(next_start, stops_of_chunks[np.searchsorted(self.chunks, ends)])
        return expand(start, stop - start)

    def _row_starts(self) -> Int64s:
        """Return the entries that begin a row, after checking that the index knows them all."""
        row_starts = np.flatnonzero(self.repetition == self.rep_max)
        found = np.diff(np.searchsorted(row_starts, np.cumsum(self.num_levels)), prepend=0)
        expected = np.diff(self.index.begun)[self.chunks]
        if not np.array_equal(found, expected):
            chunk = int(np.flatnonzero(found != expected)[0])
            raise CorruptDataError(
                "the repetition levels of a chunk do not have the rows of its index",
                chunk=int(self.chunks[chunk]),
                expected_rows=int(expected[chunk]),
                found_rows=int(found[chunk]),
            )
        return row_starts
