"""Row addresses and row ids: two distinct kinds of 64-bit row numbers.

A row address is the current location of a row and changes when the row moves. In tables with stable
row ids, a row id identifies the row permanently; in other tables, the row id is the row address.

    address = fragment << 32 | offset      fragment 2, offset 5 -> 8589934597
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NewType, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError

RowAddress = NewType("RowAddress", int)
RowId = NewType("RowId", int)
UInt64s: TypeAlias = npt.NDArray[np.uint64]

OFFSET_BITS: Final = 32
OFFSETS_MAX: Final = 1 << OFFSET_BITS
NO_ADDRESS: Final = np.uint64(2**64 - 1)
"""Marks a missing row. Equals the last offset of the last fragment, which is never used."""

_SLOTS_PER_ROW: Final = 64
_SLOTS_MAX: Final = 1 << 28
"""Limits of the memory used to sort dense addresses with a mask, in bytes."""

_SHIFT: Final = np.uint64(OFFSET_BITS)
_OFFSET_MASK: Final = np.uint64(OFFSETS_MAX - 1)


def row_address(fragment_id: int, offset: int) -> RowAddress:
    """Return the address of a row.

    >>> row_address(2, 5)
    8589934597
    """
    if not (0 <= fragment_id < OFFSETS_MAX and 0 <= offset < OFFSETS_MAX):
        raise InvalidInputError(
            "fragment ids and row offsets must fit in 32 bits",
            fragment_id=fragment_id,
            offset=offset,
        )
    return RowAddress(fragment_id << OFFSET_BITS | offset)


def addresses_of(fragment_id: int, offsets: npt.NDArray[np.integer]) -> UInt64s:
    """Return the addresses of rows of one fragment."""
    return offsets.astype(np.uint64) | np.uint64(fragment_id << OFFSET_BITS)


def fragments_of(addresses: UInt64s) -> Int64s:
    """Return the fragment id of each address."""
    return (addresses >> _SHIFT).view(np.int64)


def offsets_of(addresses: UInt64s) -> Int64s:
    """Return the row offset of each address."""
    return (addresses & _OFFSET_MASK).view(np.int64)


def distinct(addresses: UInt64s) -> UInt64s:
    """Return the distinct addresses in ascending order.

    >>> distinct(np.array([7, 4294967297, 3, 7], np.uint64)).tolist()
    [3, 7, 4294967297]
    """
    if len(addresses) < 2 or (addresses[1:] > addresses[:-1]).all():
        return addresses
    low = addresses.min()
    span = int(addresses.max() - low) + 1
    if span > min(_SLOTS_PER_ROW * len(addresses), _SLOTS_MAX):
        ordered = np.sort(addresses)  # `np.unique` hashes, which is four times as slow
        is_first = np.ones(len(ordered), np.bool_)
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        return ordered[is_first]
    # For dense addresses, setting a mask is faster than sorting.
    mask = np.zeros(span, np.bool_)
    mask[addresses - low] = True
    dense: UInt64s = np.flatnonzero(mask).view(np.uint64) + low
    return dense


def group_by_fragment(addresses: UInt64s) -> dict[int, Int64s]:
    """Return the indices of the addresses of each fragment, in input order.

    >>> group_by_fragment(np.array([5, 8589934597, 6], np.uint64))
    {0: array([0, 2]), 2: array([1])}
    """
    fragments = fragments_of(addresses)
    # Scan results are already sorted, and sorting them would take most of the time.
    if (fragments[1:] >= fragments[:-1]).all():
        order = np.arange(len(fragments))
    else:
        order = np.argsort(fragments, kind="stable")
        fragments = fragments[order]
    return {fragment_id: order[run] for fragment_id, run in _runs(fragments)}


def offsets_by_fragment(addresses: UInt64s) -> dict[int, Int64s]:
    """Return the row offsets of ascending addresses by fragment.

    >>> offsets_by_fragment(np.array([5, 6, 8589934597], np.uint64))
    {0: array([5, 6]), 2: array([5])}
    """
    runs = _runs(fragments_of(addresses))
    return {fragment_id: offsets_of(addresses[run]) for fragment_id, run in runs}


def _runs(fragments: Int64s) -> Iterator[tuple[int, slice]]:
    """Yield each distinct value of an ascending sequence and its slice."""
    if len(fragments):
        stops = (np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist()
        for start, stop in zip([0, *stops], [*stops, len(fragments)], strict=True):
            yield int(fragments[start]), slice(start, stop)
