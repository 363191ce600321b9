"""What encodings exchange: rows asked for, blocks of values, pages written and pages read.

The life of a column, both ways:

    Arrow array  --shred-->  levels + Block  --codec-->  buffers of EncodedPages
    Arrow array  <-unravel-  levels + Block  <-codec--   Slices of a StoredPage

A `Block` is what a codec sees: values without nulls, without names, without types beyond their
width. A generation of the format (`v2_0`, `v2_1`, `v2_3`) offers the same three functions,
which is all that the file layer knows of it:

    columns_of(field)              which columns of the file a field owns, in order
    encode_field(array, ...)       pages for each of these columns
    open_field(field, columns)     a FieldReader over stored pages
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Ranges, Reading, Slices
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
        """Return how many rows there are."""
        return self.stop - self.start


@dataclass(frozen=True, slots=True, eq=False)
class RowIndices:
    """Single rows, ascending, each at most once."""

    rows: Int64s

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.rows)


Rows: TypeAlias = RowRange | RowIndices


# --- blocks ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class FixedWidth:
    """`count` values of `bits` bits each, back to back; `bits` is 1 (LSB first) or n x 8."""

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
        """Return how many values there are."""
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
    """A packed struct as the blocks of its children."""

    children: tuple[Block, ...]
    count: int


Block: TypeAlias = FixedWidth | Variable | FixedSizeList | Fields


# --- pages -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """What the writer chose for a page, for `encoding_report()`."""

    path: str
    layout: str
    encoding: str
    raw_bytes: int
    encoded_bytes: int
    refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPages:
    """Pages that were encoded at once and are described alike, ready to be written.

    `fields` are the places of their fields among those that were encoded together; `column`
    counts within the columns of a field (`columns_of`), `first_row` within the rows of its array.
    A page has a buffer of each of `buffers`: page i the slices i. The file layer writes them, each
    at an aligned position, and turns this into column metadata. `encoding` is the serialized
    envelope. `report` says what was chosen, of all pages, when it is asked for.
    """

    fields: Sequence[int]
    column: int
    first_row: int
    length: int
    buffers: tuple[Slices, ...]
    encoding: bytes
    report: Callable[[], Sequence[ColumnChoice]]


@dataclass(frozen=True, slots=True, eq=False)
class StoredPage:
    """A page as column metadata describes it; `first_row` is the sum of the lengths before."""

    first_row: int
    length: int
    position: Int64s
    size: Int64s
    encoding: bytes
    priority: int


@dataclass(frozen=True, slots=True, eq=False)
class StoredColumn:
    """A column as its metadata describes it."""

    index: int
    encoding: bytes
    pages: Sequence[StoredPage]
    buffer_position: Int64s
    buffer_size: Int64s
    items: StoredColumn | None = None
    """In 2.0, the next column, if no field owns it: the bytes of strings, for early writers."""


class BlobSink(Protocol):
    """Where bytes go that live outside of pages."""

    def write_inline(self, data: Bytes) -> int:
        """Write bytes into the data file, aligned, and return their position in it."""

    def write_packed(self, data: Bytes) -> tuple[int, int]:
        """Write bytes into a shared sidecar; return its blob id and the position in it."""

    def write_dedicated(self, data: Bytes) -> int:
        """Write bytes into a sidecar of their own and return its blob id."""


class Memo(Protocol):
    """A cache of what was prepared from a page's head, such as chunk positions."""

    def get(self, key: tuple[int, int], kind: type[T]) -> T | None:
        """Return what was kept under `(column index, page index)`."""

    def put(self, key: tuple[int, int], value: Any, *, value_bytes: int) -> None:
        """Keep a value, or not, as the budget allows."""


class FieldReader(Protocol):
    """Reads rows of one top-level field; holds no bytes of the file and does no I/O.

    What has an answer here need not be known by every generation.
    """

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of what is read: the storage type of the (projected) field."""

    @property
    def num_rows(self) -> int:
        """How many rows the field has in this file."""

    def read(self, rows: Rows) -> Reading[pa.Array]:
        """Read rows, in order, as one array.

        At most two rounds of ranges for 2.1 and later: the heads of pages that the memo does
        not hold, then the data.
        """

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""

    def places(self, rows: Int64s) -> Ranges | None:  # noqa: ARG002
        """Return where ascending rows are that are kept as Arrow has them, or None."""
        return None
