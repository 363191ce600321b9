"""Writing 2.x data files.

    batches         --per field-->  buffered arrays   --full page-->  encoded in the thread pool
    encoded pages   --in order-->   buffers in the file, page metadata per column

Fields are buffered separately until a page is full, so pages of different columns have different
rows. Full pages of numbers and strings are encoded together, for wide tables. Encoding is
parallel; writing runs in the calling thread. Fields with blobs are also encoded in the calling
thread, because encoding writes the blobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field as field_of
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.config import CPU_THREADS
from lancelet.encodings.arrow import value_bytes
from lancelet.encodings.base import ColumnChoice, EncodedPages, FileVersion
from lancelet.encodings.blobs.v1 import is_blob_v1, write_blobs
from lancelet.encodings.choice.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.file.base import WriteSummary, ZoneStatisticsWriter
from lancelet.file.pool import submit
from lancelet.file.sidecars import SidecarSink
from lancelet.file.storage import stored_columns
from lancelet.file.v2.column_metadata import WrittenPages, encode_columns
from lancelet.file.v2.column_plan import FieldPlan, plan_columns
from lancelet.file.v2.container import BufferRange, Container, Description
from lancelet.file.v2.descriptor import descriptor_bytes
from lancelet.file.v2.generation import columns_of, encode_fields
from lancelet.file.v2.pending import concat_values
from lancelet.file.zones import ZONE_ROWS, LeafBounds
from lancelet.format.schema import Field, Schema
from lancelet.format.trailer import with_name_checksum
from lancelet.io.store import ObjectWriter
from lancelet.values import dataclass

_FIELD_BYTES: Final = 8 * 1024 * 1024
_PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
_SMALL_BYTES: Final = 128 * 1024
"""Smaller pages are encoded in the calling thread, because submitting a task takes longer."""

_BATCH_BYTES: Final = 4 * 1024 * 1024
"""The approximate size of a batch of pages; limited to stay in the CPU cache."""

_BATCH_PAGES: Final = 1024
"""The maximum number of pages per batch."""

_ROWS_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Options of a data file; the defaults are those of pylance."""

    version: FileVersion = FileVersion.V2_2
    data_cache_bytes: int | None = None
    """The buffer size of all fields in bytes; 8 MiB per field by default."""
    max_page_bytes: int | None = None
    """The maximum page size in files of version 2.0; 32 MiB by default and in later versions."""
    pack_file_bytes: int | None = None
    """The maximum size of a packed sidecar file; set by field metadata or 1 GiB by default."""
    checksums: bool = True
    """Whether to write checksums."""
    zone_rows: int | None = ZONE_ROWS
    """The number of rows per zone of statistics; None disables statistics."""
    name: str | None = None
    """The file name to store; tables verify it. None stores no name."""


@dataclass(slots=True)
class _Pending:
    """The buffered values of a field."""

    plan: FieldPlan
    first_row: int = 0
    arrays: list[pa.Array] = field_of(default_factory=list)
    rows: int = 0
    bytes: int = 0
    is_queued: bool = False
    """Whether a page of the field is queued for encoding."""

    def take(self) -> _QueuedPage:
        """Remove the buffered values and return them as a page."""
        queued = _QueuedPage(self, self.first_row, self.rows, self.bytes, self.arrays)
        self.first_row += self.rows
        self.arrays, self.rows, self.bytes = [], 0, 0
        return queued


@dataclass(frozen=True, slots=True, eq=False)
class _QueuedPage:
    """The values of a page that is not yet encoded."""

    pending: _Pending
    first_row: int
    rows: int
    bytes: int
    arrays: list[pa.Array]


@dataclass(frozen=True, slots=True)
class _Encoded:
    """The encoded pages and the statistics of some fields."""

    pages: Sequence[EncodedPages]
    bounds: Sequence[Sequence[LeafBounds]]


