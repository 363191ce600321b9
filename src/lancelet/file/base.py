"""The protocols of data file readers and writers, common to all file versions.

A reader takes (pruned) fields of the schema and a range or list of rows, and returns one Arrow
array per field.

    reader.read([city, tags], rows=RowRange(100, 200))        two arrays of 100 values
    reader.read([city], rows=RowIndices(np.array([7, 3, 7])))  three values, in this order

Row indices may repeat and may be unordered. `distinct_rows` sorts and deduplicates them for the
decoders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, Self, TypeVar

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import FileVersion, RowIndices, RowRange, Rows
from lancelet.errors import InvalidInputError
from lancelet.file.zones import LeafBounds
from lancelet.format.schema import Field, Schema
from lancelet.io.metered import IoCounts
from lancelet.values import cached_property, dataclass

T = TypeVar("T")


class _Statistics:
    """Values that are computed from statistics and cached with them."""

    def once(self, compute: Callable[[Self], T]) -> T:
        """Return the result of a function; each function is called once."""
        name = f"{compute.__module__}.{compute.__qualname__}"
        found: T | None = vars(self).get(name)
        if found is None:
            found = vars(self).setdefault(name, compute(self))
        return found


@dataclass(frozen=True, eq=False)
class ZoneStatistics(_Statistics):
    """Statistics of a field for each zone of `rows_per_zone` rows; the last zone may be shorter.

    `minimum` and `maximum` are lower and upper bounds. A bound is null if it is unknown or if the
    zone has no values. Bounds exclude NaN; `nan_count` is None for types without NaN. Bounds of
    strings are truncated and need not be values of the zone.
    """

    rows_per_zone: int
    num_rows: int
    null_count: Int64s
    nan_count: Int64s | None
    minimum: pa.Array
    maximum: pa.Array

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.null_count)

    @cached_property
    def edges(self) -> Int64s:
        """The first row of each zone, followed by the number of rows."""
        starts = np.arange(len(self), dtype=np.int64) * self.rows_per_zone
        return np.append(starts, self.num_rows)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory usage in bytes, including values computed from them."""
        return 26 * len(self) + 3 * int(self.minimum.nbytes + self.maximum.nbytes)

    def as_pages(self) -> PageStatistics:
        """Return the statistics as page statistics, for files with one page per zone."""
        return PageStatistics(
            self.edges, self.null_count, self.nan_count, self.minimum, self.maximum
        )


@dataclass(frozen=True, eq=False)
class PageStatistics(_Statistics):
    """Statistics of a field for each page of its column; see `ZoneStatistics`.

    Page i contains the rows from `edges[i]` to `edges[i + 1]`.
    """

    edges: Int64s
    null_count: Int64s
    nan_count: Int64s | None
    minimum: pa.Array
    maximum: pa.Array

    def __len__(self) -> int:
        """Return the number of pages."""
        return len(self.null_count)

    @property
    def memory_bytes(self) -> int:
        """The approximate memory usage in bytes, including values computed from them."""
        return 26 * len(self) + 3 * int(self.minimum.nbytes + self.maximum.nbytes)


class ZoneStatisticsReader(Protocol):
    """Reads the statistics stored in a data file."""

    @property
    def reads(self) -> IoCounts:
        """The requests and bytes read so far."""

    def statistics(self, field: Field) -> ZoneStatistics | None:
        """Return the zone statistics of a field, or None."""

    def page_statistics(self, field: Field, edges: Int64s) -> PageStatistics | None:
        """Return the page statistics of a field, or None; `edges` are the first rows of pages."""


class ZoneStatisticsWriter(Protocol):
    """Collects the statistics of a data file while it is written."""

    def bounds_of(
        self,
        fields: Sequence[Field],
        arrays: Sequence[pa.Array],
        first_rows: Sequence[int],
        pages: Sequence[Mapping[int, Sequence[int]]],
    ) -> list[list[LeafBounds]]:
        """Return the statistics of each field, to be passed to `add`."""

    def add(self, field: Field, bounds: Iterable[LeafBounds]) -> None:
        """Add the statistics of the next values of a field."""

    def has_zones(self, num_rows: int) -> bool:
        """Return whether a file of `num_rows` rows has statistics."""

    def finish(self, num_rows: int) -> bytes | None:
        """Return the global buffer of the statistics, or None if the file has none."""


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """The number of rows and the size of a written data file."""

    num_rows: int
    size_bytes: int


