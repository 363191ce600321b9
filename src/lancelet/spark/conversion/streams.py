"""Objects of any store as Python files, which is how other libraries read and write them."""

from __future__ import annotations

import io
from typing import Any

from lancelet.buffers import Ranges
from lancelet.io.store import ObjectReader, ObjectWriter


class StoredFile(io.RawIOBase):
    """An object that reads like a file, from anywhere."""

    def __init__(self, reader: ObjectReader) -> None:
        """Read from the start; closing closes the reader."""
        self._reader = reader
        self._position = 0

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._reader.size}
        self._position = max(0, start[whence] + offset)
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill a buffer with the bytes from the position on, as far as there are any."""
        view = memoryview(buffer).cast("B")
        size = max(0, min(len(view), self._reader.size - self._position))
        if size:
            found = self._reader.read_ranges(Ranges.of((self._position, size)))
            view[:size] = found.slice_bytes(0).data
            self._position += size
        return size

    def close(self) -> None:
        """Close the reader."""
        if not self.closed:
            self._reader.close()
        super().close()


class UnfinishedFile(io.RawIOBase):
    """An object that is written like a file; nobody sees it before it is closed."""

    def __init__(self, writer: ObjectWriter) -> None:
        """Write from the start."""
        self._writer = writer

    def writable(self) -> bool:
        """Say that it can be written."""
        return True

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._writer.position

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._writer.write(data)
        return memoryview(data).nbytes
