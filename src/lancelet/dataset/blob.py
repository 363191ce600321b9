"""Blobs: the methods that read them, the files that they are, and columns of them."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.dataset.arguments import whole_numbers
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.query.blobs import BlobExtent, find_blobs, read_blobs, slice_extent
from lancelet.query.data_types import is_bytes
from lancelet.query.take import RowNotFoundError, addresses_at, live_addresses
from lancelet.rowids.address import UInt64s

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle

DEFAULT_BLOB_BUFFER_SIZE: Final = 512 * 1024


class BlobFile(io.BufferedIOBase):
    """A blob that reads like a file; made by `LanceDataset.take_blobs`."""

    def __init__(self, inner: BlobExtent, buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE) -> None:
        """Read ahead by so many bytes; 0 reads just what is asked for."""
        if buffer_size < 0:
            raise InvalidInputError("buffer_size must be non-negative", found=buffer_size)
        self._raw = _RawBlob(inner.with_size())
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

    def __init__(self, place: BlobExtent) -> None:
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
        found = read_blobs([slice_extent(self._place, position, size) for position, size in ranges])
        return [data for data in found if data is not None]

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


class BlobIterator:
    """Yields binary values as files; None for null."""

    def __init__(self, binary_iter: Iterator[pa.BinaryScalar]) -> None:
        """Take values of Arrow."""
        self._values = binary_iter

    def __iter__(self) -> BlobIterator:
        """Return itself."""
        return self

    def __next__(self) -> IO[bytes] | None:
        """Return the next value."""
        value = next(self._values).as_py()
        return None if value is None else io.BytesIO(value)


class BlobColumn:
    """A binary column whose values are read as files."""

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        """Take a column of binary values."""
        if not isinstance(blob_column, pa.Array | pa.ChunkedArray):
            raise InvalidInputError(
                "Expected a pyarrow.Array or pyarrow.ChunkedArray", found=str(type(blob_column))
            )
        if not is_bytes(blob_column.type):
            raise InvalidInputError("Expected a binary array", found=str(blob_column.type))
        self._column = blob_column

    def __iter__(self) -> BlobIterator:
        """Yield the values."""
        return BlobIterator(iter(self._column))


_SELECTORS: Final = ("ids", "addresses", "indices")


class _Rows(NamedTuple):
    numbers: Int64s
    addresses: UInt64s


class DeletedRowError(RowNotFoundError, UnsupportedError):
    """Blobs are asked for of rows that are gone."""


class BlobMethods:
    """Reads blobs of the version that a dataset looks at."""

    _handle: Handle

    def take_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE,
    ) -> list[BlobFile | None]:
        """Return blobs as file objects; bytes are read on demand.

        Args:
            blob_column: The path of the column.
            ids: The row ids.
            addresses: Or the row addresses.
            indices: Or the row indices among the live rows.
            buffer_size: The read-ahead of each file in bytes; 0 for none.

        Returns:
            A `BlobFile` per row; None where the value is null.

        Raises:
            FieldNotFoundError: If there is no such column.
            IndexError: If a row index is out of range.

        Example:
            ```python
            with images.take_blobs("image", indices=[1])[0] as file:
                file.read()  # b"two"
            ```
        """
        rows = self._rows_of(ids, addresses, indices)
        return [
            None if place is None else BlobFile(place, buffer_size)
            for place in find_blobs(self._handle.snapshot, blob_column, rows.addresses)
        ]

    def read_blobs(
        self,
        blob_column: str,
        ids: Any = None,
        addresses: Any = None,
        indices: Any = None,
        *,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, bytes | None]]:
        """Read whole blobs.

        Args:
            blob_column: The path of the column.
            ids: The row ids.
            addresses: Or the row addresses.
            indices: Or the row indices among the live rows.
            io_buffer_size: Has no effect: blobs of one file are read together.
            preserve_order: Has no effect: the order is always kept.

        Returns:
            The row address and the bytes of each row; None for null.

        Raises:
            FieldNotFoundError: If there is no such column.
            IndexError: If a row index is out of range.

        Example:
            ```python
            images.read_blobs("image", indices=[0, 1])
            ```
        """
        del preserve_order
        _check_buffer(io_buffer_size)
        rows = self._rows_of(ids, addresses, indices)
        found = read_blobs(find_blobs(self._handle.snapshot, blob_column, rows.addresses))
        return list(zip(rows.addresses.tolist(), found, strict=True))

    def read_blob_ranges(
        self,
        blob_column: str,
        requests: Sequence[tuple[int, int, int]],
        *,
        selector: str,
        io_buffer_size: int | None = None,
        preserve_order: bool | None = None,
    ) -> list[tuple[int, int, bytes | None]]:
        """Read byte ranges of blobs.

        Args:
            blob_column: The path of the column.
            requests: Row, offset and length of each range.
            selector: What the rows are given by: `ids`, `addresses` or `indices`.
            io_buffer_size: Has no effect: ranges of one file are read together.
            preserve_order: Has no effect: the order is always kept.

        Returns:
            The index of the request, the row address and the bytes of each range.

        Raises:
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            images.read_blob_ranges("image", [(0, 1, 2)], selector="indices")  # b"ne"
            ```
        """
        del preserve_order
        _check_buffer(io_buffer_size)
        if selector not in _SELECTORS:
            raise InvalidInputError(f"selector must be one of {_SELECTORS}, got {selector!r}")
        chosen = dict.fromkeys(_SELECTORS) | {selector: [row for row, _, _ in requests]}
        rows = self._rows_of(**chosen)
        places = find_blobs(self._handle.snapshot, blob_column, rows.addresses)
        parts = [
            None if place is None else slice_extent(place, offset, length)
            for place, (_, offset, length) in zip(places, requests, strict=True)
        ]
        found = read_blobs(parts)
        return list(zip(range(len(found)), rows.addresses.tolist(), found, strict=True))

    def _rows_of(self, ids: Any, addresses: Any, indices: Any) -> _Rows:
        given = [each for each in (ids, addresses, indices) if each is not None]
        if len(given) != 1:
            raise InvalidInputError("Exactly one of ids, indices, or addresses must be specified")
        numbers = whole_numbers(given[0])
        snapshot = self._handle.snapshot
        if indices is not None:
            return _Rows(numbers, addresses_at(snapshot, numbers))
        wanted = numbers.astype(np.uint64)
        if addresses is not None and snapshot.manifest.uses_stable_row_ids:
            return _Rows(numbers, wanted)
        found = live_addresses(snapshot, wanted)
        if len(found) < len(wanted):
            raise DeletedRowError(
                f"Expected {len(wanted)} rows, got {len(found)}. A take operation that includes "
                "row addresses must not target deleted rows",
                asked=len(wanted),
                found=len(found),
            )
        return _Rows(numbers, found)


def _check_buffer(io_buffer_size: int | None) -> None:
    if io_buffer_size is not None and io_buffer_size < 1:
        raise InvalidInputError("io_buffer_size must be greater than 0", found=io_buffer_size)
