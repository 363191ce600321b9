"""The file reader and writer of pylance's `lance.file`: same names, arguments and defaults.

Both take their arguments in the reference's form, turn them into values of the layers below and
delegate. Two things differ on purpose: a writer whose `with` block fails leaves no file, and
damage is found by the checksums that our own files carry. Two things are added: `verify=` says how
much is compared with these checksums, and `encoding_report()` what a writer chose and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from threading import RLock
from types import TracebackType
from typing import Any, Final, Protocol, Self

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import ColumnChoice, RowIndices, RowRange, Rows
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    UnsupportedError,
)
from lancelet.file.base import WriteSummary, check_rows
from lancelet.file.checksums import Verify
from lancelet.file.describe import (
    LanceFileMetadata,
    LanceFileStatistics,
    describe_metadata,
    describe_statistics,
)
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.reader import FileReader
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.io.open import open_store
from lancelet.io.store import Store

_BATCH_ROWS: Final = 1024
_LARGE_BINARY: Final = "large_binary"


class ColumnNotFoundError(FieldNotFoundError, OSError):
    """A reader was asked for a column that the file does not have."""


class NegativeRowError(InvalidInputError, OverflowError):
    """A row or a number of rows is negative."""


class NamespaceClient(Protocol):
    """What a catalog offers that knows where tables are; see `lancelet.namespace`."""

    def describe_table(self, request: Any) -> Any:
        """Return location and storage options of a table."""


def stable_version() -> str:
    """Return the file version that a writer uses unless told otherwise.

    >>> stable_version()
    '2.2'
    """
    return DEFAULT_VERSION.value


class ReaderResults:
    """The rows of a read, as a stream of batches or as one table."""

    def __init__(
        self,
        open_stream: Callable[[], pa.RecordBatchReader],
        read_table: Callable[[], pa.Table],
    ) -> None:
        """Wrap two ways to read the same rows; reading all at once is the cheaper one."""
        self._open_stream = open_stream
        self._read_table = read_table
        self._stream: pa.RecordBatchReader | None = None

    @property
    def reader(self) -> pa.RecordBatchReader:
        """The stream of batches, begun when it is first asked for."""
        if self._stream is None:
            self._stream = self._open_stream()
        return self._stream

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches of the size that was asked for."""
        return self.reader

    def to_table(self) -> pa.Table:
        """Return all rows as a table, whose chunks are as they were decoded."""
        return self._read_table() if self._stream is None else self._stream.read_all()


class LanceFileReader:
    """Reads a data file of version 2.0 or later that is known by its path.

    A data file is a part of a dataset; to read a dataset, open that. Values come as they are
    stored, so JSON columns are binary here.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        storage_options: Mapping[str, str] | None = None,
        columns: Sequence[str] | None = None,
        *,
        namespace_client: NamespaceClient | None = None,
        table_id: Sequence[str] | None = None,
        verify: str = "full",
        _inner_reader: FileReader | None = None,
    ) -> None:
        """Open the file at a path or URI, to read all columns or those named.

        Args:
            path: A path on this machine, or a URI.
            storage_options: Settings of the store, such as credentials.
            columns: Paths of the columns to read, such as `a.b`; None reads all.
            namespace_client: Finds storage options for a table; needs `table_id`.
            table_id: The table's identifier in the namespace.
            verify: How much of what is read is compared with the file's checksums: all of it
                ("full"), a random part ("sample"), nothing ("off"). Each block is verified once.
        """
        if _inner_reader is None:
            if path is None:
                raise InvalidInputError("a reader needs the path of a file")
            store, name = store_of(path, storage_options, namespace_client, table_id)
            _inner_reader = open_file(store, name, verify=verify)
        self._reader = _inner_reader
        self._schema = _schema_as_stored(_inner_reader.schema)
        self._projected = _projection(self._schema, columns)

    def read_all(
        self, *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read every row, in batches of `batch_size`."""
        del batch_readahead  # reading ahead is bounded by bytes, not by batches
        return self._results(RowRange(0, self.num_rows()), batch_size)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read `num_rows` rows from `start` on, in batches of `batch_size`."""
        del batch_readahead
        _check_not_negative(start)
        _check_not_negative(num_rows)
        return self._results(RowRange(start, start + num_rows), batch_size)

    def take_rows(
        self, indices: Sequence[int], *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read single rows; `indices` ascend, each at most once."""
        del batch_readahead
        rows = _whole_numbers(indices)
        if not bool((rows[1:] > rows[:-1]).all()):
            raise InvalidInputError("the indices of rows must ascend, each at most once")
        if len(rows):
            _check_not_negative(int(rows[0]))
        return self._results(RowIndices(rows), batch_size)

    def metadata(self) -> LanceFileMetadata:
        """Return everything that the end of the file says of the rest."""
        return describe_metadata(self._reader, self._schema.to_arrow())

    def file_statistics(self) -> LanceFileStatistics:
        """Return how many pages and bytes each column has."""
        return describe_statistics(self._reader)

    def read_global_buffer(self, index: int) -> bytes:
        """Return the bytes of a global buffer; 0 is the descriptor of the file."""
        _check_not_negative(index)
        return self._reader.global_buffer(index).tobytes()

    def num_rows(self) -> int:
        """Return how many rows the file has."""
        return self._reader.num_rows

    def _results(self, rows: Rows, batch_size: int) -> ReaderResults:
        check_rows(rows, num_rows=self.num_rows())
        return ReaderResults(partial(self._stream, rows, batch_size), partial(self._table, rows))

    def _stream(self, rows: Rows, batch_size: int) -> pa.RecordBatchReader:
        schema = self._arrow_schema
        batches = self._reader.iter_batches(self._projected.fields, rows, batch_size)
        return pa.RecordBatchReader.from_batches(schema, _with_schema(batches, schema))

    def _table(self, rows: Rows) -> pa.Table:
        columns = self._reader.read_chunks(self._projected.fields, rows)
        return pa.Table.from_arrays(columns, schema=self._arrow_schema)

    @cached_property
    def _arrow_schema(self) -> pa.Schema:
        return self._projected.to_arrow()


