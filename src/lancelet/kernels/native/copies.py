"""Gather and scatter of byte ranges by `native/src/copies.cpp`; see `reference/copies.py`."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, check_layout, check_slices, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.offsets import Offsets, offsets_of


def copy_slices(slices: ByteSlices, out: Bytes, out_position: Int64s) -> None:
    """Copy each slice to its position in `out`; later slices overwrite earlier ones."""
    arrays = slice_arrays(slices, out_position)
    checked(_native.copy_slices(*arrays, out, as_int64s(out_position)), kernel="copy_slices")


def scatter_slices(slices: ByteSlices, out_position: Int64s, out_bytes: int, pad: int) -> Bytes:
    """Copy slices to ascending positions of a new buffer, with `pad` bytes in between."""
    arrays = slice_arrays(slices, out_position)
    check_layout(slices, out_position, out_bytes)
    out = empty_bytes(out_bytes)
    status = _native.scatter_slices(*arrays, out, as_int64s(out_position), pad)
    checked(status, kernel="scatter_slices")
    return out


def join_slices(slices: ByteSlices) -> Bytes:
    """Return the bytes of the slices, back to back."""
    arrays = slice_arrays(slices)
    check_slices(slices, kernel="join_slices")
    out = empty_bytes(int(slices.size.sum()))
    checked(_native.join_slices(*arrays, out), kernel="join_slices")
    return out


def take_fixed(source: Bytes, position: Int64s, width: int) -> Bytes:
    """Gather the `width` bytes at each position."""
    if width < 0:
        raise InvalidInputError("a width is not negative", width=width)
    out = empty_bytes(len(position) * width)
    status = _native.take_fixed(source, as_int64s(position), width, out)
    checked(status, kernel="take_fixed")
    return out


def take_variable(offsets: Offsets, data: Bytes, rows: Int64s) -> tuple[Offsets, Bytes]:
    """Gather values by row; rows may repeat and be in any order."""
    kernel = "take_variable"
    position = np.empty(len(rows), np.int64)
    size = np.empty(len(rows), np.int64)
    width = offsets.dtype.itemsize
    status = _native.take_ranges(
        as_bytes(offsets), width, data.nbytes, as_int64s(rows), position, size
    )
    total = checked(status, kernel=kernel)
    out_offsets = offsets_of(size, out_bits=width * 8, kernel=kernel)
    out = empty_bytes(total)
    checked(_native.join_slices(data, position, size, out), kernel=kernel)
    return out_offsets, out
