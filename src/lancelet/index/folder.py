"""The folder of an index segment, which contains only Lance files.

    folder = SegmentFolder(store, "_indices/5f0c...", FileVersion.V2_2)
    with folder.create("page_lookup.lance", schema) as file: ...
    folder.open("page_lookup.lance").read(["min", "max"])

Written files are recorded with their sizes for the metadata of the segment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from typing import Final

import pyarrow as pa

from lancelet.encodings.base import FileVersion, RowRange, Rows
from lancelet.errors import CorruptDataError, FieldNotFoundError, InternalError
from lancelet.file import v0_1
from lancelet.file.open import create_data_file, open_data_file
from lancelet.file.v2.reader import FileReader
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.format.field import Field
from lancelet.format.index_metadata import IndexFile
from lancelet.format.paths import index_file_identity
from lancelet.format.schema import Schema
from lancelet.format.wire import parse_number
from lancelet.io.cache import CACHE, INDEX, CacheScope
from lancelet.io.fork import reset_after_fork
from lancelet.io.metered import IoCounts
from lancelet.io.store import Store
from lancelet.values import dataclass

_WRITTEN_AS: Final = {FileVersion.V0_1: FileVersion.V2_0}
"""File versions for new index files. Legacy files are readable but are not written."""
_PAGES_BYTES: Final = 2 * 1024 * 1024
"""Bytes buffered by the writer, for all columns together."""


class StoredFile:
    """An index file with access to columns by name."""

    def __init__(self, reader: FileReader | v0_1.LegacyFileReader) -> None:
        """Wrap an open file."""
        self._reader = reader

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._reader.num_rows

    @property
    def metadata(self) -> Mapping[str, str]:
        """Metadata of the schema."""
        return self._reader.schema.metadata

    @property
    def schema(self) -> pa.Schema:
        """Schema of the file."""
        return self._reader.schema.to_arrow()

    def read(self, columns: Sequence[str], rows: Rows | None = None) -> list[pa.Array]:
        """Read columns; all rows by default."""
        fields = self._fields(columns)
        return self._reader.read(fields, RowRange(0, self.num_rows) if rows is None else rows)

    def estimate_reads(self, columns: Sequence[str], *parts: Rows) -> IoCounts:
        """Estimate the reads for columns, with one read per part; all rows by default."""
        rows = parts or (RowRange(0, self.num_rows),)
        return self._reader.estimate_reads(self._fields(columns), *rows)

    def _fields(self, columns: Sequence[str]) -> list[Field]:
        try:
            return [self._reader.schema.field_by_path(name) for name in columns]
        except FieldNotFoundError as error:
            raise CorruptDataError(
                "an index file lacks a required column",
                path=self._reader.path,
                expected=list(columns),
                found=list(self._reader.schema.names),
            ) from error

    def global_buffer(self, number: str) -> bytes:
        """Return a global buffer by its number, a decimal string from the schema metadata."""
        buffer_number = parse_number(number)
        if buffer_number is None or not isinstance(self._reader, FileReader):
            raise CorruptDataError(
                "unknown global buffer number", path=self._reader.path, found=number[:40]
            )
        return bytes(self._reader.global_buffer(buffer_number))


@dataclass(eq=False)
class IndexLoads:
    """Counters of opened segments, parts read from storage, and cache hits.

    `comparisons` counts the values, keys or zones compared while filtering.
    """

    segments: int = 0
    parts: int = 0
    cache_hits: int = 0
    comparisons: int = 0
    _lock: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Register the lock to be renewed after a fork."""
        reset_after_fork(self, IndexLoads._reset)

    def count(
        self, *, segments: int = 0, parts: int = 0, cache_hits: int = 0, comparisons: int = 0
    ) -> None:
        """Add to the counters. Thread-safe."""
        with self._lock:
            self.segments += segments
            self.parts += parts
            self.cache_hits += cache_hits
            self.comparisons += comparisons

    def _reset(self) -> None:
        self._lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class SegmentFolder:
    """The folder of one segment. `written` lists the files created through it.

    `listed` are the files in the metadata of the segment, if its writer recorded them. Segments
    opened from the folder count their reads in `loads` and share the cache scope with other
    segments of the table.
    """

    store: Store
    path: str
    version: FileVersion = FileVersion.V2_2
    written: list[IndexFile] = field(default_factory=list, compare=False)
    loads: IndexLoads = field(default_factory=IndexLoads, compare=False)
    cache_scope: CacheScope = field(
        default_factory=partial(CACHE.scope, INDEX), compare=False, repr=False
    )
    listed: tuple[IndexFile, ...] = ()

    def open(self, name: str) -> StoredFile:
        """Open a file. If the segment metadata lists it, use the recorded size."""
        sizes = (file.size_bytes for file in self.listed if file.path == name)
        size, path = next(sizes, 0) or None, f"{self.path}/{name}"
        file_identity = index_file_identity(path)
        return StoredFile(
            open_data_file(
                self.store, path, size=size, name=file_identity, cache=self.cache_scope.cache
            )
        )

    @contextmanager
    def create(self, name: str, schema: pa.Schema) -> Iterator[FileWriter]:
        """Create a file that becomes visible when the block ends and is aborted if it raises."""
        path = f"{self.path}/{name}"
        options = WriterOptions(
            _WRITTEN_AS.get(self.version, self.version),
            data_cache_bytes=_PAGES_BYTES,
            zone_rows=None,
            name=index_file_identity(path),
        )
        writer = create_data_file(self.store, path, Schema.from_arrow(schema), options)
        done = False
        try:
            yield writer
            summary = writer.finish()
            done = True
        finally:
            if not done:
                writer.abort()
        if any(file.path == name for file in self.written):
            raise InternalError("an index file was written twice", name=name)
        self.written.append(IndexFile(name, summary.size_bytes))

    def write(self, name: str, table: pa.Table, metadata: Mapping[str, str] | None = None) -> None:
        """Write a table to a new file."""
        with self.create(name, table.schema) as file:
            file.write(table)
            for key, value in (metadata or {}).items():
                file.add_schema_metadata(key, value)
