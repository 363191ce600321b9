"""Byte stream split by `native/src/split_bytes.cpp`; `reference/split_bytes.py` defines it."""

from __future__ import annotations

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_int64s,
    check_partition,
    check_plane_sizes,
    check_slices,
    check_value_bytes,
    check_whole_values,
    slice_arrays,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes


def split_bytes_chunks(values: Bytes, value_bytes: int, counts: Int64s) -> Bytes:
    """Split chunks of `counts[i]` values into planes; the result has the same size."""
    kernel = "split_bytes_chunks"
    check_partition(counts, check_whole_values(values, value_bytes), kernel=kernel)
    out = empty_bytes(values.nbytes)
    status = _native.split_bytes_chunks(values, value_bytes, as_int64s(counts), out)
    checked(status, kernel=kernel)
    return out


def join_bytes_chunks(slices: ByteSlices, counts: Int64s, value_bytes: int) -> Bytes:
    """Join the planes of chunks of `counts[i]` values, one chunk per slice."""
    kernel = "join_bytes_chunks"
    check_value_bytes(value_bytes)
    check_slices(slices, counts, kernel=kernel)
    check_plane_sizes(slices, counts, value_bytes, kernel=kernel)
    arrays = (*slice_arrays(slices, counts), as_int64s(counts))
    out = empty_bytes(int(counts.sum()) * value_bytes)
    checked(_native.join_bytes_chunks(*arrays, value_bytes, out), kernel=kernel)
    return out
