"""CRC-32C by `native/src/checksum.cpp`; `reference/checksum.py` defines it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices
from lancelet.kernels import _native
from lancelet.kernels.arguments import check_block_bytes, slice_arrays
from lancelet.kernels.faults import checked


def crc32c(data: Bytes, seed: int = 0) -> int:
    """Return the checksum of `data`, continuing from the checksum `seed`."""
    return checked(_native.crc32c(data, seed), kernel="crc32c")


def crc32c_blocks(data: Bytes, block_bytes: int) -> npt.NDArray[np.uint32]:
    """Return the checksum of each `block_bytes` bytes; the last block may be shorter."""
    check_block_bytes(block_bytes)
    sums = np.empty(-(-data.nbytes // block_bytes), np.uint32)
    checked(_native.crc32c_blocks(data, block_bytes, sums), kernel="crc32c_blocks")
    return sums


def crc32c_slices(slices: ByteSlices) -> npt.NDArray[np.uint32]:
    """Return the checksum of each slice."""
    sums = np.empty(len(slices), np.uint32)
    checked(_native.crc32c_slices(*slice_arrays(slices), sums), kernel="crc32c_slices")
    return sums


def crc32c_verify(
    file_ranges: ByteSlices,
    block_bytes: int,
    own: tuple[int, int],
    sums: npt.NDArray[np.uint32],
    verified: Bytes,
) -> int | None:
    """Verify the blocks of a file that ranges touch; return the index of a wrong one, or None."""
    check_block_bytes(block_bytes)
    arguments = (*slice_arrays(file_ranges), block_bytes, *own, sums, verified)
    found = checked(_native.crc32c_verify(*arguments), kernel="crc32c_verify")
    return found - 1 if found else None
