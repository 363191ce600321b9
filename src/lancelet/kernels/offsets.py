"""Validation of Arrow offsets and of stored offsets."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices, Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels.faults import Fault, corrupt

Offsets: TypeAlias = npt.NDArray[np.int32] | npt.NDArray[np.int64]
"""Arrow offsets of either width."""


def check_offset_bytes(offset_bytes: int) -> None:
    """Raise unless stored offsets or lengths have 4 or 8 bytes."""
    if offset_bytes not in (4, 8):
        raise InvalidInputError("offsets and lengths have 4 or 8 bytes", bytes=offset_bytes)


def check_chunk_counts(
    slices: ByteSlices, counts: Int64s, offset_bytes: int, *, kernel: str
) -> None:
    """Raise unless each chunk has enough bytes for its offsets."""
    check_offset_bytes(offset_bytes)
    bad = counts < 0
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=int(bad.argmax()))
    bad = (counts > 0) & (counts >= slices.size // offset_bytes)
    if bad.any():
        raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=int(bad.argmax()))


def offset_type(out_bits: int) -> np.dtype[Any]:
    """Return the Arrow offset type of `out_bits` bits."""
    if out_bits not in (32, 64):
        raise InvalidInputError("Arrow offsets have 32 or 64 bits", out_bits=out_bits)
    return np.dtype(np.int32) if out_bits == 32 else np.dtype(np.int64)


def check_fits_offsets(data_bytes: int, dtype: np.dtype[Any], *, kernel: str) -> None:
    """Raise if `data_bytes` exceeds the range of the offset type."""
    if data_bytes > np.iinfo(dtype).max:
        raise corrupt(Fault.TOO_LARGE, kernel=kernel, index=0)


def offsets_of(size: Int64s, *, out_bits: int, kernel: str) -> Offsets:
    """Return Arrow offsets for values of these sizes; raise if they exceed 32 bits."""
    dtype = offset_type(out_bits)
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    check_fits_offsets(int(offsets[-1]), dtype, kernel=kernel)
    return offsets.astype(dtype)


def check_has_offsets(offsets: Offsets, *, kernel: str) -> None:
    """Raise unless the array contains Arrow offsets, which are one more than the values."""
    if not len(offsets) or offsets.dtype not in (np.int32, np.int64):
        raise InvalidInputError(
            "offsets are 32 or 64 bits wide and one more than the values",
            kernel=kernel,
            dtype=str(offsets.dtype),
            offsets=len(offsets),
        )


def check_offsets(offsets: Offsets, data_bytes: int, *, kernel: str) -> None:
    """Raise unless offsets are ascending and within their data."""
    check_has_offsets(offsets, kernel=kernel)
    bad = offsets < 0
    bad[1:] |= offsets[1:] < offsets[:-1]
    bad |= offsets > data_bytes
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))


def split_sizes(offsets: Offsets, data_bytes: int, counts: Int64s, *, kernel: str) -> Int64s:
    """Return the sizes of chunks of `counts` values, padded to whole offsets."""
    check_has_offsets(offsets, kernel=kernel)
    if (counts < 0).any() or int(counts.sum()) != len(offsets) - 1:
        raise InvalidInputError(
            "the counts of the chunks do not add up to the values", kernel=kernel
        )
    edges = offsets[np.append(0, counts.cumsum())].astype(np.int64)
    bad = (edges[:-1] < 0) | (edges[1:] < edges[:-1]) | (edges[1:] > data_bytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=int(bad.argmax()))
    width = offsets.dtype.itemsize
    sizes: Int64s = (counts + 1 + -((edges[:-1] - edges[1:]) // width)) * width
    return sizes
