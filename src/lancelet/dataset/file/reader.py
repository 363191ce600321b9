"""The file reader of pylance's `lance.file`, with the same names, arguments and defaults.

The reader validates its arguments and delegates to `lancelet.file.v2`. Files written by lancelet
contain checksums; `verify=` selects whether all, some or none of the data is verified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

import pyarrow as pa

from lancelet.arguments import (
    ArgumentTypeError,
    instance,
    row_numbers,
    store_settings,
    text,
    texts,
    whole_number,
)
from lancelet.dataset.file.describe import (
    LanceFileMetadata,
    LanceFileStatistics,
    describe_metadata,
    describe_statistics,
)
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.errors import (
    FieldNotFoundError,
    InvalidInputError,
    LanceletError,
    UnsupportedError,
)
from lancelet.file.base import PageStatistics, ZoneStatistics, check_rows
from lancelet.file.checksums import Verify
from lancelet.file.open import open_data_file
from lancelet.file.v2.reader import FileReader
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.io.open import open_store
from lancelet.io.store import Store
from lancelet.values import cached_property

_BATCH_ROWS: Final = 1024
_LARGE_BINARY: Final = "large_binary"


class ColumnNotFoundError(FieldNotFoundError, OSError):
    """The file does not contain the requested column."""


class NamespaceClient(Protocol):
    """A client of a catalog that resolves table locations; see `lancelet.namespace`."""

    def describe_table(self, request: Any) -> Any:
        """Return the location and storage options of a table."""


class ReaderResults:
    """The result of a read: a stream of batches or a table."""

    def __init__(
        self,
        open_stream: Callable[[], pa.RecordBatchReader],
        read_table: Callable[[], pa.Table],
    ) -> None:
        """Wrap a function that streams the rows and a cheaper one that reads them as a table."""
        self._open_stream = open_stream
        self._read_table = read_table
        self._stream: pa.RecordBatchReader | None = None

    @property
    def reader(self) -> pa.RecordBatchReader:
        """The stream of batches, opened on first access."""
        if self._stream is None:
            self._stream = self._open_stream()
        return self._stream

    def to_batches(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches.

        Returns:
            A `pyarrow.RecordBatchReader`.

        Raises:
            CorruptDataError: If a checksum does not match or the data violates the format.

        Example:
            ```python
            for batch in LanceFileReader(file).read_all(batch_size=5).to_batches():
                print(batch.num_rows)
            ```
        """
        return self.reader

    def to_table(self) -> pa.Table:
        """Return the rows as an Arrow table.

        Returns:
            The rows, with one chunk per decoded part.

        Raises:
            CorruptDataError: If a checksum does not match or the data violates the format.

        Example:
            ```python
            LanceFileReader(file).read_all().to_table()
            ```
        """
        return self._read_table() if self._stream is None else self._stream.read_all()


