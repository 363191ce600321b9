r"""A store of files in a folder, or anywhere on the machine.

How files are read is in `mapped`, how they are written in `durable`; this module turns paths of
the store into names that the operating system understands, and lists folders.

    root /data/table.lance, path data/a.lance   ->  /data/table.lance/data/a.lance
    the same on Windows, when long              ->  \\?\C:\data\table.lance\data\a.lance
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Bytes
from lancelet.errors import StorageError
from lancelet.io.durable import (
    Flushes,
    LocalWriter,
    as_storage_errors,
    flush_folder,
    make_folder,
    translated,
    write_note,
)
from lancelet.io.mapped import MappedReader, OpenedReader
from lancelet.io.store import (
    BytesLike,
    Listing,
    ObjectInfo,
    ObjectReader,
    ObjectWriter,
    Store,
    check_folder,
    check_path,
    not_stored,
)
from lancelet.io.unfinished import (
    LOCK_PREFIX,
    TEMPORARY_PREFIX,
    give_name_if_free,
    locked,
)
from lancelet.kernels import NATIVE

_WINDOWS_PATH_MAX: Final = 240
"""Longer paths need the `\\\\?\\` form; the limit is 260 for files and 248 for folders."""

_IS_WINDOWS: Final = os.name == "nt"

_GUARDS_MAPS: Final = NATIVE or _IS_WINDOWS
"""Whether a file that is cut while it is mapped is no fault of the process."""

_COPY_BYTES: Final = 1 << 20


class LocalStore(Store):
    """The files below a folder, which need not exist yet."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        sync: bool = True,
        flushes: Flushes | None = None,
        is_whole: bool = False,
    ) -> None:
        """Use the files below `root`; a relative root is taken from the working folder, once.

        With `sync` what was written survives a loss of power, which costs some milliseconds for
        each file. Given `flushes`, new files may be lost until these have ended. A root
        that `is_whole` is text, as the system has it.
        """
        # Every table that is opened passes here, and taking paths apart would be measurable.
        self._base = str(root if is_whole else Path(root).absolute())
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
        """The folder that is the root."""
        return Path(self._base)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by the folder."""
        return (_reopen, (self._base, self._sync))

    def at(self, folder: str) -> LocalStore:
        """Return a store with a sub-folder as its root."""
        folder = check_folder(folder)
        return self._like(self._native(folder)) if folder else self

    def open_reader(self, path: str, size: int | None = None) -> ObjectReader:  # noqa: ARG002  # the map needs the size there is
        """Map a file, or open it where nothing would guard the map."""
        with as_storage_errors(path):
            if _GUARDS_MAPS:
                return MappedReader(path, self._native(path))
            return OpenedReader(self, path, self._native(path))

    def read(self, path: str) -> bytes:
        """Return all bytes of a file."""
        with as_storage_errors(path), open(self._native(path), "rb", buffering=0) as file:
            return file.readall()

    @property
    def reads_together(self) -> bool:
        """Files are."""
        return True

    def read_together(self, paths: Sequence[str], sizes: Sequence[int]) -> Bytes | None:
        """Return the bytes of small files side by side; to map each would take longer."""
        read = np.empty(sum(sizes), np.uint8)
        start = 0
        for path, size in zip(paths, sizes, strict=True):
            try:
                with open(self._native(path), "rb", buffering=0) as file:
                    found = file.readinto(read[start : start + size].data)
                    if found != size or os.fstat(file.fileno()).st_size != size:
                        return None
            except OSError as error:
                raise translated(error, path) from error
            start += size
        return read

    def put(self, path: str, data: BytesLike) -> None:
        """Write a file whole, in place of whatever had the name."""
        with self.open_writer(path) as writer:
            writer.write(data)

    def put_note(self, path: str, data: BytesLike) -> None:
        """Write a small file in place, without waiting for the disk."""
        try:
            write_note(self._native(path), data)
        except OSError as error:
            raise translated(error, path) from error

    def put_if_absent(self, path: str, data: BytesLike) -> None:
        """Write a file if the name is free; on return it survives a loss of power."""
        writer = LocalWriter(path, self._native(path), may_replace=False, sync=self._sync)
        with writer:
            writer.write(data)

    def open_writer(self, path: str) -> ObjectWriter:
        """Start a new file."""
        return LocalWriter(path, self._native(path), sync=self._sync, flushes=self._flushes)

    @property
    def lists_names(self) -> bool:
        """They cost one request to the system, and a listing one more for each file."""
        return True

    def list_names(self, folder: str) -> list[str]:
        """Return the names in a folder."""
        try:
            return os.listdir(self._native_folder(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise translated(error, folder) from error

    def list(self, folder: str = "", start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the files below a folder, ordered by path; sizes are read as they are yielded."""
        return self._walk(check_folder(folder), start_after or "", ())

    def list_delimited(self, folder: str = "") -> Listing:
        """Return the files and folders in a folder."""
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
        """Return size and times of a file."""
        found = self._info_or_none(check_path(path))
        if found is None:
            raise not_stored(path)
        return found

    def delete(self, path: str) -> None:
        """See to it that a file is gone."""
        native = self._native(path)
        try:
            os.unlink(native)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise translated(error, path) from error

    def delete_folder(self, folder: str) -> None:
        """See to it that a folder and all in it are gone, hidden files included."""
        import shutil  # noqa: PLC0415 - only who drops a table waits for it

        native = self._native_folder(folder)
        with as_storage_errors(folder), contextlib.suppress(FileNotFoundError):
            if folder and os.path.islink(native):
                os.unlink(native)  # what it leads to belongs to others
            else:
                shutil.rmtree(native)

    def is_own(self, path: str) -> bool:
        """Return whether no folder between the store and a file is a symbolic link."""
        folder = os.path.dirname(self._native(path))
        there = os.path.join(os.path.realpath(self._base), os.path.relpath(folder, self._base))
        return os.path.realpath(folder) == os.path.normpath(there)

    def remove_if_empty(self, folder: str) -> None:
        """Remove a folder that nothing is in; one that has files or is gone stays as it is."""
        with contextlib.suppress(OSError):
            os.rmdir(self._native_folder(folder))

    def copy(self, source: str, target: str) -> None:
        """Copy a file within the store."""
        with (
            as_storage_errors(source),
            open(self._native(source), "rb") as file,
            self.open_writer(target) as writer,
        ):
            while part := file.read(_COPY_BYTES):
                writer.write(part)

    def rename_if_absent(self, source: str, target: str) -> None:
        """Move a file to a free name."""
        native_source, native = self._native(source), self._native(target)
        self.info(source)
        with as_storage_errors(target):
            make_folder(os.path.dirname(native), sync=self._sync)
            give_name_if_free(native_source, native)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(native_source)
            if self._sync:
                flush_folder(os.path.dirname(native))

    def lazily(self) -> LocalStore:
        """Return the same folder; files are flushed in the background until `settle`."""
        if not self._sync or os.name == "nt":  # Windows names only files that are closed
            return self
        return self._like(self._base, Flushes())

    def settle(self) -> None:
        """Wait for the flushes in the background, and raise what they met."""
        if self._flushes is not None:
            self._flushes.settle()

    def etag_at_hand(self, path: str) -> str | None:
        """Return the tag of a file."""
        found = self._info_or_none(path)
        return None if found is None else found.etag

    def sweep_temporaries(self, folder: str = "", *, older_than_seconds: float) -> int:
        """Delete what crashed writers left below a folder, and return how many files it was.

        Folders below it that have been empty for so long go too: nobody is about to fill them.
        """
        limit = surroundings.time_ns() / 1e9 - older_than_seconds
        root = self._native_folder(folder)
        swept = 0
        if folder and not self.is_own(f"{folder}/{TEMPORARY_PREFIX}"):
            return swept
        for parent, _, names in os.walk(root, topdown=False):
            if not names and parent != root:
                with contextlib.suppress(OSError):  # it has folders, or got files, or is gone
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
                            swept += 1  # who holds a lock removes it in the end
                        continue
                    os.unlink(temporary)
                    swept += 1
        return swept

    def _like(self, base: str, flushes: Flushes | None = None) -> LocalStore:
        """Return a store of another folder, given by its whole path as the system has it."""
        flushes = self._flushes if flushes is None else flushes
        return LocalStore(base, sync=self._sync, flushes=flushes, is_whole=True)

    def _native(self, path: str) -> str:
        """Return the path that the operating system understands."""
        return native_path(self._base, check_path(path), windows=_IS_WINDOWS)

    def _native_folder(self, folder: str) -> str:
        return self._native(folder) if check_folder(folder) else self._base

    def _children(self, folder: str) -> Iterable[tuple[str, bool]]:
        """Return the paths in a folder and whether each is a folder, as their text orders them."""
        below = f"{folder}/" if folder else ""
        try:
            with os.scandir(self._native_folder(folder)) as entries:
                # What is in the folder `a` begins with `a/`, and `a.b` comes before that.
                names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise translated(error, folder) from error
        names.sort()
        return (
            (below + name.removesuffix("/"), name.endswith("/"))
            for name in names
            if not name.startswith(TEMPORARY_PREFIX)
        )

    def _walk(
        self, folder: str, start_after: str, above: tuple[os.stat_result, ...]
    ) -> Iterator[ObjectInfo]:
        for path, is_folder in self._children(folder):
            if is_folder:
                if path + "/" < start_after and not start_after.startswith(path + "/"):
                    continue
                try:
                    here = os.stat(self._native(path))
                except (FileNotFoundError, NotADirectoryError):
                    continue  # removed since it was listed
                except OSError as error:
                    raise translated(error, path) from error
                if any(os.path.samestat(here, other) for other in above):
                    raise StorageError("a symbolic link leads back to a folder above", path=path)
                yield from self._walk(path, start_after, (*above, here))
            elif path > start_after and (info := self._info_or_none(path)) is not None:
                yield info

    def _info_or_none(self, path: str) -> ObjectInfo | None:
        try:
            found = os.stat(self._native(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise translated(error, path) from error
        # A folder is not an object, though it has a name.
        if not stat.S_ISREG(found.st_mode):
            return None
        return ObjectInfo(
            path,
            found.st_size,
            datetime.fromtimestamp(found.st_mtime, UTC),
            f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}",
        )


def _reopen(base: str, sync: bool) -> LocalStore:  # pickles pass by position
    return LocalStore(base, sync=sync)


def native_path(base: str, path: str, *, windows: bool) -> str:
    r"""Return the operating system's name of a path below the folder `base`.

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
