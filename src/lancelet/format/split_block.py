"""Split-block Bloom filters: eight bits per value, all in one block of 256.

A value that was added has all its eight bits set; the kernels say which they are. Filters are a
power of two in bytes, the smallest that keeps wrong answers as rare as was asked for.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.kernels import fill_filters

Hashes: TypeAlias = npt.NDArray[np.uint64]

BLOCK_BYTES: Final = 32
_TERMS: Final = 750
_LOAD_MAX: Final = 2.0


@cache
def filter_bytes(num_values: int, probability: float) -> int:
    """Return the size of a filter for so many values that errs as rarely as it may.

    >>> filter_bytes(8192, 0.00057), filter_bytes(100, 0.01)
    (32768, 256)
    """
    size = BLOCK_BYTES
    while _false_positives(num_values, size) > probability:
        size *= 2
    return size


def build_filter(hashes: Hashes, size: int) -> bytes:
    """Return a filter that has values with these hashes."""
    return fill_filters(hashes, np.array([len(hashes)], np.int64), size).tobytes()


def _false_positives(num_values: int, size: int) -> float:
    """Return how often a filter of a size errs, from how full its blocks are likely to be."""
    if num_values / (8 * size) > _LOAD_MAX:
        return 1.0
    load = 256 * num_values / (8 * size)
    if load == 0:
        return 0.0
    return sum(
        math.exp(count * math.log(load) - load - math.lgamma(count + 1))
        * (1 - (31 / 32) ** count) ** 8
        for count in range(_TERMS)
    )
