"""Listings of large local directories that inotify keeps current.

    first listing of a directory      listed
    second listing                    watched, then listed
    later listings                    the list of names, updated with the events since

A table with thousands of versions has thousands of names in one directory, and a commit lists it
three times. Reading the names takes about 0.3 us each, even if a single one has changed.

A listing that is updated by events is as current as one read from the directory: Linux queues the
event of a change before the system call that makes it returns, and while it holds the lock of the
directory. So all changes that were complete before the events are read are among them, including
those of other processes. This is true only of file systems that this machine alone changes; on
others, and on other operating systems, directories are always listed. A directory whose
modification time changed without an event is listed again too.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from lancelet.io.fork import reset_after_fork
from lancelet.values import dataclass

_WATCHED_FROM: Final = 500
"""Number of names from which a directory is watched."""

_WATCHED_MAX: Final = 32
"""Maximum number of watched directories."""

_REMEMBERED_MAX: Final = 1000
"""Maximum number of directories that are remembered to have been listed once."""

_EVENTS_BYTES: Final = 64 << 10
"""Bytes of events per read; at least one event with the longest name fits."""

_EVENT: Final = struct.Struct("iIII")
"""Watch, kind, cookie and length of the name, which follows and is padded with zeros."""

_ADDED: Final = 0x080 | 0x100  # IN_MOVED_TO, IN_CREATE
_REMOVED: Final = 0x040 | 0x200  # IN_MOVED_FROM, IN_DELETE
_OVERFLOW: Final = 0x4000  # IN_Q_OVERFLOW
_ENDED: Final = 0x8000 | 0x2000  # IN_IGNORED, IN_UNMOUNT
_ONLY_DIRECTORIES: Final = 0x0100_0000  # IN_ONLYDIR

_LOCAL_FILE_SYSTEMS: Final = frozenset(
    {
        0xEF53,  # ext2, ext3, ext4
        0x5846_5342,  # XFS
        0x9123_683E,  # Btrfs
        0xF2F5_2010,  # F2FS
        0x0102_1994,  # tmpfs
    }
)
"""File systems that only this machine changes, by their number in `statfs`."""

_Identity: TypeAlias = tuple[int, int]
"""Device and inode of a directory; any path may refer to it."""


@dataclass(slots=True, eq=False)
class _Folder:
    """A watched directory."""

    watch: int
    names: list[str]
    """The sorted names; replaced when they change, since callers have the list."""
    modified_ns: int
    has_events: bool = False

    def apply(self, changes: Sequence[tuple[str, bool]]) -> None:
        """Update the names; the flag of a change states whether the name was added."""
        names = self.names.copy()
        for name, is_added in changes:
            index = bisect_left(names, name)
            is_listed = index < len(names) and names[index] == name
            if is_added and not is_listed:
                names.insert(index, name)
            elif is_listed and not is_added:
                del names[index]
        self.names = names
        self.has_events = True


@dataclass(slots=True, eq=False)
class _System:
    """The calls of the C library."""

    start: Callable[[int], int]
    add_watch: Callable[[int, bytes, int], int]
    remove_watch: Callable[[int, int], int]
    file_system: Callable[[int], int]


class WatchedFolders:
    """The watched directories of this process."""

    def __init__(self) -> None:
        """Watch nothing yet."""
        self._start_over()
        reset_after_fork(self, WatchedFolders._forget)

    def _start_over(self) -> None:
        self._lock = threading.Lock()
        self._is_supported = sys.platform == "linux"
        self._system: _System | None = None
        self._events = -1
        self._folders: dict[_Identity, _Folder] = {}
        self._listed: set[_Identity] = set()

    def list_names(self, native: str) -> Sequence[str]:
        """Return the sorted names in a directory."""
        if self._listed and (watched := self._list_watched(native)) is not None:
            return watched
        names = sorted(os.listdir(native))
        if len(names) >= _WATCHED_FROM and self._is_supported:
            # Processes that list a directory once need not watch it.
            if len(self._listed) >= _REMEMBERED_MAX:
                self._listed.clear()
            self._listed.add(_identity(os.stat(native)))
        return names

    def _list_watched(self, native: str) -> Sequence[str] | None:
        """Return the names in a directory that was listed before, or None."""
        with self._lock:
            status = os.stat(native)
            identity = _identity(status)
            if identity not in self._listed:
                return None
            if identity in self._folders:
                self._read_events()
            folder = self._folders.pop(identity, None)
            if folder is None:
                return self._watch(native)
            if folder.modified_ns != status.st_mtime_ns and not folder.has_events:
                self._end(folder)
                return None
            if folder.has_events:
                # Another change since would have events that are read the next time.
                status = os.stat(native)
            folder.modified_ns, folder.has_events = status.st_mtime_ns, False
            self._folders[identity] = folder  # The least recently used one is first.
            return folder.names

    def _watch(self, native: str) -> Sequence[str] | None:
        """Watch and list a directory; return None if it cannot be watched."""
        if self._system is None:
            self._open()
        system = self._system
        if system is None:
            return None
        handle = os.open(native, os.O_RDONLY | os.O_DIRECTORY)
        try:
            if system.file_system(handle) not in _LOCAL_FILE_SYSTEMS:
                return None
            # The path of the handle cannot refer to another directory in the meantime.
            path = f"/proc/self/fd/{handle}".encode()
            watch = system.add_watch(self._events, path, _ADDED | _REMOVED | _ONLY_DIRECTORIES)
            if watch < 0:
                return None
            status = os.fstat(handle)
            # Changes during the listing are part of it or not; their events make it complete.
            folder = _Folder(watch, sorted(os.listdir(handle)), status.st_mtime_ns)
        finally:
            os.close(handle)
        while len(self._folders) >= _WATCHED_MAX:
            self._end(self._folders.pop(next(iter(self._folders))))
        self._folders[_identity(status)] = folder
        return folder.names

    def _open(self) -> None:
        """Open the queue of events, if the system has one."""
        system = _load_system()
        self._events = -1 if system is None else system.start(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0:
            self._is_supported = False
        else:
            self._system = system

    def _read_events(self) -> None:
        by_watch = {folder.watch: identity for identity, folder in self._folders.items()}
        changes: dict[int, list[tuple[str, bool]]] = {}
        while events := _read(self._events):
            position = 0
            while position < len(events):
                watch, kind, _, length = _EVENT.unpack_from(events, position)
                start = position + _EVENT.size
                position = start + length
                if kind & _OVERFLOW:
                    self._end_all()
                    return
                if kind & _ENDED:
                    ended = by_watch.pop(watch, None)
                    if ended is not None:
                        del self._folders[ended]
                elif watch in by_watch:
                    name = os.fsdecode(events[start:position].rstrip(b"\0"))
                    changes.setdefault(watch, []).append((name, bool(kind & _ADDED)))
        for watch, changed in changes.items():
            if watch in by_watch:
                self._folders[by_watch[watch]].apply(changed)

    def _end(self, folder: _Folder) -> None:
        assert self._system is not None, "the folder is watched"
        self._system.remove_watch(self._events, folder.watch)

    def _end_all(self) -> None:
        """Stop watching, after events were lost."""
        for folder in self._folders.values():
            self._end(folder)
        self._folders.clear()

    def _forget(self) -> None:
        """Close the queue in a forked child, which would take events from its parent."""
        if self._events >= 0:
            os.close(self._events)
        self._start_over()


def _identity(status: os.stat_result) -> _Identity:
    return (status.st_dev, status.st_ino)


def _read(handle: int) -> bytes:
    """Return the next events, or nothing if there are none."""
    try:
        return os.read(handle, _EVENTS_BYTES)
    except BlockingIOError:
        return b""


def _load_system() -> _System | None:
    """Return the calls of the C library, or None if it lacks one of them."""
    import ctypes  # noqa: PLC0415 - only for large directories

    try:
        library = ctypes.CDLL(None, use_errno=True)
        statfs = library.fstatfs
        start, add, remove = (
            library.inotify_init1,
            library.inotify_add_watch,
            library.inotify_rm_watch,
        )
    except (OSError, AttributeError):
        return None

    def file_system(handle: int) -> int:
        # The number is the first member of the structure, which has at most 120 bytes.
        result = (ctypes.c_long * 64)()
        return int(result[0]) & 0xFFFF_FFFF if statfs(handle, result) == 0 else -1

    return _System(start, add, remove, file_system)


WATCHED: Final = WatchedFolders()
"""The watched directories of this process."""