class LanceFileWriter:
    """Writes a data file of version 2.0 or later, from as many threads as the caller likes.

    Attributes:
        size_bytes: The size of the file, known once it is closed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        schema: pa.Schema | None = None,
        *,
        data_cache_bytes: int | None = None,
        version: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        namespace_client: NamespaceClient | None = None,
        table_id: Sequence[str] | None = None,
        max_page_bytes: int | None = None,
        keep_original_array: bool | None = None,
        _store: tuple[Store, str] | None = None,
    ) -> None:
        """Start a file; without a schema, that of the first batch is used.

        Args:
            path: A path on this machine, or a URI.
            schema: The schema of the rows to come.
            data_cache_bytes: Bytes that may wait in memory for their page to fill; 8 MiB a column.
            version: The file version; `stable_version()` if not given.
            storage_options: Settings of the store, such as credentials.
            namespace_client: Finds storage options for a table; needs `table_id`.
            table_id: The table's identifier in the namespace.
            max_page_bytes: The most bytes of values in a page of 2.0; later versions use 32 MiB.
            keep_original_array: Has no effect; arrays are never copied to be kept.
        """
        del keep_original_array
        if _store is None:
            if path is None:
                raise InvalidInputError("a writer needs the path of a file")
            _store = store_of(path, storage_options, namespace_client, table_id)
        self._store, self._path = _store
        for limit in (data_cache_bytes, max_page_bytes):
            if limit is not None and limit < 0:
                raise InvalidInputError("a number of bytes must not be negative", found=limit)
        if max_page_bytes == 0:
            raise InvalidInputError("max_page_bytes must be at least 1", found=0)
        self._options = WriterOptions(
            version=_version(version),
            data_cache_bytes=data_cache_bytes,
            max_page_bytes=max_page_bytes,
        )
        # Columns are cut into pages one batch at a time; what encodes them runs side by side.
        self._lock = RLock()
        self._metadata: dict[str, str] = {}
        self._buffers: list[bytes] = []
        self._writer: FileWriter | None = None
        self.closed = False
        self.size_bytes: int | None = None
        if schema is not None:
            self._start(schema)

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows."""
        with self._lock:
            self._check_open()
            writer = self._writer or self._start(batch.schema)
            writer.write(batch)

    def close(self) -> int | None:
        """Write the metadata, make the file visible and return its number of rows."""
        with self._lock:
            if self.closed:
                return None
            if self._writer is None:
                raise InvalidInputError(
                    "Schema is unknown and file cannot be created; give a schema or rows",
                    path=self._path,
                )
            summary = self._finish(self._writer)
            self.size_bytes = summary.size_bytes
            return summary.num_rows

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the metadata of the schema."""
        with self._lock:
            self._check_open()
            self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Keep bytes in the file and return the index they can be read by, from 1 on."""
        with self._lock:
            self._check_open()
            if self._writer is not None:
                return self._writer.add_global_buffer(data)
            self._buffers.append(bytes(data))
            return len(self._buffers)

    def encoding_report(self) -> tuple[ColumnChoice, ...]:
        """Return how each page was encoded, what that saved, and what was refused and why.

        Pages are encoded while rows arrive and the last ones by `close`, so the report is complete
        once the file is closed.
        """
        with self._lock:
            return () if self._writer is None else self._writer.encoding_report()

    def __enter__(self) -> Self:
        """Return the writer."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file, or leave none behind if an error passes."""
        if kind is None:
            self.close()
        elif not self.closed:
            self.closed = True
            if self._writer is not None:
                self._writer.abort()

    def _start(self, schema: pa.Schema) -> FileWriter:
        # Binary that asks for blob encoding stays binary in a file on its own; that 2.2 datasets
        # make blob structs of it is theirs to decide.
        self._writer = create_data_file(
            self._store, self._path, Schema.from_arrow(schema), self._options
        )
        for data in self._buffers:
            self._writer.add_global_buffer(data)
        return self._writer

    def _finish(self, writer: FileWriter) -> WriteSummary:
        self.closed = True
        for key, value in self._metadata.items():
            writer.add_schema_metadata(key, value)
        try:
            return writer.finish()
        except BaseException:
            writer.abort()
            raise

    def _check_open(self) -> None:
        if self.closed:
            raise InvalidInputError("the file is closed", path=self._path)


