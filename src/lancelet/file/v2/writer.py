"""Writing a 2.x data file: batches in, pages out, in the order in which they were cut.

    batches   --per field-->  pending arrays   --a page's worth-->  encoded on the pool
    encoded   --in order-->   buffers in the file, a page of metadata per column

Every field waits for its own page to fill, so columns have pages of different rows. Pages that are
cut at the same time and are alike are encoded together, as those of a wide table are. Encoding runs
side by side for as many pages as there are cores; writing and everything else happens in the
caller's thread. Blobs are written while their field is encoded, so such fields are encoded there
as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import field as field_of
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from lancelet.config import CPU_THREADS
from lancelet.encodings.arrow import value_bytes
from lancelet.encodings.base import ColumnChoice, EncodedPages, FileVersion
from lancelet.encodings.blob_v1 import is_blob_v1, write_blobs
from lancelet.encodings.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.encodings.trials import COMPRESS_FROM_BYTES
from lancelet.file.base import WriteSummary
from lancelet.file.pool import submit
from lancelet.file.sidecars import SidecarSink
from lancelet.file.storage import stored_columns
from lancelet.file.v2.column_metadata import WrittenPages, encode_columns
from lancelet.file.v2.column_plan import FieldPlan, plan_columns
from lancelet.file.v2.container import Container, Description, Place
from lancelet.file.v2.descriptor import descriptor_bytes
from lancelet.file.v2.generation import columns_of, encode_fields
from lancelet.file.v2.waiting import joined
from lancelet.file.zones import ZONE_ROWS, LeafBounds
from lancelet.format.schema import Field, Schema
from lancelet.format.trailer import with_name_checksum
from lancelet.io.store import ObjectWriter
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.file.zone_file import ZoneCollector

_FIELD_BYTES: Final = 8 * 1024 * 1024
_PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
_SMALL_BYTES: Final = 128 * 1024
"""A page of fewer bytes is encoded at once, since another thread would only begin later."""

_SMALL: Final = "small"
"""What small pages of numbers and strings of all kinds have in common."""

_BATCH_BYTES: Final = 4 * 1024 * 1024
"""Pages of about so many bytes are encoded together, so that they stay in the cache, ..."""

_BATCH_PAGES: Final = 1024
"""... and never more pages than this."""

_ROWS_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How a data file is written; what is not given is what the reference does."""

    version: FileVersion = FileVersion.V2_2
    data_cache_bytes: int | None = None
    """The bytes of all fields together that wait for their page to fill; 8 MiB per field."""
    max_page_bytes: int | None = None
    """The most bytes of values that go into a page of 2.0; 32 MiB, as always from 2.1 on."""
    pack_file_bytes: int | None = None
    """The most bytes of a file that many blobs share; 1 GiB, or what their field says."""
    checksums: bool = True
    """Whether to keep checksums in the file."""
    zone_rows: int | None = ZONE_ROWS
    """The rows of a zone whose smallest and largest values are kept; None keeps none."""
    name: str | None = None
    """The name that the file keeps, under which alone its table reads it; None keeps none."""


@dataclass(slots=True)
class _Pending:
    """A field's values that wait for a page."""

    plan: FieldPlan
    first_row: int = 0
    arrays: list[pa.Array] = field_of(default_factory=list)
    rows: int = 0
    bytes: int = 0
    is_cut: bool = False
    """Whether a page of it waits to be encoded."""

    def take(self) -> _Cut:
        """Return what waits, which then does no more."""
        cut = _Cut(self, self.first_row, self.rows, self.bytes, self.arrays)
        self.first_row += self.rows
        self.arrays, self.rows, self.bytes = [], 0, 0
        return cut


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """A page's worth of a field."""

    pending: _Pending
    first_row: int
    rows: int
    bytes: int
    arrays: list[pa.Array]


