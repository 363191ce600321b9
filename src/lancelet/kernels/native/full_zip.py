"""Full zip by `native/src/full_zip.cpp`; `reference/full_zip.py` defines it."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_whole_values, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.full_zip import ZipShape, check_item_bytes, check_zipped
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.offsets import (
    Offsets,
    check_fits_offsets,
    check_has_offsets,
    check_offset_bytes,
    check_offsets,
    offset_type,
)

Levels: TypeAlias = npt.NDArray[np.uint16]

_NONE: Final = np.empty(0, np.uint8)


def unzip_fixed(
    slices: ByteSlices, shape: ZipShape, value_bytes: int
) -> tuple[Levels, Levels, Bytes, Int64s]:
    """Decode fixed-width items to the end of every slice."""
    kernel = "unzip_fixed"
    check_item_bytes(shape, value_bytes)
    items, totals = _count(slices, shape, value_bytes, 0, kernel)
    rep, definition = _levels(int(totals[0]), shape)
    values = empty_bytes(int(totals[2]))
    status = _native.unzip_items(
        slice_arrays(slices),
        _layout(shape, value_bytes, 0),
        rep,
        definition,
        8,
        _NONE,
        values,
    )
    checked(status, kernel=kernel)
    return rep, definition, values, items


def unzip_variable(
    slices: ByteSlices, shape: ZipShape, length_bytes: int, out_bits: int
) -> tuple[Levels, Levels, Offsets, Bytes, Int64s]:
    """Decode variable-width items to the end of every slice."""
    kernel = "unzip_variable"
    check_offset_bytes(length_bytes)
    dtype = offset_type(out_bits)
    items, totals = _count(slices, shape, 0, length_bytes, kernel)
    check_fits_offsets(int(totals[2]), dtype, kernel=kernel)
    rep, definition = _levels(int(totals[0]), shape)
    offsets = empty(int(totals[1]) + 1, dtype)
    data = empty_bytes(int(totals[2]))
    status = _native.unzip_items(
        slice_arrays(slices),
        _layout(shape, 0, length_bytes),
        rep,
        definition,
        dtype.itemsize,
        as_bytes(offsets),
        data,
    )
    checked(status, kernel=kernel)
    return rep, definition, offsets, data, items


def zip_fixed(
    rep: Levels, definition: Levels, values: Bytes, shape: ZipShape, value_bytes: int
) -> tuple[Bytes, Int64s]:
    """Encode fixed-width items; return the bytes, and the start of each item and the end."""
    kernel = "zip_fixed"
    count = check_whole_values(values, value_bytes)
    control, _ = check_zipped(rep, definition, shape, count)
    starts = np.empty(len(control) + 1, np.int64)
    out = empty_bytes(len(control) * shape.control_bytes + values.nbytes)
    status = _native.zip_fixed(
        control,
        shape.control_bytes,
        shape.bits_def,
        shape.max_visible_def,
        values,
        value_bytes,
        starts,
        out,
    )
    checked(status, kernel=kernel)
    return out, starts


def zip_variable(
    rep: Levels,
    definition: Levels,
    offsets: Offsets,
    data: Bytes,
    shape: ZipShape,
    length_bytes: int,
) -> tuple[Bytes, Int64s]:
    """Encode variable-width items; return the bytes, and the start of each item and the end."""
    kernel = "zip_variable"
    check_offset_bytes(length_bytes)
    check_has_offsets(offsets, kernel=kernel)
    check_offsets(offsets, data.nbytes, kernel=kernel)
    control, _ = check_zipped(rep, definition, shape, len(offsets) - 1)
    starts = np.empty(len(control) + 1, np.int64)
    # Upper bound; untouched memory is not committed.
    max_bytes = len(control) * (shape.control_bytes + length_bytes)
    out = empty_bytes(max_bytes + int(offsets[-1]) - int(offsets[0]))
    status = _native.zip_variable(
        control,
        shape.control_bytes,
        shape.bits_def,
        shape.max_visible_def,
        (as_bytes(offsets), offsets.dtype.itemsize, data),
        length_bytes,
        starts,
        out,
    )
    return out[: checked(status, kernel=kernel)], starts


def _count(
    slices: ByteSlices, shape: ZipShape, value_bytes: int, length_bytes: int, kernel: str
) -> tuple[Int64s, Int64s]:
    """Return the number of items per slice, and in total: items, visible items and value bytes."""
    items, totals = np.empty(len(slices), np.int64), np.empty(3, np.int64)
    status = _native.unzip_count(
        slice_arrays(slices),
        shape.control_bytes,
        shape.bits_def,
        shape.max_visible_def,
        value_bytes,
        length_bytes,
        items,
        totals,
    )
    checked(status, kernel=kernel)
    return items, totals


def _layout(shape: ZipShape, value_bytes: int, length_bytes: int) -> tuple[int, ...]:
    """Return the `ControlWords` of the kernels."""
    bits = shape.control_bytes, shape.bits_rep, shape.bits_def, shape.max_visible_def
    return (*bits, value_bytes, length_bytes)


def _levels(items: int, shape: ZipShape) -> tuple[Levels, Levels]:
    return (
        np.empty(items if shape.bits_rep else 0, np.uint16),
        np.empty(items if shape.bits_def else 0, np.uint16),
    )
