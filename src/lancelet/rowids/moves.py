"""Where rows went when fragments were rewritten in their order, without the deleted ones.

    fragment 1   rows 0 1 2 3, row 1 deleted      fragment 2   rows 0 1
    in order     1:0 1:2 1:3 2:0 2:1
    new          fragment 7 of 3 rows, fragment 8 of 2 rows
    so           1:0 -> 7:0   1:2 -> 7:1   1:3 -> 7:2   2:0 -> 8:0   2:1 -> 8:1   1:1 -> nowhere

Nothing is kept per row: the place of a row is its offset less the deleted rows before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError
from lancelet.rowids.address import (
    NO_ADDRESS,
    OFFSET_BITS,
    UInt64s,
    group_by_fragment,
    offsets_of,
)
from lancelet.rowids.deletion import DeletionVector
from lancelet.values import dataclass


class Source(NamedTuple):
    """A fragment that was rewritten: its rows, and which of them were deleted then."""

    fragment_id: int
    physical_rows: int
    deleted: DeletionVector


class Target(NamedTuple):
    """A fragment that was made, and how many rows it got."""

    fragment_id: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RowMoves:
    """The way of the rows of one group of fragments."""

    sources: dict[int, tuple[int, Source]]
    target_ids: UInt64s
    target_stops: Int64s

    @staticmethod
    def of(sources: Iterable[Source], targets: Iterable[Target]) -> RowMoves:
        """Return how the live rows of `sources` fill `targets`, both in the order given.

        >>> moves = RowMoves.of(
        ...     [Source(1, 4, DeletionVector.of([1])), Source(2, 2, DeletionVector.of([]))],
        ...     [Target(7, 3), Target(8, 2)],
        ... )
        >>> new = moves.translate(np.array([1 << 32 | 3, 2 << 32, 1 << 32 | 1], np.uint64))
        >>> [f"{int(address) >> 32}:{int(address) & 7}" for address in new[:2]], new[2]
        (['7:2', '8:0'], np.uint64(18446744073709551615))
        """
        first, placed = 0, {}
        for source in sources:
            placed[source.fragment_id] = (first, source)
            first += source.physical_rows - len(source.deleted)
        made = list(targets)
        stops = np.cumsum(np.array([target.rows for target in made], np.int64))
        if first != (int(stops[-1]) if made else 0):
            raise CorruptDataError(
                "a rewrite does not have as many rows as it replaces",
                expected=first,
                found=int(stops[-1]) if made else 0,
                fragments=sorted(placed),
            )
        return RowMoves(placed, np.array([target.fragment_id for target in made], np.uint64), stops)

    def translate(self, addresses: UInt64s) -> UInt64s:
        """Return where rows are now, `NO_ADDRESS` for those that were deleted.

        Rows of fragments that were not rewritten stay where they are.
        """
        moved = addresses.copy()
        for fragment_id, places in group_by_fragment(addresses).items():
            found = self.sources.get(fragment_id)
            if found is not None:
                moved[places] = self._landed(*found, offsets_of(addresses[places]))
        return moved

    def _landed(self, first: int, source: Source, offsets: Int64s) -> UInt64s:
        deleted: npt.NDArray[np.int64] = source.deleted.to_array().astype(np.int64)
        before = np.searchsorted(deleted, offsets, side="left")
        gone = np.searchsorted(deleted, offsets, side="right") > before
        gone |= offsets >= source.physical_rows
        places = first + offsets - before
        target = np.searchsorted(self.target_stops, places, side="right")
        target = np.minimum(target, max(len(self.target_stops) - 1, 0))
        if not len(self.target_stops):
            return np.full(len(offsets), NO_ADDRESS)
        starts = np.append(0, self.target_stops[:-1])
        landed = self.target_ids[target] << np.uint64(OFFSET_BITS)
        landed = landed | (places - starts[target]).astype(np.uint64)
        return np.where(gone, NO_ADDRESS, landed)
