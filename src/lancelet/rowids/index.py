"""The row id index: where the row with a stable id is now.

Ids were given out in runs and most rows stay together, so the index is a list of runs of ids
that lie one after another in one fragment, ordered by id:

    ids 0..3     fragment 0 from offset 0
    ids 3..4     fragment 1 from offset 0        row 3 was updated and moved
    ids 4..5     fragment 0 from offset 4

A table of 10^9 rows that was only appended to has as many runs as fragments. A lookup is one
binary search for all ids together.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.rowids.address import NO_ADDRESS, UInt64s, row_address
from lancelet.rowids.deletion import NO_DELETIONS, DeletionVector
from lancelet.rowids.segment import Range
from lancelet.rowids.sequence import RowIdSequence
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RowIdIndex:
    """Runs of ids `start <= id < stop`, ascending, and the address of the first of each."""

    start: UInt64s
    stop: UInt64s
    address: UInt64s

    @staticmethod
    def build(
        fragments: Iterable[tuple[int, RowIdSequence, DeletionVector | None]],
    ) -> RowIdIndex:
        """Return the index of the live rows of fragments, given by id, sequence and deletions."""
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
        twice = start[1:] < stop[:-1]
        if twice.any():
            raise CorruptDataError(
                "two live rows have one row id", row_id=int(start[1:][twice.argmax()])
            )
        # A run may go on where another ends, since writers cut sequences where batches ended.
        goes_on = (start[1:] == stop[:-1]) & (address[1:] - address[:-1] == stop[:-1] - start[:-1])
        first = np.append(True, ~goes_on)[: len(start)]
        last = np.append(~goes_on, True)[: len(start)]
        return RowIdIndex(start[first], stop[last], address[first])

    def __len__(self) -> int:
        """Return how many rows have an id here."""
        return int((self.stop - self.start).sum())

    def addresses(self, ids: UInt64s) -> UInt64s:
        """Return the address of each row, `NO_ADDRESS` where no live row has the id."""
        if not len(self.start):
            return np.full(len(ids), NO_ADDRESS)
        place = np.searchsorted(self.start, ids, side="right") - 1
        at = np.maximum(place, 0)
        found = (place >= 0) & (ids < self.stop[at])
        return np.where(found, self.address[at] + (ids - self.start[at]), NO_ADDRESS)

    def ids(self, addresses: UInt64s) -> UInt64s:
        """Return the id of the row at each address, `NO_ADDRESS` where no live row is."""
        order = np.argsort(self.address, kind="stable")
        turned = RowIdIndex(
            self.address[order],
            self.address[order] + (self.stop - self.start)[order],
            self.start[order],
        )
        return turned.addresses(addresses)


def _whole_ranges(fragment_id: int, sequence: RowIdSequence) -> list[tuple[int, int, int]] | None:
    """Return the runs of a fragment whose ids are ranges, or None if they are not."""
    address = int(row_address(fragment_id, 0))
    found: list[tuple[int, int, int]] = []
    for segment in sequence.segments:
        if not isinstance(segment, Range):
            return None
        if len(segment):
            found.append((segment.start, segment.stop, address))
        address += len(segment)
    return found


def _live_runs(
    fragment_id: int, sequence: RowIdSequence, deletions: DeletionVector
) -> tuple[UInt64s, UInt64s, UInt64s]:
    """Return the runs of live ids of a fragment, in row order."""
    offsets: Int64s = deletions.live_offsets(len(sequence))
    ids = sequence.to_array()[offsets]
    if not len(ids):
        return (np.empty(0, np.uint64),) * 3
    # A run breaks where the next id or the next offset is not one more.
    breaks = (ids[1:] - ids[:-1] != 1) | (np.diff(offsets) != 1)
    starts = np.append(0, np.flatnonzero(breaks) + 1)
    ends = np.append(starts[1:], len(ids)) - 1
    first = np.uint64(row_address(fragment_id, 0))
    return ids[starts], ids[ends] + np.uint64(1), first + offsets[starts].astype(np.uint64)
