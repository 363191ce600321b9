"""Protobuf by columns, by `native/src/protobuf.cpp`; `reference/protobuf.py` defines it."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, slice_arrays
from lancelet.kernels.faults import checked

Flags: TypeAlias = npt.NDArray[np.bool_]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
PackedRanges: TypeAlias = tuple[Int64s, Int64s, Int64s]
"""Ranges of many owners: owner i has `bounds[i]` to `bounds[i + 1]`; position and size."""


def find_parts(message: Bytes, field: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return tag position, content position and size of the embedded messages `field`."""
    message = as_bytes(message)
    count = checked(_native.count_parts(message, field), kernel="find_parts")
    head, position, size = (np.empty(count, np.int64) for _ in range(3))
    checked(_native.find_parts(message, field, head, position, size), kernel="find_parts")
    return head, position, size


def find_parts_in(slices: ByteSlices, field: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return owner, position and size of the embedded messages `field` of many messages."""
    arrays, none = slice_arrays(slices), np.empty(0, np.int64)
    status = _native.find_parts_in(*arrays, field, none, none, none)
    count = checked(status, kernel="find_parts_in")
    owner, position, size = np.empty((3, count), np.int64)
    if count:
        status = _native.find_parts_in(*arrays, field, owner, position, size)
        checked(status, kernel="find_parts_in")
    return owner, position, size


def read_packed(slices: ByteSlices) -> tuple[Int64s, UInt64s]:
    """Return the number of packed integers in each slice, and all their values."""
    arrays = slice_arrays(slices)
    counts = np.empty(len(slices), np.int64)
    # A number takes at least one byte.
    room = np.clip(slices.size, 0, slices.source.nbytes)
    values = np.empty(int(room.sum()), np.uint64)
    count = checked(_native.read_packed(*arrays, counts, values), kernel="read_packed")
    return counts, values[:count]


def join_pages(
    heads: ByteSlices, edges: Int64s, column_heads: Int64s, numbers: Int64s, buffers: PackedRanges
) -> tuple[Bytes, Int64s]:
    """Return the concatenated metadata of columns, and the end of each."""
    kernel = "join_pages"
    arrays = slice_arrays(heads)
    bounds, position, size = map(as_int64s, buffers)
    longest = int(heads.size.max(initial=0))
    messages = len(column_heads) + len(bounds)
    out = np.empty((longest + 80) * messages + 20 * len(position), np.uint8)
    ends = np.empty(len(column_heads), np.int64)
    status = _native.join_pages(
        arrays,
        as_int64s(edges),
        as_int64s(column_heads),
        as_int64s(numbers).reshape(-1),
        (bounds, position, size),
        out,
        ends,
    )
    return out[: checked(status, kernel=kernel)], ends


def read_varints(slices: ByteSlices, paths: Int64s) -> tuple[UInt64s, Flags]:
    """Return the number at each path of each message, and whether it is present."""
    pairs = as_int64s(paths).reshape(-1)
    shape = (len(pairs) // 2, len(slices))
    values = np.empty(shape, np.uint64)
    present = np.empty(shape, np.bool_)
    status = _native.read_varints(
        *slice_arrays(slices), pairs, values.reshape(-1), as_bytes(present)
    )
    checked(status, kernel="read_varints")
    return values, present
