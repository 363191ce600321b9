"""A store that reads from another and keeps nothing: for finding out what a change would write.

    put("a", b"abc"), put("b", b"")      num_objects 2, num_bytes 3, and neither object is there

What is written is counted when it is complete. Objects that are deleted stay where they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from lancelet.io.store import BytesLike, ObjectWriter, Store, as_memoryview, check_path
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Counts:
    """What was written, from any thread."""

    num_objects: int = 0
    num_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, size: int) -> None:
        with self.lock:
            self.num_objects += 1
            self.num_bytes += size


class _ReadsOnly:
    """Lets requests pass that look, and answers others as if they were done."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run an action unless it changes what is stored."""
        return None if request.is_change else action()  # type: ignore[return-value]  # changes return nothing


class DiscardingStore(WrappedStore):
    """Reads from `inner`; writes are counted and vanish."""

    def __init__(self, inner: Store, counts: _Counts | None = None) -> None:
        """Read from a store."""
        super().__init__(inner, _ReadsOnly())
        self._counts = counts or _Counts()

    @property
    def num_objects(self) -> int:
        """How many objects were written."""
        return self._counts.num_objects

    @property
    def num_bytes(self) -> int:
        """How many bytes they have."""
        return self._counts.num_bytes

    def beside(self, other: Store) -> DiscardingStore:
        """Return the same for another store, with the same counts."""
        return DiscardingStore(other, self._counts)

    def at(self, folder: str) -> DiscardingStore:
        """Return the same store with a folder as its root, with the same counts."""
        return DiscardingStore(self.inner.at(folder), self._counts)

    def lazily(self) -> DiscardingStore:
        """Return this store: what vanishes need not be waited for."""
        return self

    def put(self, path: str, data: BytesLike) -> None:
        """Count an object."""
        check_path(path)
        self._counts.add(as_memoryview(data).nbytes)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Count an object, as for any other."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Count an object, whether or not the name is free."""
        self.put(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start an object that is counted when it is closed."""
        check_path(path)
        return _CountingWriter(self._counts)


class _CountingWriter(ObjectWriter):
    """Takes bytes and forgets them."""

    def __init__(self, counts: _Counts) -> None:
        self._counts = counts
        self._position = 0
        self._is_open = True

    @property
    def position(self) -> int:
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        self._position += sum(as_memoryview(buffer).nbytes for buffer in buffers)

    def close(self) -> int:
        if self._is_open:
            self._is_open = False
            self._counts.add(self._position)
        return self._position

    def abort(self) -> None:
        self._is_open = False
