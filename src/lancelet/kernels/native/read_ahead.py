"""Reading ahead by `native/src/once/read_ahead.cpp`; `reference/read_ahead.py` defines it."""

from __future__ import annotations

from lancelet.buffers import Bytes, Slices
from lancelet.kernels import _native
from lancelet.kernels.arguments import slice_arrays
from lancelet.kernels.faults import checked


def read_ahead(slices: Slices, known: Bytes) -> int:
    """Ask the system to read what the slices cover and is not `known`; return how often."""
    return checked(_native.read_ahead(*slice_arrays(slices), known), kernel="read_ahead")
