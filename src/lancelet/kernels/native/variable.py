"""Variable-width chunks by `native/src/variable.cpp`; `reference/variable.py` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.offsets import (
    Offsets,
    check_offset_bytes,
    offset_type,
    offsets_of,
    split_sizes,
)


def concat_variable(
    slices: ByteSlices, counts: Int64s, offset_bytes: int, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Join variable-width chunks into Arrow offsets (of `out_bits`) and bytes."""
    kernel = "concat_variable"
    check_offset_bytes(offset_bytes)
    dtype = offset_type(out_bits)
    arrays = (*slice_arrays(slices, counts), as_int64s(counts), offset_bytes)
    total = checked(_native.variable_bytes(*arrays), kernel=kernel)
    offsets = empty(int(counts.sum()) + 1, dtype)
    data = empty_bytes(total)
    status = _native.concat_variable(*arrays, dtype.itemsize, as_bytes(offsets), data)
    checked(status, kernel=kernel)
    return offsets, data


def pick_variable(
    slices: ByteSlices, counts: Int64s, index: Int64s, offset_bytes: int, out_bits: int
) -> tuple[Offsets, Bytes]:
    """Return value `index[i]` of the variable-width chunk in slice i with `counts[i]` values."""
    kernel = "pick_variable"
    position, size, total = picked_ranges(slices, counts, index, offset_bytes, kernel=kernel)
    offsets = offsets_of(size, out_bits=out_bits, kernel=kernel)
    data = empty_bytes(total)
    checked(_native.join_slices(slices.source, position, size, data), kernel=kernel)
    return offsets, data


def split_variable(offsets: Offsets, data: Bytes, counts: Int64s, pad: int) -> ByteSlices:
    """Split strings into chunks of `counts` values, padded with `pad` to whole offsets."""
    kernel = "split_variable"
    sizes = split_sizes(offsets, data.nbytes, counts, kernel=kernel)
    position = sizes.cumsum() - sizes
    out = empty_bytes(int(sizes.sum()))
    status = _native.split_variable(
        as_bytes(offsets),
        offsets.dtype.itemsize,
        data,
        as_int64s(counts),
        as_int64s(position),
        pad,
        out,
    )
    checked(status, kernel=kernel)
    return ByteSlices(out, position, sizes)


def picked_ranges(
    slices: ByteSlices, counts: Int64s, index: Int64s, offset_bytes: int, *, kernel: str
) -> tuple[Int64s, Int64s, int]:
    """Return validated position and size of one value per chunk, and the total size."""
    check_offset_bytes(offset_bytes)
    arrays = (*slice_arrays(slices, counts, index), as_int64s(counts), as_int64s(index))
    position = np.empty(len(slices), np.int64)
    size = np.empty(len(slices), np.int64)
    status = _native.pick_ranges(*arrays, offset_bytes, position, size)
    return position, size, checked(status, kernel=kernel)
