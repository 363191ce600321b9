"""FastLanes bit packing: 1024 values interleaved over lanes, for vectorized unpacking.

A word size of T bits gives 1024/T lanes. Each lane packs T values into W words, where W is the bit
width, and the words of the lanes are interleaved:

    T = 32, W = 2: 32 lanes, 64 words.  word 0 of lane 0, word 0 of lane 1, ... word 1 of lane 31
    value r of lane l is bits [2r, 2r + 2) of that lane

Values are assigned to lanes by a fixed permutation (`block_order`), which makes transposes cheap:
0, 128, 256... are the first values of lane 0.

Inline blocks start with a word that contains W. Out-of-line blocks share one W; the last, partial
block is packed or unpacked, which its size shows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import (
    BLOCK,
    check_counts,
    check_packed_chunk,
    check_packed_width,
    check_positions,
    check_ranges,
    check_slices,
    out_of_line_shape,
    packs_tail,
    word_type,
)
from lancelet.kernels.faults import Fault, corrupt


@cache
def block_order(word_bits: int) -> Int64s:
    """Return the block index of value r of lane l, as an array of shape (T, lanes)."""
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
    machine_words = packed.reshape(blocks, width, BLOCK // word_bits)
    mask = dtype.type((1 << width) - 1)
    order = block_order(word_bits)
    for row in range(word_bits):
        first, shift = divmod(row * width, word_bits)
        value = machine_words[:, first] >> dtype.type(shift)
        if shift + width > word_bits:
            value = value | (machine_words[:, first + 1] << dtype.type(word_bits - shift))
        out[:, order[row]] = value & mask
    return out


def unpack_chunks(slices: ByteSlices, counts: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Unpack one inline block per slice and return the first `counts[i]` values of each."""
    kernel = "unpack_chunks"
    dtype = word_type(word_bits)
    check_slices(slices, counts, kernel=kernel)
    check_counts(counts, max_count=BLOCK, kernel=kernel)
    short = slices.size < dtype.itemsize
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(short.argmax()))
    head = slices.position[:, None] + np.arange(dtype.itemsize)
    widths = slices.source[head].reshape(-1).view(dtype)
    wide = widths > word_bits
    if wide.any():
        raise corrupt(Fault.BAD_WIDTH, kernel=kernel, index=int(wide.argmax()))
    short = slices.size - dtype.itemsize < widths.astype(np.int64) * (BLOCK // 8)
    if short.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(short.argmax()))
    blocks = np.empty((len(slices), BLOCK), dtype)
    for width in np.unique(widths).tolist():
        selected = np.flatnonzero(widths == width)
        start = slices.position[selected] + dtype.itemsize
        packed = slices.source[start[:, None] + np.arange(width * (BLOCK // 8))].view(dtype)
        blocks[selected] = unpack_block_rows(packed, width, word_bits)
    return blocks[np.arange(BLOCK) < counts[:, None]]


def match_packed(
    slices: ByteSlices,
    counts: Int64s,
    word_bits: int,
    ranges: npt.NDArray[np.uint64],
    *,
    is_float: bool,
) -> npt.NDArray[np.bool_]:
    """Return whether each value of inline blocks is in one of `ranges`.

    Each range has a number and the distance to its last one, modulo 2^bits. Floats are compared by
    integers of the same order: their bits, inverted if they are negative, else with the sign bit
    set.
    """
    check_ranges(ranges)
    values = unpack_chunks(slices, counts, word_bits)
    if is_float:
        sign = values.dtype.type(1 << (word_bits - 1))
        values = np.where(values & sign, ~values, values | sign)
    pairs = ranges.astype(values.dtype).reshape(-1, 2)
    found: npt.NDArray[np.bool_] = (values[:, None] - pairs[:, 0] <= pairs[:, 1]).any(axis=1)
    return found


def select_packed(
    slices: ByteSlices,
    counts: Int64s,
    word_bits: int,
    ranges: npt.NDArray[np.uint64],
    *,
    is_float: bool,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return the positions and values of the numbers that `match_packed` flags."""
    check_positions(counts)
    rows = np.flatnonzero(match_packed(slices, counts, word_bits, ranges, is_float=is_float))
    return rows.astype(np.int32), unpack_chunks(slices, counts, word_bits)[rows]


def unpack_blocks(data: Bytes, width: int, count: int, word_bits: int) -> npt.NDArray[Any]:
    """Unpack out-of-line blocks; the last, partial block may be unpacked, as its size shows."""
    dtype = word_type(word_bits)
    full_bytes, tail_bytes, plain = out_of_line_shape(
        data.nbytes, width=width, count=count, word_bits=word_bits
    )
    blocks = count // BLOCK
    out = np.empty(count, dtype)
    packed = data[:full_bytes].copy().view(dtype).reshape(blocks, width * (BLOCK // word_bits))
    out[: blocks * BLOCK] = unpack_block_rows(packed, width, word_bits).reshape(-1)
    tail = data[full_bytes : full_bytes + tail_bytes].copy().view(dtype)
    if not plain:
        tail = unpack_block_rows(tail[None, :], width, word_bits)[0, : count % BLOCK]
    out[blocks * BLOCK :] = tail
    return out


def bit_widths(values: npt.NDArray[Any], chunk: int = BLOCK) -> Bytes:
    """Return the bit width of the largest value in each `chunk` values."""
    check_packed_chunk(chunk)
    starts = np.arange(0, len(values), chunk)
    if not len(starts):
        return np.empty(0, np.uint8)
    combined = np.bitwise_or.reduceat(values.view(word_type(values.dtype.itemsize * 8)), starts)
    powers = np.uint64(1) << np.arange(64, dtype=np.uint64)
    widths: Bytes = (combined.astype(np.uint64)[:, None] >= powers).sum(axis=1).astype(np.uint8)
    return widths


def pack_chunks(values: npt.NDArray[Any], chunk: int = BLOCK) -> tuple[Bytes, Int64s, Int64s]:
    """Pack each `chunk` values as an inline block with its own width.

    Returns the bytes, and the position and size of each block.
    """
    dtype = word_type(values.dtype.itemsize * 8)
    word_bits = dtype.itemsize * 8
    widths = bit_widths(values, chunk)
    blocks = np.zeros((len(widths), BLOCK), dtype)
    blocks.reshape(-1)[_padded_slots(len(values), chunk)] = values.view(dtype)
    size = dtype.itemsize + widths.astype(np.int64) * (BLOCK // 8)
    position = np.cumsum(size) - size
    data = np.empty(int(size.sum()), np.uint8)
    for width in np.unique(widths).tolist():
        selected = np.flatnonzero(widths == width)
        packed = pack_block_rows(blocks[selected], width, word_bits)
        head = np.full((len(selected), 1), width, dtype)
        whole = np.concatenate([head, packed], axis=1).view(np.uint8)
        data[position[selected][:, None] + np.arange(whole.shape[1])] = whole
    return data, position, size


def pack_blocks(values: npt.NDArray[Any], width: int) -> Bytes:
    """Pack values as out-of-line blocks of one width.

    The tail is packed only if that is smaller.
    """
    dtype = word_type(values.dtype.itemsize * 8)
    word_bits = dtype.itemsize * 8
    values = values.view(dtype)
    check_packed_width(bit_widths(values), width=width)
    tail_count = len(values) % BLOCK
    plain = not packs_tail(tail_count, width=width, word_bits=word_bits)
    packed_count = len(values) - tail_count if plain else len(values)
    blocks = np.zeros((-(-packed_count // BLOCK), BLOCK), dtype)
    blocks.reshape(-1)[:packed_count] = values[:packed_count]
    packed = pack_block_rows(blocks, width, word_bits).reshape(-1).view(np.uint8)
    return np.concatenate([packed, values[packed_count:].view(np.uint8)])


def pack_block_rows(blocks: npt.NDArray[Any], width: int, word_bits: int) -> npt.NDArray[Any]:
    """Pack blocks of one width: values of shape (blocks, 1024) to (blocks, width x lanes)."""
    dtype = blocks.dtype
    machine_words = np.zeros((len(blocks), width, BLOCK // word_bits), dtype)
    order = block_order(word_bits)
    for row in range(word_bits if width else 0):
        first, shift = divmod(row * width, word_bits)
        value = blocks[:, order[row]]
        machine_words[:, first] |= value << dtype.type(shift)
        if shift + width > word_bits:
            machine_words[:, first + 1] |= value >> dtype.type(word_bits - shift)
    return machine_words.reshape(len(blocks), width * (BLOCK // word_bits))


def pick_packed(slices: ByteSlices, index: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Return value `index[i]` of the inline block in slice i, without unpacking the block."""
    kernel = "pick_packed"
    check_slices(slices, index, kernel=kernel)
    outside = (index < 0) | (index >= BLOCK)
    if outside.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(outside.argmax()))
    blocks = unpack_chunks(slices, np.full(len(slices), BLOCK), word_bits)
    picked: npt.NDArray[Any] = blocks.reshape(-1, BLOCK)[np.arange(len(slices)), index]
    return picked


def _padded_slots(count: int, chunk: int) -> Int64s:
    """Return the output index of each value if every chunk starts a block of 1024."""
    value = np.arange(count)
    return value // chunk * BLOCK + value % chunk