@dataclass(frozen=True, slots=True)
class _Encoded:
    """What encoding makes of the pages' worth of some fields, of each of them."""

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
        zones: ZoneCollector | None = None,
    ) -> None:
        """Write rows of `schema` to `target`; types that the version lacks are refused here.

        `defaults` are for fields that ask for nothing.
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
        """Which of these are the last of columns of 2.0 that have no bytes, by column."""
        self._pending = [_Pending(each) for each in self._plan.fields]
        self._page_bytes_max = _page_bytes_max(options)
        cached = options.data_cache_bytes
        field_bytes = _FIELD_BYTES if cached is None else cached // max(1, len(self._pending))
        self._page_bytes = max(1, min(field_bytes, self._page_bytes_max))
        self._cut: list[_Cut] = []
        self._encoding: deque[tuple[Sequence[_Cut], Future[_Encoded] | _Encoded]] = deque()
        self._metadata = dict(schema.metadata)
        self._global_buffers: list[Place] = []
        self._reports: list[Callable[[], Sequence[ColumnChoice]]] = []
        self._num_rows = 0

    @property
    def schema(self) -> Schema:
        """The fields that are written."""
        return self._schema

    @property
    def placement(self) -> Mapping[int, int]:
        """The column of each field that owns one, by the id of the field."""
        return self._plan.placement

    @property
    def num_rows(self) -> int:
        """How many rows were taken so far."""
        return self._num_rows

    def reaches(self, num_bytes: int) -> bool:
        """Whether so many bytes are in the file; values that wait for their page do not count.

        Pages that are being encoded do. They are waited for only if they could matter.
        """
        encoding = sum(cut.bytes for cuts, _ in self._encoding for cut in cuts)
        if self._container.position + encoding >= num_bytes:
            self._write_encoded(keep=0)
        return self._container.position >= num_bytes

    def add_schema_metadata(self, key: str, value: str) -> None:
        """Keep an entry in the metadata of the file's schema."""
        self._metadata[key] = value

    def add_global_buffer(self, data: bytes) -> int:
        """Keep bytes in the file and return the index they can be read by."""
        self._global_buffers.append(self._container.write_buffer(np.frombuffer(data, np.uint8)))
        return len(self._global_buffers)

    def encoding_report(self) -> tuple[ColumnChoice, ...]:
        """Return what was chosen for each page that was written, and what was not and why."""
        return tuple(choice for report in self._reports for choice in report())

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Take rows; the columns are found by name, and others are left alone."""
        columns = stored_columns(batch, self._schema.fields)
        for pending, arrays in zip(self._pending, columns, strict=True):
            for array in arrays:
                self._append(pending, self._placed(pending.plan, array))
        self._encode_cut()
        self._num_rows += batch.num_rows

    def finish(self) -> WriteSummary:
        """Write what still waits and the metadata, and make the file visible."""
        if self._zones is not None and not self._zones.wants(self._num_rows):
            self._zones = None
        for pending in self._pending:
            self._flush(pending)
        self._encode_cut()
        self._write_encoded(keep=0)
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
        """Leave nothing behind."""
        for *_, encoded in self._encoding:
            if isinstance(encoded, Future):
                encoded.cancel()
        self._encoding.clear()
        self._container.abort()
        if self._blobs is not None:
            self._blobs.abort()

    def _placed(self, plan: FieldPlan, array: pa.Array) -> pa.Array:
        """Write blobs as they come, so that where they are is all that waits for a page."""
        if self._blobs is None or not plan.has_blobs or not is_blob_v1(plan.field):
            return array
        return write_blobs(array, self._blobs)

    # --- cutting pages ------------------------------------------------------------------------

    def _append(self, pending: _Pending, array: pa.Array) -> None:
        """Add values to a page in the making, and cut as many pages as they fill."""
        limit, most = self._page_bytes, self._page_bytes_max
        num_bytes = _value_bytes(array)
        if pending.bytes + num_bytes < limit:
            pending.arrays.append(array)
            pending.rows += len(array)
            pending.bytes += num_bytes
            return
        if pending.bytes + num_bytes > most:
            self._flush(pending)
        rows = max(1, int(len(array) * most / max(num_bytes, 1)))
        for start in range(0, len(array), rows):
            part = array.slice(start, rows)
            pending.arrays.append(part)
            pending.rows += len(part)
            pending.bytes += num_bytes * len(part) // len(array)
            if pending.bytes >= limit or len(array) - start > rows:
                self._flush(pending)

    def _flush(self, pending: _Pending) -> None:
        """Cut a page of what waits."""
        if not pending.rows:
            return
        if pending.is_cut:
            # The pages of a field are encoded, and written, in order.
            self._encode_cut()
        self._cut.append(pending.take())
        pending.is_cut = True

    def _encode_cut(self) -> None:
        """Start encoding the pages that were cut, those together that are alike, or small."""
        batches: dict[tuple[str | int, int], list[_Cut]] = {}
        for cut in self._cut:
            kind: str | int = cut.pending.plan.kind or id(cut.pending)
            if cut.pending.plan.kind and cut.bytes < COMPRESS_FROM_BYTES:
                kind = _SMALL
            batches.setdefault((kind, cut.rows), []).append(cut)
            cut.pending.is_cut = False
        self._cut.clear()
        for cuts in batches.values():
            each = sum(cut.bytes for cut in cuts) // len(cuts)
            step = max(1, min(_BATCH_PAGES, _BATCH_BYTES // max(each, 1)))
            for start in range(0, len(cuts), step):
                self._start(cuts[start : start + step])

    def _start(self, cuts: Sequence[_Cut]) -> None:
        """Start encoding pages, and write what is encoded."""
        task = partial(self._encode, cuts)
        has_blobs = cuts[0].pending.plan.has_blobs
        if has_blobs:
            # What was cut before goes into the file before the blobs of this page do.
            self._write_encoded(keep=0)
        is_small = sum(cut.bytes for cut in cuts) < _SMALL_BYTES
        self._encoding.append((cuts, task() if has_blobs or is_small else submit(task)))
        self._write_encoded(keep=CPU_THREADS)

    def _encode(self, cuts: Sequence[_Cut]) -> _Encoded:
        fields = [cut.pending.plan.field for cut in cuts]
        arrays = [joined(cut.arrays, field) for cut, field in zip(cuts, fields, strict=True)]
        pages = encode_fields(
            arrays, fields, self._options.version, defaults=self._defaults, blobs=self._blobs
        )
        if self._zones is None:
            return _Encoded(pages, ())
        rows = self._rows_of_pages(fields, pages)
        first_rows = [cut.first_row for cut in cuts]
        return _Encoded(pages, self._zones.bounds_of(fields, arrays, first_rows, rows))

    def _rows_of_pages(
        self, fields: Sequence[Field], pages: Sequence[EncodedPages]
    ) -> Sequence[Mapping[int, Sequence[int]]]:
        """Return the rows of each page of each field, by the id of the field that it is of."""
        owners = [columns_of(field, self._options.version) for field in fields]
        rows: list[dict[int, list[int]]] = [{own.id: [] for own in each} for each in owners]
        for each in pages:
            for place in each.fields:
                rows[place][owners[place][each.column].id].append(each.length)
        return rows

    # --- writing pages ------------------------------------------------------------------------

    def _write_encoded(self, *, keep: int) -> None:
        """Write pages in the order they were cut, until only `keep` are being encoded."""
        while len(self._encoding) > keep:
            cuts, encoded = self._encoding.popleft()
            found = encoded.result() if isinstance(encoded, Future) else encoded
            for pages in found.pages:
                self._write_pages([cuts[place] for place in pages.fields], pages)
            if self._zones is not None:
                for cut, bounds in zip(cuts, found.bounds, strict=True):
                    self._zones.add(cut.pending.plan.field, bounds)

    def _write_pages(self, cuts: Sequence[_Cut], pages: EncodedPages) -> None:
        self._reports.append(pages.report)
        positions = self._container.write_pages(pages.buffers)
        written = WrittenPages(
            [cut.pending.plan.first_column + pages.column for cut in cuts],
            positions,
            [buffer.size for buffer in pages.buffers],
            pages.length,
            pages.encoding,
            [cut.first_row + pages.first_row for cut in cuts],
        )
        if self._options.version is FileVersion.V2_0:
            # The header of a struct must be one page, or the reference does not read the file.
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
        """Give columns that have a page even without rows theirs."""
        for pending in self._pending:
            nothing = _Cut(pending, 0, 0, 0, [pa.array([], pending.plan.field.storage_type)])
            for pages in self._encode([nothing]).pages:
                self._write_pages([nothing], pages)


def _page_bytes_max(options: WriterOptions) -> int:
    # From 2.1 on pages are cut where they are read, so what was asked for has no effect.
    if options.version is not FileVersion.V2_0:
        return _PAGE_BYTES_MAX
    return max(1, options.max_page_bytes or _PAGE_BYTES_MAX)


def _value_bytes(array: pa.Array) -> int:
    """Return the bytes of the values of an array; a dictionary is not repeated per page."""
    if isinstance(array, pa.DictionaryArray):
        return int(array.indices.nbytes)
    return value_bytes(array)
