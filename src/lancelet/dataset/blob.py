"""Blob files, blob columns, and the methods of a dataset that read blobs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.dataset.arguments import whole_numbers
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.expr.data_types import is_bytes
from lancelet.rowids.address import UInt64s
from lancelet.scan.blobs import BlobExtent, find_blobs, read_blobs, slice_extent
from lancelet.scan.take import RowNotFoundError, addresses_at, live_addresses

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle

DEFAULT_BLOB_BUFFER_SIZE: Final = 512 * 1024


class BlobFile(io.BufferedIOBase):
    """A blob as a binary file; created by `LanceDataset.take_blobs`."""

    def __init__(self, inner: BlobExtent, buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE) -> None:
        """Read ahead by `buffer_size` bytes; 0 disables read-ahead."""
        if buffer_size < 0:
            raise InvalidInputError("buffer_size must be non-negative", found=buffer_size)
        self._raw = _RawBlob(inner.with_size())
        self._stream: Any = io.BufferedReader(self._raw, buffer_size) if buffer_size else self._raw

    def close(self) -> None:
        """Discard the read-ahead buffer."""
        self._stream.close()

    @property
    def closed(self) -> bool:
        """Whether the file is closed."""
        return bool(self._stream.closed)

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; reads after the end return no bytes."""
        return int(self._stream.seek(offset, whence))

    def tell(self) -> int:
        """Return the current position."""
        return int(self._stream.tell())

    def size(self) -> int:
        """Return the size of the blob in bytes."""
        return self._raw.size

    def read(self, size: int | None = -1) -> bytes:
        """Return up to `size` bytes from the current position, by default all."""
        return bytes(self._stream.read(-1 if size is None else size))

    def read1(self, size: int = -1) -> bytes:
        """Return bytes from the current position with at most one request."""
        return self.read(size)

    def readall(self) -> bytes:
        """Return all bytes from the current position."""
        return self.read()

    def readinto(self, b: Any) -> int:
        """Fill a buffer from the current position, and return the number of bytes read."""
        return int(self._stream.readinto(b))

    def read_range(self, offset: int, length: int) -> bytes:
        """Return a byte range of the blob without moving the position."""
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return byte ranges, given as offset and length, without moving the position."""
        return self._raw.parts(ranges)

    def __repr__(self) -> str:
        """Show the size."""
        return f"<BlobFile size={self.size()}>"


class _RawBlob(io.RawIOBase):
    """A blob without read-ahead."""

    def __init__(self, extent: BlobExtent) -> None:
        self._extent = extent
        self.size = extent.size or 0
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.size}.get(whence)
        if start is None:
            raise InvalidInputError("whence must be 0, 1 or 2", whence=whence)
        if start + offset < 0:
            raise InvalidInputError(f"negative seek value {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def parts(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._check_open()
        found = read_blobs(
            [slice_extent(self._extent, position, size) for position, size in ranges]
        )
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
    """Yields binary values as files, and None for nulls."""

    def __init__(self, binary_iter: Iterator[pa.BinaryScalar]) -> None:
        """Iterate over binary scalars."""
        self._values = binary_iter

    def __iter__(self) -> BlobIterator:
        """Return the iterator."""
        return self

    def __next__(self) -> IO[bytes] | None:
        """Return the next value."""
        value = next(self._values).as_py()
        return None if value is None else io.BytesIO(value)


class BlobColumn:
    """A binary column that yields its values as files."""

    def __init__(self, blob_column: pa.Array | pa.ChunkedArray) -> None:
        """Wrap an array of binary values."""
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
    """Blobs of deleted rows were requested."""


class BlobMethods:
    """Methods that read blobs of the checked-out version."""

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
            addresses: The row addresses, as an alternative to `ids`.
            indices: The indices among the live rows, as an alternative to `ids`.
            buffer_size: The read-ahead per file in bytes; 0 disables it.

        Returns:
            A `BlobFile` per row; None where the value is null.

        Raises:
            FieldNotFoundError: If a column does not exist.
            IndexError: If a row index is out of range.

        Example:
            ```python
            with images.take_blobs("image", indices=[1])[0] as file:
                file.read()  # b"two"
            ```
        """
        rows = self._rows_of(ids, addresses, indices)
        return [
            None if extent is None else BlobFile(extent, buffer_size)
            for extent in find_blobs(self._handle.snapshot, blob_column, rows.addresses)
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
        """Read blobs in full.

        Args:
            blob_column: The path of the column.
            ids: The row ids.
            addresses: The row addresses, as an alternative to `ids`.
            indices: The indices among the live rows, as an alternative to `ids`.
            io_buffer_size: Has no effect: reads of one file are coalesced.
            preserve_order: Has no effect: the order is always preserved.

        Returns:
            The row address and the bytes of each row; None for nulls.

        Raises:
            FieldNotFoundError: If a column does not exist.
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
            selector: The kind of row reference: `ids`, `addresses` or `indices`.
            io_buffer_size: Has no effect: reads of one file are coalesced.
            preserve_order: Has no effect: the order is always preserved.

        Returns:
            The index of the request, the row address and the bytes of each range.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

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
        extents = find_blobs(self._handle.snapshot, blob_column, rows.addresses)
        parts = [
            None if extent is None else slice_extent(extent, offset, length)
            for extent, (_, offset, length) in zip(extents, requests, strict=True)
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
        requested = numbers.astype(np.uint64)
        if addresses is not None and snapshot.manifest.uses_stable_row_ids:
            return _Rows(numbers, requested)
        found = live_addresses(snapshot, requested)
        if len(found) < len(requested):
            raise DeletedRowError(
                f"Expected {len(requested)} rows, got {len(found)}. A take operation that includes "
                "row addresses must not target deleted rows",
                requested=len(requested),
                found=len(found),
            )
        return _Rows(numbers, found)


def _check_buffer(io_buffer_size: int | None) -> None:
    if io_buffer_size is not None and io_buffer_size < 1:
        raise InvalidInputError("io_buffer_size must be greater than 0", found=io_buffer_size)
