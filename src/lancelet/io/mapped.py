"""Memory-mapped reads of local files.

The whole file is mapped. Decoders use the map directly (`mapped`), so reading cached pages is free;
callers that retain bytes get a copy (`read_ranges`).

    a.lance   ....AAAA......BB....
    map       the file; positions 4 and 14 are accessed
    ByteSlices    source = "AAAABB", position [0, 4], size [4, 2]

The file descriptor is closed after mapping (`kernels.map_file`): a process is often limited to
1,024 open files, but a table may have a hundred thousand.

A page that is not in the page cache is read from disk on access, one at a time, while the thread
blocks. All pages of a request are therefore prefetched (`kernels.read_ahead`), each page once.
Prefetching costs nothing if the pages are cached, and lets the disk read them concurrently if not.
Large requests are prefetched in the background, so decoding starts with the first pages.

Accessed pages count as resident memory of the process while the file is mapped, and files remain
mapped between tasks. A worker that has read many files would appear to use as much memory as their
total size, and some cluster managers terminate it. `forget_mapped_pages` unmaps all pages at the
end of a task; they remain in the page cache.

Files of a dataset are immutable, but copies may be interrupted and disks restored, and a mapped
file may be truncated. Reads beyond its end then return zeros (`kernels.map_file` prevents the
fault), so every read compares the file size with the initial one afterwards. For the same reason,
retained data must not reference the map.

Without the native module, accessing a truncated map would crash the process. The file is then held
open and its ranges are requested as from other stores (`OpenedReader`).
"""

from __future__ import annotations

import os
import stat
import weakref
from collections.abc import Hashable
from typing import Final

import numpy as np

from lancelet import surroundings
from lancelet.buffers import ByteRanges, Bytes, ByteSlices
from lancelet.errors import CorruptDataError
from lancelet.io.ranged import RangedReader
from lancelet.io.store import MappedObject, ObjectReader, Store, check_ranges, not_found
from lancelet.kernels import map_file, release_pages

_PAGE_BYTES: Final = 4096
"""Size in bytes of a page of the page cache; each page is prefetched once."""

_SECOND_NS: Final = 1_000_000_000
_CLOCK_NS: Final = 100_000_000
"""Interval within which two changes of a file may have the same time."""

_READERS: Final[dict[int, weakref.ref[MappedReader]]] = {}
"""The open readers by id."""


def forget_mapped_pages() -> None:
    """Remove the pages of all mapped files from the resident memory of this process.

    The pages are mapped again from the page cache on the next access.
    """
    # The copy is atomic, even if other threads open or close readers.
    for reference in _READERS.copy().values():
        reader = reference()
        if reader is not None:
            reader.release_pages()


