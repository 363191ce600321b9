r"""A store of files on the local file system.

Reading is implemented in `mapped` and writing in `durable`. This module converts store paths to
native paths and lists directories.

    root /data/table.lance, path data/a.lance   ->  /data/table.lance/data/a.lance
    the same on Windows, if long                ->  \\?\C:\data\table.lance\data\a.lance
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Hashable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Bytes
from lancelet.errors import StorageError
from lancelet.io.durable import (
    BackgroundFlushes,
    LocalWriter,
    create_directory,
    flush_directory,
    translate_os_error,
    translating_os_errors,
    write_unflushed,
)
from lancelet.io.mapped import MappedReader, OpenedReader, identity_of
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    check_folder,
    check_path,
    not_found,
)
from lancelet.io.unfinished import (
    LOCK_PREFIX,
    TEMPORARY_PREFIX,
    link_if_absent,
    locked,
)
from lancelet.io.watched import WATCHED
from lancelet.kernels import NATIVE

_WINDOWS_PATH_MAX: Final = 240
"""Minimum length of paths that use the `\\\\?\\` form; the limit is 260 for files and 248 for
directories.
"""

_IS_WINDOWS: Final = os.name == "nt"

_HAS_SAFE_MAPS: Final = NATIVE or _IS_WINDOWS
"""Whether truncating a mapped file cannot crash the process."""

_COPY_BYTES: Final = 1 << 20


class LocalStore(Store):
    """The files below a directory, which need not exist yet."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        sync: bool = True,
        flushes: BackgroundFlushes | None = None,
        is_absolute: bool = False,
    ) -> None:
        """Create a store for `root`; a relative root is resolved against the current directory.

        With `sync` written files survive a power loss, at a cost of some milliseconds per file.
        With `flushes` new files are only durable once these are complete. `is_absolute` states that
        `root` is an absolute native path.
        """
        # Called whenever a table is opened; the overhead of path objects would be measurable.
        self._base = str(root if is_absolute else Path(root).absolute())
        self._uri: str | None = None
        self._sync = sync
        self._flushes = flushes

    @property
    def uri(self) -> str:
        """The URI of the root."""
        if self._uri is None:
            self._uri = self.root.as_uri()
        return self._uri

    @property
    def root(self) -> Path:
        """The root directory."""
        return Path(self._base)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the root directory."""
        return (_reopen, (self._base, self._sync))

    def at(self, folder: str) -> LocalStore:
        """Return a store with a subdirectory as its root."""
        folder = check_folder(folder)
        return self._with_root(self._native(folder)) if folder else self

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:  # noqa: ARG002  # the map needs the size there is
        """Map a file into memory, or open it where memory maps are unsafe."""
        with translating_os_errors(path):
            if _HAS_SAFE_MAPS:
                return MappedReader(path, self._native(path))
            return OpenedReader(self, path, self._native(path))

    def read(self, path: str) -> bytes:
        """Return the content of a file."""
        with translating_os_errors(path), open(self._native(path), "rb", buffering=0) as file:
            return file.readall()

    @property
    def reads_together(self) -> bool:
        """Always true for local files."""
        return True

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:
        """Return the concatenated content of small files; mapping each would take longer."""
        content = np.empty(sum(sizes), np.uint8)
        start = 0
        for path, size in zip(paths, sizes, strict=True):
            try:
                with open(self._native(path), "rb", buffering=0) as file:
                    num_read = file.readinto(content[start : start + size].data)
                    if num_read != size or os.fstat(file.fileno()).st_size != size:
                        return None
            except OSError as error:
                raise translate_os_error(error, path) from error
            start += size
        return content

    def put(self, path: str, data: BytesLike) -> None:
        """Write a file, replacing an existing one."""
        with self.open_writer(path) as writer:
            writer.write(data)

    def put_best_effort(self, path: str, data: BytesLike) -> None:
        """Overwrite a small file without flushing it."""
        try:
            write_unflushed(self._native(path), data)
        except OSError as error:
            raise translate_os_error(error, path) from error

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Write a file unless it exists; it survives a power loss on return."""
        writer = LocalWriter(path, self._native(path), may_replace=False, sync=self._sync)
        with writer:
            writer.write(data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start writing a file."""
        return LocalWriter(path, self._native(path), sync=self._sync, flushes=self._flushes)

    @property
    def lists_names(self) -> bool:
        """Always true: a listing with sizes needs one more request per file."""
        return True

    def list_names(self, folder: str) -> Sequence[str]:
        """Return the sorted names in a directory."""
        try:
            return WATCHED.list_names(self._native_folder(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise translate_os_error(error, folder) from error

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the files below a directory, ordered by path; sizes are read lazily."""
        return self._walk(check_folder(folder), start_after or "", ())

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the files and subdirectories in a directory."""
        folder = check_folder(folder)
        objects = []
        folders = []
        for path, is_folder in self._children(folder):
            if is_folder:
                folders.append(path)
            elif (info := self._info_or_none(path)) is not None:
                objects.append(info)
        return Listing(tuple(objects), tuple(sorted(folders)))

    def info(self, path: str) -> ObjectInfo:
        """Return size and modification time of a file."""
        info = self._info_or_none(check_path(path))
        if info is None:
            raise not_found(path)
        return info

    def delete(self, path: str) -> None:
        """Delete a file if it exists."""
        native = self._native(path)
        try:
            os.unlink(native)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translate_os_error(error, path) from error

    def delete_folder(self, folder: str) -> None:
        """Delete a directory with its content, including hidden files, if it exists."""
        import shutil  # noqa: PLC0415 - slow import

        native = self._native_folder(folder)
        with translating_os_errors(folder), contextlib.suppress(FileNotFoundError):
            if folder and os.path.islink(native):
                os.unlink(native)  # The target of the link belongs to other owners.
            else:
                shutil.rmtree(native)

    def is_own(self, path: str) -> bool:
        """Return whether no directory between the root and a file is a symbolic link."""
        folder = os.path.dirname(self._native(path))
        expected_folder = os.path.join(
            os.path.realpath(self._base), os.path.relpath(folder, self._base)
        )
        return os.path.realpath(folder) == os.path.normpath(expected_folder)

    def remove_if_empty(self, folder: str) -> None:
        """Remove a directory if it exists and is empty."""
        with contextlib.suppress(OSError):
            os.rmdir(self._native_folder(folder))

    def copy(self, source: str, target: str) -> None:
        """Copy a file within the store."""
        with (
            translating_os_errors(source),
            open(self._native(source), "rb") as file,
            self.open_writer(target) as writer,
        ):
            while part := file.read(_COPY_BYTES):
                writer.write(part)

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move a file to an unused name."""
        native_source, native = self._native(source), self._native(target)
        self.info(source)
        with translating_os_errors(target):
            create_directory(os.path.dirname(native), sync=self._sync)
            link_if_absent(native_source, native)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(native_source)
            if self._sync:
                flush_directory(os.path.dirname(native))

    def with_deferred_sync(self) -> LocalStore:
        """Return the same folder; files are flushed in the background until `wait`."""
        if not self._sync or os.name == "nt":  # Windows cannot name an open file.
            return self
        return self._with_root(self._base, BackgroundFlushes())

    def flush(self) -> None:
        """Wait for the background flushes, and raise their first error."""
        if self._flushes is not None:
            self._flushes.wait()

    def etag_if_cheap(self, path: str) -> str | None:
        """Return the tag of a file."""
        info = self._info_or_none(path)
        return None if info is None else info.etag

    def identity_if_cheap(self, path: str) -> Hashable | None:
        """Return the identity of a file; opening a file that is cached would take longer."""
        try:
            return identity_of(os.stat(self._native(path)))
        except OSError:
            return None

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:
        """Delete temporary files of crashed writers below a directory; return their number.

        Subdirectories that have been empty for as long are removed too, since no writer is using
        them.
        """
        limit = surroundings.time_ns() / 1e9 - older_than_seconds
        root = self._native_folder(folder)
        swept = 0
        if folder and not self.is_own(f"{folder}/{TEMPORARY_PREFIX}"):
            return swept
        for parent, _, names in os.walk(root, topdown=False):
            if not names and parent != root:
                with contextlib.suppress(OSError):  # Not empty, or removed concurrently.
                    if os.stat(parent).st_mtime <= limit:
                        os.rmdir(parent)
            for name in names:
                if not name.startswith(TEMPORARY_PREFIX):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    temporary = os.path.join(parent, name)
                    if os.stat(temporary).st_mtime > limit:
                        continue
                    if name.startswith(LOCK_PREFIX):
                        with contextlib.suppress(BlockingIOError), locked(temporary):
                            swept += 1  # `locked` removes the file on exit.
                        continue
                    os.unlink(temporary)
                    swept += 1
        return swept

    def _with_root(self, base: str, flushes: BackgroundFlushes | None = None) -> LocalStore:
        """Return a store for another directory, given by its absolute native path."""
        flushes = self._flushes if flushes is None else flushes
        return LocalStore(base, sync=self._sync, flushes=flushes, is_absolute=True)

    def _native(self, path: str) -> str:
        """Return the native path."""
        return native_path(self._base, check_path(path), windows=_IS_WINDOWS)

    def _native_folder(self, folder: str) -> str:
        return self._native(folder) if check_folder(folder) else self._base

    def _children(self, folder: str) -> Iterable[tuple[str, bool]]:
        """Return the paths in a directory with a directory flag, in listing order."""
        below = f"{folder}/" if folder else ""
        try:
            with os.scandir(self._native_folder(folder)) as entries:
                # Paths in the directory `a` start with `a/`, and `a.b` sorts before them.
                names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise translate_os_error(error, folder) from error
        names.sort()
        return (
            (below + name.removesuffix("/"), name.endswith("/"))
            for name in names
            if not name.startswith(TEMPORARY_PREFIX)
        )

    def _walk(
        self, folder: str, start_after: str, ancestors: tuple[os.stat_result, ...]
    ) -> Iterator[ObjectInfo]:
        for path, is_folder in self._children(folder):
            if is_folder:
                if path + "/" < start_after and not start_after.startswith(path + "/"):
                    continue
                try:
                    status = os.stat(self._native(path))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # Removed since it was listed.
                except OSError as error:
                    raise translate_os_error(error, path) from error
                if any(os.path.samestat(status, ancestor) for ancestor in ancestors):
                    raise StorageError(
                        "a symbolic link refers to one of its parent directories", path=path
                    )
                yield from self._walk(path, start_after, (*ancestors, status))
            elif path > start_after and (info := self._info_or_none(path)) is not None:
                yield info

    def _info_or_none(self, path: str) -> ObjectInfo | None:
        try:
            status = os.stat(self._native(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translate_os_error(error, path) from error
        # Directories are not objects.
        if not stat.S_ISREG(status.st_mode):
            return None
        return ObjectInfo(
            path,
            status.st_size,
            datetime.fromtimestamp(status.st_mtime, UTC),
            f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}",
        )


def _reopen(base: str, sync: bool) -> LocalStore:  # Pickle passes positional arguments.
    return LocalStore(base, sync=sync)


def native_path(base: str, path: str, *, windows: bool) -> str:
    r"""Return the native path of a path below the directory `base`.

    >>> native_path("/data", "a/b", windows=False)
    '/data/a/b'
    >>> print(native_path("C:\\data", "a/b", windows=True))
    C:\data\a\b
    >>> print(native_path("\\\\server\\share", "a" * 300, windows=True)[:24])
    \\?\UNC\server\share\aaa
    """
    if not windows:
        return f"{base}/{path}" if base != "/" else f"/{path}"
    joined = base.rstrip("\\") + "\\" + path.replace("/", "\\")
    if len(joined) <= _WINDOWS_PATH_MAX or joined.startswith("\\\\?\\"):
        return joined
    if joined.startswith("\\\\"):
        return "\\\\?\\UNC\\" + joined[2:]
    return "\\\\?\\" + joined
