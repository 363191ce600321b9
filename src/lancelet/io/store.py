"""What every store promises: named objects, ranged reads, and one write that decides a race.

A store maps paths to objects. A path is `/`-separated and relative to the root of the store; an
object appears whole or not at all, and is never changed in place. What the format needs beyond
that is one request: `put_if_absent`, which of many callers exactly one may win.

    put_if_absent("_versions/7.manifest", a)    stored
    put_if_absent("_versions/7.manifest", b)    AlreadyExistsError, `a` is still there
    put_if_absent, and the reply was lost       CommitOutcomeUnknownError: look before acting

Reads go through an `ObjectReader`, whose `read_ranges` is the `Fetch` that decoders are driven
with. It answers with slices of one buffer. A local file is `mapped`, and who decodes takes the map
instead, where nothing is copied.

`Store` is a protocol with a few derived methods, so a store may inherit from it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Ranges, Slices
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
"""Bytes to be written: anything contiguous that exposes the buffer protocol."""

StorageOptions: TypeAlias = Mapping[str, str]
"""Settings of a store by the names that pylance gives them."""

_BACKGROUND_FROM_BYTES: Final = 4 << 20
"""Asking for more than this takes long enough that decoding should start meanwhile."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as a listing shows it."""

    path: str
    size: int
    modified: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """What lies directly in a folder: its objects and the paths of its sub-folders, in order."""

    objects: tuple[ObjectInfo, ...]
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MappedObject:
    """An object that is mapped as a whole, for who reads it without asking for ranges.

    `known` has a byte per 4096 bytes, for `kernels.read_ahead`. Bytes of a map are only those of
    the object if it `is_whole` after they were looked at, which `check_whole` raises for if not;
    so nothing of a map may be handed on that is looked at later. `count`, if there is one, is to be
    told the number of ranges and of bytes of each read.
    """

    path: str
    source: Bytes
    known: Bytes
    is_whole: Callable[[], bool]
    check_whole: Callable[[], None]
    release_pages: Callable[[], None]
    count: Callable[[int, int], None] | None = None

    def fetch(self, ranges: Ranges) -> Slices:
        """Return slices of the map, whose pages are in memory or on their way."""
        slices, num_bytes = (
            Slices(self.source, ranges.position, ranges.size),
            int(ranges.size.sum()),
        )
        if num_bytes < _BACKGROUND_FROM_BYTES:
            try:
                read_ahead(slices, self.known)
            except CorruptDataError:
                # It checks the ranges as well, without knowing what to say about them.
                check_ranges(ranges, path=self.path, size=self.source.nbytes)
                raise
        else:
            check_ranges(ranges, path=self.path, size=self.source.nbytes)
            run_in_background(partial(read_ahead, slices, self.known))
        if self.count is not None:
            self.count(len(ranges), num_bytes)
        return slices

    def fetch_copy(self, ranges: Ranges) -> Slices:
        """Return a copy of what ranges hold, which is what the object holds."""
        return self.copied(self.fetch(ranges))

    def copied(self, slices: Slices) -> Slices:
        """Return a copy of slices of the map, which is what the object holds."""
        found = Slices(join_slices(slices), slices.size.cumsum() - slices.size, slices.size)
        self.check_whole()
        return found


class ObjectReader(Protocol):
    """Reads one object, from as many threads as the caller likes."""

    @property
    def path(self) -> str:
        """The path of the object in its store."""

    @property
    def size(self) -> int:
        """How many bytes the object has; may ask the store the first time."""

    @property
    def identity(self) -> Hashable | None:
        """What no other object has, nor this one with other bytes; None if that is not known."""
        return None

    def read_ranges(self, ranges: Ranges) -> Slices:
        """Return the bytes of `ranges`, in their order.

        A range outside of the object is a `CorruptDataError`, since positions come from bytes
        that were stored.
        """

    def read_tail(self, size: int) -> Bytes:
        """Return the last `size` bytes, or the whole object when it is smaller."""

    def mapped(self) -> MappedObject | None:
        """Return the object as a whole if it is mapped and reads need not be asked for."""
        return None

    def close(self) -> None:
        """Give back what the reader holds; slices that were handed out stay valid."""

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
    """Writes one object from front to back; nothing is visible before `close` returns."""

    @property
    def position(self) -> int:
        """How many bytes were written so far."""

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes."""

    def close(self) -> int:
        """Make the object durable and visible, and return its size; again has no effect."""

    def abort(self) -> None:
        """Forget what was written; after `close` this has no effect."""

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the writer, or abort it when an error passes."""
        if kind is None:
            self.close()
        else:
            self.abort()


