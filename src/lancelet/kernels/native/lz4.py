"""LZ4 blocks by `native/src/lz4.cpp`; `reference/lz4.py` defines them."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    as_int64s,
    check_slices,
    plain_sizes,
    slice_arrays,
    slices_of_sizes,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes


def lz4_decompress_chunks(
    slices: ByteSlices, out_sizes: Int64s | None = None, *, max_sizes: Int64s | None = None
) -> ByteSlices:
    """Decompress each slice; without `out_sizes`, each starts with its size as a u32."""
    kernel = "lz4_decompress_chunks"
    blocks, sizes = plain_sizes(slices, out_sizes, max_sizes, kernel=kernel)
    out_size = as_int64s(sizes)
    out = empty_bytes(int(out_size.sum()))
    status = _native.lz4_decompress_chunks(*slice_arrays(blocks, sizes), out_size, out)
    checked(status, kernel=kernel)
    return slices_of_sizes(out, out_size)


def lz4_compress_chunks(slices: ByteSlices, *, sized: bool) -> ByteSlices:
    """Compress each slice; `sized` adds the uncompressed size as a u32 prefix."""
    kernel = "lz4_compress_chunks"
    arrays = slice_arrays(slices)
    check_slices(slices, kernel=kernel)
    # Maximum block size and size prefix; untouched memory is not committed.
    out = empty_bytes(int((slices.size + slices.size // 255 + 20).sum()))
    sizes = np.empty(len(slices), np.int64)
    status = _native.lz4_compress_chunks(*arrays, int(sized), out, sizes)
    return slices_of_sizes(out[: checked(status, kernel=kernel)], sizes)
