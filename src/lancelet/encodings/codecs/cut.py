"""Cutting values into chunks, and joining what lies in pieces.

    10 values in chunks of 4     counts [4, 4, 2]

The pieces of one buffer follow each other as slices, so joining those of a whole buffer again is
a view of it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.codecs.base import ChunkLimits

NO_BYTES: Bytes = np.empty(0, np.uint8)
"""What there is to store when nothing is."""


def chunk_counts(count: int, chunk: int) -> Int64s:
    """Cut `count` values into chunks of `chunk`, the last of what remains.

    >>> chunk_counts(10, 4).tolist()
    [4, 4, 2]
    """
    counts = np.full(-(-count // chunk), chunk, np.int64)
    if count % chunk:
        counts[-1] = count % chunk
    return counts


def every_page(count: int, rows: int) -> Int64s:
    """Return the numbers of the pages, one at least, that `count` values make.

    >>> every_page(10, 5).tolist()
    [0, 1]
    """
    return np.arange(count // rows if rows else 1)


def page_counts(num_pages: int, rows: int, chunk: int) -> Int64s:
    """Cut each of some pages of `rows` values into chunks.

    >>> page_counts(2, 5, 4).tolist()
    [4, 1, 4, 1]
    """
    counts = chunk_counts(rows, chunk)
    return counts if num_pages == 1 else np.tile(counts, num_pages)


VALUES_MIN: Final = 2
"""The fewest values of a chunk with another behind it: the reference refuses single ones."""


def chunk_values(count: int, value_bytes: float, limits: ChunkLimits) -> int:
    """Return the largest power of two of values, from 2 on, that keeps a chunk within its aim.

    >>> chunk_values(100_000, 8, ChunkLimits(bytes_aim=8192))
    1024
    """
    chunk = limits.values_max
    while chunk > VALUES_MIN and (chunk // 2 >= count or chunk * value_bytes > limits.bytes_aim):
        chunk //= 2
    return chunk


def slices_of(sizes: Int64s, source: Bytes) -> Slices:
    """Return slices of these sizes that follow each other from the start of `source`.

    >>> slices_of(np.array([2, 3]), np.zeros(5, np.uint8)).position.tolist()
    [0, 2]
    """
    return Slices(source, sizes.cumsum() - sizes, sizes)


def joined_bytes(slices: Slices) -> Bytes:
    """Return the bytes of all slices back to back, as a view if that is how they lie.

    >>> slices = slices_of(np.array([2, 3]), np.arange(9, dtype=np.uint8))
    >>> joined_bytes(slices).base is slices.source
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
