"""A store over any fsspec file system: Hugging Face Hub, SFTP, HDFS, GitHub and others.

    hf://datasets/org/name/t.lance              a scheme that only fsspec supports
    storage_options={"fsspec": "true"}          fsspec for any URI scheme
    storage_options={"fsspec": filesystem}      an fsspec file system object

Other storage options are passed to the file system (`token`, `endpoint`, `username`).

Few of these file systems support conditional puts, so most tables on them are read-only. A commit
that could collide with a concurrent one is refused unless `commit_lock` or the storage option
`manifest_store` arbitrates between writers.
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
from lancelet.io.options import EXPIRES_AT, FSSPEC, LOCAL_CACHE, LOCAL_CACHE_BYTES
from lancelet.io.ranged import RangedReader
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
    not_found,
)
from lancelet.io.uri import quote_path
from lancelet.io.wrapped import Request, WrappedStore

T = TypeVar("T")

_IN_MEMORY_BYTES: Final = 64 << 20
"""Maximum size in bytes of an unfinished object in memory; larger ones use a temporary file."""

_MODIFIED: Final = ("mtime", "LastModified", "last_modified", "updated", "created")
_TAGS: Final = ("ETag", "etag", "md5", "sha", "blob_id")
_MISSING_ERRORS: Final = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_STORE_OPTIONS: Final = frozenset(
    {"durability", "local_sync", "manifest_store", EXPIRES_AT, LOCAL_CACHE, LOCAL_CACHE_BYTES}
)
"""Options that are not passed to the file system."""

_MEMORY_PUTS: Final = threading.Lock()


def open_filesystem(
    base: str, storage_options: Mapping[str, Any]
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the file system of a URI and storage options, and the path of the URI in it.

    Raises:
      ValueError: If fsspec has no such file system.
      ImportError: If a dependency of the file system is not installed.
    """
    options = {name.lower(): value for name, value in storage_options.items()}
    option = options.pop(FSSPEC, "true")
    if isinstance(option, fsspec.AbstractFileSystem):
        return option, option._strip_protocol(base)  # noqa: SLF001  # what fsspec's own callers use
    if str(option).lower() != "true":
        raise InvalidInputError(
            "the storage option `fsspec` must be an fsspec file system, or true", found=option
        )
    arguments = {name: options[name] for name in options.keys() - _STORE_OPTIONS}
    filesystem_and_path: tuple[fsspec.AbstractFileSystem, str] = fsspec.core.url_to_fs(
        base, **arguments
    )
    return filesystem_and_path


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    """Return whether a file system is the local one."""
    return isinstance(filesystem, LocalFileSystem)


