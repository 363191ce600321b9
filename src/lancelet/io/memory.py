"""An in-memory store, also the reference model in tests of other stores.

`memory://` opens a new set of objects each time, as in the reference. `memory://name` is one set of
objects per process, so a dataset can be reopened by its URI until it is recreated. A pickled
store refers to the same objects within the process; unpickling it in another process raises,
because the store would be empty.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from datetime import datetime

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges, Bytes, ByteSlices
from lancelet.errors import InvalidInputError
from lancelet.io.fork import reset_after_fork
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    already_exists,
    as_memoryview,
    check_folder,
    check_path,
    check_ranges,
    not_found,
)


class _Objects:
    """The objects of one bucket, with a lock that makes requests atomic."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_key: dict[str, tuple[bytes, datetime]] = {}
        reset_after_fork(self, _Objects.reset)

    def reset(self) -> None:
        self.lock = threading.Lock()


_PROCESS = surroundings.new_uuid().hex
_BUCKETS: dict[str, _Objects] = {}
_UNNAMED: weakref.WeakValueDictionary[str, _Objects] = weakref.WeakValueDictionary()
"""Buckets without a name, which live as long as a store references them."""


class MemoryStore(Store):
    """Objects of one bucket of this process, below a directory."""

    def __init__(self, bucket: str = "", folder: str = "") -> None:
        """Open a bucket by name; equal names share a bucket."""
        self._bucket = bucket
        self._folder = check_folder(folder)
        self._prefix = f"{self._folder}/" if self._folder else ""
        objects = _UNNAMED.get(bucket)
        self._objects = _BUCKETS.setdefault(bucket, _Objects()) if objects is None else objects

    @staticmethod
    def unnamed() -> MemoryStore:
        """Create a store with a new bucket that no other call can open."""
        bucket = f"~{surroundings.new_uuid().hex}"
        objects = _UNNAMED[bucket] = _Objects()
        store = MemoryStore(bucket)
        assert store._objects is objects
        return store

    @staticmethod
    def reset(bucket: str) -> None:
        """Remove a bucket; stores that are open retain its objects."""
        _BUCKETS.pop(bucket, None)

    @property
    def uri(self) -> str:
        """The URI of the root."""
        return f"memory://{self._bucket}/{self._folder}".removesuffix("/")

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by name, for this process only."""
        return (_reopen, (_PROCESS, self._bucket, self._folder))

    def at(self, folder: str) -> MemoryStore:
        """Return a store of the same bucket with a directory as its root."""
        return MemoryStore(self._bucket, self._prefix + check_folder(folder))

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:  # noqa: ARG002  # part of the protocol
        """Open a snapshot of an object."""
        return _MemoryReader(path, np.frombuffer(self.read(path), np.uint8))

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return self._get(path)[0]

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object, replacing an existing one."""
        entry = (bytes(as_memoryview(data)), surroundings.now())
        with self._objects.lock:
            self._objects.by_key[self._key(path)] = entry

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless it exists."""
        entry = (bytes(as_memoryview(data)), surroundings.now())
        with self._objects.lock:
            if self._objects.by_key.setdefault(self._key(path), entry) is not entry:
                raise already_exists(path)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object."""
        check_path(path)
        return _MemoryWriter(self, path)

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, ordered by path."""
        prefix = self._folder_prefix(folder)
        start = "" if start_after is None else self._prefix + start_after
        with self._objects.lock:
            entries = sorted(
                (key, entry)
                for key, entry in self._objects.by_key.items()
                if key.startswith(prefix) and (start_after is None or key > start)
            )
        return (self._info(key, entry) for key, entry in entries)

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory."""
        prefix = self._folder_prefix(folder)[len(self._prefix) :]
        objects = []
        folders = set()
        for info in self.list(folder):
            name, slash, _ = info.path[len(prefix) :].partition("/")
            if slash:
                folders.add(prefix + name)
            else:
                objects.append(info)
        return Listing(tuple(objects), tuple(sorted(folders)))

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object."""
        return self._info(self._key(path), self._get(path))

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        with self._objects.lock:
            self._objects.by_key.pop(self._key(path), None)

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        self.put(target, self.read(source))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to an unused name."""
        with self._objects.lock:
            stored = self._objects.by_key
            if self._key(source) not in stored:
                raise not_found(source)
            if self._key(target) in stored:
                raise already_exists(target)
            stored[self._key(target)] = stored.pop(self._key(source))

    def _key(self, path: str) -> str:
        return self._prefix + check_path(path)

    def _folder_prefix(self, folder: str) -> str:
        folder = check_folder(folder)
        return self._prefix + (f"{folder}/" if folder else "")

    def _get(self, path: str) -> tuple[bytes, datetime]:
        key = self._key(path)
        with self._objects.lock:
            entry = self._objects.by_key.get(key)
        if entry is None:
            raise not_found(path)
        return entry

    def _info(self, key: str, entry: tuple[bytes, datetime]) -> ObjectInfo:
        return ObjectInfo(key[len(self._prefix) :], len(entry[0]), entry[1])


def _reopen(process: str, bucket: str, folder: str) -> MemoryStore:
    if process != _PROCESS:
        raise InvalidInputError(
            "an in-memory store cannot be sent to another process; use a store on disk",
            uri=f"memory://{bucket}/{folder}",
        )
    return MemoryStore(bucket, folder)


class _MemoryReader(ObjectReader):
    """Returns slices of the object without copying."""

    def __init__(self, path: str, source: Bytes) -> None:
        self._path = path
        self._source = source

    @property
    def path(self) -> str:
        return self._path

    @property
    def size(self) -> int:
        return self._source.nbytes

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        check_ranges(ranges, path=self._path, size=self.size)
        return ByteSlices(self._source, ranges.position, ranges.size)

    def read_tail(self, size: int) -> Bytes:
        return self._source[max(0, self.size - size) :]

    def close(self) -> None:
        """Do nothing; the store owns the object."""


class _MemoryWriter(ObjectWriter):
    """Collects buffers and stores the object on `close`."""

    def __init__(self, store: MemoryStore, path: str) -> None:
        self._store = store
        self._path = path
        self._parts: list[bytes] | None = []
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        if self._parts is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        for buffer in buffers:
            part = bytes(as_memoryview(buffer))
            self._parts.append(part)
            self._position += len(part)

    def close(self) -> int:
        if self._parts is not None:
            self._store.put(self._path, b"".join(self._parts))
            self._parts = None
        return self._position

    def abort(self) -> None:
        self._parts = None
