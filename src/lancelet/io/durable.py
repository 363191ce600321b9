"""Files that appear whole or not at all, and survive a loss of power once they have a name.

    no name            written, then flushed to the disk (`unfinished`)
    7.manifest         the same file under its name, given in one step
    the folder         flushed too, since names live in folders

A name is taken over with a rename. A name that must be free is given with a hard link, which
fails if it is taken. Where there are no hard links (some network and removable drives) a hidden
file is locked for each name: who has the lock renames the finished file if the name is free. The
lock of a dead process is free, and nobody sees a name without its bytes.

A file of rows is different: nothing leads to it before the manifest of a commit has its name. So
its flush may run beside whatever the commit does before that, and is waited for once (`Flushes`):

    a.lance            named, then flushed with its folder in the background
    settle             the commit waits for all such flushes
    7.manifest         flushed, named, the folder flushed: as above

If the power fails before `settle` ends, what is left is at most a file without content that no
version names, as after any write that was never committed; cleaning up finds it. What fails in
the background is raised by `settle`, so such a manifest is never written.

While a large file is being written, the disk is asked to keep up (`_FLUSH_BYTES`), so that little
is left to wait for at the end. Without `sync` nothing is flushed: a crash of the process still
loses nothing, a loss of power may.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from functools import partial
from typing import Final

from lancelet.errors import (
    InvalidInputError,
    LanceletError,
    StorageError,
    StorageUnavailableError,
)
from lancelet.io.pool import run_in_background
from lancelet.io.store import BytesLike, ObjectWriter, as_memoryview, name_taken, not_stored
from lancelet.io.unfinished import UnfinishedFile, start_unfinished, write_all

_FLUSH_BYTES: Final = 32 << 20
"""After each so many bytes a flush is started in the background."""

_SMALL_BYTES: Final = 256 << 10
"""Buffers of fewer bytes are written together; a file of fewer is flushed without a thread."""

_CREATE: Final = os.O_CREAT | os.O_WRONLY | getattr(os, "O_BINARY", 0)

_OPEN_MAX: Final = 64
"""So many files may wait for their flush; each of them is open."""


class DurabilityWarning(RuntimeWarning):
    """Something was published, and may still be lost with the power."""


class LocalWriter(ObjectWriter):
    """Writes a file that nobody sees and names it at `close`."""

    def __init__(
        self,
        path: str,
        native: str,
        *,
        may_replace: bool = True,
        sync: bool = True,
        flushes: Flushes | None = None,
    ) -> None:
        """Start the file that will be `native`, whose path in the store is `path`.

        With `may_replace` it takes over the name from whatever has it. Given `flushes`, it has
        its name before it is flushed; see there.
        """
        self._path = path
        self._native = native
        self._folder = os.path.dirname(native)
        self._may_replace = may_replace
        self._sync = sync
        self._flushes = flushes
        self._flush: Future[None] | None = None
        self._flush_at = _FLUSH_BYTES
        self._position = 0
        self._small = bytearray()
        """Bytes of small buffers, which are written together."""
        try:
            self._unfinished: UnfinishedFile | None = _start(self._folder, sync=sync)
        except OSError as error:
            raise translated(error, path) from error

    @property
    def position(self) -> int:
        """How many bytes were written so far."""
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes; large buffers are not copied on their way to the system."""
        if self._unfinished is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        try:
            for buffer in buffers:
                self._write(buffer, self._unfinished.handle)
        except OSError as error:
            raise translated(error, self._path) from error

    def close(self) -> int:
        """Flush the file and the folder, or have that done, and give the file its name."""
        if self._unfinished is None:
            return self._position
        try:
            self._publish(self._unfinished)
            self._unfinished = None
        except OSError as error:
            raise translated(error, self._path) from error
        finally:
            self.abort()
        return self._position

    def abort(self) -> None:
        """Drop the unfinished file."""
        if self._unfinished is None:
            return
        unfinished, self._unfinished = self._unfinished, None
        # The disk may be full or broken, and says so again here; the bytes are unwanted anyway.
        with contextlib.suppress(OSError):
            self._end_flush()
        try:
            unfinished.discard()
        except OSError as error:
            raise translated(error, self._path) from error

    def _write(self, buffer: BytesLike, handle: int) -> None:
        view = as_memoryview(buffer)
        self._position += len(view)
        if len(view) < _SMALL_BYTES:
            self._small += view
            if len(self._small) >= _SMALL_BYTES:
                self._write_small(handle)
        else:
            self._write_small(handle)
            write_all(handle, view)
        if self._sync and self._position >= self._flush_at:
            self._start_flush(handle)

    def _write_small(self, handle: int) -> None:
        if self._small:
            write_all(handle, self._small)
            self._small = bytearray()

    def _publish(self, unfinished: UnfinishedFile) -> None:
        self._write_small(unfinished.handle)
        self._end_flush()
        if self._flushes is not None:
            self._publish_unflushed(unfinished, self._flushes)
            return
        if self._sync:
            os.fsync(unfinished.handle)
        unfinished.publish(self._native, may_replace=self._may_replace)
        if self._sync:
            self._flush_folder()

    def _flush_folder(self) -> None:
        try:
            flush_folder(self._folder)
        except OSError as error:
            if self._may_replace:
                raise
            # Everybody sees it already, so to fail would be to deny what was published.
            warnings.warn(
                f"{self._path} was stored, but its folder could not be flushed: it may be gone "
                f"after a loss of power ({error.strerror or error})",
                DurabilityWarning,
                stacklevel=5,
            )

    def _publish_unflushed(self, unfinished: UnfinishedFile, flushes: Flushes) -> None:
        handle = os.dup(unfinished.handle)
        try:
            unfinished.publish(self._native, may_replace=self._may_replace)
        except BaseException:
            os.close(handle)
            raise
        flushes.start(self._path, handle, self._folder, is_small=self._position < _SMALL_BYTES)

    def _start_flush(self, handle: int) -> None:
        if self._flush is None or self._flush.done():
            self._end_flush()
            self._flush = run_in_background(partial(_flush_data, handle))
            self._flush_at = self._position + _FLUSH_BYTES

    def _end_flush(self) -> None:
        """Wait for a flush, and raise what it met: the system reports a failed write only once."""
        flush, self._flush = self._flush, None
        if flush is not None:
            flush.result()