class Store(Protocol):
    """Named objects below one root. Stores are pickled as their URI and options."""

    @property
    def uri(self) -> str:
        """The URI of the root; paths are relative to it."""

    def at(self, folder: str) -> Store:
        """Return the same store with a folder as its root."""

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object; a size that is already known can save a request.

        That the object exists may turn out here or at the first read.
        """

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object whole, in place of whatever had the name."""

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object if the name is free, in one step for all callers everywhere.

        Raises:
            AlreadyExistsError: The name was taken; nothing changed.
            CommitOutcomeUnknownError: The reply was lost; the object may or may not be there.
        """

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object; use it for whatever may be large."""

    @property
    def lists_names(self) -> bool:
        """Whether `list_names` costs much less than `list`."""
        return False

    def list_names(self, folder: str) -> list[str]:
        """Return the names directly in a folder, in no order, those of unfinished files too."""
        return [info.path.rpartition("/")[2] for info in self.list(folder)]

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects anywhere below a folder, ordered by path as text.

        Starts behind `start_after` when given. A folder that does not exist is empty. Pages are
        fetched as they are needed, so taking the first few is cheap.
        """

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder."""

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object, or raise `ObjectNotFoundError`."""

    def delete(self, path: str) -> None:
        """See to it that an object is gone; it may have been gone before."""

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store, in place of whatever had the target's name."""

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move an object to a free name, or raise `AlreadyExistsError`.

        Where a store cannot move, both names may be seen for a moment.
        """

    def put_note(self, path: str, data: BytesLike) -> None:
        """Store an object that is only advice, in the cheapest way that there is.

        It may be lost with the power, and readers may see it before it is whole.
        """
        self.put(path, data)

    def lazily(self) -> Store:
        """Return the same store, of which new files may be lost with the power until `settle`.

        That saves waiting for files that nothing leads to before a manifest names them.
        """
        return self

    def deciding(self) -> Store:
        """Return the same store for a table whose versions its `put_if_absent` decides.

        One that has no such request refuses all changes, before anything is written.
        """
        return self

    def settle(self) -> None:
        """Wait until what was written through this store survives a loss of power."""
        return

    @property
    def reads_together(self) -> bool:
        """Whether `read_together` ever returns anything."""
        return False

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:  # noqa: ARG002  # for stores that can
        """Return the bytes of small objects side by side, in memory that the caller may change.

        None if an object does not have the size that is given for it, or if the store does not
        save anything by this.
        """
        return None

    def etag_at_hand(self, path: str) -> str | None:  # noqa: ARG002  # for stores that know
        """Return the tag of an object if finding it out costs next to nothing, else None."""
        return None

    def delete_many(self, paths: Iterable[str]) -> None:
        """See to it that objects are gone."""
        for path in paths:
            self.delete(path)

    def delete_folder(self, folder: str) -> None:
        """See to it that nothing is left below a folder."""
        self.delete_many([info.path for info in self.list(folder)])

    def is_own(self, path: str) -> bool:  # noqa: ARG002  # for stores that have links
        """Return whether an object lies where its path says, and not behind a symbolic link."""
        return True

    def remove_if_empty(self, folder: str) -> None:  # noqa: ARG002  # for stores that have folders
        """Remove a folder that nothing is in; where folders are but names, there is none."""
        return

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:  # noqa: ARG002  # for stores that have some
        """Delete what crashed writers left below a folder; return how many files it was."""
        return 0

    def exists(self, path: str) -> bool:
        """Say whether an object is there."""
        try:
            self.info(path)
        except ObjectNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        """Return the size of an object."""
        return self.info(path).size


def check_path(path: str) -> str:
    """Return a path if it names an object below the root, else raise `InvalidInputError`.

    >>> check_path("data/a.lance")
    'data/a.lance'
    >>> check_path("../etc/passwd")
    Traceback (most recent call last):
    lancelet.errors.InvalidInputError: a path in a store must ... (path='../etc/passwd')
    """
    # One scan for the rare bad shapes; `split` on every request would be measurable.
    if not path or path[0] == "/" or path[-1] == "/" or "//" in path or "\0" in path:
        pass
    elif (path[0] != "." and "/." not in path) or not {".", ".."} & set(path.split("/")):
        return path
    raise InvalidInputError(
        "a path in a store must be relative, `/`-separated and without '.' or '..'", path=path
    )


def check_folder(folder: str) -> str:
    """Return a folder's path without a slash at its end; the root is the empty path.

    >>> check_folder("data/"), check_folder("")
    ('data', '')
    """
    folder = folder.removesuffix("/")
    return check_path(folder) if folder else folder


def check_ranges(ranges: Ranges, *, path: str, size: int) -> None:
    """Raise `CorruptDataError` unless every range lies within an object of `size` bytes.

    >>> check_ranges(Ranges.of((0, 4), (4, 0)), path="a", size=4)
    >>> check_ranges(Ranges.of((0, 4), (3, 2)), path="a", size=4)
    Traceback (most recent call last):
    lancelet.errors.CorruptDataError: ... (path='a', position=3, size=2, file_bytes=4)
    """
    position, length = ranges.position, ranges.size
    if not len(position):
        return
    # Comparing with the difference keeps huge positions from wrapping round.
    fits = (position >= 0) & (length >= 0) & (position <= size) & (length <= size - position)
    if fits.all():
        return
    first = int(np.argmin(fits))
    raise CorruptDataError(
        "a byte range lies outside of the object; was it cut short by a copy?",
        path=path,
        position=int(position[first]),
        size=int(length[first]),
        file_bytes=size,
    )


def as_memoryview(data: BytesLike) -> memoryview:
    """Return a view of the bytes of a contiguous buffer, whatever its item type.

    >>> as_memoryview(np.array([1, 2], np.uint16)).nbytes
    4
    """
    view = memoryview(data)  # type: ignore[arg-type]  # numpy declares the protocol from 3.12 on
    return view.cast("B") if view.nbytes else memoryview(b"")


def name_taken(path: str) -> AlreadyExistsError:
    """Return the error of a put that lost, for the caller to raise."""
    return AlreadyExistsError("an object of that name is already stored", path=path)


def not_stored(path: str) -> ObjectNotFoundError:
    """Return the error of a read that found nothing, for the caller to raise."""
    return ObjectNotFoundError("no object of that name is stored", path=path)
