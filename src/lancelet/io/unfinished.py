"""Files that are being written and have no name yet that anybody would look for.

    without a name     Linux: the file is in no folder; a crash takes it away
    .lancelet-tmp-*    elsewhere: beside the target, hidden; a crash leaves it behind
    .lancelet-tmp-lock-*    where there are no links: held by who gives the name, until it is given

A file without a name gets one by a hard link, which never takes over a name. Where the name is
taken and may be taken over, the file is linked as a hidden one first, which then is renamed: only
for that moment, and once the file is complete, a crash can leave a hidden file here as well.

What was left behind is recognised by how its name begins (`TEMPORARY_PREFIX`), in the folder of
its target: `.lancelet-tmp-`, for locks `lock-`, and 32 hexadecimal digits.
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
"""How names of unfinished files begin; no name of the format begins with a dot."""

LOCK_PREFIX: Final = f"{TEMPORARY_PREFIX}lock-"
"""How names of locks begin; one is for a name, and is removed only by who holds it."""

_TRIES: Final = 500
_WAIT_SECONDS: Final = 0.01
"""How often a lock is tried that another holds: it does so for two calls to the system."""

_COPY_BYTES: Final = 1 << 20

_CLOSED: Final = -1
"""The handle of a file that is closed."""

_CREATE: Final = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)

_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP})
"""What systems answer that have no hard links; Linux says `EPERM` for FAT and some FUSE drives."""

_NOT_LINKED: Final = _NO_LINKS | {errno.ENOENT, errno.EXDEV}
"""The same, or that there is no `/proc`, by which a file without a name is found."""

_NOT_UNNAMED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EISDIR, errno.EINVAL})
"""What drives and kernels answer that have no files without names."""


class UnfinishedFile(Protocol):
    """A file that is being written."""

    handle: int
    """Takes the bytes; closed by `publish` and by `discard`."""

    def publish(self, native: str, *, may_replace: bool) -> None:
        """Close the file and give it its name; `FileExistsError` if that is taken and must not."""

    def discard(self) -> None:
        """Close the file, if it still is open, and see to it that nothing of it is left."""


def start_unfinished(folder: str) -> UnfinishedFile:
    """Start a file for a target in a folder, which must be there."""
    try:
        return UnnamedFile(folder)
    except OSError as error:
        if error.errno not in _NOT_UNNAMED:
            raise
        return HiddenFile(folder)


class UnnamedFile:
    """A file in no folder, on the drive of its target."""

    def __init__(self, folder: str) -> None:
        """Start the file, or raise `OSError` with one of a few codes where there are none."""
        flag = getattr(os, "O_TMPFILE", 0)
        if not flag:
            raise OSError(errno.EOPNOTSUPP, "the system has no files without names")
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
            if error.errno not in _NOT_LINKED:
                raise
            self._publish_copy(native, may_replace=may_replace)
        _close(self)

    def discard(self) -> None:
        """Close the file, which is the end of it."""
        with contextlib.suppress(OSError):
            _close(self)

    def _link(self, native: str) -> None:
        # Only with a handle given does Python ask the system to follow the link in /proc.
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
        """Publish a hidden file with the same bytes, which survive a loss of power."""
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
    """A file beside its target, under a name that nobody looks for."""

    def __init__(self, folder: str) -> None:
        """Start the file."""
        self._temporary = _temporary_name(folder)
        self.handle = os.open(self._temporary, _CREATE, 0o666)

    def publish(self, native: str, *, may_replace: bool) -> None:
        """Rename the file; Windows needs it to be closed before."""
        _close(self)
        if may_replace:
            os.replace(self._temporary, native)
        else:
            give_name_if_free(self._temporary, native)
        self.discard()

    def discard(self) -> None:
        """Delete the file; after a rename there is nothing to delete."""
        # The disk may be full or broken, and says so again here; the bytes are unwanted anyway.
        with contextlib.suppress(OSError):
            _close(self)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary)


def write_all(handle: int, data: bytes | bytearray | memoryview) -> None:
    """Write bytes to an open file; the system may take them in several pieces."""
    written = os.write(handle, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(handle, rest) :]


def give_name_if_free(temporary: str, native: str) -> None:
    """Let a finished file be seen under a second name; exactly one of many callers succeeds."""
    try:
        os.link(temporary, native)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _rename_if_free(temporary, native)


def _rename_if_free(temporary: str, native: str) -> None:
    """Give a file a name that is free, under a lock; nobody sees the name without the bytes.

    Who finds the lock held waits for it: the holder may fail, and then the name is free still.
    """
    if sys.platform == "win32":
        os.rename(temporary, native)  # which fails there if the name is taken
        return
    folder, name = os.path.split(native)
    digest = uuid.uuid5(uuid.NAMESPACE_URL, name).hex  # names may be as long as a name can be
    for attempt in itertools.count(1):
        try:
            with locked(os.path.join(folder, LOCK_PREFIX + digest)):
                _check_free(native)
                os.replace(temporary, native)
                return
        except BlockingIOError:
            _check_free(native)
            if attempt == _TRIES:
                raise
        surroundings.sleep(_WAIT_SECONDS)


def _check_free(native: str) -> None:
    """Raise if a name is taken; earlier releases claimed names by empty files."""
    with contextlib.suppress(FileNotFoundError):
        if os.stat(native).st_size:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), native)


@contextlib.contextmanager
def locked(lock: str) -> Iterator[None]:
    """Hold a lock, which the system takes from the dead; `BlockingIOError` if another has it."""
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Between opening and locking, others may have had the lock and removed it.
            is_it = os.path.samestat(os.fstat(handle), os.stat(lock))
        except (BlockingIOError, FileNotFoundError):
            is_it = False
        if not is_it:
            raise BlockingIOError(errno.EAGAIN, "another process gives a file its name", lock)
        try:
            yield
        finally:
            # Only who holds a lock removes it; one that stays does no harm.
            with contextlib.suppress(OSError):
                os.unlink(lock)
    finally:
        os.close(handle)


def _close(file: UnfinishedFile) -> None:
    """Close a file unless that was done; some network drives say only then that they are full."""
    handle, file.handle = file.handle, _CLOSED
    if handle != _CLOSED:
        os.close(handle)


def _temporary_name(folder: str) -> str:
    return os.path.join(folder, TEMPORARY_PREFIX + surroundings.new_uuid().hex)
