"""Interface of the scalar index kinds, in terms of row numbers and files.

A row number is a stable row id or a row address. Training receives values with row numbers, and
queries return sets of row numbers. A kind has no access to table versions or fragment metadata.

    train     rows -> files              open      files -> segment
    merge     segments, rows -> files    remap     segment, moves -> files
    segment   query -> SearchResult(rows, is_exact)

An inexact result contains all matching rows and possibly others, which must be rechecked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import OneOf, ScalarQuery
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import dataclass

Move: TypeAlias = Callable[[UInt64s], UInt64s]
"""Maps old row numbers to new ones, `NO_ADDRESS` for deleted rows."""

Progress: TypeAlias = Callable[[str, int, int], None]
"""Receives the stage of a build, the units completed, and the total."""


def silent(stage: str, done: int, total: int) -> None:
    """Ignore the progress."""


@dataclass(frozen=True, slots=True, eq=False)
class IndexedRows:
    """Values to index and their row numbers, in table order.

    If the rows come from a table, `parts` can be iterated repeatedly and `num_rows` is their count.
    Kinds with `reports_progress` report to `progress`.
    """

    data_type: pa.DataType
    parts: Iterable[tuple[pa.Array, UInt64s]]
    num_rows: int = 0
    progress: Progress = silent


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The result of a query. If it is not exact, it may contain rows that do not match."""

    rows: RowSet
    is_exact: bool = True


def gather(rows: IndexedRows) -> tuple[pa.Array, UInt64s]:
    """Return all rows as one array of values and one of row numbers."""
    values: list[pa.Array] = [pa.array([], rows.data_type)]
    numbers: list[UInt64s] = [np.empty(0, np.uint64)]
    for array, part_numbers in rows.parts:
        values.append(array)
        numbers.append(part_numbers)
    return pa.concat_arrays(values), np.concatenate(numbers)


def indexed_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type used to index values: the storage type if it is ordered.

    >>> indexed_type(pa.uuid())
    FixedSizeBinaryType(fixed_size_binary[16])
    """
    if not isinstance(data_type, pa.BaseExtensionType) or isinstance(data_type, pa.JsonType):
        return data_type
    storage = data_type.storage_type
    return storage if is_ordered_type(storage) else data_type


def is_ordered_type(data_type: pa.DataType) -> bool:
    """Return whether indices can order values of a type."""
    return not (
        pa.types.is_nested(data_type)
        or pa.types.is_dictionary(data_type)
        or pa.types.is_null(data_type)
        or isinstance(data_type, pa.BaseExtensionType)
    )


def is_byte_strings(data_type: pa.DataType) -> bool:
    """Return whether a type is string or binary with variable-length values."""
    return data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


@dataclass(frozen=True, slots=True)
class Parameters:
    """Options of an index as given by the caller."""

    values: Mapping[str, Any] = field(default_factory=dict, hash=False)


class IndexTypeError(InvalidInputError, TypeError):
    """The index kind does not support the type of the column."""


class Segment(Protocol):
    """An open segment. Safe for concurrent use."""

    def estimate(self, query: ScalarQuery) -> int | None:
        """Return the estimated number of matching rows, or None if the query is not supported.

        The estimate uses data in memory only.
        """

    def search(self, query: ScalarQuery) -> SearchResult:
        """Return the rows that match a supported query."""

    def nulls(self) -> RowSet | None:
        """Return the rows that are null, or None if the segment does not record them."""

    def statistics(self) -> dict[str, Any]:
        """Return descriptive statistics of the segment."""


@runtime_checkable
class SupportsCount(Protocol):
    """A segment that counts matching rows without materializing them."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    def count(self, query: ScalarQuery) -> int | None:
        """Return the number of matching rows, or None if the query is not supported."""


@runtime_checkable
class SupportsRowLookup(Protocol):
    """A segment that returns the rows of a few values without building a row set."""

    def lookup_rows(self, query: OneOf, limit: int) -> UInt64s | None:
        """Return the matching row numbers in any order, or None if there are more than `limit`."""


@runtime_checkable
class SupportsReadEstimates(Protocol):
    """A segment whose searches read data that estimates do not."""

    def estimate_reads(self, query: ScalarQuery) -> IoCounts:
        """Return the estimated reads of a search; zero if its data is in memory."""


@runtime_checkable
class HasDataType(Protocol):
    """A segment with values of a single type."""

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values."""


@runtime_checkable
class SupportsRowNumbers(Protocol):
    """A segment with an entry for every row, nulls included."""

    def numbers(self) -> UInt64s:
        """Return the numbers of all rows, in any order."""


@runtime_checkable
class SupportsSortedEntries(Protocol):
    """A segment with entries sorted by value."""

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values."""

    def sorted_entries(self, count: int, *, ascending: bool) -> tuple[pa.Array, UInt64s]:
        """Return the values and row numbers of the first or last `count` non-null entries."""


