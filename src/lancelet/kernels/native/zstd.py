"""Zstandard by `native/src/zstd.cpp`, with the zstandard library as a fallback.

The kernel supports the frames that pages use. Frames with checksums or dictionaries, concatenated
frames, and malformed data are passed to the library, which reads them or raises the error.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s, slice_arrays, slices_of_sizes
from lancelet.kernels.faults import Fault, checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.native.copies import take_fixed
from lancelet.kernels.zstd import (
    RATIO_MAX,
    check_large_frames,
    check_prefixes,
    decompress_frames,
    zstd_frames,
)

_HEAD_BYTES: Final = 600
_SIZE_BYTES: Final = 8
_LOW_HALF: Final = 0xFFFFFFFF
_MAGIC: Final = 0xFD2FB528
_SLACK: Final = 64
"""Copies write whole words, so the output needs extra bytes."""


def zstd_decompress_chunks(
    slices: ByteSlices, out_sizes: Int64s | None = None, *, max_sizes: Int64s | None = None
) -> ByteSlices:
    """Decompress each slice; without `out_sizes`, sizes are read from the slices.

    Raise `CorruptDataError` if a size exceeds `max_sizes` or the maximum ratio.
    """
    usual = _sized_frames(slices, max_sizes) if out_sizes is None else None
    frames, sizes = usual or zstd_frames(slices, out_sizes, max_sizes)
    out_size = as_int64s(sizes)
    total = int(out_size.sum())
    out = empty_bytes(total + _SLACK)
    status = _native.zstd_decompress_chunks(*slice_arrays(frames, out_size), out_size, out)
    if status < 0 and -status % 16 == Fault.BAD_STREAM:
        # The kernel stops at the first fault, so later frames are unknown.
        return decompress_frames(*zstd_frames(slices, out_sizes, max_sizes))
    checked(status, kernel="zstd_decompress_chunks")
    return slices_of_sizes(out[:total], out_size)


def _sized_frames(slices: ByteSlices, max_sizes: Int64s | None) -> tuple[ByteSlices, Int64s] | None:
    """Return frames and sizes if each has a valid size prefix, else None.

    Equivalent to `zstd_frames` for the usual frames, in a third of the time.
    """
    if not len(slices) or int(slices.size.min()) < _SIZE_BYTES:
        return None
    sizes: Int64s = take_fixed(slices.source, slices.position, _SIZE_BYTES).view(np.int64)
    room = slices.size - _SIZE_BYTES
    is_odd = (sizes < 0) | (sizes // RATIO_MAX > room) | (sizes & _LOW_HALF == _MAGIC)
    is_odd |= (sizes > 0) & (room == 0)
    if max_sizes is not None:
        is_odd |= sizes > max_sizes
    if is_odd.any():
        return None
    frames = ByteSlices(slices.source, slices.position + _SIZE_BYTES, room)
    check_large_frames(frames, sizes)
    return frames, sizes


def zstd_encode_prefixes(
    slices: ByteSlices, prefix_bytes: Int64s, *, word_bytes: int, sized: bool
) -> ByteSlices:
    """Compress chunks that start with fixed-width words, without a match search.

    Args:
        slices: The chunks.
        prefix_bytes: Size of the words in each chunk.
        word_bytes: Width of a word: 4, 8, 16 or 32 bytes.
        sized: Whether to add the uncompressed size as a u64 prefix.
    """
    check_prefixes(slices, prefix_bytes, word_bytes=word_bytes)
    # Includes tables and headers; untouched memory is not committed.
    out = empty_bytes(int((slices.size + slices.size // 64 + _HEAD_BYTES).sum()))
    sizes = np.empty(len(slices), np.int64)
    arrays = slice_arrays(slices, prefix_bytes)
    status = _native.zstd_encode_prefixes(
        *arrays, as_int64s(prefix_bytes), word_bytes, int(sized), out, sizes
    )
    return slices_of_sizes(out[: checked(status, kernel="zstd_encode_prefixes")], sizes)
