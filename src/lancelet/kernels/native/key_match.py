"""Finding keys by `native/src/key_match.cpp`; `reference/key_match.py` defines it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.kernels import _native
from lancelet.kernels.arguments import check_bucket_count, check_buckets, check_seed
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty
from lancelet.kernels.native.hashing import Hashes

Int32s: TypeAlias = npt.NDArray[np.int32]

_INT32: Final = np.dtype(np.int32)
_UINT64: Final = np.dtype(np.uint64)


def mix_words(words: Hashes, seed: int = 0) -> Hashes:
    """Return words mixed so that each bit depends on all; different words stay different."""
    check_seed(seed)
    out = empty(len(words), _UINT64)
    checked(_native.mix_words(_aligned(words), seed, out), kernel="mix_words")
    return out


def bucket_rows(hashes: Hashes, bits: int) -> tuple[Int32s, Int32s]:
    """Return where the buckets of the upper `bits` of hashes start, and the rows by bucket."""
    check_buckets(len(hashes), bits)
    starts, rows = empty((1 << bits) + 1, _INT32), empty(len(hashes), _INT32)
    checked(_native.bucket_rows(_aligned(hashes), bits, starts, rows), kernel="bucket_rows")
    return starts, rows


def match_words(starts: Int32s, ordered: Hashes, wanted: Hashes) -> Int32s:
    """Return the place of each wanted hash among hashes ordered by bucket, or -1."""
    bits = check_bucket_count(starts)
    found = empty(len(wanted), _INT32)
    status = _native.match_words(starts, _aligned(ordered), _aligned(wanted), bits, found)
    checked(status, kernel="match_words")
    return found


def _aligned(words: Hashes) -> Hashes:
    return np.require(words, np.uint64, ["C", "A"])
