"""A store in any file system of fsspec: the hub of Hugging Face, SFTP, HDFS, GitHub and others.

    hf://datasets/org/name/t.lance              a scheme that only fsspec has
    storage_options={"fsspec": "true"}          fsspec for whichever scheme the URI has
    storage_options={"fsspec": filesystem}      this very file system

Other storage options become its arguments (`token`, `endpoint`, `username`).

Few of these file systems can store an object only if its name is free, so most tables there are
for reading. Where two writers could both believe that they have a version, a commit is refused;
`commit_lock` or the storage option `manifest_store` decides in place of the file system.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, TypeVar

import fsspec
from fsspec.implementations.dirfs import DirFileSystem
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from lancelet import surroundings
from lancelet.errors import (
    InvalidInputError,
    LanceletError,
    ObjectNotFoundError,
    StorageError,
    UnsupportedError,
)
from lancelet.io.options import EXPIRES_AT, FSSPEC
from lancelet.io.ranged import RangedReader
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    as_memoryview,
    check_folder,
    check_path,
    name_taken,
    not_stored,
)
from lancelet.io.uri import quote_path
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")

_IN_MEMORY_BYTES: Final = 64 << 20
"""Larger objects lie in a temporary file until they are stored."""

_MODIFIED: Final = ("mtime", "LastModified", "last_modified", "updated", "created")
_TAGS: Final = ("ETag", "etag", "md5", "sha", "blob_id")
_NOT_THERE: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_OURS: Final = frozenset({"durability", "local_sync", "manifest_store", EXPIRES_AT})
"""Options that say nothing to a file system."""

_MEMORY_PUTS: Final = threading.Lock()


def open_filesystem(
    base: str, storage_options: Mapping[str, Any]
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system that a URI and storage options name, and the URI's path in it.

    Raises:
        ValueError: fsspec has no such file system.
        ImportError: What it needs is not installed.
    """
    options = {name.lower(): value for name, value in storage_options.items()}
    given = options.pop(FSSPEC, "true")
    if isinstance(given, fsspec.AbstractFileSystem):
        return given, given._strip_protocol(base)  # noqa: SLF001  # what fsspec's own callers use
    if str(given).lower() != "true":
        raise InvalidInputError(
            "the storage option `fsspec` is a file system of fsspec, or true", found=given
        )
    arguments = {name: options[name] for name in options.keys() - _OURS}
    found: tuple[fsspec.AbstractFileSystem, str] = fsspec.core.url_to_fs(base, **arguments)
    return found


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Return whether a file system is this machine's."""
    return isinstance(filesystem, LocalFileSystem)


