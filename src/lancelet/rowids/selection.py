"""Row sets: which rows of which fragments, by address or by stable id.

Filters, deletions and index results meet here. A set has a bitmap of offsets per fragment, or
says that it has all of a fragment without counting its rows.

    {0: {1, 5}, 3: all}      rows 1 and 5 of fragment 0, and every row of fragment 3

Index files store it as a count, then for each fragment its id, the size of the bitmap and the
bitmap; size 0 stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap, FrozenBitMap

from lancelet.errors import CorruptDataError
from lancelet.format.roaring import bitmap_of, numbers_of, parse_bitmap, render_bitmap
from lancelet.rowids.address import (
    UInt64s,
    addresses_of,
    fragments_of,
    group_by_fragment,
    offsets_of,
)
from lancelet.values import dataclass

ALL: Final = None
"""Stands for every row of a fragment."""

_FRAGMENT: Final = 1 << 32

Offsets: TypeAlias = FrozenBitMap | None


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows by fragment; a fragment whose bitmap is `ALL` is in the set with every row."""

    parts: Mapping[int, Offsets]

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, about: two bytes a row, or a bit for each of many."""
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
        # Looking is several times cheaper than sorting, and most lists are in order.
        is_ordered = bool((addresses[1:] >= addresses[:-1]).all())
        ordered = addresses if is_ordered else np.sort(addresses)
        fragments = fragments_of(ordered)
        starts = np.flatnonzero(np.diff(fragments, prepend=-1))
        parts = np.split(ordered.astype(np.uint32), starts[1:]) if len(ordered) else []
        return RowSet(
            {
                int(fragments[start]): bitmap_of(part)
                for start, part in zip(starts, parts, strict=True)
            }
        )

    @staticmethod
    def of_fragments(fragment_ids: Iterable[int]) -> RowSet:
        """Return the set of all rows of these fragments."""
        return RowSet(dict.fromkeys(fragment_ids, ALL))

    @staticmethod
    def parse(data: bytes) -> RowSet:
        """Return the set of the form that index files hold."""
        count = int.from_bytes(data[:4], "little")
        if len(data) < 4 or count > (len(data) - 4) // 8:
            raise CorruptDataError("a row set is cut short", set_bytes=len(data))
        parts: dict[int, Offsets] = {}
        at = 4
        for _ in range(count):
            head = data[at : at + 8]
            part, size = int.from_bytes(head[:4], "little"), int.from_bytes(head[4:], "little")
            at += 8
            if len(head) < 8 or size > len(data) - at or part in parts:
                raise CorruptDataError(
                    "a row set is cut short, or has a fragment twice", set_bytes=len(data)
                )
            parts[part] = parse_bitmap(data[at : at + size]) if size else ALL
            at += size
        return RowSet(parts)

    def render(self) -> bytes:
        """Return the form that index files hold."""
        pieces = [len(self.parts).to_bytes(4, "little")]
        for part in sorted(self.parts):
            offsets = self.parts[part]
            body = b"" if offsets is ALL else render_bitmap(offsets)
            pieces += [part.to_bytes(4, "little"), len(body).to_bytes(4, "little"), body]
        return b"".join(pieces)

    def __bool__(self) -> bool:
        """Return whether there are any rows; a whole fragment counts as some."""
        return any(offsets is ALL or len(offsets) for offsets in self.parts.values())

    def num_rows(self, physical_rows: Mapping[int, int]) -> int:
        """Return how many rows there are, given how many each whole fragment has."""
        return sum(
            physical_rows[part] if offsets is ALL else len(offsets)
            for part, offsets in self.parts.items()
        )

    def contains(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return for each address whether its row is in the set."""
        hits = np.zeros(len(addresses), np.bool_)
        offsets = offsets_of(addresses)
        for part, places in group_by_fragment(addresses).items():
            if part not in self.parts:
                continue
            bitmap = self.parts[part]
            hits[places] = True if bitmap is ALL else _members(bitmap, offsets[places])
        return hits

    def __or__(self, other: RowSet) -> RowSet:
        """Return the rows that are in either set."""
        merged = dict(self.parts)
        for part, offsets in other.parts.items():
            mine = merged.get(part, _NONE)
            merged[part] = ALL if mine is ALL or offsets is ALL else mine | offsets
        return RowSet(merged)

    def __and__(self, other: RowSet) -> RowSet:
        """Return the rows that are in both sets."""
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
        """Return the rows of this set that are not in the other.

        `physical_rows` says how many rows whole fragments have, from which some are taken.
        """
        rest: dict[int, Offsets] = {}
        for part, mine in self.parts.items():
            theirs = other.parts.get(part, _NONE)
            if theirs is ALL:
                continue
            if not theirs:
                rest[part] = mine
                continue
            whole = FrozenBitMap(BitMap(range(physical_rows[part]))) if mine is ALL else mine
            if whole - theirs:
                rest[part] = whole - theirs
        return RowSet(rest)

    def restricted(self, fragment_ids: Iterable[int]) -> RowSet:
        """Return the rows that are in one of these fragments."""
        return RowSet({part: self.parts[part] for part in fragment_ids if part in self.parts})

    def addresses(self, physical_rows: Mapping[int, int]) -> UInt64s:
        """Return the addresses of all rows, by fragment and offset, ascending."""
        arrays = list(self._arrays(physical_rows))
        return np.concatenate(arrays) if arrays else np.empty(0, np.uint64)

    def listed(self) -> UInt64s:
        """Return the numbers of all rows, of a set that names each one."""
        self._check_listed()
        return self.addresses({})

    @property
    def num_listed(self) -> int:
        """How many rows are named one by one."""
        return sum(len(offsets) for offsets in self.parts.values() if offsets is not ALL)

    def _check_listed(self) -> None:
        whole = [part for part, offsets in self.parts.items() if offsets is ALL]
        if whole:
            raise CorruptDataError(
                "a row set says all rows of a fragment where each must be named", fragment=whole[0]
            )

    def _arrays(self, physical_rows: Mapping[int, int]) -> Iterator[UInt64s]:
        for part in sorted(self.parts):
            offsets = self.parts[part]
            if offsets is ALL:
                yield addresses_of(part, np.arange(physical_rows[part], dtype=np.uint64))
            else:
                yield addresses_of(part, numbers_of(offsets))


_NONE: Final = FrozenBitMap()
NO_ROWS: Final = RowSet({})


@dataclass(frozen=True, slots=True)
class RowMask:
    """Rows that an index may return: those in `allowed`, if it is given, and not in `blocked`."""

    allowed: RowSet | None = None
    blocked: RowSet | None = None

    def admits(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return for each address whether its row passes."""
        passes = np.ones(len(addresses), np.bool_)
        if self.allowed is not None:
            passes &= self.allowed.contains(addresses)
        if self.blocked is not None:
            passes &= ~self.blocked.contains(addresses)
        return passes

    def __and__(self, other: RowMask) -> RowMask:
        """Return the mask of rows that pass both."""
        allowed = [mask.allowed for mask in (self, other) if mask.allowed is not None]
        blocked = [mask.blocked for mask in (self, other) if mask.blocked is not None]
        return RowMask(
            allowed[0] & allowed[-1] if allowed else None,
            blocked[0] | blocked[-1] if blocked else None,
        )


def _members(bitmap: FrozenBitMap, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return for each offset whether the bitmap has it."""
    members = numbers_of(bitmap)
    if not len(members):
        return np.zeros(len(offsets), np.bool_)
    place = np.minimum(np.searchsorted(members, offsets), len(members) - 1)
    hits: npt.NDArray[np.bool_] = members[place] == offsets
    return hits
