"""Blobs as files: read on demand, in any order, while the rest stays where it is."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lancelet.errors import InvalidInputError
from lancelet.query.blobs import BlobPlace, read_part

DEFAULT_BLOB_BUFFER_SIZE: Final = 512 * 1024


class BlobFile(io.BufferedIOBase):
    """A blob that reads like a file; made by `LanceDataset.take_blobs`."""

    def __init__(self, inner: BlobPlace, buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE) -> None:
        """Read ahead by so many bytes; 0 reads just what is asked for."""
        if buffer_size < 0:
            raise InvalidInputError("buffer_size must be non-negative", found=buffer_size)
        self._raw = _RawBlob(inner.measured())
        self._stream: Any = io.BufferedReader(self._raw, buffer_size) if buffer_size else self._raw

    def close(self) -> None:
        """Give up what was read ahead."""
        self._stream.close()

    @property
    def closed(self) -> bool:
        """Whether the file was closed."""
        return bool(self._stream.closed)

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def seekable(self) -> bool:
        """Say that it can be read from anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position; behind the end there is nothing to read."""
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Return the position."""
        return int(self._stream.tell())

    def size(self) -> int:
        """Return how many bytes the blob has."""
        return self._raw.size

    def read(self, size: int | None = -1) -> bytes:
        """Return the bytes from the position on, at most `size`."""
        return bytes(self._stream.read(-1 if size is None else size))

    def read1(self, size: int = -1) -> bytes:
        """Return bytes with one request at most."""
        return self.read(size)

    def readall(self) -> bytes:
        """Return all bytes from the position on."""
        return self.read()

    def readinto(self, b: Any) -> int:
        """Fill a buffer from the position on, and return how many bytes there were."""
        return int(self._stream.readinto(b))

    def read_range(self, offset: int, length: int) -> bytes:
        """Return a part of the blob; the position stays."""
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return parts of the blob, given as offset and length; the position stays."""
        return self._raw.parts(ranges)

    def __repr__(self) -> str:
        """Show the size."""
        return f"<BlobFile size={self.size()}>"


class _RawBlob(io.RawIOBase):
    """A blob without any reading ahead."""

    def __init__(self, place: BlobPlace) -> None:
        self._place = place
        self.size = place.size or 0
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if start is None:
            raise InvalidInputError("a position is counted from 0, 1 or 2", whence=whence)
        if start + offset < 0:
            raise InvalidInputError(f"negative seek value {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def parts(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._check_open()
        return read_part(
            self._place, [position for position, _ in ranges], [size for _, size in ranges]
        )

    def readinto(self, buffer: Any) -> int:
        self._check_open()
        target = np.frombuffer(buffer, np.uint8)
        count = max(0, min(len(target), self.size - self._position))
        if count:
            data = self.parts([(self._position, count)])[0]
            target[:count] = np.frombuffer(data, np.uint8)
            self._position += count
        return count

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidInputError("read of closed file")
