"""Reading 2.x data files.

    field  --columns_of-->  owners of columns  --placement-->  column metadata  -->  FieldReader

`file.rows` schedules the reads. Column metadata is decoded on first use.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import (
    NO_RANGES,
    ByteRanges,
    Bytes,
    ByteSlices,
    Fetch,
    Int64s,
    run,
    run_together,
)
from lancelet.encodings.base import FieldReader, FileVersion, StoredColumn
from lancelet.encodings.pages.planned import PlannedField
from lancelet.encodings.pages.stored_pages import StoredPages
from lancelet.errors import CorruptDataError, FieldNotFoundError
from lancelet.file.base import PageStatistics, ZoneStatistics, ZoneStatisticsReader
from lancelet.file.checksums import VerifiedBytes, Verify
from lancelet.file.rows import RowReader
from lancelet.file.selection import layouts_of
from lancelet.file.v2.generation import columns_of, generation_of
from lancelet.file.v2.metadata import FileMetadata
from lancelet.file.v2.metadata_cache import CachedFile
from lancelet.format.schema import Field, Schema
from lancelet.io.metered import IoCounts
from lancelet.io.store import ObjectReader
from lancelet.kernels import ColumnPlan, MappedFile
from lancelet.values import replace

T = TypeVar("T")

_READER_BYTES = 4096
"""The approximate memory usage of a reader without cached metadata."""

_PLANNED_VERSIONS = (FileVersion.V2_1, FileVersion.V2_2)

_MANY_COLUMNS = 8
"""The minimum number of columns for bulk decoding of metadata."""


class FileReader(RowReader):
    """Reads one 2.x file; use `open_data_file` to create instances."""

    def __init__(
        self,
        source: ObjectReader,
        cached: CachedFile,
        *,
        verify: Verify,
        tail: Bytes | None = None,
        open_zones: Callable[[FileReader], ZoneStatisticsReader | None] | None = None,
        refresh_cache: Callable[[], None] | None = None,
    ) -> None:
        """Create a reader from cached metadata.

        If `tail` is given, it is verified. `refresh_cache` is called after the cached metadata has
        grown.
        """
        self._refresh_cache = refresh_cache
        self._source = source
        self._cached = cached
        self._metadata = metadata = cached.metadata
        self._schema = cached.schema
        self._placement = cached.placement
        self._header_cache = cached.header_cache
        self._columns = cached.columns
        self._opened = cached.opened
        self._open_zones = open_zones
        self._opening_zones = threading.Lock()
        self._zones: ZoneStatisticsReader | None = None
        mapped = source.mapped()
        if mapped is not None and mapped.source.nbytes == metadata.file_bytes:
            self._mapped = mapped
        self._fetch = self._fetch_missing if self._mapped is None else self._mapped.fetch
        # If the store returns the whole file, it is in memory, and tasks do not wait for storage.
        self._waits = self._mapped is None and (
            self._fetch(NO_RANGES).source.nbytes < metadata.file_bytes
        )
        verified: VerifiedBytes | None = None
        if metadata.checksums is not None and verify is not Verify.OFF:
            verified = VerifiedBytes(self._fetch, metadata.checksums, verify)
            if tail is not None:
                verified.verify_tail(tail)
            self._fetch = verified.read_ranges
            if self._mapped is None:
                self._block_bytes = metadata.checksums.block_bytes
        if self._mapped is not None:
            source_bytes, prefetched = self._mapped.source, self._mapped.prefetched
            self._mapped_file = (
                MappedFile.unverified(source_bytes, prefetched)
                if verified is None
                else verified.map_file(source_bytes, prefetched)
            )

    @property
    def path(self) -> str:
        """The path of the file in its store."""
        return self._source.path

    @property
    def memory_bytes(self) -> int:
        """The memory usage in bytes, without shared metadata."""
        unshared = 0 if self._source.identity is not None else self._cached.memory_bytes
        return _READER_BYTES + unshared

    @property
    def version(self) -> FileVersion:
        """The version of the file format."""
        return self._metadata.footer.version

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return self._metadata.descriptor.length

    @property
    def schema(self) -> Schema:
        """The schema of the readable fields."""
        return self._schema

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The ids of the fields that own a column, in column order."""
        return tuple(sorted(self._placement, key=self._placement.__getitem__))

    @property
    def metadata(self) -> FileMetadata:
        """The parsed metadata of the file."""
        return self._metadata

    def _fetch_missing(self, ranges: ByteRanges) -> ByteSlices:
        in_tail = self._metadata.in_tail(ranges)
        return self._source.read_ranges(ranges) if in_tail is None else in_tail

    @property
    def fetch(self) -> Fetch:
        """A function that reads and verifies bytes of the file."""
        return self._fetch_copied

    def zone_statistics(self, field: Field) -> ZoneStatistics | None:
        """Return the zone statistics of a field, or None if the file has none."""
        cached = self._cached.statistics.zones
        return self._statistics(cached, field, lambda zones: zones.statistics(field))

    def page_statistics(self, field: Field) -> PageStatistics | None:
        """Return the page statistics of a field, or None if the file has none."""
        return self._statistics(
            self._cached.statistics.pages, field, lambda zones: self._of_pages(zones, field)
        )

    def _of_pages(self, zones: ZoneStatisticsReader, field: Field) -> PageStatistics | None:
        if field.id not in self._placement:
            return None
        pages = self.column(self._placement[field.id]).pages
        edges = np.array([page.first_row for page in pages] + [self.num_rows], np.int64)
        return zones.page_statistics(field, edges)

    def _statistics(
        self,
        cached: dict[Field, T | None],
        field: Field,
        read: Callable[[ZoneStatisticsReader], T | None],
    ) -> T | None:
        """Return statistics of a field; they are read once per file."""
        if field not in cached:
            with self._adding_file_facts():
                zones = self._opened_zones()
                statistics = None if zones is None else read(zones)
            if zones is not None:
                self._cached.statistics.reads = zones.reads
            cached[field] = statistics
            if self._refresh_cache is not None:
                self._refresh_cache()
        return cached[field]

    def opening_reads(self) -> IoCounts:
        """Return the requests and bytes to open the file again; none if its metadata is cached."""
        is_cached = self._source.identity is not None
        return IoCounts() if is_cached else IoCounts(1, self._metadata.tail.nbytes)

    def statistics_reads(self) -> IoCounts:
        """Return the requests and bytes read for zone statistics so far."""
        return self._cached.statistics.reads

    def close(self) -> None:
        """Release the resources of the reader; returned arrays stay valid."""
        self._source.close()

    def column(self, index: int) -> StoredColumn:
        """Return the pages of one column."""
        with self._adding_file_facts():
            self._load_columns([index])
            return self._columns[index]

    def global_buffer(self, index: int) -> Bytes:
        """Return a global buffer; buffer 0 is the descriptor."""
        with self._adding_file_facts():
            return self._read_bytes(*self._metadata.buffer_range(index))

    # --- columns ------------------------------------------------------------------------------

    def _open(self, fields: Sequence[Field]) -> list[FieldReader]:
        columns = self.columns_of(fields)
        generation = generation_of(self.version)
        readers: list[FieldReader] = []
        for field, stored in zip(fields, columns, strict=True):
            reader = generation.open_field(field, stored, self.version, self._header_cache)
            if reader.num_rows != self.num_rows:
                raise CorruptDataError(
                    "the pages of a field have a different number of rows than the file",
                    field=field.name,
                    expected=self.num_rows,
                    found=reader.num_rows,
                )
            readers.append(reader)
        return readers

    def _planned(self, fields: Sequence[Field]) -> Sequence[PlannedField | None]:
        if self.version not in _PLANNED_VERSIONS:
            return [None] * len(fields)
        layouts, ids = layouts_of(fields, self.version)
        columns = [
            [self._placement.get(each) for each in own] if layout else []
            for own, layout in zip(ids, layouts, strict=True)
        ]
        numbers = [layout.numbers if layout else () for layout in layouts]
        self._add_plans(chain(*columns), chain(*numbers))
        planned: list[PlannedField | None] = []
        for layout, own in zip(layouts, columns, strict=True):
            plans = [self._plan_of(column) for column in own]
            found = [plan for plan in plans if plan is not None]
            # Readers return fetched vectors without a copy.
            is_copied = self._mapped is None and layout is not None and layout.is_vector
            is_complete = len(found) == len(own) and not is_copied
            planned.append(PlannedField(layout, found) if layout and is_complete else None)
        return planned

    def _plan_of(self, column: int | None) -> ColumnPlan | None:
        return None if column is None else self._cached.plans[column][1]

    def _add_plans(self, columns: Iterable[int | None], numbers: Iterable[tuple[int, ...]]) -> None:
        """Add plans of columns that have no plan for the given layout."""
        cached, none = self._cached.plans, (None, None)
        missing = {
            column: form
            for column, form in zip(columns, numbers, strict=True)
            if column is not None and cached.get(column, none)[0] != form
        }
        if missing:
            plans = kernels.plan_columns(
                run(self._metadata.read_stored(list(missing)), self._fetch_copied),
                np.array(list(missing.values()), np.int64).reshape(-1),
                num_rows=self.num_rows,
                file_bytes=self._metadata.file_bytes,
            )
            cached.update(zip(missing, zip(missing.values(), plans, strict=True), strict=True))

    def _opened_zones(self) -> ZoneStatisticsReader | None:
        # The first thread opens the statistics; other threads wait for it.
        with self._opening_zones:
            if self._open_zones is not None:
                self._zones = self._open_zones(self)
                self._open_zones = None
            return self._zones

    def _column_indices(self, field: Field) -> list[int]:
        owners = columns_of(field, self.version)
        missing = [owner for owner in owners if owner.id not in self._placement]
        if missing:
            raise FieldNotFoundError(
                "the file has no column of the field",
                field=field.name,
                missing=[owner.name for owner in missing],
            )
        return [self._placement[owner.id] for owner in owners]

    def columns_of(self, fields: Sequence[Field]) -> list[list[StoredColumn]]:
        """Return the columns of each field."""
        indices = [index for field in fields for index in self._column_indices(field)]
        items = self._unowned_after(indices)
        self._load_columns([*indices, *items])
        for index in items:
            before = self._columns[index - 1]
            self._columns[index - 1] = replace(before, items=self._columns[index])
        return [self._columns_of(field) for field in fields]

    def _unowned_after(self, indices: Sequence[int]) -> list[int]:
        """Return the unowned columns that follow the given columns of a 2.0 file."""
        if self.version is not FileVersion.V2_0:
            return []
        owned, count = set(self._placement.values()), len(self._metadata.columns)
        return [index + 1 for index in indices if index + 1 < count and index + 1 not in owned]

    def _columns_of(self, field: Field) -> list[StoredColumn]:
        return [self._columns[index] for index in self._column_indices(field)]

    def _load_columns(self, indices: Sequence[int]) -> None:
        missing = sorted({index for index in indices if index not in self._columns})
        if not missing:
            return
        # The tail may contain all metadata; this read detects a truncated file nevertheless.
        self._fetch_copied(NO_RANGES)
        if len(missing) >= _MANY_COLUMNS:
            plain = run(self._metadata.read_plain_columns(missing), self._fetch_copied)
            if plain is not None:
                for position, index in enumerate(missing):
                    self._columns[index] = plain.column(position)
                return
        coroutines = [self._metadata.read_column(index) for index in missing]
        for column in run_together(coroutines, self._fetch_copied):
            self._columns[column.index] = column

    def _read_bytes(self, position: int, size: int) -> Bytes:
        return self._fetch_copied(ByteRanges.of((position, size))).slice_bytes(0)

    def _page_starts(self, fields: Sequence[Field]) -> Int64s:
        """Return the first rows of pages, for columns with row-aligned pages."""
        page_starts = [np.empty(0, np.int64)]
        for column in (column for field in fields for column in self._columns_of(field)):
            edges = StoredPages.of(column.pages).first_row
            if edges[-1] == self.num_rows:
                page_starts.append(edges[:-1])
        return np.unique(np.concatenate(page_starts))
