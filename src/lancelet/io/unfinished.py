"""Unfinished files, which are not visible under their name until they are complete.

    unnamed file           Linux: not in any directory; removed by the system after a crash
    .lancelet-tmp-*        other systems: hidden, in the target directory; remains after a crash
    .lancelet-tmp-lock-*   file systems without hard links: locked while a file is renamed

An unnamed file is published by a hard link, which never replaces an existing name. To replace one,
the file is linked under a hidden name, which is then renamed. A crash between these steps leaves a
complete hidden file.

Remaining hidden files have the prefix `TEMPORARY_PREFIX`, followed by `lock-` for locks and 32
hexadecimal digits.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
import uuid
from collections.abc import Iterator
from typing import Final, Protocol

from lancelet import surroundings

if sys.platform != "win32":
    import fcntl

TEMPORARY_PREFIX: Final = ".lancelet-tmp-"
"""The prefix of hidden files; no file name of the format starts with a dot."""

LOCK_PREFIX: Final = f"{TEMPORARY_PREFIX}lock-"
"""The prefix of lock files; each locks one name, and only the owner removes it."""

_TRIES: Final = 500
_WAIT_SECONDS: Final = 0.01
"""The interval between attempts to acquire a lock, which is held for two system calls."""

_COPY_BYTES: Final = 1 << 20

_CLOSED: Final = -1
"""The handle of a closed file."""

_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)

_NO_LINK_ERRORS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""Errors of file systems without hard links; Linux returns `EPERM` for FAT and some FUSE."""

_LINK_ERRORS: Final = _NO_LINK_ERRORS | {errno.ENOENT, errno.EXDEV}
"""Errors of links to unnamed files, which also require `/proc`."""

_UNNAMED_FILE_ERRORS: Final = frozenset(
    {errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL}
)
"""Errors of systems without unnamed files."""


class UnfinishedFile(Protocol):
    """An open file that is not yet visible under its name."""

    handle: int
    """The file descriptor; closed by `publish` and `discard`."""

    def publish(self, native: str, *, may_replace: bool) -> None:
        """Close the file and name it; raise `FileExistsError` if the name may not be replaced."""

    def discard(self) -> None:
        """Close the file if it is open, and delete it."""


def start_unfinished(folder: str) -> UnfinishedFile:
    """Create an unfinished file for a target in an existing directory."""
    try:
        return UnnamedFile(folder)
    except OSError as error:
        if error.errno not in _UNNAMED_FILE_ERRORS:
            raise
        return HiddenFile(folder)


class UnnamedFile:
    """An unnamed file on the file system of its target."""

    def __init__(self, folder: str) -> None:
        """Create the file, or raise `OSError` if the system does not support unnamed files."""
        flag = getattr(os, "O_TMPFILE", 0)
        if not flag:
            raise OSError(errno.EOPNOTSUPP, "the system does not support unnamed files")
        self.handle = os.open(folder, flag | os.O_RDWR, 0o666)
        self._folder = folder

    def publish(self, native: str, *, may_replace: bool) -> None:
        """Link the file as `native`."""
        try:
            self._link(native)
        except FileExistsError:
            if not may_replace:
                raise
            self._replace(native)
        except OSError as error:
            if error.errno not in _LINK_ERRORS:
                raise
            self._publish_copy(native, may_replace=may_replace)
        _close(self)

    def discard(self) -> None:
        """Close the file, which deletes it."""
        with contextlib.suppress(OSError):
            _close(self)

    def _link(self, native: str) -> None:
        # Python follows the symbolic link in /proc only if `src_dir_fd` is given.
        source = f"/proc/self/fd/{self.handle}"
        os.link(source, native, src_dir_fd=self.handle, follow_symlinks=True)

    def _replace(self, native: str) -> None:
        temporary = _temporary_name(self._folder)
        self._link(temporary)
        try:
            os.replace(temporary, native)
        except OSError:
            os.unlink(temporary)
            raise

    def _publish_copy(self, native: str, *, may_replace: bool) -> None:
        """Publish a copy of the content, which is flushed first."""
        copy = HiddenFile(self._folder)
        try:
            position = 0
            while part := os.pread(self.handle, _COPY_BYTES, position):
                write_all(copy.handle, part)
                position += len(part)
            os.fsync(copy.handle)
            copy.publish(native, may_replace=may_replace)
        finally:
            copy.discard()


class HiddenFile:
    """A hidden file in the directory of its target."""

    def __init__(self, folder: str) -> None:
        """Create the file."""
        self._temporary = _temporary_name(folder)
        self.handle = os.open(self._temporary, _CREATE, 0o666)

    def publish(self, native: str, *, may_replace: bool) -> None:
        """Rename the file after closing it, as Windows requires."""
        _close(self)
        if may_replace:
            os.replace(self._temporary, native)
        else:
            link_if_absent(self._temporary, native)
        self.discard()

    def discard(self) -> None:
        """Close the file and delete it, unless it was renamed."""
        # A full or failing disk may report another error here, but the content is discarded anyway.
        with contextlib.suppress(OSError):
            _close(self)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


def write_all(handle: int, data: bytes | bytearray | memoryview) -> None:
    """Write all bytes to an open file; one system call may write only a part."""
    written = os.write(handle, data)
    if written < len(data):
        remaining = memoryview(data)[written:]
        while remaining:
            remaining = remaining[os.write(handle, remaining) :]


def link_if_absent(temporary: str, native: str) -> None:
    """Link a finished file to a name if it is unused; exactly one concurrent caller succeeds."""
    try:
        os.link(temporary, native)
    except OSError as error:
        if error.errno not in _NO_LINK_ERRORS:
            raise
        _rename_if_absent(temporary, native)


def _rename_if_absent(temporary: str, native: str) -> None:
    """Rename a file to an unused name under a lock; the name is never visible without content.

    If another writer holds the lock, this waits: that writer may fail and leave the name unused.
    """
    if sys.platform == "win32":
        os.rename(temporary, native)  # fails on Windows if the name exists
        return
    folder, name = os.path.split(native)
    digest = uuid.uuid5(uuid.NAMESPACE_URL, name).hex  # the name itself may have the maximum length
    for attempt in itertools.count(1):
        try:
            with locked(os.path.join(folder, LOCK_PREFIX + digest)):
                _check_absent(native)
                os.replace(temporary, native)
                return
        except BlockingIOError:
            _check_absent(native)
            if attempt == _TRIES:
                raise
        surroundings.sleep(_WAIT_SECONDS)


def _check_absent(native: str) -> None:
    """Raise if a non-empty file exists; earlier releases reserved names with empty files."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(native).st_size:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), native)


@contextlib.contextmanager
def locked(lock: str) -> Iterator[None]:
    """Hold a lock file, or raise `BlockingIOError`; the system releases it if the process ends."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed the lock file between opening and locking.
            is_current = os.path.samestat(os.fstat(handle), os.stat(lock))
        except (BlockingIOError, FileNotFoundError):
            is_current = False
        if not is_current:
            raise BlockingIOError(errno.EAGAIN, "another process holds the lock of the name", lock)
        try:
            yield
        finally:
            # Only the owner removes the lock file; a remaining one is harmless.
            with contextlib.suppress(OSError):
                os.unlink(lock)
    finally:
        os.close(handle)


def _close(file: UnfinishedFile) -> None:
    """Close a file if it is open; some network file systems report a full disk only here."""
    handle, file.handle = file.handle, _CLOSED
    if handle != _CLOSED:
        os.close(handle)


def _temporary_name(folder: str) -> str:
    return os.path.join(folder, TEMPORARY_PREFIX + surroundings.new_uuid().hex)
