"""Memory maps by Python's `mmap`, which holds a file descriptor."""

from __future__ import annotations

import mmap

import numpy as np

from lancelet.buffers import Bytes


def map_file(handle: int, size: int) -> Bytes:
    """Map the first `size` bytes of an open file, which may be closed afterwards.

    `size` must be positive.
    """
    return np.frombuffer(mmap.mmap(handle, size, access=mmap.ACCESS_READ), np.uint8)


def release_pages(source: Bytes) -> None:
    """Release the memory of a map; pages are mapped again on access.

    `source` must be an array returned by `map_file`, not a part of it.
    """
    base: object = source.base
    owner = base.obj if isinstance(base, memoryview) else base
    if isinstance(owner, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        owner.madvise(mmap.MADV_DONTNEED)
