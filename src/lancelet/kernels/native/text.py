"""Comparisons of strings by `native/src/text.cpp`; `reference/text.py` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes
from lancelet.kernels.offsets import Offsets


def contain_bytes(offsets: Offsets, data: Bytes, part: bytes) -> Bytes:
    """Return 1 for each string with an occurrence of the bytes, else 0."""
    out = empty_bytes(max(len(offsets) - 1, 0))
    strings = as_bytes(offsets), offsets.itemsize, as_bytes(data)
    status = _native.contain_bytes(strings, np.frombuffer(part, np.uint8), out)
    checked(status, kernel="contain_bytes")
    return out


def compare_bytes(offsets: Offsets, data: Bytes, constant: bytes) -> Bytes:
    """Return 0 for each string before the constant, 1 for each equal one, 2 for each after it."""
    out = empty_bytes(max(len(offsets) - 1, 0))
    strings = as_bytes(offsets), offsets.itemsize, as_bytes(data)
    status = _native.compare_bytes(strings, np.frombuffer(constant, np.uint8), out)
    checked(status, kernel="compare_bytes")
    return out
