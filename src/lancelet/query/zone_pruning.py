"""Which ranges of a fragment's rows can match a filter, by what its files know of zones.

    zones of 8192 rows    a in [1, 9]   a in [5, 30]   a in [40, 70]
    a > 35                no            no             maybe
    rows to read          16384 .. 20000

Zones of different sizes, as files of different writers have them, are looked at apart. Where the
pages of a column have fewer rows than zones, as those of large values do, they are looked at too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import FieldNotFoundError
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.schedule import fixed_row_bytes
from lancelet.format.field_path import format_path
from lancelet.format.schema import Field, Schema
from lancelet.query.expression import Expression
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.plan import FilterStep
from lancelet.query.prune import ColumnZones, Zones, prune
from lancelet.query.scan_types import scan_type
from lancelet.query.traversal import columns_of
from lancelet.table.snapshot import Snapshot

_ROWS_MIN: Final = 4096
"""Fewer rows than this are read sooner than statistics are."""

_SMALL_FRAGMENTS: Final = 4
_SMALL_ROWS: Final = 1 << 14
_NARROW_BYTES: Final = 16
"""The same holds of a table that is so small, for filters of numbers of not more bytes a row."""


@dataclass(slots=True)
class _ZoneGroup:
    """The statistics of columns that have the same zones, zone i from `edges[i]` on."""

    edges: Int64s
    columns: dict[tuple[str, ...], ColumnZones] = field(default_factory=dict)


def candidate_ranges(
    reader: FragmentReader, steps: Sequence[FilterStep], snapshot: Snapshot
) -> list[RowRange]:
    """Return the ranges of rows of one fragment that can match every step, ascending."""
    ranges = [RowRange(0, reader.num_rows)] if reader.num_rows else []
    if reader.num_rows < _ROWS_MIN or (_is_small(snapshot) and _are_narrow(steps)):
        return ranges
    for step in steps:
        for group in _groups(reader, step.expression, snapshot.schema):
            mask = _may_match(step.expression, group)
            ranges = _intersect(ranges, _ranges_of(mask, group.edges))
    return ranges


def _is_small(snapshot: Snapshot) -> bool:
    fragments = snapshot.fragments
    return len(fragments) <= _SMALL_FRAGMENTS and fragments.num_rows <= _SMALL_ROWS


def _are_narrow(steps: Sequence[FilterStep]) -> bool:
    sizes = [fixed_row_bytes(scan_type(each)) for step in steps for each in step.fields]
    known = [size for size in sizes if size is not None]
    return len(known) == len(sizes) and sum(known) <= _NARROW_BYTES


def _groups(
    reader: FragmentReader, expression: Expression, schema: Schema
) -> Collection[_ZoneGroup]:
    groups: dict[bytes, _ZoneGroup] = {}
    for path in columns_of(expression):
        leaf = _leaf(schema, path)
        for found in () if leaf is None else _statistics(reader, leaf):
            group = groups.setdefault(found.edges.tobytes(), _ZoneGroup(found.edges))
            group.columns[path] = _zones_of(found)
    return groups.values()


def _statistics(reader: FragmentReader, leaf: Field) -> Iterator[ZoneStatistics | PageStatistics]:
    zones = reader.zone_statistics(leaf)
    if zones is None or not len(zones):
        return
    yield zones
    pages = reader.page_statistics(leaf)
    if pages is not None and len(pages) > len(zones):
        yield pages


def _leaf(schema: Schema, path: tuple[str, ...]) -> Field | None:
    try:
        found = schema.field_by_path(format_path(path))
    except FieldNotFoundError:  # a row column, or a key of a map
        return None
    return found if found.is_leaf else None


def _zones_of(found: ZoneStatistics | PageStatistics) -> ColumnZones:
    has_nan = None if found.nan_count is None else pa.array(found.nan_count > 0)
    return ColumnZones(found.minimum, found.maximum, pa.array(found.null_count), has_nan)


def _may_match(expression: Expression, group: _ZoneGroup) -> npt.NDArray[np.bool_]:
    return prune(expression, Zones(np.diff(group.edges), group.columns)).may_be_true


def _ranges_of(mask: npt.NDArray[np.bool_], edges: Int64s) -> list[RowRange]:
    """Return the rows of runs of zones that may match.

    >>> _ranges_of(np.array([True, False, True, True]), np.array([0, 10, 20, 30, 35]))
    [RowRange(start=0, stop=10), RowRange(start=20, stop=35)]
    """
    bounds = edges[np.diff(mask.astype(np.int8), prepend=0, append=0) != 0].tolist()
    return [RowRange(start, stop) for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]


def _intersect(first: Sequence[RowRange], second: Sequence[RowRange]) -> list[RowRange]:
    """Return the rows that are in both of two ascending lists of ranges.

    >>> _intersect([RowRange(0, 9)], [RowRange(2, 4), RowRange(7, 12)])
    [RowRange(start=2, stop=4), RowRange(start=7, stop=9)]
    """
    shared: list[RowRange] = []
    i = j = 0
    while i < len(first) and j < len(second):
        start = max(first[i].start, second[j].start)
        stop = min(first[i].stop, second[j].stop)
        if start < stop:
            shared.append(RowRange(start, stop))
        if first[i].stop <= second[j].stop:
            i += 1
        else:
            j += 1
    return shared
