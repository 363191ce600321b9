"""Split-block Bloom filters: eight bits per value, all in one block of 256.

    hash      0x9ae1_6a3b_2f90_404f
    block     the upper half of the hash, scaled to the number of blocks
    bits      one in each of the block's eight words: the lower half times a salt, upper 5 bits

A value that was added has all its eight bits set.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import FILTER_BLOCK_BYTES, check_filters
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.hashing import Hashes

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
_BLOCK_BITS: Final = 8 * FILTER_BLOCK_BYTES
_LOW: Final = np.uint64(0xFFFFFFFF)
_SHIFT: Final = np.uint64(32)


def fill_filters(hashes: Hashes, stops: Int64s, filter_bytes: int) -> Bytes:
    """Return filters one after another: each has the hashes up to its stop.

    >>> filters = fill_filters(np.array([7, 8], np.uint64), np.array([1, 2]), 32)
    >>> np.unpackbits(filters.reshape(2, 32), axis=1).sum(axis=1).tolist()
    [8, 8]
    """
    check_filters((), filter_bytes)
    if (np.diff(stops, prepend=0) < 0).any() or (len(stops) and stops[-1] > len(hashes)):
        raise corrupt(Fault.BAD_OFFSETS, kernel="fill_filters", place=0)
    if (stops[-1] if len(stops) else 0) != len(hashes):
        raise corrupt(Fault.BAD_LENGTH, kernel="fill_filters", place=0)
    bits = np.zeros(len(stops) * filter_bytes * 8, np.bool_)
    zone = np.repeat(np.arange(len(stops)), np.diff(stops, prepend=0))
    block = _blocks(hashes, np.uint64(filter_bytes // FILTER_BLOCK_BYTES)) * _BLOCK_BITS
    bits[(zone * filter_bytes * 8 + block)[:, None] + _bits_of(hashes)] = True
    return np.packbits(bits, bitorder="little")


def ask_filters(
    data: Bytes, starts: Int64s, sizes: Int64s, hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """Return for each filter, a part of `data`, and each hash whether it may have been added."""
    check_filters((len(starts), len(sizes)), sizes)
    bad = (starts < 0) | (starts + sizes > data.nbytes)
    if bad.any():
        raise corrupt(Fault.OUT_OF_SOURCE, kernel="ask_filters", place=int(bad.argmax()))
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
    """Return the eight bits of each hash within its block."""
    low = (hashes & _LOW).astype(np.uint32)
    bits: npt.NDArray[np.int64] = ((low[:, None] * _SALT) >> np.uint32(27)).astype(np.int64)
    return bits + _WORDS
