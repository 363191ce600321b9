"""A store around another: every request passes one place, where it can be counted or refused.

    Around.request(Request("put", "a"), action)     called for each request; runs `action()`

What the wrapper adds is one object with that method; the store, its readers and its writers
delegate, so nothing can slip past it. One that only counts, and says so by a method `count_reads`,
is told of reads from a map of an object instead of being asked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from lancelet.buffers import Bytes, Ranges, Slices
from lancelet.io.store import (
    BytesLike,
    Listing,
    MappedObject,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    as_memoryview,
)
from lancelet.values import replace

T = TypeVar("T")

CHANGES: Final = frozenset(
    {
        "put",
        "put_if_absent",
        "write",
        "close_writer",
        "delete",
        "delete_many",
        "delete_folder",
        "remove_if_empty",
        "sweep_temporaries",
        "copy",
        "rename_if_absent",
    }
)
"""Operations that change what is stored; all others only look."""


class Request(NamedTuple):
    """One thing asked of a store: what, of which object, how many reads it is, and its bytes."""

    operation: str
    path: str
    written_bytes: int = 0
    reads: int = 1

    @property
    def is_change(self) -> bool:
        """Whether the request changes what is stored."""
        return self.operation in CHANGES


class Around(Protocol):
    """What happens around each request."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run `action()` and return its result, or do not."""