class DataFileWriter(Protocol):
    """Writes one data file; nothing is visible before `finish` returns."""

    @property
    def schema(self) -> Schema:
        """The schema of the file."""

    @property
    def placement(self) -> Mapping[int, int]:
        """Column indices by field id, for fields that own a column."""

    @property
    def num_rows(self) -> int:
        """The number of rows written so far, including buffered rows."""

    def reaches(self, num_bytes: int) -> bool:
        """Return whether the file has at least `num_bytes` bytes, without buffered rows."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows; columns are matched by name, and additional columns are ignored."""

    def finish(self) -> WriteSummary:
        """Write buffered rows and the metadata, and make the file visible."""

    def abort(self) -> None:
        """Discard the file."""


class DataFileReader(Protocol):
    """Reads one data file. Readers are thread-safe."""

    @property
    def path(self) -> str:
        """The path of the file in its store."""

    @property
    def version(self) -> FileVersion:
        """The version of the file format."""

    @property
    def num_rows(self) -> int:
        """The number of rows."""

    @property
    def schema(self) -> Schema:
        """The schema of the readable fields."""

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The ids of the fields that own a column, in column order."""

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return one array per field."""

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return one chunked array per field, without concatenating the decoded chunks."""

    def iter_batches(
        self, fields: Sequence[Field], rows: Rows, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches in row order, decoding ahead.

        All batches except the last have `batch_size` rows. By default, batches are the decoded
        splits, which avoids copies.
        """

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the encoded bytes of the rows."""

    def estimate_reads(self, fields: Sequence[Field], *parts: Rows) -> IoCounts:
        """Estimate the requests and bytes to read each of `parts`."""

    def opening_reads(self) -> IoCounts:
        """Return the requests and bytes to open the file again."""

    def statistics_reads(self) -> IoCounts:
        """Return the requests and bytes read for zone statistics so far."""

    def zone_statistics(self, field: Field) -> ZoneStatistics | None:
        """Return the zone statistics of a field, or None if the file has none."""

    def page_statistics(self, field: Field) -> PageStatistics | None:
        """Return the page statistics of a field, or None if the file has none."""

    def close(self) -> None:
        """Release the resources of the reader; returned arrays stay valid."""


def check_rows(rows: Rows, *, num_rows: int) -> None:
    """Raise if a row is out of range for a file of `num_rows` rows.

    >>> check_rows(RowRange(0, 4), num_rows=3)
    Traceback (most recent call last):
    lancelet.errors.InvalidInputError: ... (start=0, stop=4, num_rows=3)
    """
    match rows:
        case RowRange(start, stop):
            if not 0 <= start <= stop <= num_rows:
                raise InvalidInputError(
                    "the row range exceeds the file",
                    start=start,
                    stop=stop,
                    num_rows=num_rows,
                )
        case RowIndices(indices):
            if len(indices) == 1:
                low = high = int(indices[0])
            elif len(indices):
                low, high = int(indices.min()), int(indices.max())
            else:
                return
            if low < 0 or high >= num_rows:
                outside = indices[(indices < 0) | (indices >= num_rows)]
                raise InvalidInputError(
                    "a row index exceeds the file", row=int(outside[0]), num_rows=num_rows
                )


def distinct_rows(indices: Int64s) -> tuple[RowIndices, Int64s | None]:
    """Return the sorted distinct rows, and the position of each of `indices` in them.

    The second value is None if `indices` are already strictly ascending.

    >>> rows, where = distinct_rows(np.array([7, 3, 7]))
    >>> rows.rows.tolist(), where.tolist()
    ([3, 7], [1, 0, 1])
    """
    if len(indices) < 2 or bool((indices[1:] > indices[:-1]).all()):
        return RowIndices(indices), None
    ascending, inverse = np.unique(indices, return_inverse=True)
    return RowIndices(ascending), inverse.astype(np.int64)
