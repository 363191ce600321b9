"""Splitting of values into chunks, and concatenation of slices.

    10 values in chunks of 4     counts [4, 4, 2]

Chunks of one buffer are contiguous slices, so concatenating all of them returns a view.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.codecs.base import ChunkLimits

NO_BYTES: Bytes = np.empty(0, np.uint8)


def chunk_counts(count: int, chunk: int) -> Int64s:
    """Split `count` values into chunks of `chunk`; the last one may be smaller.

    >>> chunk_counts(10, 4).tolist()
    [4, 4, 2]
    """
    counts = np.full(-(-count // chunk), chunk, np.int64)
    if count % chunk:
        counts[-1] = count % chunk
    return counts


VALUES_MIN: Final = 2
"""Minimum number of values of a chunk except the last; the reference rejects single values."""


def chunk_values(count: int, value_bytes: float, limits: ChunkLimits) -> int:
    """Return the largest power of two (at least 2) of values within the target chunk size.

    >>> chunk_values(100_000, 8, ChunkLimits(bytes_aim=8192))
    1024
    """
    chunk = limits.values_max
    while chunk > VALUES_MIN and (chunk // 2 >= count or chunk * value_bytes > limits.bytes_aim):
        chunk //= 2
    return chunk


def to_slices(sizes: Int64s, source: Bytes) -> ByteSlices:
    """Return consecutive slices of the given sizes from the start of `source`.

    >>> to_slices(np.array([2, 3]), np.zeros(5, np.uint8)).position.tolist()
    [0, 2]
    """
    return ByteSlices(source, sizes.cumsum() - sizes, sizes)


def join_bytes(slices: ByteSlices) -> Bytes:
    """Return the concatenated bytes of all slices, as a view if contiguous.

    >>> slices = to_slices(np.array([2, 3]), np.arange(9, dtype=np.uint8))
    >>> join_bytes(slices).base is slices.source
    True
    """
    if not len(slices):
        return NO_BYTES
    start, stop = int(slices.position[0]), int(slices.position[-1] + slices.size[-1])
    if (slices.position[1:] == slices.position[:-1] + slices.size[:-1]).all():
        return slices.source[start:stop]
    out = np.empty(int(slices.size.sum()), np.uint8)
    kernels.copy_slices(slices, out, slices.size.cumsum() - slices.size)
    return out
