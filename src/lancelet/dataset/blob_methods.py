"""The methods of a dataset that read blobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from lancelet.buffers import Int64s
from lancelet.dataset.blob_file import DEFAULT_BLOB_BUFFER_SIZE, BlobFile
from lancelet.dataset.row_numbers import whole_numbers
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.query.blobs import BlobPlace, find_blobs, read_part, read_places
from lancelet.query.take import RowNotFoundError, addresses_at, live_addresses
from lancelet.rowids.address import UInt64s

if TYPE_CHECKING:
    from lancelet.dataset.handle import Handle

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
        found = read_places(find_blobs(self._handle.snapshot, blob_column, rows.addresses))
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
            _part(place, offset, length)
            for place, (_, offset, length) in zip(places, requests, strict=True)
        ]
        return list(zip(range(len(parts)), rows.addresses.tolist(), parts, strict=True))

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


def _part(place: BlobPlace | None, offset: int, length: int) -> bytes | None:
    return None if place is None else read_part(place, [offset], [length])[0]
