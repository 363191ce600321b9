"""Writing 0.1 data files: batches of rows, followed by metadata.

    batch 0 | batch 1 | ...     pages of all fields, in schema order
    page table                  positions and lengths of the pages
    statistics                  null count, minimum and maximum per batch, as separate pages
    dictionary values
    manifest                    the schema
    Metadata, footer

Batches have `max_rows_per_group` rows. Additional files of a fragment use the batches of the first
file, because readers of this version combine the files batch by batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, repeat
from typing import Final

import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.encodings.v0_1 import (
    BatchEncoder,
    Dictionaries,
    Page,
    check_storable,
    dictionary_fields,
    prepare,
    prepare_values,
)
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.file.base import WriteSummary
from lancelet.file.storage import stored_column
from lancelet.file.v0_1.metadata import FOOTER, message_bytes
from lancelet.file.v0_1.page_table import table_bytes
from lancelet.file.v0_1.statistics import StatisticsCollector
from lancelet.format.protos import file_pb, table_pb
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.io.store import ObjectWriter, Store
from lancelet.values import dataclass

MAX_ROWS_PER_GROUP: Final = 1024
_ROWS_PER_WRITE: Final = 1 << 18
_ROWS_MAX: Final = (1 << 31) - 1
_MAGIC: Final = b"LANC"


@dataclass(frozen=True, slots=True)
class LegacyWriterOptions:
    """Options of a 0.1 file; the defaults are those of pylance."""

    max_rows_per_group: int = MAX_ROWS_PER_GROUP
    """The number of rows per batch."""
    batch_lengths: Sequence[int] | None = None
    """The number of rows of each batch of another file of the fragment."""
    dictionaries: Mapping[int, pa.Array] | None = None
    """Existing dictionary values of the table by field id."""
    statistics: bool = True
    """Whether to write statistics of each batch."""


class LegacyFileWriter:
    """Writes one 0.1 file; nothing is visible before `finish` returns."""

    def __init__(
        self, target: ObjectWriter, schema: Schema, options: LegacyWriterOptions | None = None
    ) -> None:
        """Create a writer; all types of `schema` must be supported."""
        options = options or LegacyWriterOptions()
        self._target = target
        self._schema = schema
        self._lengths = _lengths(options)
        self._batch_rows = next(self._lengths, None)
        self._dictionaries = Dictionaries(options.dictionaries)
        self._statistics = StatisticsCollector(schema.fields if options.statistics else ())
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._batches: list[list[Page]] = []
        self._lengths_written: list[int] = []
        self._num_rows = 0

    @property
    def schema(self) -> Schema:
        """The schema of the file."""
        return self._schema

    @property
    def placement(self) -> Mapping[int, int]:
        """The index of each field by field id, including parents."""
        return {node.id: index for index, node in enumerate(self._schema.walk())}

    @property
    def num_rows(self) -> int:
        """The number of rows written so far, including buffered rows."""
        return self._num_rows

    def reaches(self, num_bytes: int) -> bool:
        """Return whether the file has at least `num_bytes` bytes, without buffered rows."""
        return self._target.position >= num_bytes

    @property
    def dictionaries(self) -> Mapping[int, pa.Array]:
        """The dictionary values so far by field id, to be stored in the table manifest as well."""
        nodes = dictionary_fields(self._schema.fields)
        return {node.id: self._dictionaries.values_of(node) for node in nodes}

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows; columns are matched by name, and additional columns are ignored."""
        if self._num_rows + batch.num_rows > _ROWS_MAX:
            raise UnsupportedError(
                "files of version 0.1 hold at most 2^31 - 1 rows; start another file",
                rows=self._num_rows + batch.num_rows,
            )
        columns = [
            pa.chunked_array(stored_column(batch, node), node.storage_type)
            for node in self._schema.fields
        ]
        self._pending.append(pa.table(columns, names=self._schema.names))
        self._pending_rows += batch.num_rows
        self._num_rows += batch.num_rows
        while self._batch_rows is not None and self._pending_rows >= self._batch_rows:
            rows, batch_rows = self._next_batches(self._batch_rows)
            self._write_batches(self._take(rows), batch_rows)
        if self._batch_rows is None and self._pending_rows:
            raise InvalidInputError(
                "the file has more rows than its fragment",
                rows=self._num_rows,
            )

    def finish(self) -> WriteSummary:
        """Write buffered rows and the metadata, and make the file visible."""
        if self._pending_rows:
            rest = self._take(self._pending_rows)
            self._write_batches(rest, rest.num_rows)
        page_table = self._target.position
        ids = [node.id for node in self._schema.walk()]
        self._target.write(table_bytes(self._batches, ids))
        statistics = self._write_statistics()
        manifest = self._write_manifest(self._write_dictionaries())
        metadata = self._target.position
        message = file_pb.Metadata(
            manifest_position=manifest,
            batch_offsets=accumulate(self._lengths_written, initial=0),
            page_table_position=page_table,
            statistics=statistics,
        )
        footer = FOOTER.pack(metadata, *FileVersion.V0_1.footer_numbers, _MAGIC)
        self._target.write(message_bytes(message), footer)
        return WriteSummary(self._num_rows, self._target.close())

    def abort(self) -> None:
        """Discard the file."""
        self._target.abort()

    def _next_batches(self, batch_rows: int) -> tuple[int, int]:
        """Return the number of buffered rows in complete batches of one length, and the length."""
        rows = 0
        while self._batch_rows == batch_rows and rows + batch_rows <= self._pending_rows:
            rows += batch_rows
            self._batch_rows = next(self._lengths, None)
            if rows >= _ROWS_PER_WRITE:
                break
        return rows, batch_rows

    def _take(self, rows: int) -> pa.Table:
        """Remove the first buffered rows and return them."""
        pending = pa.concat_tables(self._pending)
        self._pending = [pending.slice(rows)]
        self._pending_rows -= rows
        return pending.slice(0, rows)

    def _write_batches(self, rows: pa.Table, batch_rows: int) -> None:
        """Write rows as batches; the last one may be shorter."""
        fields = self._schema.fields
        arrays = [_joined(column) for column in rows.columns]
        self._statistics.add_batches(fields, arrays, batch_rows)
        columns = [
            prepare(node, array, self._dictionaries)
            for node, array in zip(fields, arrays, strict=True)
        ]
        position, buffers = self._target.position, list[Bytes]()
        for start in range(0, rows.num_rows, batch_rows):
            batch = BatchEncoder(position, buffers)
            stop = min(start + batch_rows, rows.num_rows)
            for column in columns:
                column.encode(start, stop, batch)
            position = batch.position
            self._batches.append(batch.pages)
            self._lengths_written.append(stop - start)
        self._target.write(*buffers)

    def _write_statistics(self) -> file_pb.Metadata.StatisticsMetadata | None:
        collected = self._statistics.finish()
        if collected is None:
            return None
        schema, arrays = collected
        batch = BatchEncoder(self._target.position)
        for node, array in zip(schema.fields, arrays, strict=True):
            prepare(node, array, self._dictionaries).encode(0, len(array), batch)
        self._target.write(*batch.buffers)
        position = self._target.position
        ids = [node.id for node in schema.walk()]
        self._target.write(table_bytes([batch.pages], ids))
        return file_pb.Metadata.StatisticsMetadata(
            schema=schema.to_protos(), fields=ids, page_table_position=position
        )

    def _write_dictionaries(self) -> Mapping[int, file_pb.Dictionary]:
        """Write the dictionary values and return their locations by field id."""
        locations: dict[int, file_pb.Dictionary] = {}
        for field_id, values in self.dictionaries.items():
            batch = BatchEncoder(self._target.position)
            prepare_values(field_id, values).encode(0, len(values), batch)
            self._target.write(*batch.buffers)
            (page,) = batch.pages
            locations[field_id] = file_pb.Dictionary(offset=page.position, length=page.length)
        return locations

    def _write_manifest(self, dictionaries: Mapping[int, file_pb.Dictionary]) -> int:
        manifest = table_pb.Manifest(
            fields=self._schema.to_protos(),
            schema_metadata=self._schema.metadata_bytes(),
            version=1,
            data_format=table_pb.Manifest.DataStorageFormat(
                file_format="lance", version=FileVersion.V0_1.value
            ),
        )
        for proto in manifest.fields:
            if proto.id in dictionaries:
                proto.dictionary.CopyFrom(dictionaries[proto.id])
        if not self._target.position:
            # Position 0 means that there is no schema, so files without rows need padding.
            self._target.write(bytes(8))
        position = self._target.position
        self._target.write(message_bytes(manifest))
        return position


def create_file(
    store: Store, path: str, schema: Schema, options: LegacyWriterOptions | None = None
) -> LegacyFileWriter:
    """Start a data file, or raise if the version does not support a type."""
    for node in schema.fields:
        check_storable(node)
    return LegacyFileWriter(store.open_writer(path), schema, options)


def _lengths(options: LegacyWriterOptions) -> Iterator[int]:
    """Return the number of rows of each batch."""
    lengths: Iterable[int] = repeat(options.max_rows_per_group)
    if options.batch_lengths is not None:
        lengths = [int(length) for length in options.batch_lengths]
    elif options.max_rows_per_group < 1:
        raise InvalidInputError(
            "a batch must have at least one row", max_rows_per_group=options.max_rows_per_group
        )
    return iter(lengths)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
