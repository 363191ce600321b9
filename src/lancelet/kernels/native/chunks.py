"""Chunk tables and headers by `native/src/chunks.cpp`; `reference/chunks.py` defines them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_int64s, slice_arrays
from lancelet.kernels.faults import checked


def locate_rows(bounds: Int64s, rows: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Find the parts of ascending rows, where part i has rows `bounds[i]` to `bounds[i+1]`."""
    parts, part_indices, within = np.empty((3, len(rows)), np.int64)
    status = _native.locate_rows(as_int64s(bounds), as_int64s(rows), parts, part_indices, within)
    return parts[: checked(status, kernel="locate_rows")], part_indices, within


def locate_chunks(
    tables: ByteSlices,
    entry_bytes: int,
    num_values: Int64s,
    data_position: Int64s,
    data_bytes: Int64s,
    *,
    count_max: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Read chunk tables: position, size and number of values of each chunk of each page."""
    kernel = "locate_chunks"
    arrays = slice_arrays(tables, num_values, data_position, data_bytes)
    # Bounded by the size of the chunk tables.
    room = max(0, int((tables.size // max(1, entry_bytes)).sum()))
    position, size, count = np.empty((3, room), np.int64)
    status = _native.locate_chunks(
        arrays,
        entry_bytes,
        as_int64s(num_values),
        (as_int64s(data_position), as_int64s(data_bytes)),
        count_max,
        position,
        size,
        count,
    )
    checked(status, kernel=kernel)
    return position, size, count


def split_chunks(
    slices: ByteSlices, num_levels: int, num_buffers: int, size_bytes: int
) -> tuple[Int64s, ...]:
    """Return the number of levels of each chunk, and position and size of its buffers."""
    rows = 2 * (num_levels + num_buffers) - 1
    out = np.empty((max(0, rows), len(slices)), np.int64)
    status = _native.split_chunks(
        *slice_arrays(slices), num_levels, num_buffers, size_bytes, out.reshape(-1)
    )
    checked(status, kernel="split_chunks")
    return tuple(out)
