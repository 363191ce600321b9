"""FastLanes bit packing by `native/src/bitpack.cpp`; `reference/bitpack.py` defines it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    BLOCK,
    as_bytes,
    as_int64s,
    check_counts,
    check_packed_chunk,
    check_packed_width,
    check_positions,
    check_ranges,
    out_of_line_shape,
    packs_tail,
    slice_arrays,
    word_type,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

_BYTE: Final = np.dtype(np.uint8)
_COPIED_PARTS: Final = 4
"""Selections of less than a quarter of the values are copied."""


def unpack_chunks(slices: ByteSlices, counts: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Unpack one inline block per slice and return the first `counts[i]` values of each."""
    kernel = "unpack_chunks"
    dtype = word_type(word_bits)
    check_counts(counts, max_count=BLOCK, kernel=kernel)
    arrays = slice_arrays(slices, counts)
    out = empty(int(counts.sum()), dtype)
    status = _native.unpack_chunks(*arrays, as_int64s(counts), word_bits, as_bytes(out))
    checked(status, kernel=kernel)
    return out


def match_packed(
    slices: ByteSlices,
    counts: Int64s,
    word_bits: int,
    ranges: npt.NDArray[np.uint64],
    *,
    is_float: bool,
) -> npt.NDArray[np.bool_]:
    """Return whether each value is in one of `ranges`; see `reference/bitpack.py`."""
    kernel = "match_packed"
    word_type(word_bits)
    check_counts(counts, max_count=BLOCK, kernel=kernel)
    check_ranges(ranges)
    arrays = slice_arrays(slices, counts)
    out = empty(int(counts.sum()), _BYTE)
    status = _native.match_packed(arrays, as_int64s(counts), word_bits, int(is_float), ranges, out)
    checked(status, kernel=kernel)
    return out.view(np.bool_)


def select_packed(
    slices: ByteSlices,
    counts: Int64s,
    word_bits: int,
    ranges: npt.NDArray[np.uint64],
    *,
    is_float: bool,
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Return the positions and values of the numbers that `match_packed` flags."""
    kernel = "select_packed"
    dtype = word_type(word_bits)
    check_counts(counts, max_count=BLOCK, kernel=kernel)
    arrays = slice_arrays(slices, counts)
    check_ranges(ranges)
    total = check_positions(counts)
    rows, out = empty(total, np.dtype(np.int32)), empty(total, dtype)
    found = checked(
        _native.select_packed(
            arrays, as_int64s(counts), word_bits, int(is_float), ranges, rows, as_bytes(out)
        ),
        kernel=kernel,
    )
    if found * _COPIED_PARTS < total:  # do not retain the memory of all values
        return rows[:found].copy(), out[:found].copy()
    return rows[:found], out[:found]


def unpack_blocks(data: Bytes, width: int, count: int, word_bits: int) -> npt.NDArray[Any]:
    """Unpack out-of-line blocks; the last, partial block may be unpacked, as its size shows."""
    kernel = "unpack_blocks"
    dtype = word_type(word_bits)
    full_bytes, tail_bytes, plain = out_of_line_shape(
        data.nbytes, width=width, count=count, word_bits=word_bits
    )
    out = empty(count, dtype)
    packed = count // BLOCK * BLOCK if plain else count
    blocks = -(-packed // BLOCK)
    status = _native.unpack_blocks(data, width, blocks, word_bits, as_bytes(out[:packed]))
    checked(status, kernel=kernel)
    if plain:
        as_bytes(out[packed:])[:] = data[full_bytes : full_bytes + tail_bytes]
    return out


def bit_widths(values: npt.NDArray[Any], chunk: int = BLOCK) -> Bytes:
    """Return the bit width of the largest value in each `chunk` values."""
    check_packed_chunk(chunk)
    word_bits = word_type(values.dtype.itemsize * 8).itemsize * 8
    widths = np.empty(-(-len(values) // chunk), _BYTE)
    checked(_native.bit_widths(as_bytes(values), chunk, word_bits, widths), kernel="bit_widths")
    return widths


def pack_chunks(values: npt.NDArray[Any], chunk: int = BLOCK) -> tuple[Bytes, Int64s, Int64s]:
    """Pack each `chunk` values as an inline block with its own width."""
    dtype = word_type(values.dtype.itemsize * 8)
    check_packed_chunk(chunk)
    widths = np.empty(-(-len(values) // chunk), _BYTE)
    # Upper bound without packing; untouched memory is not committed.
    out = empty(len(widths) * (BLOCK + 1) * dtype.itemsize, _BYTE)
    status = _native.pack_chunks(as_bytes(values), chunk, dtype.itemsize * 8, widths, out)
    written = checked(status, kernel="pack_chunks")
    size = dtype.itemsize + widths.astype(np.int64) * (BLOCK // 8)
    return out[:written], size.cumsum() - size, size


def pack_blocks(values: npt.NDArray[Any], width: int) -> Bytes:
    """Pack values as out-of-line blocks of one width."""
    dtype = word_type(values.dtype.itemsize * 8)
    word_bits = dtype.itemsize * 8
    check_packed_width(bit_widths(values), width=width)
    tail = len(values) % BLOCK
    packs = packs_tail(tail, width=width, word_bits=word_bits)
    packed = len(values) if packs else len(values) - tail
    packed_bytes = -(-packed // BLOCK) * width * (BLOCK // 8)
    out = empty(packed_bytes + (len(values) - packed) * dtype.itemsize, _BYTE)
    status = _native.pack_blocks(as_bytes(values[:packed]), width, word_bits, out[:packed_bytes])
    checked(status, kernel="pack_blocks")
    out[packed_bytes:] = as_bytes(values[packed:])
    return out


def pick_packed(slices: ByteSlices, index: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Return value `index[i]` of the inline block in slice i, without unpacking the block."""
    out = np.empty(len(slices), word_type(word_bits))
    arrays = slice_arrays(slices, index)
    status = _native.pick_packed(*arrays, as_int64s(index), word_bits, as_bytes(out))
    checked(status, kernel="pick_packed")
    return out
