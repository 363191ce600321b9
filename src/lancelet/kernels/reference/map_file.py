"""Mapping a file for reading, as its definition: Python's own map, which keeps the file open.

Asking for pages of a mapped file before they are touched, as its definition: nothing changes.

The advice shortens waiting and changes no result, so the definition is the check of the slices
and a count of zero; the native kernel may return how many times it asked.
"""

from __future__ import annotations

import mmap

import numpy as np

from lancelet.buffers import Bytes, Slices
from lancelet.kernels.arguments import check_slices


def map_file(handle: int, size: int) -> Bytes:
    """Return the first `size` bytes of an open file, which are its own as long as the array lives.

    There is at least one. The handle may be closed afterwards.
    """
    return np.frombuffer(mmap.mmap(handle, size, access=mmap.ACCESS_READ), np.uint8)


def release_pages(source: Bytes) -> None:
    """Take the pages of a map out of this process; they come back when they are looked at.

    The array is one that `map_file` returned, not a part of it.
    """
    base: object = source.base
    held = base.obj if isinstance(base, memoryview) else base
    if isinstance(held, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        held.madvise(mmap.MADV_DONTNEED)


def read_ahead(slices: Slices, prefetched: Bytes) -> int:
    """Ask the system to read what the slices cover; return how many times it was asked.

    `prefetched` has a byte per page of 4096 bytes of the source; a page is looked at if its byte is 0,
    which the native kernel then sets to 1. Pages are looked at four at a time, as blocks of 16 KiB
    are verified.
    """
    del prefetched
    check_slices(slices, kernel="read_ahead")
    return 0
