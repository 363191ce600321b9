"""A file within a file: bytes collected in memory, and a range of an object read as one.

    outer   ....|  a whole Lance file  |....
    inner       position 0 is here

The inner file is read through the outer one, so what is mapped stays mapped and what is verified
is verified.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from lancelet.buffers import Bytes, Fetch, Ranges, Slices
from lancelet.io.metered import IoCounts
from lancelet.io.store import BytesLike, ObjectReader, ObjectWriter, as_memoryview, check_ranges


class BytesWriter(ObjectWriter):
    """Collects what is written, for `to_bytes`."""

    def __init__(self) -> None:
        """Start with nothing."""
        self._data = bytearray()

    @property
    def position(self) -> int:
        """How many bytes were written so far."""
        return len(self._data)

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes."""
        for buffer in buffers:
            self._data += as_memoryview(buffer)

    def to_bytes(self) -> bytes:
        """Return all that was written."""
        return bytes(self._data)

    def close(self) -> int:
        """Return the size; there is nothing to make visible."""
        return len(self._data)

    def abort(self) -> None:
        """Forget what was written."""
        self._data.clear()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bytes where they are."""


class RangeReader(ObjectReader):
    """Reads a range of an object as if it were an object."""

    def __init__(self, fetch: Fetch, *, path: str, position: int, size: int) -> None:
        """Read `size` bytes from `position` on of what `fetch` reads."""
        self._fetch = fetch
        self._path = path
        self._position = position
        self._size = size
        self.reads = IoCounts()
        """What was read of it so far."""

    @property
    def path(self) -> str:
        """The path of the outer object."""
        return self._path

    @property
    def size(self) -> int:
        """How many bytes the range has."""
        return self._size

    def read_ranges(self, ranges: Ranges) -> Slices:
        """Return the bytes of ranges, whose positions count from the start of this range."""
        check_ranges(ranges, path=self._path, size=self._size)
        self.reads += IoCounts(len(ranges), int(ranges.size.sum()))
        return self._fetch(Ranges(ranges.position + self._position, ranges.size))

    def read_tail(self, size: int) -> Bytes:
        """Return the last `size` bytes, or all when there are fewer."""
        size = min(size, self._size)
        return self.read_ranges(Ranges.of((self._size - size, size))).slice_bytes(0)

    def close(self) -> None:
        """Leave the outer object open."""

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the outer object open."""
