"""Run lengths by `native/src/rle.cpp`; `reference/rle.py` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_int64s,
    check_partition,
    check_run_counts,
    check_slices,
    check_whole_values,
    slice_arrays,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes


def rle_decode_chunks(
    values: ByteSlices, lengths: ByteSlices, counts: Int64s, value_bytes: int, length_bytes: int = 1
) -> Bytes:
    """Expand the runs of every chunk; those of chunk i must add up to `counts[i]` values."""
    kernel = "rle_decode_chunks"
    arrays = slice_arrays(values, counts), slice_arrays(lengths, counts), as_int64s(counts)
    check_slices(lengths, kernel=kernel)
    check_run_counts(lengths, counts, value_bytes, length_bytes, kernel=kernel)
    out = empty_bytes(int(counts.sum()) * value_bytes)
    checked(_native.rle_decode_chunks(*arrays, value_bytes, length_bytes, out), kernel=kernel)
    return out


def rle_encode_chunks(
    values: Bytes, value_bytes: int, counts: Int64s
) -> tuple[Bytes, Bytes, Int64s]:
    """Encode runs within chunks of `counts[i]` values."""
    kernel = "rle_encode_chunks"
    check_partition(counts, check_whole_values(values, value_bytes), kernel=kernel)
    chunk_counts = as_int64s(counts)
    runs = np.empty(len(counts), np.int64)
    status = _native.rle_count_chunks(values, value_bytes, chunk_counts, runs)
    total = checked(status, kernel=kernel)
    out_values, out_lengths = empty_bytes(total * value_bytes), empty_bytes(total)
    status = _native.rle_encode_chunks(values, value_bytes, chunk_counts, out_values, out_lengths)
    checked(status, kernel=kernel)
    return out_values, out_lengths, runs
