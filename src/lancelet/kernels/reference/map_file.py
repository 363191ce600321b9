"""Mapping a file for reading, as its definition: Python's own map, which keeps the file open."""

from __future__ import annotations

import mmap

import numpy as np

from lancelet.buffers import Bytes


def map_file(handle: int, size: int) -> Bytes:
    """Return the first `size` bytes of an open file, which are its own as long as the array lives.

    There is at least one. The handle may be closed afterwards.
    """
    return np.frombuffer(mmap.mmap(handle, size, access=mmap.ACCESS_READ), np.uint8)
