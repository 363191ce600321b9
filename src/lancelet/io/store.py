"""The protocols of object stores.

A store maps paths to objects. Paths are separated by `/` and relative to the root of the store.
Objects are immutable, and become visible only when they are complete. Commits require
`put_if_absent`, which succeeds for exactly one of several concurrent callers:

    put_if_absent("_versions/7.manifest", a)    stored
    put_if_absent("_versions/7.manifest", b)    AlreadyExistsError; `a` is unchanged
    put_if_absent with a lost response          CommitOutcomeUnknownError; check before retrying

Objects are read through an `ObjectReader`. Decoders use its `read_ranges` as their `Fetch`, which
returns slices of one buffer. Local files are memory-mapped (`mapped`), so decoders read the map
without copies.

`Store` implements several methods with default behavior, so stores inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteRanges, Bytes, ByteSlices
from lancelet.errors import (
    AlreadyExistsError,
    CorruptDataError,
    InvalidInputError,
    ObjectNotFoundError,
)
from lancelet.io.pool import run_in_background
from lancelet.kernels import join_slices, read_ahead
from lancelet.values import dataclass

BytesLike: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]
"""Bytes to write: contiguous objects that support the buffer protocol."""

StorageOptions: TypeAlias = Mapping[str, str]
"""Settings of a store, with the names of pylance."""

_BACKGROUND_FROM_BYTES: Final = 4 << 20
"""Larger requests are prefetched in the background while decoding starts."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """The metadata of an object in a listing."""

    path: str
    size: int
    modified: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects and subdirectories of a directory, ordered by path."""

    objects: tuple[ObjectInfo, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MappedObject:
    """A memory-mapped object.

    `prefetched` has a flag per 4096 bytes for `kernels.read_ahead`. Bytes of the map are valid only
    if `is_intact` returns true after they were read (`check_intact` raises otherwise), so results
    must not reference the map. `count` is called with the number of ranges and bytes of each read.
    """

    path: str
    source: Bytes
    prefetched: Bytes
    is_intact: Callable[[], bool]
    check_intact: Callable[[], None]
    release_pages: Callable[[], None]
    count: Callable[[int, int], None] | None = None

    def fetch(self, ranges: ByteRanges) -> ByteSlices:
        """Return slices of the map and prefetch their pages."""
        slices, num_bytes = (
            ByteSlices(self.source, ranges.position, ranges.size),
            int(ranges.size.sum()),
        )
        if num_bytes < _BACKGROUND_FROM_BYTES:
            try:
                read_ahead(slices, self.prefetched)
            except CorruptDataError:
                # `read_ahead` also checks the ranges, but its error has no details.
                check_ranges(ranges, path=self.path, size=self.source.nbytes)
                raise
        else:
            check_ranges(ranges, path=self.path, size=self.source.nbytes)
            run_in_background(partial(read_ahead, slices, self.prefetched))
        if self.count is not None:
            self.count(len(ranges), num_bytes)
        return slices

    def fetch_copy(self, ranges: ByteRanges) -> ByteSlices:
        """Return a copy of byte ranges, or raise if the object was truncated."""
        return self.copied(self.fetch(ranges))

    def copied(self, slices: ByteSlices) -> ByteSlices:
        """Return a copy of slices of the map, or raise if the object was truncated."""
        copy = ByteSlices(join_slices(slices), slices.size.cumsum() - slices.size, slices.size)
        self.check_intact()
        return copy


class ObjectReader(Protocol):
    """Reads one object. Readers are thread-safe."""

    @property
    def path(self) -> str:
        """The path of the object in its store."""

    @property
    def size(self) -> int:
        """The size of the object in bytes; the first access may send a request."""

    @property
    def identity(self) -> Hashable | None:
        """A value that is unique to this object and its content, or None if unavailable."""
        return None

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        """Return the bytes of `ranges`, in their order.

        Raises `CorruptDataError` if a range is outside of the object, because positions originate
        from stored data.
        """

    def read_tail(self, size: int) -> Bytes:
        """Return the last `size` bytes, or all bytes if the object is smaller."""

    def mapped(self) -> MappedObject | None:
        """Return the memory map of the object, or None."""
        return None

    def close(self) -> None:
        """Release the resources of the reader; returned slices stay valid."""

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the reader."""
        self.close()


class ObjectWriter(Protocol):
    """Writes one object sequentially; it becomes visible when `close` returns."""

    @property
    def position(self) -> int:
        """The number of bytes written so far."""

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes."""

    def close(self) -> int:
        """Make the object durable and visible, and return its size; idempotent."""

    def abort(self) -> None:
        """Discard the object; has no effect after `close`."""

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the writer, or abort it if an exception was raised."""
        if kind is None:
            self.close()
        else:
            self.abort()


class Store(Protocol):
    """A set of named objects below a root. Stores are pickled by URI and options."""

    @property
    def uri(self) -> str:
        """The URI of the root; paths are relative to it."""

    def at(self, folder: str) -> Store:
        """Return a store with a subdirectory as its root."""

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object for reading; passing its `size` may save a request.

        If the object does not exist, this method or the first read raises.
        """

    def read(self, path: str) -> bytes:
        """Return the content of an object."""

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object, replacing an existing one."""

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless it exists; atomic across processes and machines.

        Raises:
            AlreadyExistsError: The object exists and is unchanged.
            CommitOutcomeUnknownError: The response was lost; the object may have been stored.
        """

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object; intended for large objects."""

    @property
    def lists_names(self) -> bool:
        """Whether `list_names` is much cheaper than `list`."""
        return False

    def list_names(self, folder: str) -> Sequence[str]:
        """Return the sorted names in a directory, including unfinished files."""
        return sorted(info.path.rpartition("/")[2] for info in self.list(folder))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield all objects below a directory, ordered by path.

        With `start_after`, only objects with greater paths are listed. A missing directory is
        empty. Pages are fetched lazily.
        """

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory."""

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object, or raise `ObjectNotFoundError`."""

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, replacing an existing target."""

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to an unused name, or raise `AlreadyExistsError`.

        In stores without an atomic move, both names may be visible temporarily.
        """

    def put_best_effort(self, path: str, data: BytesLike) -> None:
        """Store an optional object, such as a hint, with the lowest possible latency.

        It may be lost after a power failure, and may be visible before it is complete.
        """
        self.put(path, data)

    def with_deferred_sync(self) -> Store:
        """Return a store with new files that are durable only after `flush`.

        Files need not be durable until a manifest refers to them.
        """
        return self

    def for_commits(self) -> Store:
        """Return a store for tables that commit versions with `put_if_absent`.

        Stores without conditional puts return a read-only store.
        """
        return self

    def flush(self) -> None:
        """Wait until all files written through this store are durable."""
        return

    @property
    def reads_together(self) -> bool:
        """Whether `read_together` is supported."""
        return False

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:  # noqa: ARG002  # overridden
        """Return the concatenated content of small objects in writable memory.

        Returns None if an object has a different size, or if the store does not benefit from
        combined reads.
        """
        return None

    def etag_if_cheap(self, path: str) -> str | None:  # noqa: ARG002  # overridden
        """Return the tag of an object if it is cheap to obtain, or None."""
        return None

    def identity_if_cheap(self, path: str) -> Hashable | None:  # noqa: ARG002  # overridden
        """Return the `ObjectReader.identity` of an object if it is cheap to obtain, or None."""
        return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """Delete objects that exist."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """Delete all objects below a directory."""
        self.delete_many([info.path for info in self.list(folder)])

    def is_own(self, path: str) -> bool:  # noqa: ARG002  # overridden
        """Return whether the path of an object contains no symbolic links."""
        return True

    def remove_if_empty(self, folder: str) -> None:  # noqa: ARG002  # overridden
        """Remove an empty directory; has no effect in stores without directories."""
        return

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:  # noqa: ARG002  # overridden
        """Delete temporary files of crashed writers below a directory; return their number."""
        return 0

    def exists(self, path: str) -> bool:
        """Return whether an object exists."""
        try:
            self.info(path)
        except ObjectNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """Return the size of an object."""
        return self.info(path).size


def check_path(path: str) -> str:
    """Return a valid path of an object, or raise `InvalidInputError`.

    >>> check_path("data/a.lance")
    'data/a.lance'
    >>> check_path("../etc/passwd")
    Traceback (most recent call last):
    lancelet.errors.InvalidInputError: a path in a store must ... (path='../etc/passwd')
    """
    # Splitting the path on each request would be measurable, so only suspicious paths are split.
    if not path or path[0] == "/" or path[-1] == "/" or "//" in path or "\0" in path:
        pass
    elif (path[0] != "." and "/." not in path) or not {".", ".."} & set(path.split("/")):
        return path
    raise InvalidInputError(
        "a path in a store must be relative, `/`-separated and without '.' or '..'", path=path
    )


def check_folder(folder: str) -> str:
    """Return the path of a directory without a trailing slash; the root is the empty path.

    >>> check_folder("data/"), check_folder("")
    ('data', '')
    """
    folder = folder.removesuffix("/")
    return check_path(folder) if folder else folder


def check_ranges(ranges: ByteRanges, *, path: str, size: int) -> None:
    """Raise `CorruptDataError` if a range is outside of an object of `size` bytes.

    >>> check_ranges(ByteRanges.of((0, 4), (4, 0)), path="a", size=4)
    >>> check_ranges(ByteRanges.of((0, 4), (3, 2)), path="a", size=4)
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: ... (path='a', position=3, size=2, file_bytes=4)
    """
    position, length = ranges.position, ranges.size
    if not len(position):
        return
    # `size - position` cannot overflow, unlike `position + length`.
    fits = (position >= 0) & (length >= 0) & (position <= size) & (length <= size - position)
    if fits.all():
        return
    first = int(np.argmin(fits))
    raise CorruptDataError(
        "a byte range is outside of the object; was it truncated by a copy?",
        path=path,
        position=int(position[first]),
        size=int(length[first]),
        file_bytes=size,
    )


def as_memoryview(data: BytesLike) -> memoryview:
    """Return a byte view of a contiguous buffer of any item type.

    >>> as_memoryview(np.array([1, 2], np.uint16)).nbytes
    4
    """
    view = memoryview(data)  # type: ignore[arg-type]  # numpy declares the protocol from 3.12 on
    return view.cast("B") if view.nbytes else memoryview(b"")


def already_exists(path: str) -> AlreadyExistsError:
    """Return the error of a conditional put of an existing object."""
    return AlreadyExistsError("an object of that name is already stored", path=path)


def not_found(path: str) -> ObjectNotFoundError:
    """Return the error of a read of a missing object."""
    return ObjectNotFoundError("no object of that name is stored", path=path)