class LanceFileReader:
    """Reads a single data file of version 2.0 or later.

    A data file is part of a dataset; use `lancelet.dataset` to read a dataset. Values are returned
    in their storage type, so JSON columns are binary.
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
        """Open the file at a path or URI.

        Args:
            path: A path on this machine, or a URI.
            storage_options: Settings of the store, such as credentials.
            columns: Paths of the columns to read, such as `a.b`; None reads all.
            namespace_client: Finds storage options for a table; needs `table_id`.
            table_id: The table's identifier in the namespace.
            verify: The blocks to compare with their checksums: all blocks read ("full"), a random
                sample ("sample") or none ("off"). Each block is verified once.
        """
        if _inner_reader is None:
            if path is None:
                raise ArgumentTypeError("the path of the file is required")
            store, name = store_of(path, storage_options, namespace_client, table_id)
            _inner_reader = open_file(store, name, verify=verify)
        self._reader = _inner_reader
        self._schema = _schema_as_stored(_inner_reader.schema)
        self._projected = _projection(self._schema, columns)

    def read_all(
        self, *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read all rows.

        Args:
            batch_size: The maximum number of rows per batch.
            batch_readahead: Ignored; read-ahead is limited by bytes.

        Returns:
            The results, which are read lazily.

        Raises:
            InvalidInputError: If an argument is out of range.

        Example:
            ```python
            LanceFileReader(file).read_all(batch_size=1000).to_table()
            ```
        """
        del batch_readahead  # read-ahead is limited by bytes, not by batches
        return self._results(RowRange(0, self.num_rows()), batch_size)

    def read_range(
        self, start: int, num_rows: int, *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read a range of rows.

        Args:
            start: The index of the first row.
            num_rows: The number of rows.
            batch_size: The maximum number of rows per batch.
            batch_readahead: Ignored; read-ahead is limited by bytes.

        Returns:
            The results, which are read lazily.

        Raises:
            IndexError: If a row index is out of range.

        Example:
            ```python
            LanceFileReader(file).read_range(5, 3).to_table()
            ```
        """
        del batch_readahead
        start = whole_number("start", start)
        num_rows = whole_number("num_rows", num_rows)
        return self._results(RowRange(start, start + num_rows), batch_size)

    def take_rows(
        self, indices: Sequence[int], *, batch_size: int = _BATCH_ROWS, batch_readahead: int = 16
    ) -> ReaderResults:
        """Read rows by index.

        Args:
            indices: Row indices, strictly ascending.
            batch_size: The maximum number of rows per batch.
            batch_readahead: Ignored; read-ahead is limited by bytes.

        Returns:
            The results, which are read lazily.

        Raises:
            IndexError: If a row index is out of range.

        Example:
            ```python
            LanceFileReader(file).take_rows([0, 7]).to_table()
            ```
        """
        del batch_readahead
        rows = row_numbers("indices", indices)
        if len(rows) > 1 and not bool((rows[1:] > rows[:-1]).all()):
            raise InvalidInputError("row indices must be strictly ascending")
        if len(rows):
            whole_number("indices", rows[0])
        return self._results(RowIndices(rows), batch_size)

    def metadata(self) -> LanceFileMetadata:
        """Return the metadata of the file: schema, columns and pages.

        Returns:
            The metadata.

        Example:
            ```python
            LanceFileReader(file).metadata().num_rows
            ```
        """
        with _adding_file_facts(self._reader):
            return describe_metadata(self._reader, self._schema.to_arrow())

    def file_statistics(self) -> LanceFileStatistics:
        """Return the number of pages and the size of each column.

        Returns:
            The statistics.

        Example:
            ```python
            LanceFileReader(file).file_statistics().columns[0].size_bytes
            ```
        """
        return describe_statistics(self._reader)

    def read_global_buffer(self, index: int) -> bytes:
        """Return a global buffer; 0 is the file descriptor.

        Args:
            index: The index of the buffer.

        Returns:
            The bytes.

        Raises:
            IndexError: If the index is out of range.

        Example:
            ```python
            len(LanceFileReader(file).read_global_buffer(0))
            ```
        """
        index = whole_number("index", index, bits=32)
        return self._reader.global_buffer(index).tobytes()

    def zone_statistics(self, column: str) -> ZoneStatistics | None:
        """Return the statistics of a column for each zone of rows.

        Args:
            column: The path of the column, such as `a.b`.

        Returns:
            The statistics, or None if the file has none.

        Raises:
            FieldNotFoundError: If the column does not exist.

        Example:
            ```python
            LanceFileReader(file).zone_statistics("id")
            ```
        """
        return self._reader.zone_statistics(self._leaf(column))

    def page_statistics(self, column: str) -> PageStatistics | None:
        """Return the statistics of a column for each page.

        Args:
            column: The path of the column, such as `a.b`.

        Returns:
            The statistics, or None if the file has none.

        Raises:
            FieldNotFoundError: If the column does not exist.

        Example:
            ```python
            LanceFileReader(file).page_statistics("id")
            ```
        """
        return self._reader.page_statistics(self._leaf(column))

    def num_rows(self) -> int:
        """Return the number of rows.

        Returns:
            The number of rows.

        Example:
            ```python
            LanceFileReader(file).num_rows()  # 20
            ```
        """
        return self._reader.num_rows

    def _leaf(self, column: str) -> Field:
        try:
            return self._reader.schema.field_by_path(text("column", column))
        except FieldNotFoundError as error:
            raise ColumnNotFoundError(error.message, **error.facts) from error

    def _results(self, rows: Rows, batch_size: int) -> ReaderResults:
        batch_size = whole_number("batch_size", batch_size, least=1, bits=32)
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
        with _adding_file_facts(self._reader):
            return self._projected.to_arrow()


@contextmanager
def _adding_file_facts(reader: FileReader) -> Iterator[None]:
    """Add the path and version of the file to errors."""
    try:
        yield
    except LanceletError as error:
        error.with_facts(path=reader.path, version=reader.version.value)
        raise


def open_file(store: Store, path: str, *, verify: str) -> FileReader:
    """Open a file of version 2.0 or later without its dataset."""
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
    """Return the store of a path or URI, and the path within the store."""
    if storage_options is not None:
        storage_options = store_settings("storage_options", storage_options)
    if table_id is not None:
        table_id = texts("table_id", table_id)
    if (namespace_client is None) != (table_id is None):
        raise InvalidInputError("namespace_client and table_id must be given together")
    if namespace_client is not None:
        described = namespace_client.describe_table({"id": list(table_id or ())})
        storage_options = {**(storage_options or {}), **(described.storage_options or {})}
    instance("path", path, str, os.PathLike)
    return open_store(path, storage_options)


def _verify(selector: str) -> Verify:
    try:
        return Verify(selector)
    except ValueError as error:
        raise InvalidInputError(
            "unknown verification mode", verify=selector, expected=[v.value for v in Verify]
        ) from error


def _projection(schema: Schema, columns: Sequence[str] | None) -> Schema:
    if columns is None:
        return schema
    columns = texts("columns", columns)
    if not columns:
        raise InvalidInputError("at least one column must be read")
    try:
        return schema.project(columns)
    except FieldNotFoundError as error:
        raise ColumnNotFoundError(error.message, **error.facts) from error


def _schema_as_stored(schema: Schema) -> Schema:
    """Return a schema with storage types; schemas without JSON are returned unchanged."""
    if not any(node.logical_type == logical_type.JSON for node in schema.walk()):
        return schema
    return Schema(tuple(_as_stored(field) for field in schema.fields), schema.metadata)


def _as_stored(field: Field) -> Field:
    """Return a field with the type of JSON values replaced by large binary."""
    field = field.with_children(_as_stored(child) for child in field.children)
    if field.logical_type == logical_type.JSON:
        return replace(field, logical_type=_LARGE_BINARY)
    return field


def _with_schema(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    return (batch.replace_schema_metadata(schema.metadata) for batch in batches)
