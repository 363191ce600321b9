"""Reading a 0.1 data file.

The page table is read when the file is opened, so every read after that asks for values only.
The values of dictionary columns and the statistics are read when they are first wanted, and
kept.
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
from lancelet.file.selection import OpenedFields
from lancelet.file.v0_1.metadata import FileMetadata, read_metadata
from lancelet.file.v0_1.statistics import read_statistics, zone_statistics
from lancelet.format.field import DictionaryLocation
from lancelet.format.logical_type import STRUCT, logical_type_of
from lancelet.format.schema import Field, Schema
from lancelet.format.version import FileVersion
from lancelet.io.store import ObjectReader


class LegacyFileReader(RowReader):
    """Reads one 0.1 file; made by `open_data_file`."""

    def __init__(self, source: ObjectReader, metadata: FileMetadata, schema: Schema) -> None:
        """Read `schema` from a file whose metadata are known."""
        self._source = source
        self._metadata = metadata
        self._schema = schema
        self._mapped = source.mapped()
        self._fetch = source.read_ranges if self._mapped is None else self._mapped.fetch
        # A store that answers with the whole file has it in memory, so no task waits for it.
        self._waits = self._fetch(NO_RANGES).source.nbytes < metadata.file_bytes
        self._opened = OpenedFields()
        self._stored = StoredBatches(metadata.bounds, metadata.pages, {}, metadata.file_bytes)
        self._statistics: Mapping[int, pa.StructArray] | None = None

    @property
    def path(self) -> str:
        """The path of the file in its store."""
        return self._source.path

    @property
    def version(self) -> FileVersion:
        """The version of the format that the file was written in."""
        return FileVersion.V0_1

    @property
    def num_rows(self) -> int:
        """How many rows the file has."""
        return int(self._metadata.bounds[-1])

    @property
    def schema(self) -> Schema:
        """The fields that can be read."""
        return self._schema

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The ids of the fields that the file has pages of, parents included."""
        return tuple(self._metadata.pages)

    @property
    def batch_lengths(self) -> Int64s:
        """The rows of each batch; files of one fragment must have the same."""
        lengths: Int64s = np.diff(self._metadata.bounds)
        return lengths

    def dictionary_values(self, field: Field) -> pa.Array:
        """Return the values of a dictionary field, as this file numbers them."""
        with self._facts():
            self._load_dictionaries([field])
            return self._stored.dictionaries[field.id]

    def zone_statistics(self, field: Field) -> ZoneStatistics | None:
        """Return what the file knows of a field per batch, or None."""
        with self._facts():
            if self._statistics is None:
                self._statistics = run(read_statistics(self._metadata), self._fetch_kept)
            stored = self._statistics.get(field.id)
            return None if stored is None else zone_statistics(field, stored, self._metadata)

    def page_statistics(self, field: Field) -> PageStatistics | None:
        """Return the same: a page has the rows of a batch."""
        found = self.zone_statistics(field)
        return None if found is None else found.as_pages()

    def close(self) -> None:
        """Give back what the reader holds; arrays that were read stay valid."""
        self._source.close()

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        for field in fields:
            # A struct has no pages of its own, and may be listed by another file of the fragment.
            nodes = (node for node in field.walk() if node.logical_type != STRUCT)
            if any(node.id not in self._metadata.pages for node in nodes):
                raise FieldNotFoundError("the file has no pages of the field", field=field.name)
        self._load_dictionaries(fields)
        return [open_field(field, self._stored) for field in fields]

    def _page_borders(self, fields: Sequence[Field]) -> Int64s:
        del fields
        return self._metadata.bounds[:-1]

    def _load_dictionaries(self, fields: Sequence[Field]) -> None:
        known = self._stored.dictionaries
        missing = [node for node in dictionary_fields(fields) if node.id not in known]
        if not missing:
            return
        readers = [self._open_values(node, self._location_of(node)) for node in missing]
        arrays = run_together(
            [reader.read(RowRange(0, reader.num_rows)) for reader in readers], self._fetch_kept
        )
        found: dict[int, pa.Array] = dict(known)
        found.update((node.id, array) for node, array in zip(missing, arrays, strict=True))
        self._stored = replace(self._stored, dictionaries=found)

    def _location_of(self, node: Field) -> DictionaryLocation:
        # A table has a copy of the values in its manifest, to which the location in the table's
        # schema refers. The one here is by the file's own account.
        own = self._metadata.schema
        found = {} if own is None else {other.id: other for other in own.walk()}
        location = found[node.id].dictionary if node.id in found else None
        if location is None:
            raise CorruptDataError(
                "the file does not say where the values of a dictionary column are",
                field=node.name,
                field_id=node.id,
            )
        return location

    def _open_values(self, node: Field, location: DictionaryLocation) -> FieldReader:
        """Open the values of a dictionary like a column of one batch."""
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
    """Open a file whose last bytes are known, with the schema and ids of its table or its own."""
    reading = read_metadata(tail, file_bytes=source.size, field_ids=field_ids)
    metadata = run(reading, source.read_ranges)
    if schema is None:
        schema = metadata.schema
    if schema is None:
        raise CorruptDataError("the file has no schema of its own, and no table gave one")
    return LegacyFileReader(source, metadata, schema)
