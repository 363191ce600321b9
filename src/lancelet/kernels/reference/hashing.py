"""XXH64 of many byte strings at once.

A string is eaten in stripes of 32 bytes, then words of 8, one of 4, and single bytes. All
strings that still have the next piece take the same step together.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import as_bytes, check_numbers, check_seed
from lancelet.kernels.offsets import Offsets, check_offsets

Hashes: TypeAlias = npt.NDArray[np.uint64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_WORD: Final = (1 << 64) - 1
_ZERO: Final = np.zeros(1, np.uint64)


def xxh64_many(offsets: Offsets, data: Bytes, seed: int = 0) -> Hashes:
    """Return the XXH64 of every value."""
    check_offsets(offsets, data.nbytes, kernel="xxh64_many")
    check_seed(seed)
    with np.errstate(over="ignore"):
        return _xxh64(offsets.astype(np.int64), data, seed)


def xxh64_words(values: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Return the XXH64 of the bytes of every number, of 1, 2, 4 or 8 bytes."""
    check_numbers(values)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.itemsize
    return xxh64_many(offsets, as_bytes(values), seed)


def _xxh64(offsets: Int64s, data: Bytes, seed: int) -> Hashes:
    size = np.diff(offsets)
    at = offsets[:-1].copy()
    left = size.copy()
    seeds = [seed + int(_P1) + int(_P2), seed + int(_P2), seed, seed - int(_P1)]
    lanes = [np.full(len(size), start & _WORD, np.uint64) for start in seeds]
    while len(which := np.flatnonzero(left >= 32)):
        for nth, lane in enumerate(lanes):
            lane[which] = _round(lane[which], _words(data, at[which] + 8 * nth, 8))
        at[which] += 32
        left[which] -= 32
    hashes = np.full(len(size), (seed + int(_P5)) & _WORD, np.uint64)
    which = np.flatnonzero(size >= 32)
    merged = np.zeros(len(which), np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        merged += _rotate(lane[which], bits)
    for lane in lanes:
        merged = (merged ^ _round(_ZERO, lane[which])) * _P1 + _P4
    hashes[which] = merged
    hashes += size.astype(np.uint64)
    while len(which := np.flatnonzero(left >= 8)):
        mixed = hashes[which] ^ _round(_ZERO, _words(data, at[which], 8))
        hashes[which] = _rotate(mixed, 27) * _P1 + _P4
        at[which] += 8
        left[which] -= 8
    which = np.flatnonzero(left >= 4)
    mixed = hashes[which] ^ _words(data, at[which], 4) * _P1
    hashes[which] = _rotate(mixed, 23) * _P2 + _P3
    at[which] += 4
    left[which] -= 4
    while len(which := np.flatnonzero(left > 0)):
        mixed = hashes[which] ^ data[at[which]].astype(np.uint64) * _P5
        hashes[which] = _rotate(mixed, 11) * _P1
        at[which] += 1
        left[which] -= 1
    hashes = (hashes ^ hashes >> np.uint64(33)) * _P2
    hashes = (hashes ^ hashes >> np.uint64(29)) * _P3
    return hashes ^ hashes >> np.uint64(32)


def _words(data: Bytes, at: Int64s, size: int) -> Hashes:
    raw = data[at[:, None] + np.arange(size)].view(f"<u{size}")
    words: Hashes = raw.reshape(-1).astype(np.uint64)
    return words


def _round(lane: Hashes, word: Hashes) -> Hashes:
    return _rotate(lane + word * _P2, 31) * _P1


def _rotate(value: Hashes, bits: int) -> Hashes:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)
