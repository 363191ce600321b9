"""The place of an index segment's files: a folder that holds Lance files and nothing else.

    folder = SegmentFolder(store, "_indices/5f0c...", FileVersion.V2_2)
    with folder.create("page_lookup.lance", schema) as file: ...
    folder.open("page_lookup.lance").read(["min", "max"])

What was written is remembered with its size, since the metadata of the segment list it.
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
from lancelet.io.fork import renew_after_fork
from lancelet.io.metered import IoCounts
from lancelet.io.store import Store
from lancelet.values import dataclass

_WRITTEN_AS: Final = {FileVersion.V0_1: FileVersion.V2_0}
"""New files of indices are never of the first generation; those of old releases are."""
_PAGES_BYTES: Final = 2 * 1024 * 1024
"""What waits for its pages while a file is written, all columns together."""


class StoredFile:
    """A file of a segment, whose columns are known by name."""

    def __init__(self, reader: FileReader | v0_1.LegacyFileReader) -> None:
        """Read from an open file."""
        self._reader = reader

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self._reader.num_rows

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata of the schema."""
        return self._reader.schema.metadata

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._reader.schema.to_arrow()

    def read(self, columns: Sequence[str], rows: Rows | None = None) -> list[pa.Array]:
        """Return columns, by default with all rows."""
        fields = self._fields(columns)
        return self._reader.read(fields, RowRange(0, self.num_rows) if rows is None else rows)

    def expected_reads(self, columns: Sequence[str], *parts: Rows) -> IoCounts:
        """Return about what reading columns would ask of storage, of all rows or part by part."""
        wanted = parts or (RowRange(0, self.num_rows),)
        return self._reader.expected_reads(self._fields(columns), *wanted)

    def _fields(self, columns: Sequence[str]) -> list[Field]:
        try:
            return [self._reader.schema.field_by_path(name) for name in columns]
        except FieldNotFoundError as error:
            raise CorruptDataError(
                "a file of an index lacks a column",
                path=self._reader.path,
                expected=list(columns),
                found=list(self._reader.schema.names),
            ) from error

    def global_buffer(self, number: str) -> bytes:
        """Return a buffer whose number stands in the metadata as text."""
        found = parse_number(number)
        if found is None or not isinstance(self._reader, FileReader):
            raise CorruptDataError(
                "there is no buffer of that number", path=self._reader.path, found=number[:40]
            )
        return bytes(self._reader.global_buffer(found))


@dataclass(eq=False)
class IndexLoads:
    """How many segments were opened, and how many parts of them were read to answer questions.

    It is known too how many parts were `found` in memory, and for filters how many values, keys
    or zones were compared with what was asked.
    """

    segments: int = 0
    parts: int = 0
    found: int = 0
    comparisons: int = 0
    _counting: threading.Lock = field(
        default_factory=threading.Lock, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        """Take part in forks."""
        renew_after_fork(self, IndexLoads._renew)

    def count(
        self, *, segments: int = 0, parts: int = 0, found: int = 0, comparisons: int = 0
    ) -> None:
        """Count more of each, for any number of threads at once."""
        with self._counting:
            self.segments += segments
            self.parts += parts
            self.found += found
            self.comparisons += comparisons

    def _renew(self) -> None:
        self._counting = threading.Lock()


@dataclass(frozen=True, slots=True)
class SegmentFolder:
    """A folder with the files of one segment; `written` are those that were made through it.

    The metadata of the segment have `listed` files, if its writer did so. Segments that are opened
    from it say in `loads` what they read later, and share what they keep of the files with others
    of the same table by `kept`.
    """

    store: Store
    path: str
    version: FileVersion = FileVersion.V2_2
    written: list[IndexFile] = field(default_factory=list, compare=False)
    loads: IndexLoads = field(default_factory=IndexLoads, compare=False)
    kept: CacheScope = field(default_factory=partial(CACHE.scope, INDEX), compare=False, repr=False)
    listed: tuple[IndexFile, ...] = ()

    def open(self, name: str) -> StoredFile:
        """Open a file; one that the metadata of the segment list has the size that they say."""
        sizes = (file.size_bytes for file in self.listed if file.path == name)
        size, path = next(sizes, 0) or None, f"{self.path}/{name}"
        own = index_file_identity(path)
        return StoredFile(
            open_data_file(self.store, path, size=size, name=own, cache=self.kept.cache)
        )

    @contextmanager
    def create(self, name: str, schema: pa.Schema) -> Iterator[FileWriter]:
        """Write a file, which is there when the block ends, and not if it raises."""
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
            raise InternalError("a file of an index was written twice", name=name)
        self.written.append(IndexFile(name, summary.size_bytes))

    def write(self, name: str, table: pa.Table, metadata: Mapping[str, str] | None = None) -> None:
        """Write a file of rows that are there already."""
        with self.create(name, table.schema) as file:
            file.write(table)
            for key, value in (metadata or {}).items():
                file.add_schema_metadata(key, value)
