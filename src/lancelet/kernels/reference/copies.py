"""Gather and scatter of byte ranges.

For example:

    source ..AA...BBB   position [2, 7]  size [2, 3]
    take_fixed        AA BB          width 2
    scatter_slices    AA______BBB    out_position [0, 8], pad "_"
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels.arguments import check_layout, check_slices
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, offsets_of


def copy_slices(slices: ByteSlices, out: Bytes, out_position: Int64s) -> None:
    """Copy each slice to its position in `out`; later slices overwrite earlier ones."""
    kernel = "copy_slices"
    check_slices(slices, out_position, kernel=kernel)
    check_slices(ByteSlices(out, out_position, slices.size), kernel=kernel)
    for index in range(len(slices)):
        start = int(out_position[index])
        out[start : start + int(slices.size[index])] = slices.slice_bytes(index)


def scatter_slices(slices: ByteSlices, out_position: Int64s, out_bytes: int, pad: int) -> Bytes:
    """Copy slices to ascending positions of a new buffer, with `pad` bytes in between."""
    check_slices(slices, out_position, kernel="scatter_slices")
    check_layout(slices, out_position, out_bytes)
    out = np.full(out_bytes, pad, np.uint8)
    copy_slices(slices, out, out_position)
    return out


def join_slices(slices: ByteSlices) -> Bytes:
    """Return the bytes of the slices, back to back."""
    check_slices(slices, kernel="join_slices")
    return gather(slices.source, slices.position, slices.size)


def take_fixed(source: Bytes, position: Int64s, width: int) -> Bytes:
    """Gather the `width` bytes at each position."""
    if width < 0:
        raise InvalidInputError("a width is not negative", width=width)
    size = np.full(len(position), width, np.int64)
    check_slices(ByteSlices(source, position, size), kernel="take_fixed")
    taken: Bytes = source[position[:, None] + np.arange(width)].reshape(-1)
    return taken


def take_variable(offsets: Offsets, data: Bytes, rows: Int64s) -> tuple[Offsets, Bytes]:
    """Gather values by row; rows may repeat and be in any order."""
    kernel = "take_variable"
    outside = (rows < 0) | (rows >= len(offsets) - 1)
    if outside.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(outside.argmax()))
    start = offsets[rows].astype(np.int64)
    size = offsets[rows + 1].astype(np.int64) - start
    bad = (start < 0) | (size < 0) | (start + size > data.nbytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))
    out_offsets = offsets_of(size, out_bits=offsets.dtype.itemsize * 8, kernel=kernel)
    return out_offsets, gather(data, start, size)


def gather(source: Bytes, position: Int64s, size: Int64s) -> Bytes:
    """Return the bytes of checked slices, back to back."""
    ends = np.cumsum(size)
    total = int(ends[-1]) if len(ends) else 0
    shift = np.repeat(position - (ends - size), size)
    return source[shift + np.arange(total)]
