"""XXH64 by `native/src/hashing.cpp`; `reference/hashing.py` defines it."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_bytes,
    as_int64s,
    check_bucket_count,
    check_buckets,
    check_filters,
    check_numbers,
    check_seed,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty
from lancelet.kernels.offsets import Offsets, check_has_offsets

Hashes: TypeAlias = npt.NDArray[np.uint64]

Int32s: TypeAlias = npt.NDArray[np.int32]

_INT32: Final = np.dtype(np.int32)
_UINT64: Final = np.dtype(np.uint64)


def xxh64_many(offsets: Offsets, data: Bytes, seed: int = 0) -> Hashes:
    """Return the XXH64 of every value."""
    check_has_offsets(offsets, kernel="xxh64_many")
    check_seed(seed)
    hashes = np.empty(len(offsets) - 1, np.uint64)
    width = offsets.dtype.itemsize
    checked(_native.xxh64_many(as_bytes(offsets), width, data, seed, hashes), kernel="xxh64_many")
    return hashes


def xxh64_fixed(values: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Return the XXH64 of the bytes of every number of 1, 2, 4 or 8 bytes."""
    check_numbers(values)
    check_seed(seed)
    hashes = np.empty(len(values), np.uint64)
    status = _native.xxh64_fixed(as_bytes(values), values.itemsize, seed, hashes)
    checked(status, kernel="xxh64_fixed")
    return hashes


def mix_integers(values: Hashes, seed: int = 0) -> Hashes:
    """Mix the bits of integers by a bijection."""
    check_seed(seed)
    out = empty(len(values), _UINT64)
    checked(_native.mix_integers(_aligned(values), seed, out), kernel="mix_integers")
    return out


def bucket_rows(hashes: Hashes, bits: int) -> tuple[Int32s, Int32s]:
    """Return the start of each bucket of the upper `bits` of hashes, and the rows by bucket."""
    check_buckets(len(hashes), bits)
    starts, rows = empty((1 << bits) + 1, _INT32), empty(len(hashes), _INT32)
    checked(_native.bucket_rows(_aligned(hashes), bits, starts, rows), kernel="bucket_rows")
    return starts, rows


def match_hashes(starts: Int32s, ordered: Hashes, probes: Hashes) -> Int32s:
    """Return the index of each probe among hashes sorted by bucket, or -1."""
    bits = check_bucket_count(starts)
    found = empty(len(probes), _INT32)
    status = _native.match_hashes(starts, _aligned(ordered), _aligned(probes), bits, found)
    checked(status, kernel="match_hashes")
    return found


def _aligned(values: Hashes) -> Hashes:
    return np.require(values, np.uint64, ["C", "A"])


def build_filters(hashes: Hashes, stops: Int64s, filter_bytes: int) -> Bytes:
    """Return concatenated Bloom filters; filter i has the hashes before `stops[i]`."""
    check_filters((), filter_bytes)
    filters = np.empty(len(stops) * filter_bytes, np.uint8)
    status = _native.build_filters(_aligned(hashes), as_int64s(stops), filters)
    checked(status, kernel="build_filters")
    return filters


def probe_filters(
    data: Bytes, starts: Int64s, sizes: Int64s, hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """Return for each filter in `data` and each hash whether it may be contained."""
    check_filters((len(starts), len(sizes)), sizes)
    found = np.empty((len(starts), len(hashes)), np.bool_)
    status = _native.probe_filters(
        as_bytes(data), as_int64s(starts), as_int64s(sizes), _aligned(hashes), as_bytes(found)
    )
    checked(status, kernel="probe_filters")
    return found
