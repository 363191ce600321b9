"""FastLanes bit packing: 1024 values interleaved over lanes, so that vector units unpack them.

A word of T bits gives 1024/T lanes. Each lane packs T values into W words of its own (W is the
width in bits), and the words of the lanes take turns:

    T = 32, W = 2: 32 lanes, 64 words.  word 0 of lane 0, word 0 of lane 1, ... word 1 of lane 31
    value r of lane l is bits [2r, 2r + 2) of that lane

Which of the 1024 values that is follows a fixed permutation (`block_order`), chosen by the
format so that transposes are cheap; 0, 128, 256... come first in lane 0.

Inline blocks carry W in a word of their own in front. Out-of-line blocks share one W, and the
last, partial one is stored either packed like the others or plain, told apart by its length.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s, Slices
from lancelet.kernels.arguments import BLOCK, check_counts, check_slices, word_type
from lancelet.kernels.faults import Fault, corrupt


@cache
def block_order(word_bits: int) -> Int64s:
    """Return which value of the block is value r of lane l, as an array of (T, lanes)."""
    row = np.arange(word_bits)
    start = np.array([0, 4, 2, 6, 1, 5, 3, 7])[row // 8] * 16 + row % 8 * 128
    order: Int64s = start[:, None] + np.arange(BLOCK // word_bits)[None, :]
    return order


def unpack_block_rows(packed: npt.NDArray[Any], width: int, word_bits: int) -> npt.NDArray[Any]:
    """Unpack blocks of one width: words of shape (blocks, width x lanes) to (blocks, 1024)."""
    dtype = packed.dtype
    blocks = len(packed)
    out = np.zeros((blocks, BLOCK), dtype)
    if width == 0:
        return out
    words = packed.reshape(blocks, width, BLOCK // word_bits)
    mask = dtype.type((1 << width) - 1)
    order = block_order(word_bits)
    for row in range(word_bits):
        first, shift = divmod(row * width, word_bits)
        value = words[:, first] >> dtype.type(shift)
        if shift + width > word_bits:
            value = value | (words[:, first + 1] << dtype.type(word_bits - shift))
        out[:, order[row]] = value & mask
    return out


def unpack_chunks(slices: Slices, counts: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Unpack inline blocks, one per slice, and keep the first `counts[i]` values of each."""
    kernel = "unpack_chunks"
    dtype = word_type(word_bits)
    check_slices(slices, counts, kernel=kernel)
    check_counts(counts, most=BLOCK, kernel=kernel)
    short = slices.size < dtype.itemsize
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, place=int(short.argmax()))
    head = slices.position[:, None] + np.arange(dtype.itemsize)
    widths = slices.source[head].reshape(-1).view(dtype)
    wide = widths > word_bits
    if wide.any():
        raise corrupt(Fault.BAD_WIDTH, kernel=kernel, place=int(wide.argmax()))
    short = slices.size - dtype.itemsize < widths.astype(np.int64) * (BLOCK // 8)
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, place=int(short.argmax()))
    blocks = np.empty((len(slices), BLOCK), dtype)
    for width in np.unique(widths).tolist():
        which = np.flatnonzero(widths == width)
        start = slices.position[which] + dtype.itemsize
        packed = slices.source[start[:, None] + np.arange(width * (BLOCK // 8))].view(dtype)
        blocks[which] = unpack_block_rows(packed, width, word_bits)
    return blocks[np.arange(BLOCK) < counts[:, None]]
