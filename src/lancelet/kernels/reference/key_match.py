"""Finding keys among others by their hashes: an index of buckets, and the place of each key.

    hashes   0110..  1001..  0111..       two bits make four buckets
    buckets  01: rows 0 and 2    10: row 1
    starts   0 0 2 3 3                    bucket b has places starts[b] to starts[b + 1]
    rows     0 2 1                        the row at each place

Rows of a bucket are in order, so of several with one hash the first is found.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.kernels.arguments import check_bucket_count, check_buckets, check_seed
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.hashing import Hashes

Int32s: TypeAlias = npt.NDArray[np.int32]

_C1: Final = np.uint64(0xBF58476D1CE4E5B9)
_C2: Final = np.uint64(0x94D049BB133111EB)


def mix_words(words: Hashes, seed: int = 0) -> Hashes:
    """Return words mixed so that each bit depends on all; different words stay different."""
    check_seed(seed)
    mixed = words ^ np.uint64(seed)
    with np.errstate(over="ignore"):
        mixed = (mixed ^ mixed >> np.uint64(30)) * _C1
        mixed = (mixed ^ mixed >> np.uint64(27)) * _C2
    result: Hashes = mixed ^ mixed >> np.uint64(31)
    return result


def bucket_rows(hashes: Hashes, bits: int) -> tuple[Int32s, Int32s]:
    """Return where the buckets of the upper `bits` of hashes start, and the rows by bucket."""
    check_buckets(len(hashes), bits)
    bucket = (hashes >> np.uint64(64 - bits)).astype(np.int64)
    starts = np.zeros((1 << bits) + 1, np.int64)
    np.cumsum(np.bincount(bucket, minlength=1 << bits), out=starts[1:])
    return starts.astype(np.int32), np.argsort(bucket, kind="stable").astype(np.int32)


def match_words(starts: Int32s, ordered: Hashes, wanted: Hashes) -> Int32s:
    """Return the place of each wanted hash among hashes ordered by bucket, or -1."""
    bits = check_bucket_count(starts)
    if starts[0] != 0 or starts[-1] != len(ordered) or bool((starts[1:] < starts[:-1]).any()):
        raise corrupt(Fault.BAD_OFFSETS, kernel="match_words", place=0)
    bucket = (wanted >> np.uint64(64 - bits)).astype(np.int64)
    at, stop = starts[bucket].astype(np.int64), starts[bucket + 1]
    found = np.full(len(wanted), -1, np.int32)
    while len(left := np.flatnonzero((at < stop) & (found < 0))):
        hit = left[ordered[at[left]] == wanted[left]]
        found[hit] = at[hit]
        at[left] += 1
    return found
