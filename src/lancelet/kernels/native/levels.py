"""Levels by `native/src/levels.cpp`; `reference/levels.py` defines it."""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    Levels,
    as_int64s,
    check_counts,
    check_partition,
    check_same_levels,
    slice_arrays,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes

LEVELS_MAX: Final = 1 << 32
"""Maximum number of levels in a slice."""

_LEVEL: Final = np.dtype(np.uint16)
_NO_LEVELS: Final = np.empty(0, _LEVEL)

_INT64 = np.dtype(np.int64)
_NO_PACKED: Final = (np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64), -1)


def expand_list(
    repetition: Levels, definition: Levels, lengths: Int64s, *, continued: int
) -> tuple[Levels, Levels]:
    """Return the levels after replacing each entry by the items of its list."""
    check_same_levels(repetition, definition, lengths)
    total = int(np.maximum(lengths, 1).sum())
    out = empty(total, _LEVEL), empty(total, _LEVEL)
    levels = np.ascontiguousarray(repetition), np.ascontiguousarray(definition)
    status = _native.expand_list(*levels, as_int64s(lengths), continued, *out)
    checked(status, kernel="expand_list")
    return out


def unravel_list(
    repetition: Levels,
    definition: Levels | None,
    *,
    list_level: int,
    item_max: int,
    slot_max: int,
    null_level: int,
    empty_level: int,
) -> tuple[Int64s, Bytes | None, Levels, Levels | None]:
    """Remove one list layer from the levels."""
    check_same_levels(repetition, definition)
    opened = int(np.count_nonzero(repetition >= list_level))
    offsets = empty(opened + 1, np.dtype(np.int64))
    has_bits = null_level > 0 and definition is not None
    bits = empty_bytes((opened + 7) // 8 if has_bits else 0)
    outer_repetition = empty(opened, _LEVEL)
    outer_definition = None if definition is None else empty(opened, _LEVEL)
    status = _native.unravel_list(
        np.ascontiguousarray(repetition),
        _NO_LEVELS if definition is None else np.ascontiguousarray(definition),
        (list_level, item_max, slot_max, empty_level),
        offsets,
        bits,
        outer_repetition,
        _NO_LEVELS if outer_definition is None else outer_definition,
    )
    lists = checked(status, kernel="unravel_list")
    validity = bits[: (lists + 7) // 8] if has_bits else None
    return offsets[: lists + 1], validity, outer_repetition, outer_definition


def pack_validity(definition: Levels, *, slot_max: int, valid_max: int) -> tuple[Bytes, int]:
    """Return a bitmap of entries up to `slot_max`, valid up to `valid_max`, and its size."""
    bits = empty_bytes((len(definition) + 7) // 8)
    levels = np.ascontiguousarray(definition)
    slots = checked(
        _native.pack_validity(levels, slot_max, valid_max, bits), kernel="pack_validity"
    )
    return bits[: (slots + 7) // 8], slots


def count_slots(definition: Levels, counts: Int64s, *, slot_max: int) -> Int64s:
    """Return the number of entries per chunk with a level of at most `slot_max`."""
    kernel = "count_slots"
    check_partition(counts, len(definition), kernel=kernel)
    out = np.empty(len(counts), np.int64)
    levels = np.ascontiguousarray(definition)
    checked(_native.count_slots(levels, as_int64s(counts), slot_max, out), kernel=kernel)
    return out


def rank_slots(definition: Levels, entries: Int64s, *, slot_max: int) -> Int64s:
    """Return the slots of ascending entries, skipping entries without a slot."""
    out = empty(len(entries), np.dtype(np.int64))
    levels = np.ascontiguousarray(definition)
    found = _native.rank_slots(levels, as_int64s(entries), slot_max, out)
    return out[: checked(found, kernel="rank_slots")]


def unpack_levels(slices: ByteSlices, counts: Int64s, width: int) -> Levels:
    """Unpack out-of-line blocks of 16-bit words, `counts[i]` levels of each slice."""
    kernel = "unpack_levels"
    check_counts(counts, max_count=LEVELS_MAX, kernel=kernel)
    arrays = slice_arrays(slices, counts)
    out = empty(int(counts.sum()), _LEVEL)
    checked(_native.unpack_levels(*arrays, as_int64s(counts), width, out), kernel=kernel)
    return out
