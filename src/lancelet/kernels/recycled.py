"""Memory of large arrays, reused by later arrays of a similar size.

A loop that reads 16 MB at a time otherwise pays a page fault per 4 KB, which takes longer than
copying them: allocators return blocks of this size to the system when they are freed.

    array ──view, slice, tensor──> last reference is dropped ──> memory ──> next array

Only threads within `recycling` use it, so other reads do not retain memory.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from lancelet.buffers import Bytes

_SIZE_MIN: Final = 64 * 1024
_local = threading.local()


class RecycledMemory:
    """Free blocks of memory by size class, up to a total size.

    >>> memory = RecycledMemory(1 << 20)
    >>> first = memory.empty(100_000)
    >>> address = first.ctypes.data
    >>> del first
    >>> memory.empty(99_000).ctypes.data == address
    True
    """

    def __init__(self, bytes_max: int) -> None:
        """Retain up to `bytes_max` bytes of free blocks."""
        self._bytes_max = bytes_max
        self._free: dict[int, deque[Bytes]] = {}

    def __reduce__(self) -> tuple[type[RecycledMemory], tuple[int]]:
        """Pickle without the free blocks."""
        return RecycledMemory, (self._bytes_max,)

    def empty(self, size: int) -> Bytes:
        """Return an uninitialized array, aligned to 64 bytes."""
        block_size = _size_class(size)
        try:
            memory = self._free[block_size].pop()
        except (KeyError, IndexError):
            memory = _allocate(block_size)
        array: Bytes = np.asarray(_Block(memory, size, self))
        return array

    def release(self, memory: Bytes) -> None:
        """Retain a free block. May be called by any thread, at any time."""
        free = sum(size * len(blocks) for size, blocks in list(self._free.items()))
        if free + len(memory) <= self._bytes_max:
            self._free.setdefault(len(memory), deque()).append(memory)


class _Block:
    """Owns memory in use; NumPy arrays and their views refer to it."""

    __slots__ = ("__array_interface__", "_memory", "_source")

    def __init__(self, memory: Bytes, size: int, source: RecycledMemory) -> None:
        self._memory, self._source = memory, source
        interface: dict[str, Any] = memory.__array_interface__
        self.__array_interface__ = {**interface, "shape": (size,)}

    def __del__(self) -> None:
        self._source.release(self._memory)


@contextmanager
def recycling(memory: RecycledMemory) -> Iterator[None]:
    """Allocate large arrays of this thread from recycled memory."""
    before = getattr(_local, "memory", None)
    _local.memory = memory
    try:
        yield
    finally:
        _local.memory = before


def recycled_memory() -> RecycledMemory | None:
    """Return the memory of this thread, or None if arrays are allocated as usual."""
    memory: RecycledMemory | None = getattr(_local, "memory", None)
    return memory


def recycled_bytes(size: int) -> Bytes | None:
    """Return uninitialized recycled memory; None for small sizes or outside of `recycling`."""
    memory = recycled_memory() if size >= _SIZE_MIN else None
    return None if memory is None else memory.empty(size)


def _size_class(size: int) -> int:
    """Return the next power of two; the system provides only pages that are used.

    >>> _size_class(100_000), _size_class(1 << 20)
    (131072, 1048576)
    """
    return 1 << max(0, size - 1).bit_length()


def _allocate(size: int) -> Bytes:
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]
