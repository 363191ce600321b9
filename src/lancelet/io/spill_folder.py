"""Temporary directories for data that exceeds memory, removed even if the process is killed.

    lancelet-spill-4f2a/  lock   locked by the spilling process until it ends
                          runs   spilled data
    normal exit                  the process deletes the directory
    process killed               the lock is released; the next process deletes the directory

A process may delete a directory if it can acquire its lock.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

if sys.platform != "win32":
    import fcntl

PREFIX: Final = "lancelet-spill-"
_LOCK: Final = "lock"
_CLEANED: Final[set[tuple[str, int]]] = set()
"""The directories that this process has cleaned."""


class SpillFolder:
    """A temporary directory, deleted on `close` or after the process has ended."""

    def __init__(self, purpose: str, directory: str | os.PathLike[str] | None = None) -> None:
        """Create a directory in `directory`, by default that for temporary files."""
        parent = tempfile.gettempdir() if directory is None else os.fspath(directory)
        _remove_stale(parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent))
            lock_handle = _lock(self.path, create=True)
            if lock_handle is not None:
                break
        self._close = weakref.finalize(self, _remove, self.path, lock_handle, os.getpid())

    def close(self) -> None:
        """Delete the directory and its content."""
        self._close()

    def __enter__(self) -> Self:
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the directory and its content."""
        self.close()


def _remove_stale(parent: str) -> None:
    """Delete directories of killed processes, once per process and parent directory."""
    key = (parent, os.getpid())
    if key in _CLEANED or sys.platform == "win32":
        return
    _CLEANED.add(key)
    with suppress(OSError):  # the directory may not be readable
        for folder in _own_folders(parent):
            handle = _lock(folder, create=False)
            if handle is not None:
                _remove(folder, handle, os.getpid())


def _own_folders(parent: str) -> Iterator[Path]:
    """Yield the spill directories of the current user."""
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # deleted concurrently
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        yield Path(entry.path)


def _lock(folder: Path, *, create: bool) -> int | None:
    """Lock a directory; return the file descriptor, or None if it is locked or deleted."""
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    try:
        lock_handle = os.open(folder / _LOCK, flags, 0o600)
    except FileNotFoundError:
        return None
    is_own = False
    with suppress(BlockingIOError, FileNotFoundError):
        if sys.platform != "win32":
            fcntl.flock(lock_handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The previous owner of the lock may have deleted the directory.
        is_own = os.path.samestat(os.fstat(lock_handle), (folder / _LOCK).stat())
    if not is_own:
        os.close(lock_handle)
        return None
    return lock_handle


def _remove(folder: Path, lock_handle: int, owner: int) -> None:
    """Delete a directory and release its lock, except in a forked child of the owner."""
    if os.getpid() != owner:
        return
    if sys.platform == "win32":
        os.close(lock_handle)  # open files cannot be deleted there
    shutil.rmtree(folder, ignore_errors=True)
    if sys.platform != "win32":
        os.close(lock_handle)
