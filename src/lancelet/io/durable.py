"""Durable local files: written atomically, and safe from power loss once they have a name.

    no name            written, then flushed to disk (`unfinished`)
    7.manifest         the same file, linked to its name in one step
    directory          flushed as well, since it contains the names

A name is replaced by renaming. A name that must not exist is created by a hard link, which fails if
it exists. On file systems without hard links (some network and removable drives), writers lock a
hidden file per name; the owner of the lock renames the finished file if the name is free. The lock
of a terminated process is released, and no reader sees a name without its content.

Data files are handled differently: no manifest refers to them before the commit. Their flushes
therefore run in the background, and the commit waits for all of them once (`BackgroundFlushes`):

    a.lance            named, then flushed with its directory in the background
    flush              the commit waits for all flushes
    7.manifest         flushed, named, and its directory flushed, as above

After a power loss before `flush` completes, at most an empty file without references remains, like
after any uncommitted write; cleanup removes it. `flush` raises errors of background flushes, so the
manifest is not written.

Writers of large files start flushes periodically (`_FLUSH_BYTES`), so little remains to be flushed
at the end. Without `sync` no flushes are made: the files survive a crash of the process, but
possibly not a power loss.
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
from lancelet.io.store import BytesLike, ObjectWriter, already_exists, as_memoryview, not_found
from lancelet.io.unfinished import UnfinishedFile, start_unfinished, write_all

_FLUSH_BYTES: Final = 32 << 20
"""Number of bytes after which a background flush starts."""

_SMALL_BYTES: Final = 256 << 10
"""Smaller buffers are coalesced, and smaller files are flushed without a thread."""

_CREATE: Final = os.O_CREAT | os.O_WRONLY | getattr(os, "O_BINARY", 0)

_OPEN_MAX: Final = 64
"""Maximum number of files with a pending flush; each of them is open."""


class DurabilityWarning(RuntimeWarning):
    """A file was published, but may be lost on power failure."""


class LocalWriter(ObjectWriter):
    """Writes a file that becomes visible under its name on `close`."""

    def __init__(
        self,
        path: str,
        native: str,
        *,
        may_replace: bool = True,
        sync: bool = True,
        flushes: BackgroundFlushes | None = None,
    ) -> None:
        """Start writing the file `native`, which has the path `path` in the store.

        With `may_replace` the file replaces an existing one. With `flushes` the file is named
        before it is flushed in the background.
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
        self._buffered = bytearray()
        """The content of small buffers, which are coalesced."""
        try:
            self._unfinished: UnfinishedFile | None = _start(self._folder, sync=sync)
        except OSError as error:
            raise translate_os_error(error, path) from error

    @property
    def position(self) -> int:
        """The number of bytes written."""
        return self._position

    def write(self, *buffers: BytesLike) -> None:
        """Append buffers; large buffers are not copied."""
        if self._unfinished is None:
            raise InvalidInputError("the writer is closed", path=self._path)
        try:
            for buffer in buffers:
                self._write(buffer, self._unfinished.handle)
        except OSError as error:
            raise translate_os_error(error, self._path) from error

    def close(self) -> int:
        """Publish the file, after flushing it and its directory or scheduling the flush."""
        if self._unfinished is None:
            return self._position
        try:
            self._publish(self._unfinished)
            self._unfinished = None
        except OSError as error:
            raise translate_os_error(error, self._path) from error
        finally:
            self.abort()
        return self._position

    def abort(self) -> None:
        """Discard the unfinished file."""
        if self._unfinished is None:
            return
        unfinished, self._unfinished = self._unfinished, None
        # A full or failing disk may report another error here, but the content is discarded anyway.
        with contextlib.suppress(OSError):
            self._end_flush()
        try:
            unfinished.discard()
        except OSError as error:
            raise translate_os_error(error, self._path) from error

    def _write(self, buffer: BytesLike, handle: int) -> None:
        view = as_memoryview(buffer)
        self._position += len(view)
        if len(view) < _SMALL_BYTES:
            self._buffered += view
            if len(self._buffered) >= _SMALL_BYTES:
                self._write_buffered(handle)
        else:
            self._write_buffered(handle)
            write_all(handle, view)
        if self._sync and self._position >= self._flush_at:
            self._start_flush(handle)

    def _write_buffered(self, handle: int) -> None:
        if self._buffered:
            write_all(handle, self._buffered)
            self._buffered = bytearray()

    def _publish(self, unfinished: UnfinishedFile) -> None:
        self._write_buffered(unfinished.handle)
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
            flush_directory(self._folder)
        except OSError as error:
            if self._may_replace:
                raise
            # The file is visible to readers already, so the operation must not fail.
            warnings.warn(
                f"{self._path} was stored, but its directory could not be flushed: the file may "
                f"be lost after a power failure ({error.strerror or error})",
                DurabilityWarning,
                stacklevel=5,
            )

    def _publish_unflushed(self, unfinished: UnfinishedFile, flushes: BackgroundFlushes) -> None:
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
        """Wait for a flush and raise its error: the system reports a failed write only once."""
        flush, self._flush = self._flush, None
        if flush is not None:
            flush.result()


