"""Reading a local file through a map of it.

The file is mapped whole. Who decodes takes the map itself (`mapped`), so that reading warm pages
costs nothing; who keeps bytes gets a copy of them (`read_ranges`).

    a.lance   ....AAAA......BB....
    map       the file, of which positions 4 and 14 are looked at
    Slices    source = "AAAABB", position [0, 4], size [4, 2]

The file itself is not kept open (`kernels.map_file`): a process may have 1,024 open files where
a table has a hundred thousand.

A page that is not in memory is read from the disk when it is touched, one after the other, and
the thread stands still meanwhile. So the system is asked for all pages of a request beforehand
(`kernels.read_ahead`), each page once, which costs nothing the next time and lets the disk
work on all of them at once when they are not. Large requests are asked for in the background, so
that decoding starts with the first pages.

Pages that were looked at count as memory of the process for as long as the file is mapped, and
files stay mapped from task to task. A worker that has read many files would seem to need as much
memory as all of them have bytes, and some clusters end it for that. `forget_mapped_pages` takes
all of them out of the process, at the end of a task; the system still has them.

Files of a dataset are never changed in place, but copies are interrupted and disks restored, and
a file may be cut while it is mapped. Then zeros are read behind its end (`kernels.map_file` sees to
it that this is no fault of the process), so each read compares the file's size with that at opening
after the bytes were looked at. That is also why nothing that is kept may lie in a map.

Without the native module nothing guards a map, and to touch what was cut would end the process.
There the file is kept open and its ranges are requested (`OpenedReader`), as from other stores.
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Hashable
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import Bytes, Ranges, Slices
from lancelet.errors import CorruptDataError
from lancelet.io.ranged import RangedReader
from lancelet.io.store import MappedObject, ObjectReader, Store, check_ranges, not_stored
from lancelet.kernels import forget_pages, map_file

_PAGE_BYTES: Final = 4096
"""What the system's memory of a file is made of; each page is asked for once."""

_SECOND_NS: Final = 1_000_000_000
_CLOCK_NS: Final = 100_000_000
"""Two changes of a file within this may have the same time."""

_READERS: Final[dict[int, weakref.ref[MappedReader]]] = {}
"""The readers there are, by their ids."""


def forget_mapped_pages() -> None:
    """Take the pages of all mapped files out of the memory of this process.

    Nothing else changes: they are mapped again, from the system's memory, when somebody looks.
    """
    # A copy is made in one step, however many readers other threads open or close meanwhile.
    for reference in _READERS.copy().values():
        reader = reference()
        if reader is not None:
            reader.forget_pages()


