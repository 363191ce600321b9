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


def forget_pages(source: Bytes) -> None:
    """Take the pages of a map out of this process; they come back when they are looked at.

    The array is one that `map_file` returned, not a part of it.
    """
    base: object = source.base
    held = base.obj if isinstance(base, memoryview) else base
    if isinstance(held, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)
