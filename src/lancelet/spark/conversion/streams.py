"""Objects of any store as Python file objects, for other libraries."""

from __future__ import annotations

import io
from typing import Any

from lancelet.buffers import ByteRanges
from lancelet.io.store import ObjectReader, ObjectWriter


class StoredFile(io.RawIOBase):
    """A seekable file object that reads a stored object."""

    def __init__(self, reader: ObjectReader) -> None:
        """Read from the start; `close` closes the reader."""
        self._reader = reader
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size}
        self._position = max(0, start[whence] + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer and return their number, 0 at the end."""
        view = memoryview(buffer).cast("B")
        size = max(0, min(len(view), self._reader.size - self._position))
        if size:
            found = self._reader.read_ranges(ByteRanges.of((self._position, size)))
            view[:size] = found.slice_bytes(0).data
            self._position += size
        return size

    def close(self) -> None:
        """Close the reader."""
        if not self.closed:
            self._reader.close()
        super().close()


class UnfinishedFile(io.RawIOBase):
    """A file object that writes a stored object, which becomes visible on `close`."""

    def __init__(self, writer: ObjectWriter) -> None:
        """Write from the start."""
        self._writer = writer

    def writable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._writer.position

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._writer.write(data)
        return memoryview(data).nbytes
