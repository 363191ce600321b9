"""Row sets: rows of fragments, by row address or stable row id.

Deletions, filters and index results are combined as row sets. A set maps each fragment to a bitmap
of row offsets, or to `ALL` rows without their count.

    {0: {1, 5}, 3: all}      rows 1 and 5 of fragment 0, and every row of fragment 3

In index files, a set is a count, then for each fragment its id, the size of the bitmap and the
bitmap; size 0 represents `ALL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError
from lancelet.format.roaring import parse_bitmap, render_bitmap, to_bitmap, to_numbers
from lancelet.rowids.address import (
    UInt64s,
    addresses_of,
    fragments_of,
    group_by_fragment,
    offsets_of,
)
from lancelet.values import dataclass

ALL: Final = None
"""Represents every row of a fragment."""

_FRAGMENT: Final = 1 << 32

Offsets: TypeAlias = FrozenBitMap | None


@dataclass(frozen=True, slots=True)
class RowSet:
    """A set of rows by fragment. The value `ALL` selects every row of a fragment."""

    parts: Mapping[int, Offsets]

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use: two bytes per row, or one bit per row of a dense bitmap."""
        return sum(
            100 if own is ALL else 100 + min(2 * len(own), (own.max() if own else 0) // 8 + 1)
            for own in self.parts.values()
        )

    @staticmethod
    def of(addresses: UInt64s) -> RowSet:
        """Return the set of rows at these addresses.

        >>> RowSet.of(np.array([1, 5, 1], np.uint64)).parts
        {0: FrozenBitMap([1, 5])}
        """
        if len(addresses) == 1:
            fragment, offset = divmod(int(addresses[0]), _FRAGMENT)
            return RowSet({fragment: FrozenBitMap((offset,))})
        # Most inputs are sorted, and checking is several times cheaper than sorting.
        is_ordered = bool((addresses[1:] >= addresses[:-1]).all())
        ordered = addresses if is_ordered else np.sort(addresses)
        fragments = fragments_of(ordered)
        starts = np.flatnonzero(np.diff(fragments, prepend=-1))
        parts = np.split(ordered.astype(np.uint32), starts[1:]) if len(ordered) else []
        return RowSet(
            {
                int(fragments[start]): to_bitmap(part)
                for start, part in zip(starts, parts, strict=True)
            }
        )

    @staticmethod
    def of_fragments(fragment_ids: Iterable[int]) -> RowSet:
        """Return the set of all rows of these fragments."""
        return RowSet(dict.fromkeys(fragment_ids, ALL))

    @staticmethod
    def parse(data: bytes) -> RowSet:
        """Parse the index file representation."""
        count = int.from_bytes(data[:4], "little")
        if len(data) < 4 or count > (len(data) - 4) // 8:
            raise CorruptDataError("a row set is truncated", set_bytes=len(data))
        parts: dict[int, Offsets] = {}
        position = 4
        for _ in range(count):
            head = data[position : position + 8]
            part, size = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
            position += 8
            if len(head) < 8 or size > len(data) - position or part in parts:
                raise CorruptDataError(
                    "a row set is truncated or lists a fragment twice", set_bytes=len(data)
                )
            parts[part] = parse_bitmap(data[position : position + size]) if size else ALL
            position += size
        return RowSet(parts)

    def render(self) -> bytes:
        """Return the index file representation."""
        buffers = [len(self.parts).to_bytes(4, "little")]
        for part in sorted(self.parts):
            offsets = self.parts[part]
            body = b"" if offsets is ALL else render_bitmap(offsets)
            buffers += [part.to_bytes(4, "little"), len(body).to_bytes(4, "little"), body]
        return b"".join(buffers)

    def __bool__(self) -> bool:
        """Return whether the set is not empty. An `ALL` fragment counts as not empty."""
        return any(offsets is ALL or len(offsets) for offsets in self.parts.values())

    def num_rows(self, physical_rows: Mapping[int, int]) -> int:
        """Return the number of rows; `physical_rows` holds the row counts of `ALL` fragments."""
        return sum(
            physical_rows[part] if offsets is ALL else len(offsets)
            for part, offsets in self.parts.items()
        )

    def contains(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the addresses that are in the set."""
        hits = np.zeros(len(addresses), np.bool_)
        offsets = offsets_of(addresses)
        for part, indices in group_by_fragment(addresses).items():
            if part not in self.parts:
                continue
            bitmap = self.parts[part]
            hits[indices] = True if bitmap is ALL else _members(bitmap, offsets[indices])
        return hits

    def __or__(self, other: RowSet) -> RowSet:
        """Return the union of both sets."""
        merged = dict(self.parts)
        for part, offsets in other.parts.items():
            mine = merged.get(part, _NONE)
            merged[part] = ALL if mine is ALL or offsets is ALL else mine | offsets
        return RowSet(merged)

    def __and__(self, other: RowSet) -> RowSet:
        """Return the intersection of both sets."""
        shared: dict[int, Offsets] = {}
        for part, mine in self.parts.items():
            if part not in other.parts:
                continue
            theirs = other.parts[part]
            if mine is ALL or theirs is ALL:
                shared[part] = theirs if mine is ALL else mine
            elif mine & theirs:
                shared[part] = mine & theirs
        return RowSet(shared)

    def minus(self, other: RowSet, physical_rows: Mapping[int, int]) -> RowSet:
        """Return the rows of this set that are not in `other`.

        `physical_rows` holds the row counts of the fragments with `ALL` rows that lose some.
        """
        remaining: dict[int, Offsets] = {}
        for part, mine in self.parts.items():
            theirs = other.parts.get(part, _NONE)
            if theirs is ALL:
                continue
            if not theirs:
                remaining[part] = mine
                continue
            whole = FrozenBitMap(BitMap(range(physical_rows[part]))) if mine is ALL else mine
            if whole - theirs:
                remaining[part] = whole - theirs
        return RowSet(remaining)

    def restricted(self, fragment_ids: Iterable[int]) -> RowSet:
        """Return the rows within these fragments."""
        return RowSet({part: self.parts[part] for part in fragment_ids if part in self.parts})

    def addresses(self, physical_rows: Mapping[int, int]) -> UInt64s:
        """Return the addresses of all rows in ascending order."""
        arrays = list(self._arrays(physical_rows))
        return np.concatenate(arrays) if arrays else np.empty(0, np.uint64)

    def listed(self) -> UInt64s:
        """Return the row numbers of a set without `ALL` fragments."""
        self._check_listed()
        return self.addresses({})

    @property
    def num_listed(self) -> int:
        """Number of rows listed in bitmaps."""
        return sum(len(offsets) for offsets in self.parts.values() if offsets is not ALL)

    def _check_listed(self) -> None:
        whole = [part for part, offsets in self.parts.items() if offsets is ALL]
        if whole:
            raise CorruptDataError(
                "a row set selects a whole fragment where individual rows are required",
                fragment=whole[0],
            )

    def _arrays(self, physical_rows: Mapping[int, int]) -> Iterator[UInt64s]:
        for part in sorted(self.parts):
            offsets = self.parts[part]
            if offsets is ALL:
                yield addresses_of(part, np.arange(physical_rows[part], dtype=np.uint64))
            else:
                yield addresses_of(part, to_numbers(offsets))


_NONE: Final = FrozenBitMap()
NO_ROWS: Final = RowSet({})


@dataclass(frozen=True, slots=True)
class RowMask:
    """Rows that an index may return: those in `allowed`, if set, except those in `blocked`."""

    allowed: RowSet | None = None
    blocked: RowSet | None = None

    def admits(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the addresses that pass."""
        passes = np.ones(len(addresses), np.bool_)
        if self.allowed is not None:
            passes &= self.allowed.contains(addresses)
        if self.blocked is not None:
            passes &= ~self.blocked.contains(addresses)
        return passes

    def __and__(self, other: RowMask) -> RowMask:
        """Return the mask of rows that pass both masks."""
        allowed = [mask.allowed for mask in (self, other) if mask.allowed is not None]
        blocked = [mask.blocked for mask in (self, other) if mask.blocked is not None]
        return RowMask(
            allowed[0] & allowed[-1] if allowed else None,
            blocked[0] | blocked[-1] if blocked else None,
        )


def _members(bitmap: FrozenBitMap, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return a mask of the offsets that are in the bitmap."""
    members = to_numbers(bitmap)
    if not len(members):
        return np.zeros(len(offsets), np.bool_)
    indices = np.minimum(np.searchsorted(members, offsets), len(members) - 1)
    hits: npt.NDArray[np.bool_] = members[indices] == offsets
    return hits
