"""XXH64 by `native/src/hashing.cpp`; `reference/hashing.py` defines it."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_numbers, check_seed
from lancelet.kernels.faults import checked
from lancelet.kernels.offsets import Offsets, check_has_offsets

Hashes: TypeAlias = npt.NDArray[np.uint64]


def xxh64_many(offsets: Offsets, data: Bytes, seed: int = 0) -> Hashes:
    """Return the XXH64 of every value."""
    check_has_offsets(offsets, kernel="xxh64_many")
    check_seed(seed)
    hashes = np.empty(len(offsets) - 1, np.uint64)
    width = offsets.dtype.itemsize
    checked(_native.xxh64_many(as_bytes(offsets), width, data, seed, hashes), kernel="xxh64_many")
    return hashes


def xxh64_words(values: npt.NDArray[Any], seed: int = 0) -> Hashes:
    """Return the XXH64 of the bytes of every number, of 1, 2, 4 or 8 bytes."""
    check_numbers(values)
    check_seed(seed)
    hashes = np.empty(len(values), np.uint64)
    status = _native.xxh64_words(as_bytes(values), values.itemsize, seed, hashes)
    checked(status, kernel="xxh64_words")
    return hashes
