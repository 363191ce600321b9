"""Folders for what does not fit into memory, of which nothing stays behind.

    lancelet-spill-4f2a/  lock   held by the process that spills, as long as it lives
                          runs   what it wrote
    ends as it should            deletes the folder
    is killed                    the system gives the lock up; who spills next deletes the folder

Nobody else can hold the lock of a folder that is in use, and whoever gets it may delete the folder.
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
_SWEPT: Final[set[tuple[str, int]]] = set()
"""The places that this process has looked through."""


class SpillFolder:
    """A folder that lasts until it is closed, or its process has ended in any way."""

    def __init__(self, purpose: str, place: str | os.PathLike[str] | None = None) -> None:
        """Make a folder within another, by default where temporary files are."""
        parent = tempfile.gettempdir() if place is None else os.fspath(place)
        _sweep_once(parent)
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{purpose}-", dir=parent))
            lock = _lock(self.path, create=True)
            if lock is not None:
                break
        self._close = weakref.finalize(self, _remove, self.path, lock, os.getpid())

    def close(self) -> None:
        """Delete the folder with all that is in it."""
        self._close()

    def __enter__(self) -> Self:
        """Return the folder."""
        return self

    def __exit__(self, *_: object) -> None:
        """Delete the folder."""
        self.close()


def _sweep_once(parent: str) -> None:
    """Delete the folders of processes that were killed, once for each process and place."""
    key = (parent, os.getpid())
    if key in _SWEPT or sys.platform == "win32":
        return
    _SWEPT.add(key)
    with suppress(OSError):  # who may not list a place has nothing to delete there
        for folder in _own_folders(parent):
            lock = _lock(folder, create=False)
            if lock is not None:
                _remove(folder, lock, os.getpid())


def _own_folders(parent: str) -> Iterator[Path]:
    """Yield the folders of this user that hold, or held, what was spilled."""
    with os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):  # it may just have been deleted
                    if entry.stat(follow_symlinks=False).st_uid == os.getuid():
                        yield Path(entry.path)


def _lock(folder: Path, *, create: bool) -> int | None:
    """Return the lock of a folder, or None if another process holds it or the folder is gone."""
    flags = os.O_RDWR | (os.O_CREAT if create else 0)
    try:
        lock = os.open(folder / _LOCK, flags, 0o600)
    except FileNotFoundError:
        return None
    is_own = False
    with suppress(BlockingIOError, FileNotFoundError):
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Who held the lock until now may have deleted the folder.
        is_own = os.path.samestat(os.fstat(lock), (folder / _LOCK).stat())
    if not is_own:
        os.close(lock)
        return None
    return lock


def _remove(folder: Path, lock: int, owner: int) -> None:
    """Delete a folder and then give up its lock; a fork of the owner has no part in it."""
    if os.getpid() != owner:
        return
    if sys.platform == "win32":
        os.close(lock)  # open files cannot be deleted there
    shutil.rmtree(folder, ignore_errors=True)
    if sys.platform != "win32":
        os.close(lock)
