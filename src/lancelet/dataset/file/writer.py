"""The file writer of pylance's `lance.file`, with the same names, arguments and defaults.

The writer validates its arguments and delegates to `lancelet.file.v2`. Unlike in pylance, an
exception in the `with` block discards the file. The additional method `encoding_report()` lists
the encoding of each page and the rejected candidates.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from threading import RLock
from types import TracebackType
from typing import Self

import pyarrow as pa

from lancelet.arguments import ArgumentTypeError, bytes_of, instance, text, whole_number
from lancelet.dataset.file.reader import NamespaceClient, store_of
from lancelet.encodings.base import ColumnChoice
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.base import WriteSummary
from lancelet.file.open import create_data_file
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.io.store import Store


def stable_version() -> str:
    """Return the file version that a writer uses by default.

    >>> stable_version()
    '2.2'
    """
    return DEFAULT_VERSION.value


class LanceFileWriter:
    """Writes a data file of version 2.0 or later. The writer is thread-safe.

    Attributes:
        size_bytes: The size of the closed file; None before.
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
        """Start a file; the default schema is that of the first batch.

        Args:
            path: A path on this machine, or a URI.
            schema: The schema of the file.
            data_cache_bytes: Bytes to buffer before pages are encoded; 8 MiB per column by default.
            version: The file version; `stable_version()` by default.
            storage_options: Settings of the store, such as credentials.
            namespace_client: Finds storage options for a table; needs `table_id`.
            table_id: The table's identifier in the namespace.
            max_page_bytes: The maximum page size in files of version 2.0; 32 MiB in later ones.
            keep_original_array: Ignored; buffered arrays are never copied.
        """
        if keep_original_array is not None:
            instance("keep_original_array", keep_original_array, bool)
        if _store is None:
            if path is None:
                raise ArgumentTypeError("the path of the file is required")
            _store = store_of(path, storage_options, namespace_client, table_id)
        self._store, self._path = _store
        if data_cache_bytes is not None:
            data_cache_bytes = whole_number("data_cache_bytes", data_cache_bytes)
        if max_page_bytes is not None:
            max_page_bytes = whole_number("max_page_bytes", max_page_bytes, least=1)
        self._options = WriterOptions(
            version=_version(version),
            data_cache_bytes=data_cache_bytes,
            max_page_bytes=max_page_bytes,
        )
        # Batches are split into pages by one thread at a time; encoding runs in parallel.
        self._lock = RLock()
        self._metadata: dict[str, str] = {}
        self._buffers: list[bytes] = []
        self._writer: FileWriter | None = None
        self.closed = False
        self.size_bytes: int | None = None
        if schema is not None:
            self._start(instance("schema", schema, pa.Schema))

    def write_batch(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows.

        Args:
            batch: The rows, with the schema of the file.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a conversion would change
                a value.

        Example:
            ```python
            with LanceFileWriter("new.lance", new_books.schema) as writer:
                writer.write_batch(new_books)
            ```
        """
        instance("batch", batch, pa.RecordBatch, pa.Table)
        with self._lock:
            self._check_open()
            writer = self._writer or self._start(batch.schema)
            if batch.num_rows:
                writer.write(batch)

    def close(self) -> int | None:
        """Write the metadata and make the file visible.

        Returns:
            The number of rows, or None if the file is already closed.

        Example:
            ```python
            writer = LanceFileWriter("new.lance", new_books.schema)
            writer.write_batch(new_books)
            writer.close()
            ```
        """
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
        """Add an entry to the schema metadata.

        Args:
            key: The key.
            value: The value.

        Example:
            ```python
            with LanceFileWriter("new.lance", new_books.schema) as writer:
                writer.add_schema_metadata("source", "import")
            ```
        """
        key, value = text("key", key), text("value", value)
        with self._lock:
            self._check_open()
            self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Add a global buffer with application data.

        Args:
            data: The bytes.

        Returns:
            The index of the buffer; the first one is 1.

        Example:
            ```python
            with LanceFileWriter("new.lance", new_books.schema) as writer:
                index = writer.add_global_buffer(b"anything")
            LanceFileReader("new.lance").read_global_buffer(index)
            ```
        """
        data = bytes(bytes_of("data", data))
        with self._lock:
            self._check_open()
            if self._writer is not None:
                return self._writer.add_global_buffer(data)
            self._buffers.append(data)
            return len(self._buffers)

    def encoding_report(self) -> tuple[ColumnChoice, ...]:
        """Return the encoding, size and rejected candidates of each page.

        The report is complete after the file is closed.

        Returns:
            A `ColumnChoice` per page.

        Example:
            ```python
            with LanceFileWriter("new.lance", new_books.schema) as writer:
                writer.write_batch(new_books)
            for choice in writer.encoding_report():
                print(choice.path, choice.encoding, choice.encoded_bytes)
            ```
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
        """Close the file, or discard it if an exception was raised."""
        if kind is None:
            self.close()
        elif not self.closed:
            self.closed = True
            if self._writer is not None:
                self._writer.abort()

    def _start(self, schema: pa.Schema) -> FileWriter:
        # Datasets of version 2.2 convert binary columns with blob encoding to blob structs; a file
        # without a dataset stores them as binary.
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


def _version(selector: str | None) -> FileVersion:
    version = DEFAULT_VERSION if selector is None else FileVersion.parse(text("version", selector))
    if version is FileVersion.V0_1:
        raise UnsupportedError(
            "a file of version 0.1 can only be written as part of its dataset",
            version=version.value,
        )
    return version