class WrappedStore(Store):
    """Delegates to `inner`, with `around` at every request."""

    def __init__(self, inner: Store, around: Around) -> None:
        """Wrap a store."""
        self.inner = inner
        self.around = around

    @property
    def uri(self) -> str:
        """The URI of the root."""
        return self.inner.uri

    @property
    def reads_together(self) -> bool:
        """Whether several objects can be read at once."""
        return self.inner.reads_together

    def at(self, folder: str) -> WrappedStore:
        """Return the same store with a folder as its root, wrapped alike."""
        return WrappedStore(self.inner.at(folder), self.around)

    def lazily(self) -> WrappedStore:
        """Return the same store for files that nothing leads to yet, wrapped alike."""
        return WrappedStore(self.inner.lazily(), self.around)

    def deciding(self) -> WrappedStore:
        """Return the same store for versions that it decides, wrapped alike."""
        return WrappedStore(self.inner.deciding(), self.around)

    def settle(self) -> None:
        """Wait until what was written lazily survives a loss of power."""
        self._request("settle", "", self.inner.settle)

    def etag_at_hand(self, path: str) -> str | None:
        """Return the tag of an object if finding it out costs next to nothing."""
        return self.inner.etag_at_hand(path)

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object."""
        reader = self._request("open_reader", path, lambda: self.inner.open_reader(path, size))
        return _WrappedReader(reader, self.around)

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""
        return self._request("read", path, lambda: self.inner.read(path))

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:
        """Return the bytes of small objects side by side, each counted as a read."""
        if not self.inner.reads_together:
            return None
        request = Request("read_together", paths[0], reads=len(paths))
        return self.around.request(request, lambda: self.inner.read_together(paths, sizes))

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object whole."""
        self._request("put", path, lambda: self.inner.put(path, data), data)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Store an object that is only advice; a put like any other to who looks on."""
        self._request("put", path, lambda: self.inner.put_note(path, data), data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object if the name is free."""
        self._request("put_if_absent", path, lambda: self.inner.put_if_absent(path, data), data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object."""
        writer = self._request("open_writer", path, lambda: self.inner.open_writer(path))
        return _WrappedWriter(path, writer, self.around)

    @property
    def lists_names(self) -> bool:
        """Whether names cost much less than a listing."""
        return self.inner.lists_names

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder; a listing like any other to who looks on."""
        return self._request("list", folder, lambda: self.inner.list_names(folder))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a folder."""
        return self._request("list", folder, lambda: self.inner.list(folder, start_after))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder."""
        return self._request("list_delimited", folder, lambda: self.inner.list_delimited(folder))

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object."""
        return self._request("info", path, lambda: self.inner.info(path))

    def delete(self, path: str) -> None:
        """See to it that an object is gone."""
        self._request("delete", path, lambda: self.inner.delete(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        """See to it that objects are gone, with one request."""
        names = tuple(paths)
        if names:
            self._request("delete_many", names[0], lambda: self.inner.delete_many(names))

    def delete_folder(self, folder: str) -> None:
        """See to it that nothing is left below a folder, with one request."""
        self._request("delete_folder", folder, lambda: self.inner.delete_folder(folder))

    def is_own(self, path: str) -> bool:
        """Return whether an object lies where its path says; nothing is requested."""
        return self.inner.is_own(path)

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder that nothing is in, with one request."""
        self._request("remove_if_empty", folder, lambda: self.inner.remove_if_empty(folder))

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:
        """Delete what crashed writers left, with one request."""
        return self._request(
            "sweep_temporaries",
            folder,
            lambda: self.inner.sweep_temporaries(folder, older_than_seconds=older_than_seconds),
        )

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        self._request("copy", target, lambda: self.inner.copy(source, target))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to a free name."""
        self._request(
            "rename_if_absent", target, lambda: self.inner.rename_if_absent(source, target)
        )

    def _request(
        self, operation: str, path: str, action: Callable[[], T], data: BytesLike | None = None
    ) -> T:
        request = Request(operation, path, 0 if data is None else as_memoryview(data).nbytes)
        return self.around.request(request, action)


class _WrappedReader(ObjectReader):
    """Delegates reads."""

    def __init__(self, inner: ObjectReader, around: Around) -> None:
        self._inner = inner
        self._around = around

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def identity(self) -> Hashable | None:
        return self._inner.identity

    def read_ranges(self, ranges: Ranges) -> Slices:
        request = Request("read_ranges", self.path, reads=len(ranges))
        return self._around.request(request, lambda: self._inner.read_ranges(ranges))

    def read_tail(self, size: int) -> Bytes:
        request = Request("read_tail", self.path)
        return self._around.request(request, lambda: self._inner.read_tail(size))

    def mapped(self) -> MappedObject | None:
        count = getattr(self._around, "count_reads", None)
        found = None if count is None else self._inner.mapped()
        if found is None or count is None:
            return None
        return replace(found, count=_both(count, found.count))

    def close(self) -> None:
        self._inner.close()


class _WrappedWriter(ObjectWriter):
    """Delegates writes."""

    def __init__(self, path: str, inner: ObjectWriter, around: Around) -> None:
        self._path = path
        self._inner = inner
        self._around = around
        self._is_open = True

    @property
    def position(self) -> int:
        return self._inner.position

    def write(self, *buffers: BytesLike) -> None:
        written = sum(as_memoryview(buffer).nbytes for buffer in buffers)
        request = Request("write", self._path, written)
        self._around.request(request, lambda: self._inner.write(*buffers))

    def close(self) -> int:
        if not self._is_open:
            return self._inner.close()
        self._is_open = False
        try:
            return self._around.request(Request("close_writer", self._path), self._inner.close)
        except BaseException:
            # Without a reply the writer cannot stay half open.
            self._inner.abort()
            raise

    def abort(self) -> None:
        self._is_open = False
        self._inner.abort()


def _both(
    count: Callable[[int, int], None], inner: Callable[[int, int], None] | None
) -> Callable[[int, int], None]:
    """Return what tells both counters; mostly there is only one."""
    if inner is None:
        return count

    def count_both(num_ranges: int, num_bytes: int) -> None:
        inner(num_ranges, num_bytes)
        count(num_ranges, num_bytes)

    return count_both


def answer_bytes(answer: Any) -> int:
    """Return how many bytes an answer brought.

    >>> answer_bytes(Slices.whole(np.zeros(5, np.uint8))), answer_bytes(b"abc"), answer_bytes(None)
    (5, 3, 0)
    """
    match answer:
        case Slices():
            return int(answer.size.sum())
        case bytes():
            return len(answer)
        case np.ndarray():
            return int(answer.nbytes)
        case _:
            return 0
