"""XXH64, hash lookup of keys, and split-block Bloom filters."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import (
    FILTER_BLOCK_BYTES,
    as_bytes,
    check_bucket_count,
    check_buckets,
    check_filters,
    check_numbers,
    check_seed,
)
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, check_offsets

Hashes: TypeAlias = npt.NDArray[np.uint64]

_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_WORD: Final = (1 << 64) - 1
_ZERO: Final = np.zeros(1, np.uint64)

Int32s: TypeAlias = npt.NDArray[np.int32]

_C1: Final = np.uint64(0xBF58476D1CE4E5B9)
_C2: Final = np.uint64(0x94D049BB133111EB)

_SALT: Final = np.array(
    [
        0x47B6137B,
        0x44974D91,
        0x8824AD5B,
        0xA2B7289D,
        0x705495C7,
        0x2DF1424B,
        0x9EFC4947,
        0x5C6BFB31,
    ],
    np.uint32,
)
_WORD_OFFSETS: Final = np.arange(8, dtype=np.int64) * 32
_BLOCK_BITS: Final = 8 * FILTER_BLOCK_BYTES
_LOW: Final = np.uint64(0xFFFFFFFF)
_SHIFT: Final = np.uint64(32)


def xxh64_many(offsets: Offsets, data: Bytes, seed: int = 0) -> Hashes:
    """Return the XXH64 of every value.

    XXH64 consumes stripes of 32 bytes, then words of 8, one of 4, and single bytes. All strings
    with remaining data are processed together.
    """
    check_offsets(offsets, data.nbytes, kernel="xxh64_many")
    check_seed(seed)
    with np.errstate(over="ignore"):
        return _xxh64(offsets.astype(np.int64), data, seed)


def xxh64_fixed(values: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Return the XXH64 of the bytes of every number of 1, 2, 4 or 8 bytes."""
    check_numbers(values)
    offsets = np.arange(len(values) + 1, dtype=np.int64) * values.itemsize
    return xxh64_many(offsets, as_bytes(values), seed)


def _xxh64(offsets: Int64s, data: Bytes, seed: int) -> Hashes:
    size = np.diff(offsets)
    at = offsets[:-1].copy()
    left = size.copy()
    seeds = [seed + int(_P1) + int(_P2), seed + int(_P2), seed, seed - int(_P1)]
    lanes = [np.full(len(size), start & _WORD, np.uint64) for start in seeds]
    while len(active := np.flatnonzero(left >= 32)):
        for nth, lane in enumerate(lanes):
            lane[active] = _mix_lane(lane[active], _load_integers(data, at[active] + 8 * nth, 8))
        at[active] += 32
        left[active] -= 32
    hashes = np.full(len(size), (seed + int(_P5)) & _WORD, np.uint64)
    active = np.flatnonzero(size >= 32)
    merged = np.zeros(len(active), np.uint64)
    for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True):
        merged += _rotate(lane[active], bits)
    for lane in lanes:
        merged = (merged ^ _mix_lane(_ZERO, lane[active])) * _P1 + _P4
    hashes[active] = merged
    hashes += size.astype(np.uint64)
    while len(active := np.flatnonzero(left >= 8)):
        mixed = hashes[active] ^ _mix_lane(_ZERO, _load_integers(data, at[active], 8))
        hashes[active] = _rotate(mixed, 27) * _P1 + _P4
        at[active] += 8
        left[active] -= 8
    active = np.flatnonzero(left >= 4)
    mixed = hashes[active] ^ _load_integers(data, at[active], 4) * _P1
    hashes[active] = _rotate(mixed, 23) * _P2 + _P3
    at[active] += 4
    left[active] -= 4
    while len(active := np.flatnonzero(left > 0)):
        mixed = hashes[active] ^ data[at[active]].astype(np.uint64) * _P5
        hashes[active] = _rotate(mixed, 11) * _P1
        at[active] += 1
        left[active] -= 1
    hashes = (hashes ^ hashes >> np.uint64(33)) * _P2
    hashes = (hashes ^ hashes >> np.uint64(29)) * _P3
    return hashes ^ hashes >> np.uint64(32)


def _load_integers(data: Bytes, at: Int64s, size: int) -> Hashes:
    raw = data[at[:, None] + np.arange(size)].view(f"<u{size}")
    values: Hashes = raw.reshape(-1).astype(np.uint64)
    return values


def _mix_lane(lane: Hashes, word: Hashes) -> Hashes:
    return _rotate(lane + word * _P2, 31) * _P1


def _rotate(value: Hashes, bits: int) -> Hashes:
    return value << np.uint64(bits) | value >> np.uint64(64 - bits)


def mix_integers(values: Hashes, seed: int = 0) -> Hashes:
    """Mix the bits of integers by a bijection."""
    check_seed(seed)
    mixed = values ^ np.uint64(seed)
    with np.errstate(over="ignore"):
        mixed = (mixed ^ mixed >> np.uint64(30)) * _C1
        mixed = (mixed ^ mixed >> np.uint64(27)) * _C2
    result: Hashes = mixed ^ mixed >> np.uint64(31)
    return result