class FsspecStore(Store):
    """Objects of a file system of fsspec, below a folder."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, base: str, root: str, folder: str = ""
    ) -> None:
        """Use what lies below `folder` in `root`, which is the path of the URI `base`."""
        self._filesystem = filesystem
        self._base = base.rstrip("/") if not base.endswith("://") else base
        self._root = root.rstrip("/")
        self._folder = check_folder(folder)
        self._prefix = f"{self._folder}/" if self._folder else ""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the file system's own arguments."""
        return (FsspecStore, (self._filesystem, self._base, self._root, self._folder))

    @property
    def uri(self) -> str:
        """The URI of the root."""
        if not self._folder:
            return self._base
        # A URI of memory is not decoded when it is read.
        folder = self._folder if self._base.startswith("memory:") else quote_path(self._folder)
        return f"{self._base}{'' if self._base.endswith('/') else '/'}{folder}"

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        """The file system; a forked child makes its own, with connections of its own."""
        pid = getattr(self._filesystem, "_pid", None)
        if pid not in {None, os.getpid()}:
            arguments = self._filesystem.storage_args, self._filesystem.storage_options
            self._filesystem = type(self._filesystem)(*arguments[0], **arguments[1])
        return self._filesystem

    def at(self, folder: str) -> FsspecStore:
        """Return the same file system with a folder as its root."""
        inner = self._prefix + check_folder(folder)
        return FsspecStore(self._filesystem, self._base, self._root, inner)

    @property
    def _has_put_if_absent(self) -> bool:
        inner = self._filesystem
        while isinstance(inner, DirFileSystem):
            inner = inner.fs
        return type(inner) is MemoryFileSystem

    def deciding(self) -> Store:
        """Return the store, or one that refuses changes where two writers could collide."""
        if self._has_put_if_absent:
            return self
        return WrappedStore(self, _RefusesChanges(self._filesystem))

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object; nothing is asked for yet."""
        return _FsspecReader(self, path, size)

    def read(self, path: str) -> bytes:
        """Return all bytes of an object."""
        return bytes(self.fetch(path, None, None))

    def fetch(self, path: str, start: int | None, end: int | None) -> bytes:
        """Return some bytes of an object, by one request."""
        full = self._full(path)
        with _errors(path):
            if self.filesystem.async_impl or isinstance(self.filesystem, MemoryFileSystem):
                found: bytes = self.filesystem.cat_file(full, start=start, end=end)
                return found
            if start is None:
                self.filesystem.invalidate_cache(full)
            # Their own `cat_file` reads ahead, some megabytes for each range.
            with self.filesystem.open(full, "rb", cache_type="none") as file:
                if start is None or end is None:
                    return bytes(file.read())
                file.seek(start)
                return bytes(file.read(end - start))

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object whole, in place of whatever had the name."""
        value = bytes(as_memoryview(data))
        self.store(path, lambda full: self.filesystem.pipe_file(full, value))

    def store(self, path: str, request: Callable[[str], object]) -> None:
        """Store an object by a request, in a folder that may have to be made."""
        full = self._full(path)
        with _errors(path):
            try:
                request(full)
            except FileNotFoundError:
                self.filesystem.makedirs(full.rpartition("/")[0], exist_ok=True)
                request(full)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object if the name is free, where the file system is this process's memory."""
        if not self._has_put_if_absent:
            raise _no_put_if_absent(path, self._filesystem)
        with _MEMORY_PUTS:
            if self.exists(path):
                raise name_taken(path)
            self.put(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new object, which is stored when it is closed."""
        return _FsspecWriter(self, check_path(path))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a folder, ordered by path."""
        full = self._folder_of(folder)
        self.filesystem.invalidate_cache(full)
        with _errors(folder):
            try:
                found = self.filesystem.find(full, detail=True)
            except _NOT_THERE:
                found = {}
        entries = sorted((self._info(entry) for entry in found.values()), key=lambda i: i.path)
        inside = f"{check_folder(folder)}/" if folder else ""
        return (
            info
            for info in entries
            if info.path > (start_after or "") and info.path.startswith(inside)
        )

    def list_delimited(self, folder: str = "") -> Listing:
        """Return what lies directly in a folder."""
        full = self._folder_of(folder)
        self.filesystem.invalidate_cache(full)
        with _errors(folder):
            try:
                found = self.filesystem.ls(full, detail=True)
            except _NOT_THERE:
                found = []
        # Some list an object as if it were a folder of itself.
        inside = [entry for entry in found if self._relative(entry["name"]) != check_folder(folder)]
        objects = [self._info(entry) for entry in inside if entry["type"] != "directory"]
        folders = [
            self._relative(entry["name"]) for entry in inside if entry["type"] == "directory"
        ]
        return Listing(tuple(sorted(objects, key=lambda info: info.path)), tuple(sorted(folders)))

    def info(self, path: str) -> ObjectInfo:
        """Return size and times of an object."""
        full = self._full(path)
        with _errors(path):
            try:
                found = self.filesystem.info(full)
            except FileNotFoundError:
                # A listing that is remembered may be older than the object.
                self.filesystem.invalidate_cache(full)
                found = self.filesystem.info(full)
        if found["type"] == "directory":
            raise not_stored(path)
        return self._info(found, path)

    def delete(self, path: str) -> None:
        """See to it that an object is gone."""
        with contextlib.suppress(ObjectNotFoundError), _errors(path):
            self.filesystem.rm_file(self._full(path))

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the file system."""
        if not self.exists(source):
            raise not_stored(source)
        origin = self._full(source)
        self.store(target, lambda full: self.filesystem.cp_file(origin, full))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Copy an object to a free name, then delete it; meant for small ones."""
        self.put_if_absent(target, self.read(source))
        self.delete(source)

    def _full(self, path: str) -> str:
        return f"{self._root}/{self._prefix}{check_path(path)}"

    def _folder_of(self, folder: str) -> str:
        return f"{self._root}/{self._prefix}{check_folder(folder)}".rstrip("/")

    def _relative(self, name: str) -> str:
        stripped: str = self._filesystem._strip_protocol(name)  # noqa: SLF001  # what fsspec's own callers use
        return stripped.removeprefix(f"{self._root}/").lstrip("/").removeprefix(self._prefix)

    def _info(self, found: Mapping[str, Any], path: str | None = None) -> ObjectInfo:
        tag = next((found[name] for name in _TAGS if found.get(name)), None)
        return ObjectInfo(
            self._relative(found["name"]) if path is None else path,
            int(found["size"]),
            _time_of(next((found[name] for name in _MODIFIED if found.get(name)), None)),
            None if tag is None else str(tag),
        )


class _RefusesChanges:
    """Lets requests pass that only look."""

    def __init__(self, filesystem: fsspec.AbstractFileSystem) -> None:
        self._filesystem = filesystem

    def request(self, request: Request, action: Callable[[], T]) -> T:
        if request.is_change or request.operation == "open_writer":
            raise _no_put_if_absent(request.path, self._filesystem)
        return action()


def _no_put_if_absent(path: str, filesystem: fsspec.AbstractFileSystem) -> UnsupportedError:
    return UnsupportedError(
        "this file system cannot store an object only if its name is free, so two writers could "
        "take one version; give `commit_lock` or the storage option `manifest_store`",
        path=path,
        filesystem=type(filesystem).__name__,
    )


class _FsspecReader(RangedReader):
    def __init__(self, store: FsspecStore, path: str, size: int | None) -> None:
        super().__init__(store, path, size)
        self._store = store

    def get(self, position: int, size: int) -> bytes:
        return self._store.fetch(self._path, position, position + size)


class _FsspecWriter(ObjectWriter):
    """Keeps an object until it is whole, since many file systems show what is half written."""

    def __init__(self, store: FsspecStore, path: str) -> None:
        self._store = store
        self._path = path
        self._position = 0
        self._kept: tempfile.SpooledTemporaryFile[bytes] | None = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed with the writer
            _IN_MEMORY_BYTES
        )

    @property
    def position(self) -> int:
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes."""
        if self._kept is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        for buffer in buffers:
            view = as_memoryview(buffer)
            self._kept.write(view)
            self._position += view.nbytes

    def close(self) -> int:
        """Store the object."""
        kept, self._kept = self._kept, None
        if kept is not None:
            with kept:
                self._store.store(self._path, partial(self._send, kept))
        return self._position

    def abort(self) -> None:
        """Forget what was written."""
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.close()

    def _send(self, kept: tempfile.SpooledTemporaryFile[bytes], full: str) -> None:
        kept.seek(0)
        if self._position <= _IN_MEMORY_BYTES:
            self._store.filesystem.pipe_file(full, kept.read())
            return
        with self._store.filesystem.open(full, "wb") as file:
            while part := kept.read(_IN_MEMORY_BYTES):
                file.write(part)


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """Translate what file systems raise, which is mostly the errors of Python's own files."""
    try:
        yield
    except LanceletError:
        raise
    except _NOT_THERE as error:
        raise not_stored(path) from error
    except NotImplementedError as error:
        raise UnsupportedError(
            "the file system cannot do this", path=path, reason=str(error)
        ) from error
    except PermissionError as error:
        raise StorageError(
            "the file system refused the credentials; check the storage options",
            path=path,
            reason=str(error),
        ) from error
    except Exception as error:  # each file system has errors of its own
        raise StorageError(
            "the file system refused a request",
            path=path,
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _time_of(found: object) -> datetime:
    """Return when an object was stored; one that nobody knows the time of is never old."""
    if isinstance(found, datetime):
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if isinstance(found, int | float):
        return datetime.fromtimestamp(found, UTC)
    if isinstance(found, str):
        with contextlib.suppress(ValueError):
            return _time_of(datetime.fromisoformat(found))
    return surroundings.now()
