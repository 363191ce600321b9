"""Zstandard frames by `native/src/zstd.cpp`, and by the library where that declines.

The kernel reads what pages hold. It declines frames with checksums, with dictionaries, or of
several parts, and whatever is malformed; the library, `kernels.zstd`, then reads them or says
what is wrong.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Int64s, Slices
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
"""Copies write whole words, so that much of the output is only for them."""


def zstd_decompress_chunks(
    slices: Slices, out_sizes: Int64s | None = None, *, most: Int64s | None = None
) -> Slices:
    """Decompress each slice; without `out_sizes` the plain sizes are read from the slices.

    A slice that claims more than `most` bytes, or than its frame could hold, is corrupt.
    """
    usual = _sized_frames(slices, most) if out_sizes is None else None
    frames, sizes = usual or zstd_frames(slices, out_sizes, most)
    out_size = as_int64s(sizes)
    total = int(out_size.sum())
    out = empty_bytes(total + _SLACK)
    status = _native.zstd_decompress_chunks(*slice_arrays(frames, out_size), out_size, out)
    if status < 0 and -status % 16 == Fault.BAD_STREAM:
        # The kernel stops at the first fault, so what is behind it was not looked at.
        return decompress_frames(*zstd_frames(slices, out_sizes, most))
    checked(status, kernel="zstd_decompress_chunks")
    return slices_of_sizes(out[:total], out_size)


def _sized_frames(slices: Slices, most: Int64s | None) -> tuple[Slices, Int64s] | None:
    """Return frames and their plain sizes if each has a size in front that it could have.

    It is what `zstd_frames` does with what nearly all pages hold, in a third of the time.
    """
    if not len(slices) or int(slices.size.min()) < _SIZE_BYTES:
        return None
    sizes: Int64s = take_fixed(slices.source, slices.position, _SIZE_BYTES).view(np.int64)
    room = slices.size - _SIZE_BYTES
    is_odd = (sizes < 0) | (sizes // RATIO_MAX > room) | (sizes & _LOW_HALF == _MAGIC)
    is_odd |= (sizes > 0) & (room == 0)
    if most is not None:
        is_odd |= sizes > most
    if is_odd.any():
        return None
    frames = Slices(slices.source, slices.position + _SIZE_BYTES, room)
    check_large_frames(frames, sizes)
    return frames, sizes


def zstd_encode_prefixes(
    slices: Slices, prefix_bytes: Int64s, *, word_bytes: int, sized: bool
) -> Slices:
    """Compress chunks that begin with words, without a search for repetition.

    Args:
        slices: The chunks.
        words: How many bytes of each are words.
        word_bytes: The bytes of a word: 4, 8, 16 or 32.
        sized: Whether to put the plain size in front as a u64.
    """
    check_prefixes(slices, prefix_bytes, word_bytes=word_bytes)
    # What the kernel wants for tables and heads; what is not touched is not used.
    out = empty_bytes(int((slices.size + slices.size // 64 + _HEAD_BYTES).sum()))
    sizes = np.empty(len(slices), np.int64)
    arrays = slice_arrays(slices, prefix_bytes)
    status = _native.zstd_encode_prefixes(
        *arrays, as_int64s(prefix_bytes), word_bytes, int(sized), out, sizes
    )
    return slices_of_sizes(out[: checked(status, kernel="zstd_encode_prefixes")], sizes)
