"""Prefetching by `native/src/baseline/read_ahead.cpp`; see `reference/read_ahead.py`."""

from __future__ import annotations

from lancelet.buffers import Bytes, ByteSlices
from lancelet.kernels import _native
from lancelet.kernels.arguments import slice_arrays
from lancelet.kernels.faults import checked


def read_ahead(slices: ByteSlices, prefetched: Bytes) -> int:
    """Prefetch the unchecked pages of the slices; return the number of requests."""
    return checked(_native.read_ahead(*slice_arrays(slices), prefetched), kernel="read_ahead")