class Flushes:
    """Flushes of named files that run in the background, to be waited for together.

    Folders are flushed at the end, each once however many names it was given, and beside them one
    small file: nothing is gained by another thread that waits for the disk before.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._running: deque[tuple[str, Future[None]]] = deque()
        self._folders: dict[str, str] = {}
        self._last: tuple[str, int] | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Close what nobody waited for, since its write has failed."""
        if self._last is not None:
            os.close(self._last[1])

    def start(self, path: str, handle: int, folder: str, *, is_small: bool = False) -> None:
        """Flush an open file, which is closed then; the folder that has its name comes later."""
        own = (path, handle)
        with self._lock:  # several threads write files of one change
            self._folders[folder] = path
            last, self._last = self._last, own if is_small else None
        if last is not None:
            self._run(*last)
        if not is_small:
            self._run(*own)
        while len(self._running) > _OPEN_MAX:
            self._end_first()

    def settle(self) -> None:
        """Wait for all, and raise what the first of them met.

        Names do not wait for bytes: nothing leads to either before, and the disk does both at once.
        """
        last, self._last = self._last, None
        while self._folders:
            folder, path = self._folders.popitem()
            self._running.append((path, run_in_background(partial(flush_folder, folder))))
        try:
            if last is not None:
                with as_storage_errors(last[0]):
                    _flush_and_close(last[1])
        finally:
            for _, flush in self._running:
                flush.exception()
        while self._running:
            self._end_first()

    def _run(self, path: str, handle: int) -> None:
        self._running.append((path, run_in_background(partial(_flush_and_close, handle))))

    def _end_first(self) -> None:
        path, flush = self._running.popleft()
        with as_storage_errors(path):
            flush.result()


def _flush_and_close(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_note(native: str, data: BytesLike) -> None:
    """Write a small file in place, if need be over what was there; nothing is waited for."""
    try:
        handle = os.open(native, _CREATE, 0o666)
    except FileNotFoundError:
        make_folder(os.path.dirname(native), sync=False)
        handle = os.open(native, _CREATE, 0o666)
    try:
        view = as_memoryview(data)
        write_all(handle, view)
        # To empty a file first makes some systems write what follows to the disk at once.
        if os.fstat(handle).st_size > len(view):
            os.truncate(handle, len(view))
    finally:
        os.close(handle)


def make_folder(folder: str, *, sync: bool) -> None:
    """Make a folder and those above it, each durably if so asked."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
        return
    except FileNotFoundError:
        make_folder(os.path.dirname(folder), sync=sync)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
    if sync:
        flush_folder(os.path.dirname(folder))


def _flush_data(handle: int) -> None:
    """Make the bytes of a file survive a loss of power; its size may follow later."""
    getattr(os, "fdatasync", os.fsync)(handle)


def flush_folder(folder: str) -> None:
    """Make the names in a folder survive a loss of power."""
    if os.name == "nt":  # Windows keeps names in a journal and has no call for it.
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network drives cannot flush a folder, and write it through anyway.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def as_storage_errors(path: str) -> Iterator[None]:
    """Translate what the system answers about a path into our errors."""
    try:
        yield
    except LanceletError:
        raise
    except OSError as error:
        raise translated(error, path) from error


def translated(error: OSError, path: str) -> LanceletError:
    """Return our error for what the system answered about a path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return not_stored(path)
    if isinstance(error, FileExistsError):
        return name_taken(path)
    if isinstance(error, BlockingIOError):
        return StorageUnavailableError(error.strerror or str(error), path=path)
    return StorageError(
        "the system refused a request; check permissions and free space",
        path=path,
        reason=error.strerror or str(error),
        errno=error.errno,
    )


def is_out_of_space(error: BaseException) -> bool:
    """Return whether a write failed because the disk or a quota is full."""
    facts = error.facts if isinstance(error, LanceletError) else {}
    numbers = {facts.get("errno"), getattr(error, "errno", None)}
    if not numbers.isdisjoint({errno.ENOSPC, errno.EDQUOT}):
        return True
    return error.__cause__ is not None and is_out_of_space(error.__cause__)


def _start(folder: str, *, sync: bool) -> UnfinishedFile:
    """Start a file and, only if that fails for want of it, make its folder."""
    try:
        return start_unfinished(folder)
    except FileNotFoundError:
        make_folder(folder, sync=sync)
        return start_unfinished(folder)