class MappedReader(ObjectReader):
    """Hands out slices of a map of the file."""

    def __init__(self, path: str, native: str) -> None:
        """Map the file at `native`, whose path in the store is `path`."""
        self._path, self._native = path, native
        self._source = np.empty(0, np.uint8)
        self._known = np.empty(0, np.uint8)
        handle = os.open(native, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise not_stored(path)
            self._size = found.st_size
            self._identity = _identity(found)
            self._place = (found.st_dev, found.st_ino)
            # Nothing can be mapped of an empty file.
            if self._size:
                self._source = map_file(handle, self._size)
                self._known = np.zeros(-(-self._size // _PAGE_BYTES), np.uint8)
                key = id(self)
                _READERS[key] = weakref.ref(self, lambda _: _READERS.pop(key, None))
        finally:
            os.close(handle)

    @property
    def path(self) -> str:
        """The path of the file in its store."""
        return self._path

    @property
    def size(self) -> int:
        """How many bytes the file had when it was opened."""
        return self._size

    @property
    def identity(self) -> Hashable | None:
        """Which file this is, and when it was last changed, unless that was just now."""
        return self._identity

    def read_ranges(self, ranges: Ranges) -> Slices:
        """Return a copy of what ranges hold."""
        mapped = self.mapped()
        if mapped is None:
            check_ranges(ranges, path=self._path, size=self._size)
            return Slices(self._source, ranges.position, ranges.size)
        return mapped.fetch_copy(ranges)

    def read_tail(self, size: int) -> Bytes:
        """Return a copy of the last bytes."""
        tail = self._source[max(0, self._size - size) :].copy()
        self._check_whole()
        return tail

    def mapped(self) -> MappedObject | None:
        """Return the map, unless nothing is mapped."""
        if not len(self._source):
            return None
        return MappedObject(
            self._path,
            self._source,
            self._known,
            is_whole=self._is_whole,
            check_whole=self._check_whole,
            forget_pages=self.forget_pages,
        )

    def forget_pages(self) -> None:
        """Take the pages of the map out of the memory of this process."""
        forget_pages(self._source)

    def close(self) -> None:
        """Let go of the map; it goes away with the last array over it."""
        self._source = np.empty(0, np.uint8)
        self._size = 0

    def _check_whole(self) -> None:
        found = self._shrunk_size()
        if found is not None:
            raise _became_shorter(self._path, self._size, found)

    def _is_whole(self) -> bool:
        # A reader that was closed has no size, and is not read without being asked.
        return self._size > 0 and self._shrunk_size() is None

    def _shrunk_size(self) -> int | None:
        """Return the size of the file if it is smaller than it was."""
        if not self._size:
            return None
        try:
            now = os.stat(self._native)  # noqa: PTH116  # a path object costs more than the call
        except OSError:
            # A file that has no name any more keeps its bytes for as long as it is mapped.
            return None
        is_cut = now.st_size < self._size and (now.st_dev, now.st_ino) == self._place
        return now.st_size if is_cut else None


class OpenedReader(RangedReader):
    """Requests ranges of a file that stays open."""

    def __init__(self, store: Store, path: str, native: str) -> None:
        """Open the file at `native`, whose path in the store is `path`."""
        self._file: _OpenFile | None = _OpenFile(native)
        found = os.fstat(self._file.handle)
        if not stat.S_ISREG(found.st_mode):
            raise not_stored(path)
        super().__init__(store, path, found.st_size)
        self._identity = _identity(found)

    @property
    def identity(self) -> Hashable | None:
        """Which file this is, and when it was last changed, unless that was just now."""
        return self._identity

    def get(self, position: int, size: int) -> bytes:
        """Return the bytes of a range.

        Raises:
            CorruptDataError: The file became shorter.
        """
        file, parts = self._file, []
        if file is None:
            return b""
        while size and (part := os.pread(file.handle, size, position)):
            parts.append(part)
            position, size = position + len(part), size - len(part)
        found = os.fstat(file.handle).st_size
        if found < self.size:
            raise _became_shorter(self._path, self.size, found)
        return b"".join(parts)

    def close(self) -> None:
        """Let go of the file; it is closed with the last read of it."""
        self._file, self._size = None, 0


class _OpenFile:
    """The number of an open file, which nobody else gets while there is a reference to this."""

    def __init__(self, native: str) -> None:
        self.handle = os.open(native, os.O_RDONLY)
        weakref.finalize(self, os.close, self.handle)


def _became_shorter(path: str, size: int, found: int) -> CorruptDataError:
    return CorruptDataError(
        "the file became shorter after it was opened; was it overwritten or cut?",
        path=path,
        bytes_at_opening=size,
        file_bytes=found,
    )


def _identity(found: os.stat_result) -> Hashable | None:
    """Return what tells a file from others and from itself after a change.

    Clocks of file systems tick every few milliseconds, some every second or two. A file that was
    changed within the last tick could be changed once more and keep its times, so it has no
    identity yet.
    """
    changed = max(found.st_mtime_ns, found.st_ctime_ns)
    is_coarse = changed % _SECOND_NS == 0
    if surroundings.time_ns() - changed < (3 * _SECOND_NS if is_coarse else _CLOCK_NS):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
