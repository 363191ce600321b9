"""Data model shared by all encodings: requested rows, value blocks, encoded and stored pages.

Encoding and decoding of a column:

    Arrow array  --shred-->  levels + Block  --codec-->  buffers of EncodedPages
    Arrow array  <-unravel-  levels + Block  <-codec--   ByteSlices of a StoredPage

Codecs operate on a `Block`: values without nulls, names, or types other than their width. The file
layer calls three functions of each format generation (`v2_0`, `v2_1`, `v2_3`):

    columns_of(field)              columns of the file that belong to a field, in order
    encode_field(array, ...)       pages of each of these columns
    open_field(field, columns)     a FieldReader over stored pages
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s, ReadCoroutine
from lancelet.format.version import FileVersion as FileVersion  # noqa: PLC0414 - part of this contract
from lancelet.values import dataclass

T = TypeVar("T")


# --- rows ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowRange:
    """The rows `start <= row < stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class RowIndices:
    """Strictly ascending row indices."""

    rows: Int64s

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows)


Rows: TypeAlias = RowRange | RowIndices


# --- blocks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FixedWidth:
    """`count` contiguous values of `bits` bits each; `bits` is 1 (LSB first) or a multiple of 8."""

    bits: int
    data: Bytes
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """Byte strings: value i is `data[offsets[i]:offsets[i + 1]]`; offsets are int32 or int64."""

    offsets: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    data: Bytes

    @property
    def count(self) -> int:
        """Return the number of values."""
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True, eq=False)
class FixedSizeList:
    """`count` lists of `dimension` items each; `validity` has a bit per item (1 = valid)."""

    dimension: int
    validity: Bytes | None
    items: Block
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """A packed struct, with one block per child."""

    children: tuple[Block, ...]
    count: int


Block: TypeAlias = FixedWidth | Variable | FixedSizeList | Fields


# --- pages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The encoding chosen for a page, as reported by `encoding_report()`."""

    path: str
    layout: str
    encoding: str
    raw_bytes: int
    encoded_bytes: int
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPages:
    """Pages that were encoded together with the same encoding.

    `fields` are indices into the fields encoded in one call. `column` is relative to the first
    column of the field (`columns_of`), `first_row` to the first row of the array. Page i consists
    of slice i of each of `buffers`. The file layer writes the buffers at aligned positions and
    generates the column metadata. `encoding` is the serialized envelope. `report` computes the
    chosen encodings of all pages.
    """

    fields: Sequence[int]
    column: int
    first_row: int
    length: int
    buffers: tuple[ByteSlices, ...]
    encoding: bytes
    report: Callable[[], Sequence[ColumnChoice]]


@dataclass(frozen=True, slots=True, eq=False)
class StoredPage:
    """A page from the column metadata; `first_row` is the total length of the preceding pages."""

    first_row: int
    length: int
    position: Int64s
    size: Int64s
    encoding: bytes
    priority: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """A column from the column metadata."""

    index: int
    encoding: bytes
    pages: Sequence[StoredPage]
    buffer_position: Int64s
    buffer_size: Int64s
    items: StoredColumn | None = None
    """The next column in 2.0 files, if it belongs to no field: string bytes of early writers."""


class BlobSink(Protocol):
    """Writes blob data outside of pages."""

    def write_inline(self, data: Bytes) -> int:
        """Write bytes into the data file, aligned, and return their position."""

    def write_packed(self, data: Bytes) -> tuple[int, int]:
        """Write bytes into a shared sidecar file; return its blob id and the position."""

    def write_dedicated(self, data: Bytes) -> int:
        """Write bytes into a dedicated sidecar file and return its blob id."""


class HeaderCache(Protocol):
    """A cache of parsed page metadata, such as chunk positions."""

    def get(self, key: tuple[int, int], kind: type[T]) -> T | None:
        """Return the cached value of `(column index, page index)`, or None."""

    def put(self, key: tuple[int, int], value: Any, *, value_bytes: int) -> None:
        """Cache a value if the budget allows."""


class FieldReader(Protocol):
    """Reads rows of one top-level field, without file buffers or I/O.

    Methods with a default implementation are optional for a generation.
    """

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the result: the storage type of the (projected) field."""

    @property
    def num_rows(self) -> int:
        """The number of rows of the field in this file."""

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        """Read rows, in order, as one array.

        At most two rounds of ranges for 2.1 and later: page metadata missing from the cache, then
        the data.
        """

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes fetched to read these rows."""

    @property
    def num_dictionary_items(self) -> int | None:
        """The number of items of the dictionaries of all pages; None if a page has none."""
        return None

    def match(self, rows: RowRange, values: Any) -> ReadCoroutine[npt.NDArray[np.bool_]] | None:  # noqa: ARG002
        """Return whether the value of each row passes a `ValueFilter`, or None if unsupported."""
        return None

    def select(
        self,
        ranges: Sequence[RowRange],  # noqa: ARG002
        values: Any,  # noqa: ARG002
    ) -> ReadCoroutine[tuple[Int64s, pa.Array]] | None:
        """Return the rows that pass a `ValueFilter`, and the values, or None if unsupported.

        Ranges are ascending and not empty.
        """
        return None

    def value_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges] | None:  # noqa: ARG002
        """Return the byte ranges of ascending rows if stored in Arrow layout, else None.

        There are fewer ranges than rows if values are null or damaged.
        """
        return None
