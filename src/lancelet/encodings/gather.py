"""Concatenation of slices of one buffer.

A single slice is returned as a view, so that scans of mapped files do not copy.
"""

from __future__ import annotations

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices
from lancelet.encodings.row_ranges import RowRanges, expand


def gather(slices: ByteSlices) -> Bytes:
    """Return the concatenated bytes of all slices.

    >>> source = np.frombuffer(b"abcdef", np.uint8)
    >>> gather(ByteSlices(source, np.array([4, 0]), np.array([2, 1]))).tobytes()
    b'efa'
    """
    if len(slices) == 1:
        return slices.slice_bytes(0)
    if not len(slices):
        return np.empty(0, np.uint8)
    width = int(slices.size[0])
    if (slices.size == width).all():
        return kernels.take_fixed(slices.source, slices.position, width)
    ends = np.cumsum(slices.size)
    return kernels.scatter_slices(slices, ends - slices.size, int(slices.size.sum()), 0)


def gather_bits(slices: ByteSlices, ranges: RowRanges) -> Bytes:
    """Return a bitmap of the rows of `ranges`, from the whole bytes that hold each span.

    >>> source = np.array([0b0000_1000, 0b0000_0001], np.uint8)
    >>> spans = RowRanges(np.array([3, 8]), np.array([2, 1]))
    >>> bin(gather_bits(ByteSlices(source, np.array([0, 1]), np.array([1, 1])), spans)[0])
    '0b101'
    """
    if len(slices) == 1:
        data = slices.slice_bytes(0)
        shift = int(ranges.start[0]) & 7
        if not shift:
            return data
        bits = np.unpackbits(data, bitorder="little")
        return np.packbits(bits[shift : shift + ranges.num_rows], bitorder="little")
    data = gather(slices)
    first_bit = (np.cumsum(slices.size) - slices.size) * 8 + (ranges.start & 7)
    bit = expand(first_bit, ranges.count)
    return np.packbits((data[bit >> 3] >> (bit & 7)) & 1, bitorder="little")