class FileWriter:
    """Writes one 2.x file; nothing is visible before `finish` returns."""

    def __init__(
        self,
        target: ObjectWriter,
        schema: Schema,
        options: WriterOptions,
        *,
        defaults: EncodingOptions = PLAIN_OPTIONS,
        blobs: SidecarSink | None = None,
        zones: ZoneStatisticsWriter | None = None,
    ) -> None:
        """Create a writer, or raise if the version does not support a type of `schema`.

        `defaults` are the options of fields without encoding metadata.
        """
        self._options = options
        self._defaults = defaults
        self._schema = schema
        self._plan = plan_columns(schema, options.version)
        self._container = Container(target, with_checksums=options.checksums)
        self._blobs = blobs
        if blobs is not None:
            blobs.attach(self._container)
        self._zones = zones
        self._written: list[WrittenPages] = []
        self._headers: dict[int, int] = {}
        """The last entry of `_written` for columns of 2.0 without buffers, by column."""
        self._pending = [_Pending(each) for each in self._plan.fields]
        self._page_bytes_max = _page_bytes_max(options)
        cached = options.data_cache_bytes
        field_bytes = _FIELD_BYTES if cached is None else cached // max(1, len(self._pending))
        self._page_bytes = max(1, min(field_bytes, self._page_bytes_max))
        self._queue: list[_QueuedPage] = []
        self._encoding: deque[tuple[Sequence[_QueuedPage], Future[_Encoded] | _Encoded]] = deque()
        self._metadata = dict(schema.metadata)
        self._global_buffers: list[BufferRange] = []
        self._reports: list[Callable[[], Sequence[ColumnChoice]]] = []
        self._num_rows = 0

    @property
    def schema(self) -> Schema:
        """The schema of the file."""
        return self._schema

    @property
    def placement(self) -> Mapping[int, int]:
        """Column indices by field id, for fields that own a column."""
        return self._plan.placement

    @property
    def num_rows(self) -> int:
        """The number of rows written so far, including buffered rows."""
        return self._num_rows

    def reaches(self, num_bytes: int) -> bool:
        """Return whether the file has at least `num_bytes` bytes, without buffered rows.

        Waits for pages that are being encoded if the result depends on them.
        """
        encoding = sum(queued.bytes for batch, _ in self._encoding for queued in batch)
        if self._container.position + encoding >= num_bytes:
            self._write_encoded(pending_max=0)
        return self._container.position >= num_bytes

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Add an entry to the schema metadata of the file."""
        self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Write a global buffer and return its index."""
        self._global_buffers.append(self._container.write_buffer(np.frombuffer(data, np.uint8)))
        return len(self._global_buffers)

    def encoding_report(self) -> tuple[ColumnChoice, ...]:
        """Return the encoding and the rejected candidates of each page."""
        return tuple(choice for report in self._reports for choice in report())

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Write rows; columns are matched by name, and additional columns are ignored."""
        columns = stored_columns(batch, self._schema.fields)
        for pending, arrays in zip(self._pending, columns, strict=True):
            for array in arrays:
                self._append(pending, self._write_blobs(pending.plan, array))
        self._encode_queue()
        self._num_rows += batch.num_rows

    def finish(self) -> WriteSummary:
        """Write buffered rows and the metadata, and make the file visible."""
        if self._zones is not None and not self._zones.has_zones(self._num_rows):
            self._zones = None
        for pending in self._pending:
            self._flush(pending)
        self._encode_queue()
        self._write_encoded(pending_max=0)
        if not self._num_rows and self._options.version is FileVersion.V2_0:
            self._write_empty_pages()
        if self._blobs is not None:
            self._blobs.finish()
        zones = None if self._zones is None else self._zones.finish(self._num_rows)
        if zones is not None:
            self.add_global_buffer(zones)
        size = self._container.finish(
            Description(
                self._options.version,
                with_name_checksum(
                    descriptor_bytes(self._schema, self._metadata, self._num_rows),
                    self._options.name,
                ),
                *encode_columns(self._written, self._plan.encodings),
                self._global_buffers,
            )
        )
        return WriteSummary(self._num_rows, size)

    def abort(self) -> None:
        """Discard the file."""
        for *_, encoded in self._encoding:
            if isinstance(encoded, Future):
                encoded.cancel()
        self._encoding.clear()
        self._container.abort()
        if self._blobs is not None:
            self._blobs.abort()

    def _write_blobs(self, plan: FieldPlan, array: pa.Array) -> pa.Array:
        """Write blobs immediately, so only their descriptors are buffered."""
        if self._blobs is None or not plan.has_blobs or not is_blob_v1(plan.field):
            return array
        return write_blobs(array, self._blobs)

    # --- splitting values into pages ----------------------------------------------------------

    def _append(self, pending: _Pending, array: pa.Array) -> None:
        """Buffer values, and queue full pages for encoding."""
        limit, page_bytes_max = self._page_bytes, self._page_bytes_max
        num_bytes = _value_bytes(array)
        if pending.bytes + num_bytes < limit:
            pending.arrays.append(array)
            pending.rows += len(array)
            pending.bytes += num_bytes
            return
        if pending.bytes + num_bytes > page_bytes_max:
            self._flush(pending)
        rows = max(1, int(len(array) * page_bytes_max / max(num_bytes, 1)))
        for start in range(0, len(array), rows):
            part = array.slice(start, rows)
            pending.arrays.append(part)
            pending.rows += len(part)
            pending.bytes += num_bytes * len(part) // len(array)
            if pending.bytes >= limit or len(array) - start > rows:
                self._flush(pending)

    def _flush(self, pending: _Pending) -> None:
        """Queue the buffered values of a field as a page."""
        if not pending.rows:
            return
        if pending.is_queued:
            # The pages of a field must be encoded and written in order.
            self._encode_queue()
        self._queue.append(pending.take())
        pending.is_queued = True

    def _encode_queue(self) -> None:
        """Start encoding queued pages, in batches of numbers and strings with equal row counts."""
        batches: dict[tuple[int, int], list[_QueuedPage]] = {}
        for queued in self._queue:
            kind = 0 if queued.pending.plan.is_plain else id(queued.pending)
            batches.setdefault((kind, queued.rows), []).append(queued)
            queued.pending.is_queued = False
        self._queue.clear()
        for batch in batches.values():
            page_bytes = sum(queued.bytes for queued in batch) // len(batch)
            step = max(1, min(_BATCH_PAGES, _BATCH_BYTES // max(page_bytes, 1)))
            for start in range(0, len(batch), step):
                self._start(batch[start : start + step])

    def _start(self, batch: Sequence[_QueuedPage]) -> None:
        """Start encoding a batch of pages, and write finished pages."""
        task = partial(self._encode, batch)
        has_blobs = batch[0].pending.plan.has_blobs
        if has_blobs:
            # Earlier pages must be written before the blobs of this page.
            self._write_encoded(pending_max=0)
        is_small = sum(queued.bytes for queued in batch) < _SMALL_BYTES
        self._encoding.append((batch, task() if has_blobs or is_small else submit(task)))
        self._write_encoded(pending_max=CPU_THREADS)

    def _encode(self, batch: Sequence[_QueuedPage]) -> _Encoded:
        fields = [queued.pending.plan.field for queued in batch]
        arrays = [
            concat_values(queued.arrays, field) for queued, field in zip(batch, fields, strict=True)
        ]
        pages = encode_fields(
            arrays, fields, self._options.version, defaults=self._defaults, blobs=self._blobs
        )
        if self._zones is None:
            return _Encoded(pages, ())
        rows = self._rows_of_pages(fields, pages)
        first_rows = [queued.first_row for queued in batch]
        return _Encoded(pages, self._zones.bounds_of(fields, arrays, first_rows, rows))

    def _rows_of_pages(
        self, fields: Sequence[Field], pages: Sequence[EncodedPages]
    ) -> Sequence[Mapping[int, Sequence[int]]]:
        """Return the number of rows of each page of each field, by the id of the column owner."""
        owners = [columns_of(field, self._options.version) for field in fields]
        rows: list[dict[int, list[int]]] = [{own.id: [] for own in each} for each in owners]
        for each in pages:
            for index in each.fields:
                rows[index][owners[index][each.column].id].append(each.length)
        return rows

    # --- writing pages ------------------------------------------------------------------------

    def _write_encoded(self, *, pending_max: int) -> None:
        """Write pages in order until at most `pending_max` batches are being encoded."""
        while len(self._encoding) > pending_max:
            batch, encoded = self._encoding.popleft()
            result = encoded.result() if isinstance(encoded, Future) else encoded
            for pages in result.pages:
                self._write_pages([batch[index] for index in pages.fields], pages)
            if self._zones is not None:
                for queued, bounds in zip(batch, result.bounds, strict=True):
                    self._zones.add(queued.pending.plan.field, bounds)

    def _write_pages(self, batch: Sequence[_QueuedPage], pages: EncodedPages) -> None:
        self._reports.append(pages.report)
        positions = self._container.write_pages(pages.buffers)
        written = WrittenPages(
            [queued.pending.plan.first_column + pages.column for queued in batch],
            positions,
            [buffer.size for buffer in pages.buffers],
            pages.length,
            pages.encoding,
            [queued.first_row + pages.first_row for queued in batch],
        )
        if self._options.version is FileVersion.V2_0:
            # pylance requires that the header of a struct is a single page.
            (column,) = written.columns
            last = self._headers.pop(column, None)
            if not positions:
                self._headers[column] = len(self._written) if last is None else last
            if not positions and last is not None:
                header = self._written[last]
                if header.encoding == written.encoding:
                    length = header.length + written.length
                    self._written[last] = replace(header, length=length)
                    return
                self._headers[column] = len(self._written)
        self._written.append(written)

    def _write_empty_pages(self) -> None:
        """Write the pages of columns that have a page without rows."""
        for pending in self._pending:
            empty_page = _QueuedPage(
                pending, 0, 0, 0, [pa.array([], pending.plan.field.storage_type)]
            )
            for pages in self._encode([empty_page]).pages:
                self._write_pages([empty_page], pages)


def _page_bytes_max(options: WriterOptions) -> int:
    # From version 2.1 on, reads select chunks within pages, so the option has no effect.
    if options.version is not FileVersion.V2_0:
        return _PAGE_BYTES_MAX
    return max(1, options.max_page_bytes or _PAGE_BYTES_MAX)


def _value_bytes(array: pa.Array) -> int:
    """Return the size of the values of an array, without its dictionary."""
    if isinstance(array, pa.DictionaryArray):
        return int(array.indices.nbytes)
    return value_bytes(array)
