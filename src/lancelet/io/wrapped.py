"""A store wrapper that passes all requests through an interceptor.

    Interceptor.request(Request("put", "a"), action)     called for each request; runs `action()`

The store, its readers and its writers call the interceptor for each request. An interceptor with a
method `count_reads` permits memory-mapped reads, and is notified of them by this method.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from lancelet.buffers import ByteRanges, Bytes, ByteSlices
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
"""Operations that modify the store; all others are reads."""


class Request(NamedTuple):
    """A storage request: operation, path, written bytes and number of reads."""

    operation: str
    path: str
    written_bytes: int = 0
    reads: int = 1

    @property
    def is_change(self) -> bool:
        """Whether the request modifies the store."""
        return self.operation in CHANGES


class Interceptor(Protocol):
    """Intercepts the requests of a store."""

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run `action()` and return its result, or raise."""


class WrappedStore(Store):
    """Delegates requests to `inner` through an interceptor."""

    def __init__(self, inner: Store, interceptor: Interceptor) -> None:
        """Wrap a store."""
        self.inner = inner
        self.interceptor = interceptor

    @property
    def uri(self) -> str:
        """The URI of the root."""
        return self.inner.uri

    @property
    def reads_together(self) -> bool:
        """Whether `read_together` is supported."""
        return self.inner.reads_together

    def _wrap(self, inner: Store) -> WrappedStore:
        """Wrap another view of the store in the same way."""
        return WrappedStore(inner, self.interceptor)

    def at(self, folder: str) -> WrappedStore:
        """Return a wrapped store with a subdirectory as its root."""
        return self._wrap(self.inner.at(folder))

    def with_deferred_sync(self) -> WrappedStore:
        """Return a wrapped store that flushes new files in the background."""
        return self._wrap(self.inner.with_deferred_sync())

    def for_commits(self) -> WrappedStore:
        """Return a wrapped store for commits."""
        return self._wrap(self.inner.for_commits())

    def flush(self) -> None:
        """Wait for background flushes."""
        self._request("flush", "", self.inner.flush)

    def etag_if_cheap(self, path: str) -> str | None:
        """Return the tag of an object if it is cheap to obtain, or None."""
        return self.inner.etag_if_cheap(path)

    def identity_if_cheap(self, path: str) -> Hashable | None:
        """Return the identity of an object if it is cheap to obtain, or None."""
        return self.inner.identity_if_cheap(path)

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object for reading."""
        reader = self._request("open_reader", path, lambda: self.inner.open_reader(path, size))
        return _WrappedReader(reader, self.interceptor)

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return self._request("read", path, lambda: self.inner.read(path))

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:
        """Return the concatenated content of small objects; each counts as a read."""
        if not self.inner.reads_together:
            return None
        request = Request("read_together", paths[0], reads=len(paths))
        return self.interceptor.request(request, lambda: self.inner.read_together(paths, sizes))

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object, replacing an existing one."""
        self._request("put", path, lambda: self.inner.put(path, data), data)

    def put_best_effort(self, path: str, data: BytesLike) -> None:
        """Store an object without durability; the interceptor receives a `put`."""
        self._request("put", path, lambda: self.inner.put_best_effort(path, data), data)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless it exists."""
        self._request("put_if_absent", path, lambda: self.inner.put_if_absent(path, data), data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object."""
        writer = self._request("open_writer", path, lambda: self.inner.open_writer(path))
        return _WrappedWriter(path, writer, self.interceptor)

    @property
    def lists_names(self) -> bool:
        """Whether `list_names` is much cheaper than `list`."""
        return self.inner.lists_names

    def list_names(self, folder: str) -> Sequence[str]:
        """Return the sorted names in a directory; the interceptor receives a `list`."""
        return self._request("list", folder, lambda: self.inner.list_names(folder))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory."""
        return self._request("list", folder, lambda: self.inner.list(folder, start_after))

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory."""
        return self._request("list_delimited", folder, lambda: self.inner.list_delimited(folder))

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object."""
        return self._request("info", path, lambda: self.inner.info(path))

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        self._request("delete", path, lambda: self.inner.delete(path))

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects that exist, as one request."""
        names = tuple(paths)
        if names:
            self._request("delete_many", names[0], lambda: self.inner.delete_many(names))

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a directory, as one request."""
        self._request("delete_folder", folder, lambda: self.inner.delete_folder(folder))

    def is_own(self, path: str) -> bool:
        """Return whether the path of an object contains no symbolic links."""
        return self.inner.is_own(path)

    def remove_if_empty(self, folder: str) -> None:
        """Remove an empty directory, as one request."""
        self._request("remove_if_empty", folder, lambda: self.inner.remove_if_empty(folder))

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:
        """Delete temporary files of crashed writers, as one request."""
        return self._request(
            "sweep_temporaries",
            folder,
            lambda: self.inner.sweep_temporaries(folder, older_than_seconds=older_than_seconds),
        )

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store."""
        self._request("copy", target, lambda: self.inner.copy(source, target))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to an unused name."""
        self._request(
            "rename_if_absent", target, lambda: self.inner.rename_if_absent(source, target)
        )

    def _request(
        self, operation: str, path: str, action: Callable[[], T], data: BytesLike | None = None
    ) -> T:
        request = Request(operation, path, 0 if data is None else as_memoryview(data).nbytes)
        return self.interceptor.request(request, action)


class _WrappedReader(ObjectReader):
    """Delegates reads."""

    def __init__(self, inner: ObjectReader, interceptor: Interceptor) -> None:
        self._inner = inner
        self._interceptor = interceptor

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def size(self) -> int:
        return self._inner.size

    @property
    def identity(self) -> Hashable | None:
        return self._inner.identity

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        request = Request("read_ranges", self.path, reads=len(ranges))
        return self._interceptor.request(request, lambda: self._inner.read_ranges(ranges))

    def read_tail(self, size: int) -> Bytes:
        request = Request("read_tail", self.path)
        return self._interceptor.request(request, lambda: self._inner.read_tail(size))

    def mapped(self) -> MappedObject | None:
        count = getattr(self._interceptor, "count_reads", None)
        inner_map = None if count is None else self._inner.mapped()
        if inner_map is None or count is None:
            return None
        return replace(inner_map, count=_both(count, inner_map.count))

    def close(self) -> None:
        self._inner.close()


class _WrappedWriter(ObjectWriter):
    """Delegates writes."""

    def __init__(self, path: str, inner: ObjectWriter, interceptor: Interceptor) -> None:
        self._path = path
        self._inner = inner
        self._interceptor = interceptor
        self._is_open = True

    @property
    def position(self) -> int:
        return self._inner.position

    def write(self, *buffers: BytesLike) -> None:
        written = sum(as_memoryview(buffer).nbytes for buffer in buffers)
        request = Request("write", self._path, written)
        self._interceptor.request(request, lambda: self._inner.write(*buffers))

    def close(self) -> int:
        if not self._is_open:
            return self._inner.close()
        self._is_open = False
        try:
            return self._interceptor.request(Request("close_writer", self._path), self._inner.close)
        except BaseException:
            # The writer must not remain open after a failed request.
            self._inner.abort()
            raise

    def abort(self) -> None:
        self._is_open = False
        self._inner.abort()


def _both(
    count: Callable[[int, int], None], inner: Callable[[int, int], None] | None
) -> Callable[[int, int], None]:
    """Return a function that calls both counters."""
    if inner is None:
        return count

    def count_both(num_ranges: int, num_bytes: int) -> None:
        inner(num_ranges, num_bytes)
        count(num_ranges, num_bytes)

    return count_both


def result_bytes(answer: Any) -> int:
    """Return the number of bytes in the result of a request.

    >>> result_bytes(ByteSlices.whole(np.zeros(5, np.uint8))), result_bytes(b"abc")
    (5, 3)
    """
    match answer:
        case ByteSlices():
            return int(answer.size.sum())
        case bytes():
            return len(answer)
        case np.ndarray():
            return int(answer.nbytes)
        case _:
            return 0