class BackgroundFlushes:
    """Background flushes of named files, with a single wait at the end.

    Directories are flushed at the end, once each. One small file is flushed at the same time in the
    calling thread, since a separate thread would not be faster.
    """

    def __init__(self) -> None:
        """Create an empty set of flushes."""
        self._running: deque[tuple[str, Future[None]]] = deque()
        self._folders: dict[str, str] = {}
        self._deferred: tuple[str, int] | None = None
        self._lock = threading.Lock()

    def __del__(self) -> None:
        """Close a handle that was never flushed because its write failed."""
        if self._deferred is not None:
            os.close(self._deferred[1])

    def start(self, path: str, handle: int, folder: str, *, is_small: bool = False) -> None:
        """Flush and close an open file; its directory is flushed by `wait`."""
        entry = (path, handle)
        with self._lock:  # Several threads write files of a change.
            self._folders[folder] = path
            deferred, self._deferred = self._deferred, entry if is_small else None
        if deferred is not None:
            self._run(*deferred)
        if not is_small:
            self._run(*entry)
        while len(self._running) > _OPEN_MAX:
            self._end_first()

    def wait(self) -> None:
        """Wait for all flushes, and raise the first error.

        Directories need not be flushed after their files: no manifest refers to either, and the
        disk flushes both concurrently.
        """
        deferred, self._deferred = self._deferred, None
        while self._folders:
            folder, path = self._folders.popitem()
            self._running.append((path, run_in_background(partial(flush_directory, folder))))
        try:
            if deferred is not None:
                with translating_os_errors(deferred[0]):
                    _flush_and_close(deferred[1])
        finally:
            for _, flush in self._running:
                flush.exception()
        while self._running:
            self._end_first()

    def _run(self, path: str, handle: int) -> None:
        self._running.append((path, run_in_background(partial(_flush_and_close, handle))))

    def _end_first(self) -> None:
        path, flush = self._running.popleft()
        with translating_os_errors(path):
            flush.result()


def _flush_and_close(handle: int) -> None:
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_unflushed(native: str, data: BytesLike) -> None:
    """Overwrite a small file non-atomically, without flushing it."""
    try:
        handle = os.open(native, _CREATE, 0o666)
    except FileNotFoundError:
        create_directory(os.path.dirname(native), sync=False)
        handle = os.open(native, _CREATE, 0o666)
    try:
        view = as_memoryview(data)
        write_all(handle, view)
        # Truncating a file to zero length first makes some systems flush it synchronously.
        if os.fstat(handle).st_size > len(view):
            os.truncate(handle, len(view))
    finally:
        os.close(handle)


def create_directory(folder: str, *, sync: bool) -> None:
    """Create a directory and its parents, durably if `sync`."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
        return
    except FileNotFoundError:
        create_directory(os.path.dirname(folder), sync=sync)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
    if sync:
        flush_directory(os.path.dirname(folder))


def _flush_data(handle: int) -> None:
    """Flush the content of a file; its metadata may be flushed later."""
    getattr(os, "fdatasync", os.fsync)(handle)


def flush_directory(folder: str) -> None:
    """Flush the names in a directory."""
    if os.name == "nt":  # Windows journals names and has no such call.
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some network drives do not support directory flushes, but write through.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def translating_os_errors(path: str) -> Iterator[None]:
    """Translate operating system errors for a path."""
    try:
        yield
    except LanceletError:
        raise
    except OSError as error:
        raise translate_os_error(error, path) from error


def translate_os_error(error: OSError, path: str) -> LanceletError:
    """Convert an operating system error for a path."""
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return not_found(path)
    if isinstance(error, FileExistsError):
        return already_exists(path)
    if isinstance(error, BlockingIOError):
        return StorageUnavailableError(error.strerror or str(error), path=path)
    return StorageError(
        "the operating system refused a request; check permissions and free space",
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
    """Start a file, and create its directory only if it does not exist."""
    try:
        return start_unfinished(folder)
    except FileNotFoundError:
        create_directory(folder, sync=sync)
        return start_unfinished(folder)
