"""Zone statistics, stored as a nested file in a global buffer of the data file.

The buffer has a header of 64 bytes, followed by a data file of version 2.0, which is the fastest
version to write, with a row for each field and zone. `file.zones` computes the statistics. The
rows are:

    row          of                       columns
    0 .. 9       zones of the first       null_count  nan_count  minimum_0  maximum_0   (int32)
    10 .. 19     zones of the second                             minimum_1  maximum_1   (string)
    20 .. 23     pages of the first       same columns
    24 .. 30     pages of the second

The schema metadata of the nested file contains the order of fields and types, and the page counts.
The rows of a page are in the metadata of its column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Int64s, run
from lancelet.encodings.base import FileVersion, RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.checksums import Verify
from lancelet.file.nested import BytesWriter, RangeReader
from lancelet.file.v2.generation import assign_columns
from lancelet.file.v2.metadata import read_metadata, tail_size
from lancelet.file.v2.metadata_cache import CachedFile
from lancelet.file.v2.reader import FileReader
from lancelet.file.v2.writer import FileWriter, WriterOptions
from lancelet.file.zones import (
    LeafBounds,
    ZoneBounds,
    bounds_of,
    bounds_of_each,
    concat_bounds,
    field_at,
    join_bounds,
    merge_bounds,
    values_at,
    zoned_fields,
)
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.io.metered import IoCounts

MAGIC: Final = b"LLETZON1"
HEADER_BYTES: Final = 64

_LAYOUT_KEY: Final = "lancelet:zones"
_NULLS: Final = "null_count"
_NANS: Final = "nan_count"
_CACHED_SCHEMAS: Final = 16
_OPTIONS: Final = WriterOptions(version=FileVersion.V2_0, checksums=False)


class ZoneCollector:
    """Collects statistics while a file is written."""

    def __init__(self, *, zone_rows: int) -> None:
        """Collect statistics of all fields with ordered types."""
        self._zone_rows = zone_rows
        self._parts: dict[int, list[LeafBounds]] = {}
        self._types: dict[int, Field] = {}

    def bounds_of(
        self,
        fields: Sequence[Field],
        arrays: Sequence[pa.Array],
        first_rows: Sequence[int],
        pages: Sequence[Mapping[int, Sequence[int]]],
    ) -> list[list[LeafBounds]]:
        """Return the statistics of each field, to be passed to `add`.

        `pages` contains the number of rows of each page by leaf id.
        """
        if len(fields) > 1 and all(
            len(rows[field.id]) == 1 for field, rows in zip(fields, pages, strict=True)
        ):
            return self._bounds_of_each(fields, arrays, first_rows)
        return [
            list(self._bounds_of(*each))
            for each in zip(fields, arrays, first_rows, pages, strict=True)
        ]

    def _bounds_of_each(
        self, fields: Sequence[Field], arrays: Sequence[pa.Array], first_rows: Sequence[int]
    ) -> list[list[LeafBounds]]:
        """Return the statistics of plain fields with one page each, computed once per type."""
        bounds_by_field: list[list[LeafBounds]] = [[] for _ in fields]
        types: dict[str, list[int]] = {}
        for index, field in enumerate(fields):
            types.setdefault(field.logical_type, []).append(index)
        for indices in types.values():
            if not list(zoned_fields(fields[indices[0]])):
                continue
            bounds = bounds_of_each(
                [arrays[index] for index in indices],
                [first_rows[index] for index in indices],
                zone_rows=self._zone_rows,
            )
            for index, leaf_bounds in zip(indices, bounds, strict=True):
                bounds_by_field[index].append(leaf_bounds)
        return bounds_by_field

    def _bounds_of(
        self, field: Field, array: pa.Array, first_row: int, pages: Mapping[int, Sequence[int]]
    ) -> Iterator[LeafBounds]:
        for path in zoned_fields(field):
            values = values_at(array, path)
            zones = bounds_of(values, first_row, zone_rows=self._zone_rows)
            rows = pages[field_at(field, path).id]
            yield LeafBounds(zones, _page_bounds(values, zones, rows))

    def add(self, field: Field, bounds: Iterable[LeafBounds]) -> None:
        """Add the statistics of the next values of a field."""
        for path, part in zip(zoned_fields(field), bounds, strict=True):
            leaf = field_at(field, path)
            self._types[leaf.id] = leaf
            self._parts.setdefault(leaf.id, []).append(part)

    def has_zones(self, num_rows: int) -> bool:
        """Return whether the file has statistics; files with less than one zone have none."""
        return num_rows >= self._zone_rows

    def finish(self, num_rows: int) -> bytes | None:
        """Return the global buffer, or None for files with less than one zone."""
        if not self.has_zones(num_rows) or not self._parts:
            return None
        zones = [merge_bounds([part.zones for part in parts]) for parts in self._parts.values()]
        pages = [concat_bounds([part.pages for part in parts]) for parts in self._parts.values()]
        fields = [self._types[field_id] for field_id in self._parts]
        return _encode(fields, zones, pages, zone_rows=self._zone_rows, num_rows=num_rows)


class ZoneReader:
    """Reads the statistics in a global buffer."""

    def __init__(self, reader: FileReader, inner: RangeReader, layout: Mapping[str, Any]) -> None:
        """Read statistics from the nested file; use `open_zones` to create instances."""
        self._reader = reader
        self._inner = inner
        self._zone_rows = int(layout["zone_rows"])
        self._num_rows = int(layout["num_rows"])
        self._order = {int(field_id): index for index, field_id in enumerate(layout["fields"])}
        self._kinds = {str(kind): index for index, kind in enumerate(layout["kinds"])}
        self._pages = [int(count) for count in layout.get("pages", ())]
        if self._zone_rows < 1 or self._num_rows < 0 or min(self._pages, default=0) < 0:
            raise ValueError("negative number of rows or pages")
        if self._pages and len(self._pages) != len(self._order):
            raise ValueError("fields without page counts")

    @property
    def num_rows(self) -> int:
        """The number of rows of the data file."""
        return self._num_rows

    @property
    def reads(self) -> IoCounts:
        """The requests and bytes read so far."""
        return self._inner.reads

    def statistics(self, field: Field) -> ZoneStatistics | None:
        """Return the zone statistics of a field, or None if it has none."""
        index = self._order.get(field.id)
        if index is None:
            return None
        count = self._num_zones
        columns = self._read(field, RowRange(index * count, (index + 1) * count))
        return ZoneStatistics(self._zone_rows, self._num_rows, *columns)

    def page_statistics(self, field: Field, edges: Int64s) -> PageStatistics | None:
        """Return the page statistics of a field, given the first rows of its pages."""
        index = self._order.get(field.id)
        if index is None or not self._pages:
            return None
        if self._pages[index] != len(edges) - 1:
            raise self._damaged(field)
        start = len(self._order) * self._num_zones + sum(self._pages[:index])
        statistics = self._read(field, RowRange(start, start + self._pages[index]))
        return PageStatistics(edges, *statistics)

    @property
    def _num_zones(self) -> int:
        return -(-self._num_rows // self._zone_rows)

    def _read(
        self, field: Field, rows: RowRange
    ) -> tuple[Int64s, Int64s | None, pa.Array, pa.Array]:
        """Return the null counts, NaN counts, minima and maxima."""
        columns = self._columns_of(field)
        if columns is None or rows.stop > self._reader.num_rows:
            raise self._damaged(field)
        null_count, nan_count, minimum, maximum = self._reader.read(columns, rows)
        if null_count.null_count or nan_count.null_count:
            raise self._damaged(field)
        is_float = pa.types.is_floating(field.storage_type)
        return null_count.to_numpy(), nan_count.to_numpy() if is_float else None, minimum, maximum

    def _columns_of(self, field: Field) -> list[Field] | None:
        """Return the columns of the statistics of a field, or None if their types differ."""
        kind = self._kinds.get(field.logical_type)
        if kind is None:
            return None
        names = (_NULLS, _NANS, *_bound_names(kind))
        types = (pa.int64(), pa.int64(), field.storage_type, field.storage_type)
        by_name = {column.name: column for column in self._reader.schema.fields}
        columns = [by_name[name] for name in names if name in by_name]
        return columns if [column.storage_type for column in columns] == list(types) else None

    def _damaged(self, field: Field) -> CorruptDataError:
        return CorruptDataError(
            "the zone statistics of the file do not match its fields; rewrite the file",
            path=self._reader.path,
            field=field.name,
            type=field.logical_type,
        )


def open_zones(outer: FileReader) -> ZoneReader | None:
    """Open the statistics of a file, or return None if it has none."""
    buffers = outer.metadata.buffers
    # The writer appends the statistics after user buffers and before the checksums.
    buffer_indices = range(max(1, len(buffers) - 2), len(buffers))
    candidate_ranges = [outer.metadata.buffer_range(index) for index in buffer_indices]
    candidate_ranges = [
        (position, size) for position, size in candidate_ranges if size >= HEADER_BYTES
    ]
    heads = outer.fetch(
        ByteRanges.of(*((position, len(MAGIC)) for position, _ in candidate_ranges))
    )
    for index, (position, size) in enumerate(candidate_ranges):
        if heads.slice_bytes(index).tobytes() == MAGIC:
            return _open(outer, position, size, heads=len(candidate_ranges))
    return None


def _open(outer: FileReader, position: int, size: int, *, heads: int) -> ZoneReader:
    inner_size = size - HEADER_BYTES
    inner = RangeReader(
        outer.fetch, path=outer.path, position=position + HEADER_BYTES, size=inner_size
    )
    inner.reads += IoCounts(heads, heads * len(MAGIC))
    tail = inner.read_tail(tail_size(inner_size))
    coroutine = read_metadata(tail, file_bytes=inner_size, with_checksums=False)
    metadata = run(coroutine, inner.read_ranges)
    descriptor = metadata.descriptor.schema
    schema = Schema.from_protos(descriptor.fields, descriptor.metadata)
    placement = assign_columns(schema.fields, metadata.footer.version)
    reader = FileReader(inner, CachedFile(metadata, schema, placement, None), verify=Verify.OFF)
    try:
        zones = ZoneReader(reader, inner, json.loads(schema.metadata[_LAYOUT_KEY]))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise CorruptDataError(
            "the zone statistics of the file are damaged", position=position, size=size
        ) from error
    if zones.num_rows != outer.num_rows:
        raise CorruptDataError(
            "the zone statistics have a different number of rows than the file",
            expected=outer.num_rows,
            found=zones.num_rows,
        )
    return zones


def _page_bounds(values: pa.Array, zones: ZoneBounds, page_rows: Sequence[int]) -> ZoneBounds:
    """Return the statistics of pages; a single page is merged from its zones."""
    if len(page_rows) == 1:
        return join_bounds(zones)
    stops = np.cumsum(page_rows).tolist()
    pages = [values[stop - rows : stop] for rows, stop in zip(page_rows, stops, strict=True)]
    return concat_bounds([bounds_of(page, 0, zone_rows=len(page)) for page in pages])


def _encode(
    fields: Sequence[Field],
    zones: Sequence[ZoneBounds],
    pages: Sequence[ZoneBounds],
    *,
    zone_rows: int,
    num_rows: int,
) -> bytes:
    all_bounds = [*zones, *pages]
    kinds = {field.logical_type: field.storage_type for field in fields}
    owners: dict[str, list[int]] = {kind: [] for kind in kinds}
    for index, field in enumerate([*fields, *fields]):
        owners[field.logical_type].append(index)
    counts = np.array([len(bounds.null_count) for bounds in all_bounds])
    columns: dict[str, pa.Array] = {
        _NULLS: pa.array(np.concatenate([bounds.null_count for bounds in all_bounds])),
        _NANS: pa.array(np.concatenate([bounds.nan_count for bounds in all_bounds])),
    }
    for number, owner_indices in enumerate(owners.values()):
        # Rows of fields of other types are null.
        has_bounds = np.zeros(len(all_bounds), np.bool_)
        has_bounds[owner_indices] = True
        has_value = np.repeat(has_bounds, counts)
        rows = pa.array(np.cumsum(has_value) - 1, mask=~has_value)
        minimum, maximum = _bound_names(number)
        columns[minimum] = pa.concat_arrays(
            [all_bounds[index].minimum for index in owner_indices]
        ).take(rows)
        columns[maximum] = pa.concat_arrays(
            [all_bounds[index].maximum for index in owner_indices]
        ).take(rows)
    layout = {
        "zone_rows": zone_rows,
        "num_rows": num_rows,
        "fields": [field.id for field in fields],
        "kinds": list(kinds),
        "pages": [len(bounds.null_count) for bounds in pages],
    }
    target = BytesWriter()
    writer = FileWriter(target, _schema_of(tuple(kinds.values())), _OPTIONS)
    writer.add_schema_metadata(_LAYOUT_KEY, json.dumps(layout))
    writer.write(pa.table(columns))
    writer.finish()
    return MAGIC.ljust(HEADER_BYTES, b"\0") + target.to_bytes()


@lru_cache(_CACHED_SCHEMAS)
def _schema_of(types: Sequence[pa.DataType]) -> Schema:
    """Return the schema of the statistics of fields with these types.

    The schema is cached because derived values are cached by schema.
    """
    columns = [pa.field(name, pa.int64()) for name in (_NULLS, _NANS)]
    for number, data_type in enumerate(types):
        columns += [pa.field(name, data_type) for name in _bound_names(number)]
    return Schema.from_arrow(pa.schema(columns))


def _bound_names(kind: int) -> tuple[str, str]:
    return f"minimum_{kind}", f"maximum_{kind}"
