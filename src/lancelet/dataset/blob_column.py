"""Binary columns in memory, value by value as files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import IO

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.query.kinds import is_bytes


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
