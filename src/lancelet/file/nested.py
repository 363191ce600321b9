"""Files nested in other files: an in-memory writer, and a reader of a range of an object.

    outer   ....|  a whole Lance file  |....
    inner       position 0 is here

Reads of the inner file go through the outer reader, which maps and verifies the bytes.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Fetch
from lancelet.io.metered import IoCounts
from lancelet.io.store import BytesLike, ObjectReader, ObjectWriter, as_memoryview, check_ranges


class BytesWriter(ObjectWriter):
    """Writes to memory."""

    def __init__(self) -> None:
        """Start with an empty buffer."""
        self._data = bytearray()

    @property
    def position(self) -> int:
        """The number of bytes written so far."""
        return len(self._data)

    def write(self, *buffers: BytesLike) -> None:
        """Append bytes."""
        for buffer in buffers:
            self._data += as_memoryview(buffer)

    def to_bytes(self) -> bytes:
        """Return all written bytes."""
        return bytes(self._data)

    def close(self) -> int:
        """Return the number of written bytes."""
        return len(self._data)

    def abort(self) -> None:
        """Discard the written bytes."""
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
        """Retain the written bytes."""


class RangeReader(ObjectReader):
    """Reads a range of an object as a separate object."""

    def __init__(self, fetch: Fetch, *, path: str, position: int, size: int) -> None:
        """Read the `size` bytes at `position` of an object through `fetch`."""
        self._fetch = fetch
        self._path = path
        self._position = position
        self._size = size
        self.reads = IoCounts()
        """The requests and bytes read so far."""

    @property
    def path(self) -> str:
        """The path of the outer object."""
        return self._path

    @property
    def size(self) -> int:
        """The size of the range in bytes."""
        return self._size

    def read_ranges(self, ranges: ByteRanges) -> ByteSlices:
        """Return the bytes of ranges; positions are relative to the start of this range."""
        check_ranges(ranges, path=self._path, size=self._size)
        self.reads += IoCounts(len(ranges), int(ranges.size.sum()))
        return self._fetch(ByteRanges(ranges.position + self._position, ranges.size))

    def read_tail(self, size: int) -> Bytes:
        """Return the last `size` bytes, or all bytes if there are fewer."""
        size = min(size, self._size)
        return self.read_ranges(ByteRanges.of((self._size - size, size))).slice_bytes(0)

    def close(self) -> None:
        """Do nothing; the outer object remains open."""

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Do nothing; the outer object remains open."""
