"""Stores for dry runs, which do not modify the underlying store.

`OverlayStore` writes to a separate store, and reads objects from there first. It is used for
operations that read their own writes:

    put("b", ..)      written to `overlay`
    read("a")         read from `overlay` if it exists there, otherwise from `inner`
    delete("a")       deleted from `overlay`; `inner` is unchanged

`DiscardingStore` only counts writes and deletions:

    put("a", b"abc"), put("b", b"")      num_objects 2, num_bytes 3; the objects do not exist

Writes are counted when they are complete, unless the object is deleted again. A renamed object
counts as written and deleted.
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
    already_exists,
    as_memoryview,
    check_path,
)
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")


class OverlayStore(WrappedStore):
    """Reads from `inner` and writes to an overlay store, which takes precedence in reads."""

    def __init__(self, inner: Store, overlay: Store) -> None:
        """Create an overlay over `inner`; `overlay` must be empty."""
        super().__init__(inner, IgnoreChanges())
        self._overlay = overlay

    def at(self, folder: str) -> OverlayStore:
        """Return a store with a subdirectory as its root."""
        return OverlayStore(self.inner.at(folder), self._overlay.at(folder))

    def with_deferred_sync(self) -> OverlayStore:
        """Return this store; the overlay needs no durability."""
        return self

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object for reading."""
        return self._store_of(path).open_reader(path, size)

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return self._store_of(path).read(path)

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object."""
        return self._store_of(path).info(path)

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object in the overlay."""
        self._overlay.put(path, data)

    def put_best_effort(self, path: str, data: BytesLike) -> None:
        """Store an object in the overlay."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object in the overlay unless it exists in either store."""
        if self.inner.exists(path):
            raise already_exists(path)
        self._overlay.put_if_absent(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object in the overlay."""
        return self._overlay.open_writer(path)

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects of both stores, ordered by path."""
        objects = {info.path: info for info in self.inner.list(folder, start_after)}
        objects |= {info.path: info for info in self._overlay.list(folder, start_after)}
        return iter([objects[path] for path in sorted(objects)])

    @property
    def lists_names(self) -> bool:
        """Always false: names are merged from two listings."""
        return False

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory in both stores."""
        inner_listing, overlay_listing = (
            self.inner.list_delimited(folder),
            self._overlay.list_delimited(folder),
        )
        objects = {info.path: info for info in (*inner_listing.objects, *overlay_listing.objects)}
        folders = sorted({*inner_listing.folders, *overlay_listing.folders})
        return Listing(tuple(objects[path] for path in sorted(objects)), tuple(folders))

    def delete(self, path: str) -> None:
        """Delete an object from the overlay."""
        self._overlay.delete(path)

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects from the overlay."""
        self._overlay.delete_many(paths)

    def delete_folder(self, folder: str) -> None:
        """Delete a directory from the overlay."""
        self._overlay.delete_folder(folder)

    def copy(self, source: str, target: str) -> None:
        """Copy an object of either store to the overlay."""
        self._overlay.put(target, self.read(source))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to an unused name; the source remains in `inner` if it exists there."""
        if self.exists(target):
            raise already_exists(target)
        self.copy(source, target)
        self.delete(source)

    def _store_of(self, path: str) -> Store:
        return self._overlay if self._overlay.exists(path) else self.inner


@dataclass(slots=True, eq=False)
class _Counts:
    """The sizes of written and deleted objects, protected by a lock."""

    written: dict[tuple[str, str], int] = field(default_factory=dict)
    deleted: dict[tuple[str, str], int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, root: str, path: str, size: int) -> None:
        with self.lock:
            self.written[root, path] = size

    def cancel_write(self, root: str, path: str) -> bool:
        with self.lock:
            return self.written.pop((root, path), None) is not None

    def remove(self, root: str, info: ObjectInfo) -> None:
        with self.lock:
            self.deleted[root, info.path] = info.size


class IgnoreChanges:
    """Runs reads, and returns from changes without running them."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run the request unless it is a change."""
        return None if request.is_change else action()  # type: ignore[return-value]  # changes return nothing

    def count_reads(self, num_ranges: int, num_bytes: int) -> None:
        """Permit memory-mapped reads."""


class DiscardingStore(WrappedStore):
    """Reads from `inner`; writes and deletions are only counted."""

    def __init__(self, inner: Store, counts: _Counts | None = None) -> None:
        """Create a discarding store."""
        super().__init__(inner, IgnoreChanges())
        self._counts = counts or _Counts()

    @property
    def num_objects(self) -> int:
        """The number of written objects."""
        return len(self._counts.written)

    @property
    def num_bytes(self) -> int:
        """The total size of written objects in bytes."""
        return sum(self._counts.written.values())

    @property
    def num_deleted(self) -> int:
        """The number of deleted objects."""
        return len(self._counts.deleted)

    @property
    def deleted_bytes(self) -> int:
        """The total size of deleted objects in bytes."""
        return sum(self._counts.deleted.values())

    def with_inner(self, other: Store) -> DiscardingStore:
        """Return a discarding store of another store that shares the counts."""
        return DiscardingStore(other, self._counts)

    def at(self, folder: str) -> DiscardingStore:
        """Return a store with a subdirectory as its root that shares the counts."""
        return DiscardingStore(self.inner.at(folder), self._counts)

    def with_deferred_sync(self) -> DiscardingStore:
        """Return this store; discarded objects need no durability."""
        return self

    def put(self, path: str, data: BytesLike) -> None:
        """Count an object as written."""
        check_path(path)
        self._counts.add(self.uri, path, as_memoryview(data).nbytes)

    def put_best_effort(self, path: str, data: BytesLike) -> None:
        """Count an object as written."""
        self.put(path, data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Count an object as written, even if it exists."""
        self.put(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start an object, which is counted on `close`."""
        check_path(path)
        return _CountingWriter(self._counts, self.uri, path)

    def delete(self, path: str) -> None:
        """Count an object as deleted if it exists."""
        if self._counts.cancel_write(self.uri, path):
            return
        with suppress(ObjectNotFoundError):
            self._counts.remove(self.uri, self.inner.info(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Count existing objects as deleted."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Count all objects below a directory as deleted."""
        for info in self.inner.list(folder):
            self._counts.remove(self.uri, info)

    def rename_if_absent(self, source: str, target: str) -> None:
        """Count the target as written and the source as deleted."""
        check_path(target)
        self._counts.add(self.uri, target, self.inner.info(source).size)
        self.delete(source)


class _CountingWriter(ObjectWriter):
    """Counts written bytes and discards them."""

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
