"""Reading 0.1 data files.

The page table is read when the file is opened. Dictionary values and statistics are read and cached
on first use.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancelet.buffers import NO_RANGES, Bytes, Int64s, run, run_together
from lancelet.encodings.base import FieldReader, RowRange
from lancelet.encodings.v0_1 import FieldPages, StoredBatches, dictionary_fields, open_field
from lancelet.errors import CorruptDataError, FieldNotFoundError
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.rows import RowReader
from lancelet.file.selection import OpenFields
from lancelet.file.v0_1.metadata import FileMetadata, read_metadata
from lancelet.file.v0_1.statistics import read_statistics, zone_statistics
from lancelet.format.field import DictionaryLocation
from lancelet.format.logical_type import STRUCT, logical_type_of
from lancelet.format.schema import Field, Schema
from lancelet.format.version import FileVersion
from lancelet.io.store import ObjectReader


class LegacyFileReader(RowReader):
    """Reads one 0.1 file; use `open_data_file` to create instances."""

    def __init__(self, source: ObjectReader, metadata: FileMetadata, schema: Schema) -> None:
        """Create a reader from parsed metadata."""
        self._source = source
        self._metadata = metadata
        self._schema = schema
        self._mapped = source.mapped()
        self._fetch = source.read_ranges if self._mapped is None else self._mapped.fetch
        # If the store returns the whole file, it is in memory, and tasks do not wait for storage.
        self._waits = self._fetch(NO_RANGES).source.nbytes < metadata.file_bytes
        self._opened = OpenFields()
        self._stored = StoredBatches(metadata.bounds, metadata.pages, {}, metadata.file_bytes)
        self._statistics: Mapping[int, pa.StructArray] | None = None

    @property
    def path(self) -> str:
        """The path of the file in its store."""
        return self._source.path

    @property
    def version(self) -> FileVersion:
        """The version of the file format."""
        return FileVersion.V0_1

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._metadata.bounds[-1])

    @property
    def schema(self) -> Schema:
        """The schema of the readable fields."""
        return self._schema

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The ids of the fields with pages, including parents."""
        return tuple(self._metadata.pages)

    @property
    def batch_lengths(self) -> Int64s:
        """The number of rows of each batch; equal for all files of a fragment."""
        lengths: Int64s = np.diff(self._metadata.bounds)
        return lengths

    def dictionary_values(self, field: Field) -> pa.Array:
        """Return the dictionary values of a field, in the order of this file."""
        with self._adding_file_facts():
            self._load_dictionaries([field])
            return self._stored.dictionaries[field.id]

    def zone_statistics(self, field: Field) -> ZoneStatistics | None:
        """Return the statistics of a field for each batch, or None if the file has none."""
        with self._adding_file_facts():
            if self._statistics is None:
                self._statistics = run(read_statistics(self._metadata), self._fetch_copied)
            stored = self._statistics.get(field.id)
            return None if stored is None else zone_statistics(field, stored, self._metadata)

    def page_statistics(self, field: Field) -> PageStatistics | None:
        """Return the statistics of a field for each page; a batch has one page per field."""
        statistics = self.zone_statistics(field)
        return None if statistics is None else statistics.as_pages()

    def close(self) -> None:
        """Release the resources of the reader; returned arrays stay valid."""
        self._source.close()

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        for field in fields:
            # Structs have no pages, and may be listed in another file of the fragment.
            nodes = (node for node in field.walk() if node.logical_type != STRUCT)
            if any(node.id not in self._metadata.pages for node in nodes):
                raise FieldNotFoundError("the file has no pages of the field", field=field.name)
        self._load_dictionaries(fields)
        return [open_field(field, self._stored) for field in fields]

    def _page_starts(self, fields: Sequence[Field]) -> Int64s:
        del fields
        return self._metadata.bounds[:-1]

    def _load_dictionaries(self, fields: Sequence[Field]) -> None:
        loaded = self._stored.dictionaries
        missing = [node for node in dictionary_fields(fields) if node.id not in loaded]
        if not missing:
            return
        readers = [self._open_values(node, self._location_of(node)) for node in missing]
        arrays = run_together(
            [reader.read(RowRange(0, reader.num_rows)) for reader in readers], self._fetch_copied
        )
        all_dictionaries: dict[int, pa.Array] = dict(loaded)
        all_dictionaries.update(
            (node.id, array) for node, array in zip(missing, arrays, strict=True)
        )
        self._stored = replace(self._stored, dictionaries=all_dictionaries)

    def _location_of(self, node: Field) -> DictionaryLocation:
        # Locations in the table schema refer to copies of the values in the manifest; locations in
        # the file schema refer to the file.
        schema = self._metadata.schema
        fields_by_id = {} if schema is None else {other.id: other for other in schema.walk()}
        location = fields_by_id[node.id].dictionary if node.id in fields_by_id else None
        if location is None:
            raise CorruptDataError(
                "the file has no position of the values of a dictionary column",
                field=node.name,
                field_id=node.id,
            )
        return location

    def _open_values(self, node: Field, location: DictionaryLocation) -> FieldReader:
        """Open the values of a dictionary as a column with one batch."""
        value_type = node.storage_type.value_type
        values = Field(node.name, node.id, logical_type_of(value_type), nullable=node.nullable)
        pages = FieldPages(
            np.array([location.offset], np.int64), np.array([location.length], np.int64)
        )
        bounds = np.array([0, location.length], np.int64)
        batches = StoredBatches(bounds, {node.id: pages}, {}, self._metadata.file_bytes)
        return open_field(values, batches)


def open_file(
    source: ObjectReader,
    tail: Bytes,
    *,
    schema: Schema | None = None,
    field_ids: Collection[int] | None = None,
) -> LegacyFileReader:
    """Open a file given its tail; `schema` and `field_ids` are those of its table."""
    coroutine = read_metadata(tail, file_bytes=source.size, field_ids=field_ids)
    metadata = run(coroutine, source.read_ranges)
    if schema is None:
        schema = metadata.schema
    if schema is None:
        raise CorruptDataError("the file contains no schema, and no schema of a table was given")
    return LegacyFileReader(source, metadata, schema)