@runtime_checkable
class SupportsPrewarm(Protocol):
    """A segment that caches data and can load it before the first query."""

    def prewarm(self) -> None:
        """Load the data that queries need into the cache."""


@runtime_checkable
class SupportsEntries(Protocol):
    """A segment that can list its entries."""

    def entries(self) -> tuple[pa.Array, UInt64s]:
        """Return the value and row number of each entry."""


S = TypeVar("S", bound=Segment)


class ScalarKind(Protocol[S]):
    """An index kind with segments of class `S`. Base class of all kinds."""

    name: str
    """The name used to create an index, such as `BTREE`."""
    title: str
    """The name in listings, such as `BTree`."""
    type_url: str
    """The type URL of the index details in the metadata."""
    newest_version: int
    """The newest file version that this release reads."""
    unsupported_message: str = "this index type does not support the column"
    """The error message for columns of unsupported types."""
    written_version: int = 0
    """The file version to write. Most kinds write 0, which stores stable row ids."""
    addresses_since: int | None = 1
    """The first file version that stores row addresses even in tables with stable row ids."""
    can_remap: bool
    """Whether segments can be remapped to new row numbers without reading the column."""
    supports_deferred_remap: bool = True
    """Whether all readers can apply row moves that were recorded after the index was built."""
    reports_progress: bool = False
    """Whether training reports the progress of its own stages."""
    accepts_nested_lists: bool = False
    """Whether the kind indexes fields nested in a list. The values are then lists."""
    json_path: str | None = None
    """The JSON path of the indexed values, for kinds that index parts of documents."""
    reads_json_text: bool = False
    """Whether the kind receives JSON columns as text; otherwise in their storage format."""

    def indexed_type(self, data_type: pa.DataType) -> pa.DataType:
        """Return the type used to index a column."""
        value_type = indexed_type(data_type)
        is_stored = isinstance(value_type, pa.JsonType) and not self.reads_json_text
        return pa.large_binary() if is_stored else value_type

    def with_parameters(self, parameters: Parameters) -> AnyKind:  # noqa: ARG002
        """Return the kind configured by parameters; by default itself."""
        return self

    def with_details(self, details: bytes) -> AnyKind | None:  # noqa: ARG002
        """Return the kind configured by details, or None if they name an unknown kind."""
        return self

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return the file version to write for a table."""
        return self.written_version

    def uses_addresses(self, version: int) -> bool:
        """Return whether row numbers are addresses even in tables with stable row ids."""
        return self.addresses_since is not None and version >= self.addresses_since

    def is_exact(self, query: ScalarQuery) -> bool:  # noqa: ARG002
        """Return whether results for a query are exact. If not, the rows must be rechecked."""
        return True

    def describe(self, details: bytes) -> dict[str, Any]:  # noqa: ARG002
        """Return the details as a dictionary; empty for most kinds."""
        return {}

    def name_suffix(self, parameters: Parameters) -> str:  # noqa: ARG002
        """Return the suffix of a default index name."""
        return "idx"

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether a type can be indexed; by default if it is ordered."""
        return is_ordered_type(data_type)

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise if columns of a type cannot be indexed."""
        if not self.supports_type(data_type):
            raise IndexTypeError(self.unsupported_message, column=column, found=str(data_type))

    def infer_parameters(self, details: bytes, segment: S | None) -> Parameters:  # noqa: ARG002
        """Return parameters that reproduce a segment. `segment` is None if it has no rows."""
        return Parameters(self.describe(details))

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Write the files of a new segment and return its details."""

    def append(
        self,
        segment: S,  # noqa: ARG002 - for kinds whose segments share what was trained
        rows: IndexedRows,
        folder: SegmentFolder,
        parameters: Parameters,
    ) -> bytes:
        """Write an additional segment for new rows and return its details."""
        return self.train(rows, folder, parameters)

    def open(self, folder: SegmentFolder, details: bytes) -> S:
        """Open a segment."""

    def merge(
        self,
        segments: Sequence[S],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Merge segments, renumbered by `moves`, with new rows."""

    def remap(self, segment: S, move: Move, folder: SegmentFolder) -> bytes | None:
        """Write a segment with new row numbers. Return None if retraining is required."""
        if not self.can_remap:
            return None
        data_type = segment.data_type if isinstance(segment, HasDataType) else pa.string()
        return self.merge([segment], [move], IndexedRows(data_type, ()), folder)


AnyKind: TypeAlias = ScalarKind[Any]
"""A kind with any class of segments."""