class FsspecStore(Store):
    """Objects of an fsspec file system below a directory."""

    def __init__(
        self, filesystem: fsspec.AbstractFileSystem, base: str, root: str, folder: str = ""
    ) -> None:
        """Create a store for `folder` below `root`, which is the path of the URI `base`."""
        self._filesystem = filesystem
        self._base = base.rstrip("/") if not base.endswith("://") else base
        self._root = root.rstrip("/")
        self._folder = check_folder(folder)
        self._prefix = f"{self._folder}/" if self._folder else ""

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the arguments of the file system."""
        return (FsspecStore, (self._filesystem, self._base, self._root, self._folder))

    @property
    def uri(self) -> str:
        """The URI of the root."""
        if not self._folder:
            return self._base
        # Memory URIs are not percent-decoded when they are parsed.
        folder = self._folder if self._base.startswith("memory:") else quote_path(self._folder)
        return f"{self._base}{'' if self._base.endswith('/') else '/'}{folder}"

    @property
    def filesystem(self) -> fsspec.AbstractFileSystem:
        """The file system; a forked child creates its own, with separate connections."""
        pid = getattr(self._filesystem, "_pid", None)
        if pid not in {None, os.getpid()}:
            arguments = self._filesystem.storage_args, self._filesystem.storage_options
            self._filesystem = type(self._filesystem)(*arguments[0], **arguments[1])
        return self._filesystem

    def at(self, folder: str) -> FsspecStore:
        """Return a store of the same file system with a directory as its root."""
        inner = self._prefix + check_folder(folder)
        return FsspecStore(self._filesystem, self._base, self._root, inner)

    @property
    def _has_put_if_absent(self) -> bool:
        inner = self._filesystem
        while isinstance(inner, DirFileSystem):
            inner = inner.fs
        return type(inner) is MemoryFileSystem

    def for_commits(self) -> Store:
        """Return the store, or a read-only one if concurrent writers could collide."""
        if self._has_put_if_absent:
            return self
        return WrappedStore(self, _ReadOnly(self._filesystem))

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:
        """Open an object without sending a request."""
        return _FsspecReader(self, path, size)

    def read(self, path: str) -> bytes:
        """Return the content of an object."""
        return bytes(self.fetch(path, None, None))

    def fetch(self, path: str, start: int | None, end: int | None) -> bytes:
        """Return a byte range of an object with one request."""
        full = self._full(path)
        with _errors(path):
            if self.filesystem.async_impl or isinstance(self.filesystem, MemoryFileSystem):
                content: bytes = self.filesystem.cat_file(full, start=start, end=end)
                return content
            if start is None:
                self.filesystem.invalidate_cache(full)
            # The generic `cat_file` reads ahead several megabytes per range.
            with self.filesystem.open(full, "rb", cache_type="none") as file:
                if start is None or end is None:
                    return bytes(file.read())
                file.seek(start)
                return bytes(file.read(end - start))

    def put(self, path: str, data: BytesLike) -> None:
        """Store an object, replacing an existing one."""
        value = bytes(as_memoryview(data))
        self.store(path, lambda full: self.filesystem.pipe_file(full, value))

    def store(self, path: str, request: Callable[[str], object]) -> None:
        """Store an object by calling `request`; create its directory if necessary."""
        full = self._full(path)
        with _errors(path):
            try:
                request(full)
            except FileNotFoundError:
                self.filesystem.makedirs(full.rpartition("/")[0], exist_ok=True)
                request(full)

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Store an object unless it exists. Only supported for the in-memory file system."""
        if not self._has_put_if_absent:
            raise _unsupported_put(path, self._filesystem)
        with _MEMORY_PUTS:
            if self.exists(path):
                raise already_exists(path)
            self.put(path, data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing an object, which is stored on `close`."""
        return _FsspecWriter(self, check_path(path))

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, ordered by path."""
        full = self._full_folder(folder)
        self.filesystem.invalidate_cache(full)
        with _errors(folder):
            try:
                listed = self.filesystem.find(full, detail=True)
            except _MISSING_ERRORS:
                listed = {}
        entries = sorted((self._info(entry) for entry in listed.values()), key=lambda i: i.path)
        inside = f"{check_folder(folder)}/" if folder else ""
        return (
            info
            for info in entries
            if info.path > (start_after or "") and info.path.startswith(inside)
        )

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the direct children of a directory."""
        full = self._full_folder(folder)
        self.filesystem.invalidate_cache(full)
        with _errors(folder):
            try:
                listed = self.filesystem.ls(full, detail=True)
            except _MISSING_ERRORS:
                listed = []
        # Some file systems list an object as a child of itself.
        inside = [
            entry for entry in listed if self._relative(entry["name"]) != check_folder(folder)
        ]
        objects = [self._info(entry) for entry in inside if entry["type"] != "directory"]
        folders = [
            self._relative(entry["name"]) for entry in inside if entry["type"] == "directory"
        ]
        return Listing(tuple(sorted(objects, key=lambda info: info.path)), tuple(sorted(folders)))

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of an object."""
        full = self._full(path)
        with _errors(path):
            try:
                entry = self.filesystem.info(full)
            except FileNotFoundError:
                # A cached listing may be older than the object.
                self.filesystem.invalidate_cache(full)
                entry = self.filesystem.info(full)
        if entry["type"] == "directory":
            raise not_found(path)
        return self._info(entry, path)

    def delete(self, path: str) -> None:
        """Delete an object if it exists."""
        with contextlib.suppress(ObjectNotFoundError), _errors(path):
            self.filesystem.rm_file(self._full(path))

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the file system."""
        if not self.exists(source):
            raise not_found(source)
        origin = self._full(source)
        self.store(target, lambda full: self.filesystem.cp_file(origin, full))

    def rename_if_absent(self, source: str, target: str) -> None:
        """Copy an object to an unused name, then delete it. Intended for small objects."""
        self.put_if_absent(target, self.read(source))
        self.delete(source)

    def _full(self, path: str) -> str:
        return f"{self._root}/{self._prefix}{check_path(path)}"

    def _full_folder(self, folder: str) -> str:
        return f"{self._root}/{self._prefix}{check_folder(folder)}".rstrip("/")

    def _relative(self, name: str) -> str:
        stripped: str = self._filesystem._strip_protocol(name)  # noqa: SLF001  # what fsspec's own callers use
        return stripped.removeprefix(f"{self._root}/").lstrip("/").removeprefix(self._prefix)

    def _info(self, entry: Mapping[str, Any], path: str | None = None) -> ObjectInfo:
        tag = next((entry[name] for name in _TAGS if entry.get(name)), None)
        return ObjectInfo(
            self._relative(entry["name"]) if path is None else path,
            int(entry["size"]),
            _parse_time(next((entry[name] for name in _MODIFIED if entry.get(name)), None)),
            None if tag is None else str(tag),
        )


class _ReadOnly:
    """Interceptor that only permits reads."""

    def __init__(self, filesystem: fsspec.AbstractFileSystem) -> None:
        self._filesystem = filesystem

    def request(self, request: Request, action: Callable[[], T]) -> T:
        if request.is_change or request.operation == "open_writer":
            raise _unsupported_put(request.path, self._filesystem)
        return action()


def _unsupported_put(path: str, filesystem: fsspec.AbstractFileSystem) -> UnsupportedError:
    return UnsupportedError(
        "this file system does not support conditional puts, so concurrent writers could commit "
        "the same version; pass `commit_lock` or the storage option `manifest_store`",
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
    """Buffers an object until it is complete, since many file systems expose partial objects."""

    def __init__(self, store: FsspecStore, path: str) -> None:
        self._store = store
        self._path = path
        self._position = 0
        self._spool: tempfile.SpooledTemporaryFile[bytes] | None = tempfile.SpooledTemporaryFile(  # noqa: SIM115  # closed with the writer
            _IN_MEMORY_BYTES
        )

    @property
    def position(self) -> int:
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append buffers."""
        if self._spool is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        for buffer in buffers:
            view = as_memoryview(buffer)
            self._spool.write(view)
            self._position += view.nbytes

    def close(self) -> int:
        """Store the object."""
        spool, self._spool = self._spool, None
        if spool is not None:
            with spool:
                self._store.store(self._path, partial(self._send, spool))
        return self._position

    def abort(self) -> None:
        """Discard the buffered content."""
        spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()

    def _send(self, spool: tempfile.SpooledTemporaryFile[bytes], full: str) -> None:
        spool.seek(0)
        if self._position <= _IN_MEMORY_BYTES:
            self._store.filesystem.pipe_file(full, spool.read())
            return
        with self._store.filesystem.open(full, "wb") as file:
            while part := spool.read(_IN_MEMORY_BYTES):
                file.write(part)


@contextlib.contextmanager
def _errors(path: str) -> Iterator[None]:
    """Translate file system errors, mostly built-in exceptions of Python."""
    try:
        yield
    except LanceletError:
        raise
    except _MISSING_ERRORS as error:
        raise not_found(path) from error
    except NotImplementedError as error:
        raise UnsupportedError(
            "the file system does not support this operation", path=path, reason=str(error)
        ) from error
    except PermissionError as error:
        raise StorageError(
            "the file system refused the credentials; check the storage options",
            path=path,
            reason=str(error),
        ) from error
    except Exception as error:  # Each file system raises its own exception types.
        raise StorageError(
            "the file system refused a request",
            path=path,
            reason=f"{type(error).__name__}: {error}",
        ) from error


def _parse_time(value: object) -> datetime:
    """Return the modification time, or the current time if it is unknown."""
    if isinstance(value, datetime):
        return value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            return _parse_time(datetime.fromisoformat(value))
    return surroundings.now()