class MappedReader(ObjectReader):
    """Returns slices of a memory-mapped file."""

    def __init__(self, path: str, native: str) -> None:
        """Map the file `native`, which has the path `path` in the store."""
        self._path, self._native = path, native
        self._source = np.empty(0, np.uint8)
        self._prefetched = np.empty(0, np.uint8)
        handle = os.open(native, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode):
                raise not_found(path)
            self._size = status.st_size
            self._identity = identity_of(status)
            self._inode = (status.st_dev, status.st_ino)
            # An empty file cannot be mapped.
            if self._size:
                self._source = map_file(handle, self._size)
                self._prefetched = np.zeros(-(-self._size // _PAGE_BYTES), np.uint8)
                key = id(self)
                _READERS[key] = weakref.ref(self, lambda _: _READERS.pop(key, None))
        finally:
            os.close(handle)

    @property
    def path(self) -> str:
        """The path of the file in the store."""
        return self._path

    @property
    def size(self) -> int:
        """The file size in bytes when it was opened."""
        return self._size

    @property
    def identity(self) -> Hashable | None:
        """Identity and last change of the file; None if it changed too recently."""
        return self._identity

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        """Return a copy of byte ranges."""
        mapped = self.mapped()
        if mapped is None:
            check_ranges(ranges, path=self._path, size=self._size)
            return ByteSlices(self._source, ranges.position, ranges.size)
        return mapped.fetch_copy(ranges)

    def read_tail(self, size: int) -> Bytes:
        """Return a copy of the last `size` bytes."""
        tail = self._source[max(0, self._size - size) :].copy()
        self._check_intact()
        return tail

    def mapped(self) -> MappedObject | None:
        """Return the map, or None for an empty file."""
        if not len(self._source):
            return None
        return MappedObject(
            self._path,
            self._source,
            self._prefetched,
            is_intact=self._is_intact,
            check_intact=self._check_intact,
            release_pages=self.release_pages,
        )

    def release_pages(self) -> None:
        """Remove the pages of the map from the resident memory of this process."""
        release_pages(self._source)

    def close(self) -> None:
        """Release the map; it is unmapped with the last array that references it."""
        self._source = np.empty(0, np.uint8)
        self._size = 0

    def _check_intact(self) -> None:
        truncated_size = self._truncated_size()
        if truncated_size is not None:
            raise _truncation_error(self._path, self._size, truncated_size)

    def _is_intact(self) -> bool:
        # A closed reader has size 0 and must not be treated as intact.
        return self._size > 0 and self._truncated_size() is None

    def _truncated_size(self) -> int | None:
        """Return the file size if the file was truncated, or None."""
        if not self._size:
            return None
        try:
            status = os.stat(self._native)  # noqa: PTH116  # a path object costs more than the call
        except OSError:
            # An unlinked file retains its content while it is mapped.
            return None
        is_truncated = status.st_size < self._size and (status.st_dev, status.st_ino) == self._inode
        return status.st_size if is_truncated else None


class OpenedReader(RangedReader):
    """Reads ranges of a file that remains open."""

    def __init__(self, store: Store, path: str, native: str) -> None:
        """Open the file `native`, which has the path `path` in the store."""
        self._file: _OpenFile | None = _OpenFile(native)
        status = os.fstat(self._file.handle)
        if not stat.S_ISREG(status.st_mode):
            raise not_found(path)
        super().__init__(store, path, status.st_size)
        self._identity = identity_of(status)

    @property
    def identity(self) -> Hashable | None:
        """Identity and last change of the file; None if it changed too recently."""
        return self._identity

    def get(self, position: int, size: int) -> bytes:
        """Return the bytes of a range.

        Raises:
          CorruptDataError: If the file was truncated.
        """
        file, parts = self._file, []
        if file is None:
            return b""
        while size and (part := os.pread(file.handle, size, position)):
            parts.append(part)
            position, size = position + len(part), size - len(part)
        file_bytes = os.fstat(file.handle).st_size
        if file_bytes < self.size:
            raise _truncation_error(self._path, self.size, file_bytes)
        return b"".join(parts)

    def close(self) -> None:
        """Release the file; it is closed after the last pending read."""
        self._file, self._size = None, 0


class _OpenFile:
    """An open file descriptor, closed when the last reference is dropped."""

    def __init__(self, native: str) -> None:
        self.handle = os.open(native, os.O_RDONLY)
        weakref.finalize(self, os.close, self.handle)


def _truncation_error(path: str, size: int, file_bytes: int) -> CorruptDataError:
    return CorruptDataError(
        "the file was truncated or overwritten after it was opened",
        path=path,
        bytes_at_opening=size,
        file_bytes=file_bytes,
    )


def identity_of(status: os.stat_result) -> Hashable | None:
    """Return a value that identifies a file and changes when it is modified, or None.

    File system clocks tick every few milliseconds, some every second or two. A file changed within
    the last tick could be changed again with the same times, so it has no identity yet.
    """
    changed = max(status.st_mtime_ns, status.st_ctime_ns)
    is_coarse = changed % _SECOND_NS == 0
    if surroundings.time_ns() - changed < (3 * _SECOND_NS if is_coarse else _CLOCK_NS):
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
