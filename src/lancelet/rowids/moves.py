"""New addresses of rows after a compaction that preserved row order and dropped deleted rows.

    fragment 1   rows 0 1 2 3, row 1 deleted      fragment 2   rows 0 1
    in order     1:0 1:2 1:3 2:0 2:1
    new          fragment 7 of 3 rows, fragment 8 of 2 rows
    moves        1:0 -> 7:0   1:2 -> 7:1   1:3 -> 7:2   2:0 -> 8:0   2:1 -> 8:1   1:1 deleted

No state is stored per row: the new position of a row is its offset minus the number of deleted rows
before it.
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
    """A fragment that was rewritten, with its row count and the rows deleted at that time."""

    fragment_id: int
    physical_rows: int
    deleted: DeletionVector


class Target(NamedTuple):
    """A new fragment and its row count."""

    fragment_id: int
    rows: int


@dataclass(frozen=True, slots=True, eq=False)
class RowMoves:
    """Address mapping of one group of rewritten fragments."""

    sources: dict[int, tuple[int, Source]]
    target_ids: UInt64s
    target_stops: Int64s

    @staticmethod
    def of(sources: Iterable[Source], targets: Iterable[Target]) -> RowMoves:
        """Map the live rows of `sources` to `targets`, both in the given order.

        >>> moves = RowMoves.of(
        ...     [Source(1, 4, DeletionVector.of([1])), Source(2, 2, DeletionVector.of([]))],
        ...     [Target(7, 3), Target(8, 2)],
        ... )
        >>> new = moves.translate(np.array([1 << 32 | 3, 2 << 32, 1 << 32 | 1], np.uint64))
        >>> [f"{int(address) >> 32}:{int(address) & 7}" for address in new[:2]], new[2]
        (['7:2', '8:0'], np.uint64(18446744073709551615))
        """
        first, sources_by_id = 0, {}
        for source in sources:
            sources_by_id[source.fragment_id] = (first, source)
            first += source.physical_rows - len(source.deleted)
        target_list = list(targets)
        stops = np.cumsum(np.array([target.rows for target in target_list], np.int64))
        if first != (int(stops[-1]) if target_list else 0):
            raise CorruptDataError(
                "rewritten fragments and their sources disagree on the number of live rows",
                expected=first,
                found=int(stops[-1]) if target_list else 0,
                fragments=sorted(sources_by_id),
            )
        return RowMoves(
            sources_by_id,
            np.array([target.fragment_id for target in target_list], np.uint64),
            stops,
        )

    def translate(self, addresses: UInt64s) -> UInt64s:
        """Return the new addresses, `NO_ADDRESS` for deleted rows.

        Addresses in other fragments are returned unchanged.
        """
        moved = addresses.copy()
        for fragment_id, indices in group_by_fragment(addresses).items():
            entry = self.sources.get(fragment_id)
            if entry is not None:
                moved[indices] = self._translate_offsets(*entry, offsets_of(addresses[indices]))
        return moved

    def _translate_offsets(self, first: int, source: Source, offsets: Int64s) -> UInt64s:
        deleted: npt.NDArray[np.int64] = source.deleted.to_array().astype(np.int64)
        before = np.searchsorted(deleted, offsets, side="left")
        is_deleted = np.searchsorted(deleted, offsets, side="right") > before
        is_deleted |= offsets >= source.physical_rows
        positions = first + offsets - before
        target = np.searchsorted(self.target_stops, positions, side="right")
        target = np.minimum(target, max(len(self.target_stops) - 1, 0))
        if not len(self.target_stops):
            return np.full(len(offsets), NO_ADDRESS)
        starts = np.append(0, self.target_stops[:-1])
        addresses = self.target_ids[target] << np.uint64(OFFSET_BITS)
        addresses = addresses | (positions - starts[target]).astype(np.uint64)
        return np.where(is_deleted, NO_ADDRESS, addresses)
