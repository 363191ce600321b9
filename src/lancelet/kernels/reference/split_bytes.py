"""Byte stream split: byte j of every value is stored in plane j, which compresses better.

For example:

    values (2 bytes)   a1 a2  b1 b2  c1 c2
    planes             a1 b1 c1  a2 b2 c2
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import (
    check_partition,
    check_plane_sizes,
    check_slices,
    check_value_bytes,
    check_whole_values,
)


def split_bytes_chunks(values: Bytes, value_bytes: int, counts: Int64s) -> Bytes:
    """Split chunks of `counts[i]` values into planes; the result has the same size."""
    total = check_whole_values(values, value_bytes)
    check_partition(counts, total, kernel="split_bytes_chunks")
    ends = np.cumsum(counts) * value_bytes
    out = np.empty(values.nbytes, np.uint8)
    for end, count in zip(ends.tolist(), counts.tolist(), strict=True):
        chunk = slice(end - count * value_bytes, end)
        out[chunk] = values[chunk].reshape(count, value_bytes).T.reshape(-1)
    return out


def join_bytes_chunks(slices: ByteSlices, counts: Int64s, value_bytes: int) -> Bytes:
    """Join the planes of chunks of `counts[i]` values, one chunk per slice."""
    kernel = "join_bytes_chunks"
    check_value_bytes(value_bytes)
    check_slices(slices, counts, kernel=kernel)
    check_plane_sizes(slices, counts, value_bytes, kernel=kernel)
    out = np.empty(int(counts.sum()) * value_bytes, np.uint8)
    ends = np.cumsum(counts) * value_bytes
    for index, (end, count) in enumerate(zip(ends.tolist(), counts.tolist(), strict=True)):
        planes = slices.slice_bytes(index)[: count * value_bytes].reshape(value_bytes, count)
        out[end - count * value_bytes : end] = planes.T.reshape(-1)
    return out
