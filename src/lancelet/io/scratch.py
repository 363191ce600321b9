"""A store that reads from another, and what was written through it from a place of its own.

    put("b", ..)      lies in `scratch`; read("b") finds it there
    read("a")         of `inner`, unless "a" was written
    delete("a")       forgets what was written; what is in `inner` stays

For finding out what a change would write that reads files which it wrote itself. What is left in
the scratch in the end is what the change would leave.

A store that reads from another and keeps nothing: for finding out what a change would write.

    put("a", b"abc"), put("b", b"")      num_objects 2, num_bytes 3, and neither object is there

What is written is counted when it is complete, unless it is deleted again. Objects that are deleted
are counted and stay where they are; one that is moved counts as written and deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from lancelet.errors import ObjectNotFoundError
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    as_memoryview,
    check_path,
    name_taken,
)
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")


class ScratchStore(WrappedStore):
    """Reads from `inner`; what is written goes to another store and is found there."""

    def __init__(self, inner: Store, scratch: Store) -> None:
        """Read from a store, and write to another, which is empty."""
        super().__init__(inner, ReadsOnly())
        self._scratch = scratch

    def at(self, folder: str) -> ScratchStore:
        """Return the same store with a folder as its root."""
        return ScratchStore(self.inner.at(folder), self._scratch.at(folder))

    def lazily(self) -> ScratchStore:
        """Return this store: what is thrown away need not be waited for."""
        return self

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object."""
        return self._holder(path).open_reader(path, size)

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""
        return self._holder(path).read(path)

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object."""
        return self._holder(path).info(path)

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object in the scratch."""
        self._scratch.put(path, data)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Store an object that is only advice, as any other."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object in the scratch if neither store has the name."""
        if self.inner.exists(path):
            raise name_taken(path)
        self._scratch.put_if_absent(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object in the scratch."""
        return self._scratch.open_writer(path)

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects of both stores."""
        found = {info.path: info for info in self.inner.list(folder, start_after)}
        found |= {info.path: info for info in self._scratch.list(folder, start_after)}
        return iter([found[path] for path in sorted(found)])

    @property
    def lists_names(self) -> bool:
        """Names are those of two stores."""
        return False

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder of either store."""
        theirs, own = self.inner.list_delimited(folder), self._scratch.list_delimited(folder)
        objects = {info.path: info for info in (*theirs.objects, *own.objects)}
        folders = sorted({*theirs.folders, *own.folders})
        return Listing(tuple(objects[path] for path in sorted(objects)), tuple(folders))

    def delete(self, path: str) -> None:
        """Take an object out of the scratch."""
        self._scratch.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        """Take objects out of the scratch."""
        self._scratch.delete_many(paths)

    def delete_folder(self, folder: str) -> None:
        """Take a folder out of the scratch."""
        self._scratch.delete_folder(folder)

    def copy(self, source: str, target: str) -> None:
        """Copy an object of either store into the scratch."""
        self._scratch.put(target, self.read(source))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Give an object a free name; under the old one it stays if it was there before."""
        if self.exists(target):
            raise name_taken(target)
        self.copy(source, target)
        self.delete(source)

    def _holder(self, path: str) -> Store:
        return self._scratch if self._scratch.exists(path) else self.inner


@dataclass(slots=True, eq=False)
class _Counts:
    """What was written and what was deleted, from any thread."""

    written: dict[tuple[str, str], int] = field(default_factory=dict)
    deleted: dict[tuple[str, str], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, root: str, path: str, size: int) -> None:
        with self.lock:
            self.written[root, path] = size

    def take_back(self, root: str, path: str) -> bool:
        with self.lock:
            return self.written.pop((root, path), None) is not None

    def remove(self, root: str, info: ObjectInfo) -> None:
        with self.lock:
            self.deleted[root, info.path] = info.size


class ReadsOnly:
    """Lets requests pass that look, and answers others as if they were done."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run an action unless it changes what is stored."""
        return None if request.is_change else action()  # type: ignore[return-value]  # changes return nothing

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Let files be read from their maps: reading changes nothing."""


class DiscardingStore(WrappedStore):
    """Reads from `inner`; writes and deletions are counted and have no effect."""

    def __init__(self, inner: Store, counts: _Counts | None = None) -> None:
        """Read from a store."""
        super().__init__(inner, ReadsOnly())
        self._counts = counts or _Counts()

    @property
    def num_objects(self) -> int:
        """How many objects were written."""
        return len(self._counts.written)

    @property
    def num_bytes(self) -> int:
        """How many bytes they have."""
        return sum(self._counts.written.values())

    @property
    def num_deleted(self) -> int:
        """How many objects were deleted."""
        return len(self._counts.deleted)

    @property
    def deleted_bytes(self) -> int:
        """How many bytes they have."""
        return sum(self._counts.deleted.values())

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
        self._counts.add(self.uri, path, as_memoryview(data).nbytes)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Count an object, as for any other."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Count an object, whether or not the name is free."""
        self.put(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start an object that is counted when it is closed."""
        check_path(path)
        return _CountingWriter(self._counts, self.uri, path)

    def delete(self, path: str) -> None:
        """Count an object that would be gone, if it is there."""
        if self._counts.take_back(self.uri, path):
            return
        with suppress(ObjectNotFoundError):
            self._counts.remove(self.uri, self.inner.info(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Count the objects that would be gone."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Count all objects below a folder."""
        for info in self.inner.list(folder):
            self._counts.remove(self.uri, info)

    def rename_if_absent(self, source: str, target: str) -> None:
        """Count an object under its new name, and that it would be gone under the old one."""
        check_path(target)
        self._counts.add(self.uri, target, self.inner.info(source).size)
        self.delete(source)


class _CountingWriter(ObjectWriter):
    """Takes bytes and forgets them."""

    def __init__(self, counts: _Counts, root: str, path: str) -> None:
        self._counts = counts
        self._root = root
        self._path = path
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
            self._counts.add(self._root, self._path, self._position)
        return self._position

    def abort(self) -> None:
        self._is_open = False
