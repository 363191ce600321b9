"""The row id index: maps stable row ids to current row addresses.

Ids are assigned in runs, and most rows are never moved. The index is a sorted list of id runs,
each contiguous in one fragment:

    ids 0..3     fragment 0 from offset 0
    ids 3..4     fragment 1 from offset 0        row 3 was updated and moved
    ids 4..5     fragment 0 from offset 4

An append-only table of 10^9 rows has one run per fragment. A lookup is one vectorized binary
search.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.rowids.address import NO_ADDRESS, UInt64s, row_address
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.rowids.segment import Range
from lancelet.rowids.sequence import RowIdSequence
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RowIdIndex:
    """Sorted runs of ids `start <= id < stop`, and the address of the first row of each run."""

    start: UInt64s
    stop: UInt64s
    address: UInt64s

    @staticmethod
    def build(
        fragments: Iterable[tuple[int, RowIdSequence, DeletionVector | None]],
    ) -> RowIdIndex:
        """Build the index for the live rows of (fragment id, row ids, deletions) tuples."""
        ranges: list[tuple[int, int, int]] = []
        parts: list[tuple[UInt64s, UInt64s, UInt64s]] = []
        for fragment_id, sequence, deletions in fragments:
            whole = None if deletions else _whole_ranges(fragment_id, sequence)
            if whole is None:
                parts.append(_live_runs(fragment_id, sequence, deletions or NO_DELETIONS))
            else:
                ranges += whole
        columns = np.array(ranges, np.uint64).reshape(-1, 3).T
        parts.append((columns[0], columns[1], columns[2]))
        start, stop, address = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(start, kind="stable")
        start, stop, address = start[order], stop[order], address[order]
        is_duplicate = start[1:] < stop[:-1]
        if is_duplicate.any():
            raise CorruptDataError(
                "two live rows have the same row id", row_id=int(start[1:][is_duplicate.argmax()])
            )
        # Writers split sequences at batch boundaries, so adjacent runs can be merged.
        is_continued = (start[1:] == stop[:-1]) & (
            address[1:] - address[:-1] == stop[:-1] - start[:-1]
        )
        first = np.append(True, ~is_continued)[: len(start)]
        last = np.append(~is_continued, True)[: len(start)]
        return RowIdIndex(start[first], stop[last], address[first])

    def __len__(self) -> int:
        """Return the number of indexed rows."""
        return int((self.stop - self.start).sum())

    def addresses(self, ids: UInt64s) -> UInt64s:
        """Return the address of each row id, `NO_ADDRESS` if no live row has the id."""
        if not len(self.start):
            return np.full(len(ids), NO_ADDRESS)
        runs = np.searchsorted(self.start, ids, side="right") - 1
        clipped = np.maximum(runs, 0)
        is_indexed = (runs >= 0) & (ids < self.stop[clipped])
        return np.where(is_indexed, self.address[clipped] + (ids - self.start[clipped]), NO_ADDRESS)

    def ids(self, addresses: UInt64s) -> UInt64s:
        """Return the row id at each address, `NO_ADDRESS` if there is no live row."""
        order = np.argsort(self.address, kind="stable")
        inverse = RowIdIndex(
            self.address[order],
            self.address[order] + (self.stop - self.start)[order],
            self.start[order],
        )
        return inverse.addresses(addresses)


def _whole_ranges(fragment_id: int, sequence: RowIdSequence) -> list[tuple[int, int, int]] | None:
    """Return the runs of a fragment, or None if a segment is not a range."""
    address = int(row_address(fragment_id, 0))
    runs: list[tuple[int, int, int]] = []
    for segment in sequence.segments:
        if not isinstance(segment, Range):
            return None
        if len(segment):
            runs.append((segment.start, segment.stop, address))
        address += len(segment)
    return runs


def _runs_between(
    fragment_id: int, sequence: RowIdSequence, deleted: Int64s
) -> tuple[UInt64s, UInt64s, UInt64s]:
    """Return the runs of ids between deleted rows, for a sequence of ranges."""
    ranges = [segment for segment in sequence.segments if isinstance(segment, Range)]
    edges = np.cumsum([0, *map(len, ranges)])
    first_ids = np.array([each.start for each in ranges], np.uint64)
    # A run starts at a range or after a deleted row, and ends before the next of either.
    is_last = np.append(deleted[1:] != deleted[:-1] + 1, True)[: len(deleted)]
    after = deleted[is_last] + 1
    firsts = edges[:-1][~_contains(deleted, edges[:-1])]
    starts = _merged(firsts[firsts < edges[-1]], after[after < edges[-1]])
    stops = _merged(edges[1:], deleted)
    stops = stops[np.searchsorted(stops, starts, side="right")]
    within = np.searchsorted(edges, starts, side="right") - 1
    ids = first_ids[within] + (starts - edges[within]).astype(np.uint64)
    addresses = np.uint64(row_address(fragment_id, 0)) + starts.astype(np.uint64)
    return ids, ids + (stops - starts).astype(np.uint64), addresses


def _merged(left: Int64s, right: Int64s) -> Int64s:
    """Return the distinct values of ascending arrays, in order."""
    both = np.sort(np.concatenate([left, right]), kind="stable")  # merges ascending runs
    distinct: Int64s = both[np.append(True, both[1:] != both[:-1])[: len(both)]]
    return distinct


def _contains(ascending: Int64s, values: Int64s) -> npt.NDArray[np.bool_]:
    """Return whether each value is in an ascending array."""
    slots = np.searchsorted(ascending, values)
    found: npt.NDArray[np.bool_] = np.append(ascending, -1)[slots] == values
    return found


def _live_runs(
    fragment_id: int, sequence: RowIdSequence, deletions: DeletionVector
) -> tuple[UInt64s, UInt64s, UInt64s]:
    """Return the runs of live ids of a fragment, in row order."""
    if all(isinstance(segment, Range) for segment in sequence.segments):
        deletions.check_within(len(sequence))
        return _runs_between(fragment_id, sequence, deletions.to_array().astype(np.int64))
    offsets: Int64s = deletions.live_offsets(len(sequence))
    ids = sequence.to_array()[offsets]
    if not len(ids):
        return (np.empty(0, np.uint64),) * 3
    # A run ends where the next id or offset is not consecutive.
    breaks = (ids[1:] - ids[:-1] != 1) | (np.diff(offsets) != 1)
    starts = np.append(0, np.flatnonzero(breaks) + 1)
    ends = np.append(starts[1:], len(ids)) - 1
    first = np.uint64(row_address(fragment_id, 0))
    return ids[starts], ids[ends] + np.uint64(1), first + offsets[starts].astype(np.uint64)
