"""Split-block Bloom filters: each value sets eight bits in one block of 256 bits.

The kernels determine the bits. The filter size is the smallest power of two bytes that meets the
false positive probability.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.kernels import build_filters

Hashes: TypeAlias = npt.NDArray[np.uint64]

BLOCK_BYTES: Final = 32
_TERMS: Final = 750
_LOAD_MAX: Final = 2.0


@cache
def filter_bytes(num_values: int, probability: float) -> int:
    """Return the filter size in bytes for a number of values and a false positive probability.

    >>> filter_bytes(8192, 0.00057), filter_bytes(100, 0.01)
    (32768, 256)
    """
    size = BLOCK_BYTES
    while _false_positives(num_values, size) > probability:
        size *= 2
    return size


def build_filter(hashes: Hashes, size: int) -> bytes:
    """Build a filter from hashes."""
    return build_filters(hashes, np.array([len(hashes)], np.int64), size).tobytes()


def _false_positives(num_values: int, size: int) -> float:
    """Estimate the false positive probability of a filter, assuming Poisson-distributed blocks."""
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
