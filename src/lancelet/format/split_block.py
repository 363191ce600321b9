"""Split-block Bloom filters: eight bits per value, all in one block of 256.

    hash      0x9ae1_6a3b_2f90_404f
    block     the upper half of the hash, scaled to the number of blocks
    bits      one in each of the block's eight words: the lower half times a salt, upper 5 bits

A value that was added has all its eight bits set. Filters are a power of two in bytes, the
smallest that keeps wrong answers as rare as was asked for.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Hashes: TypeAlias = npt.NDArray[np.uint64]

BLOCK_BYTES: Final = 32
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
_WORDS: Final = np.arange(8, dtype=np.int64) * 32
_TERMS: Final = 750
_LOAD_MAX: Final = 2.0
_LOW: Final = np.uint64(0xFFFFFFFF)
_SHIFT: Final = np.uint64(32)


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
    bits = np.zeros(size * 8, np.bool_)
    first = _blocks(hashes, np.uint64(size // BLOCK_BYTES)) * 256
    low = (hashes & _LOW).astype(np.uint32)
    # Word by word, so that what is computed stays in the cache.
    for salt in _SALT:
        bits[first + ((low * salt) >> np.uint32(27))] = True
        first += 32
    return np.packbits(bits, bitorder="little").tobytes()


def may_have(
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    hashes: Hashes,
) -> npt.NDArray[np.bool_]:
    """Return for each filter, and each hash, whether the value may have been added.

    Filters are parts of `data`.
    """
    num_blocks = (sizes // BLOCK_BYTES).astype(np.uint64)
    block = _blocks(hashes[None, :], num_blocks[:, None])
    bit = block[:, :, None] * 256 + _bits_of(hashes)[None, :, :]
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
    """Return the eight bits of each hash within its block."""
    low = (hashes & _LOW).astype(np.uint32)
    bits: npt.NDArray[np.int64] = ((low[:, None] * _SALT) >> np.uint32(27)).astype(np.int64)
    return bits + _WORDS


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