def open_file(store: Store, path: str, *, verify: str) -> FileReader:
    """Open a file that is known by its path alone, which those of 0.1 cannot be."""
    reader = open_data_file(store, path, verify=_verify(verify))
    if not isinstance(reader, FileReader):
        raise UnsupportedError(
            "a file of version 0.1 can only be read as part of its dataset", path=path
        )
    return reader


def store_of(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, str] | None,
    namespace_client: NamespaceClient | None,
    table_id: Sequence[str] | None,
) -> tuple[Store, str]:
    """Return the store that a path or URI is in, and the path there."""
    if (namespace_client is None) != (table_id is None):
        raise InvalidInputError("namespace_client and table_id must be given together")
    if namespace_client is not None:
        described = namespace_client.describe_table({"id": list(table_id or ())})
        storage_options = {**(storage_options or {}), **(described.storage_options or {})}
    return open_store(path, storage_options)


def _verify(selector: str) -> Verify:
    try:
        return Verify(selector)
    except ValueError as error:
        raise InvalidInputError(
            "how much is verified is not known", verify=selector, known=[v.value for v in Verify]
        ) from error


def _version(selector: str | None) -> FileVersion:
    version = DEFAULT_VERSION if selector is None else FileVersion.parse(selector)
    if version is FileVersion.V0_1:
        raise UnsupportedError(
            "a file of version 0.1 can only be written as part of its dataset",
            version=version.value,
        )
    return version


def _projection(schema: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return schema
    if not columns:
        raise InvalidInputError("at least one column must be read")
    try:
        return schema.project(columns)
    except FieldNotFoundError as error:
        raise ColumnNotFoundError(error.message, **error.facts) from error


def _schema_as_stored(schema: Schema) -> Schema:
    """Return the very same schema, if nothing in it is seen otherwise."""
    if not any(node.logical_type == logical_type.JSON for node in schema.walk()):
        return schema
    return Schema(tuple(_as_stored(field) for field in schema.fields), schema.metadata)


def _as_stored(field: Field) -> Field:
    """Return a field whose JSON values are seen as the binary they are stored as."""
    field = field.with_children(_as_stored(child) for child in field.children)
    if field.logical_type == logical_type.JSON:
        return replace(field, logical_type=_LARGE_BINARY)
    return field


def _whole_numbers(indices: Sequence[int]) -> Int64s:
    """Return numbers of rows; fractions and texts are not rounded or parsed to some row."""
    rows = np.asarray(indices)
    if rows.ndim != 1 or (rows.dtype.kind not in "biu" and len(rows)):
        raise InvalidInputError(
            "rows are given as one sequence of whole numbers",
            type=str(rows.dtype),
            dimensions=rows.ndim,
        )
    if rows.dtype == np.uint64:
        rows = np.minimum(rows, np.uint64(np.iinfo(np.int64).max))
    return rows.astype(np.int64, copy=False)


def _check_not_negative(number: int) -> None:
    if number < 0:
        raise NegativeRowError("a row or an index must not be negative", found=number)


def _with_schema(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (batch.replace_schema_metadata(schema.metadata) for batch in batches)
