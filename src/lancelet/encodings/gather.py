"""Slices of one buffer, laid end to end.

A single slice is returned as a view, which is what makes the scan of a mapped file free.
"""

from __future__ import annotations

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, Slices
from lancelet.encodings.spans import Spans, expand


def gather(slices: Slices) -> Bytes:
    """Return the bytes of all slices, in order.

    >>> source = np.frombuffer(b"abcdef", np.uint8)
    >>> gather(Slices(source, np.array([4, 0]), np.array([2, 1]))).tobytes()
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
    return kernels.place_slices(slices, ends - slices.size, int(slices.size.sum()), 0)


def gather_bits(slices: Slices, spans: Spans) -> Bytes:
    """Return a bitmap of the rows of `spans`, from the whole bytes that hold each span.

    >>> source = np.array([0b0000_1000, 0b0000_0001], np.uint8)
    >>> spans = Spans(np.array([3, 8]), np.array([2, 1]))
    >>> bin(gather_bits(Slices(source, np.array([0, 1]), np.array([1, 1])), spans)[0])
    '0b101'
    """
    if len(slices) == 1:
        data = slices.slice_bytes(0)
        shift = int(spans.start[0]) & 7
        if not shift:
            return data
        bits = np.unpackbits(data, bitorder="little")
        return np.packbits(bits[shift : shift + spans.num_rows], bitorder="little")
    data = gather(slices)
    first_bit = (np.cumsum(slices.size) - slices.size) * 8 + (spans.start & 7)
    bit = expand(first_bit, spans.count)
    return np.packbits((data[bit >> 3] >> (bit & 7)) & 1, bitorder="little")
