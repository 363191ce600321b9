"""What every reader of a data file offers, whatever the generation of the file.

A data file is columns of rows. Fields are asked for as (pruned) trees of the schema, rows as
a range or as single rows; what comes back are Arrow arrays, one per field.

    reader.read([city, tags], rows=RowRange(100, 200))        two arrays of 100 values
    reader.read([city], rows=RowIndices(np.array([7, 3, 7])))  three values, in this order

The rows asked for by index may repeat and come in any order; decoders only ever see ascending,
distinct ones (`distinct_rows`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import FileVersion, RowIndices, RowRange, Rows
from lancelet.errors import InvalidInputError
from lancelet.format.schema import Field, Schema
from lancelet.io.metered import IoCounts
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class ZoneStatistics:
    """What is known of a field per zone: `rows_per_zone` rows each, the last zone what remains.

    `minimum` and `maximum` bound the values from below and above; null where nothing is known,
    or where a zone has no value to bound. NaN is in no bounds: `nan_count` says where it occurs,
    and is None for types without it. Strings are cut, so a bound need not be a value.
    """

    rows_per_zone: int
    num_rows: int
    null_count: Int64s
    nan_count: Int64s | None
    minimum: pa.Array
    maximum: pa.Array

    def __len__(self) -> int:
        """Return how many zones there are."""
        return len(self.null_count)

    @property
    def edges(self) -> Int64s:
        """The first row of each zone, and the number of rows behind."""
        starts = np.arange(len(self), dtype=np.int64) * self.rows_per_zone
        return np.append(starts, self.num_rows)

    @property
    def memory_bytes(self) -> int:
        """How much memory they take, about."""
        return 16 * len(self) + int(self.minimum.nbytes + self.maximum.nbytes)

    def as_pages(self) -> PageStatistics:
        """Return the statistics of a file whose zones are its pages."""
        return PageStatistics(
            self.edges, self.null_count, self.nan_count, self.minimum, self.maximum
        )


@dataclass(frozen=True, slots=True, eq=False)
class PageStatistics:
    """What is known of a field per page of its column; see `ZoneStatistics`.

    Page i has the rows from `edges[i]` to `edges[i + 1]`.
    """

    edges: Int64s
    null_count: Int64s
    nan_count: Int64s | None
    minimum: pa.Array
    maximum: pa.Array

    def __len__(self) -> int:
        """Return how many pages there are."""
        return len(self.null_count)

    @property
    def memory_bytes(self) -> int:
        """How much memory they take, about."""
        return 24 * len(self) + int(self.minimum.nbytes + self.maximum.nbytes)


@dataclass(frozen=True, slots=True)
class WriteSummary:
    """What was written to a data file."""

    num_rows: int
    size_bytes: int


class DataFileWriter(Protocol):
    """Writes one data file; nothing is visible before `finish` returns."""

    @property
    def schema(self) -> Schema:
        """The fields that are written."""

    @property
    def placement(self) -> Mapping[int, int]:
        """The column of each field that owns one, by the id of the field."""

    @property
    def num_rows(self) -> int:
        """How many rows were taken so far."""

    def reaches(self, num_bytes: int) -> bool:
        """Whether so many bytes are in the file; rows that wait to be cut do not count."""

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take rows; the columns are found by name, and others are left alone."""

    def finish(self) -> WriteSummary:
        """Write what still waits and the metadata, and make the file visible."""

    def abort(self) -> None:
        """Leave nothing behind."""


class DataFileReader(Protocol):
    """Reads one data file, from as many threads as the caller likes."""

    @property
    def path(self) -> str:
        """The path of the file in its store."""

    @property
    def version(self) -> FileVersion:
        """The version of the format that the file was written in."""

    @property
    def num_rows(self) -> int:
        """How many rows the file has."""

    @property
    def schema(self) -> Schema:
        """The fields that can be read."""

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The ids of the fields that own columns of the file, in the order of the columns."""

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return the values of fields as one array each."""

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        """Return the values of fields as they were decoded, without joining the pieces."""

    def iter_batches(
        self, fields: Sequence[Field], rows: Rows, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield batches in the order of the rows, decoding a few of them ahead.

        Each batch but the last has `batch_size` rows; without one, as many as are decoded at a
        time, which is the cheapest.
        """

    def encoded_bytes(self, fields: Sequence[Field], rows: Rows) -> int:
        """Estimate the bytes that reading these rows would fetch."""

    def estimate_reads(self, fields: Sequence[Field], *parts: Rows) -> IoCounts:
        """Return about what reading some rows, and then others, would ask of storage."""

    def opening_reads(self) -> IoCounts:
        """Return what opening the file once more would ask of storage."""

    def statistics_reads(self) -> IoCounts:
        """Return what was read for statistics of zones so far."""

    def zone_statistics(self, field: Field) -> ZoneStatistics | None:
        """Return what the file knows of a field per zone, or None."""

    def page_statistics(self, field: Field) -> PageStatistics | None:
        """Return what the file knows of a field per page of its column, or None."""

    def close(self) -> None:
        """Give back what the reader holds; arrays that were read stay valid."""


def check_rows(rows: Rows, *, num_rows: int) -> None:
    """Raise unless all rows are in a file of `num_rows` rows.

    >>> check_rows(RowRange(0, 4), num_rows=3)
    Traceback (most recent call last):
    lancelet.errors.InvalidInputError: ... (start=0, stop=4, num_rows=3)
    """
    match rows:
        case RowRange(start, stop):
            if not 0 <= start <= stop <= num_rows:
                raise InvalidInputError(
                    "the range of rows is not within the file",
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
                    "a row is not within the file", row=int(outside[0]), num_rows=num_rows
                )


def distinct_rows(indices: Int64s) -> tuple[RowIndices, Int64s | None]:
    """Return rows ascending and distinct, and where each of `indices` is among them.

    The second value is None when the rows were ascending and distinct already.

    >>> rows, where = distinct_rows(np.array([7, 3, 7]))
    >>> rows.rows.tolist(), where.tolist()
    ([3, 7], [1, 0, 1])
    """
    if len(indices) < 2 or bool((indices[1:] > indices[:-1]).all()):
        return RowIndices(indices), None
    ascending, where = np.unique(indices, return_inverse=True)
    return RowIndices(ascending), where.astype(np.int64)