def bucket_rows(hashes: Hashes, bits: int) -> tuple[Int32s, Int32s]:
    """Return the start of each bucket of the upper `bits` of hashes, and the rows by bucket.

        hashes   0110..  1001..  0111..       two bits make four buckets
        buckets  01: rows 0 and 2    10: row 1
        starts   0 0 2 3 3                    bucket b has the entries starts[b] to starts[b + 1]
        rows     0 2 1                        the row of each entry

    Rows of a bucket are in order, so `match_hashes` finds the first of several equal hashes.
    """
    check_buckets(len(hashes), bits)
    bucket = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    starts = np.zeros((1 << bits) + 1, np.int64)
    np.cumsum(np.bincount(bucket, minlength=1 << bits), out=starts[1:])
    return starts.astype(np.int32), np.argsort(bucket, kind="stable").astype(np.int32)


def match_hashes(starts: Int32s, ordered: Hashes, probes: Hashes) -> Int32s:
    """Return the index of each probe among hashes sorted by bucket, or -1."""
    bits = check_bucket_count(starts)
    if starts[0] != 0 or starts[-1] != len(ordered) or bool((starts[1:] < starts[:-1]).any()):
        raise corrupt(Fault.BAD_OFFSETS, kernel="match_hashes", index=0)
    bucket = (probes >> np.uint64(64 - bits)).astype(np.int64)
    at, stop = starts[bucket].astype(np.int64), starts[bucket + 1]
    found = np.full(len(probes), -1, np.int32)
    while len(left := np.flatnonzero((at < stop) & (found < 0))):
        hit = left[ordered[at[left]] == probes[left]]
        found[hit] = at[hit]
        at[left] += 1
    return found


def build_filters(hashes: Hashes, stops: Int64s, filter_bytes: int) -> Bytes:
    """Return concatenated Bloom filters; filter i has the hashes before `stops[i]`.

    A filter stores eight bits per value, in one block of 256 bits:

        hash      0x9ae1_6a3b_2f90_404f
        block     the upper half of the hash, scaled to the number of blocks
        bits      one in each of the block's eight words: the lower half times a salt, upper 5 bits

    >>> filters = build_filters(np.array([7, 8], np.uint64), np.array([1, 2]), 32)
    >>> np.unpackbits(filters.reshape(2, 32), axis=1).sum(axis=1).tolist()
    [8, 8]
    """
    check_filters((), filter_bytes)
    if (np.diff(stops, prepend=0) < 0).any() or (len(stops) and stops[-1] > len(hashes)):
        raise corrupt(Fault.BAD_OFFSETS, kernel="build_filters", index=0)
    if (stops[-1] if len(stops) else 0) != len(hashes):
        raise corrupt(Fault.BAD_LENGTH, kernel="build_filters", index=0)
    bits = np.zeros(len(stops) * filter_bytes * 8, np.bool_)
    zone = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
    block = _blocks(hashes, np.uint64(filter_bytes // FILTER_BLOCK_BYTES)) * _BLOCK_BITS
    bits[(zone * filter_bytes * 8 + block)[:, None] + _bits_of(hashes)] = True
    return np.packbits(bits, bitorder="little")


def probe_filters(
    data: Bytes, starts: Int64s, sizes: Int64s, hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """Return for each filter in `data` and each hash whether it may be contained."""
    check_filters((len(starts), len(sizes)), sizes)
    bad = (starts < 0) | (starts + sizes > data.nbytes)
    if bad.any():
        raise corrupt(Fault.OUT_OF_SOURCE, kernel="probe_filters", index=int(bad.argmax()))
    num_blocks = (sizes // FILTER_BLOCK_BYTES).astype(np.uint64)
    block = _blocks(hashes[None, :], num_blocks[:, None])
    bit = block[:, :, None] * _BLOCK_BITS + _bits_of(hashes)[None, :, :]
    byte = data[starts[:, None, None] + (bit >> 3)]
    is_set = (byte >> (bit & 7).astype(np.uint8)) & 1
    found: npt.NDArray[np.bool_] = np.logical_and.reduce(is_set, axis=2)
    return found


def _blocks(
    hashes: Hashes, num_blocks: npt.NDArray[np.uint64] | np.uint64
) -> npt.NDArray[np.int64]:
    scaled: npt.NDArray[np.int64] = (((hashes >> _SHIFT) * num_blocks) >> _SHIFT).astype(np.int64)
    return scaled


def _bits_of(hashes: Hashes) -> npt.NDArray[np.int64]:
    """Return the eight bit indices of each hash within its block."""
    low = (hashes & _LOW).astype(np.uint32)
    bits: npt.NDArray[np.int64] = ((low[:, None] * _SALT) >> np.uint32(27)).astype(np.int64)
    return bits + _WORD_OFFSETS
