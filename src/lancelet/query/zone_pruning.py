"""Which ranges of a fragment's rows can match a filter, by what its files know of zones.

    zones of 8192 rows    a in [1, 9]   a in [5, 30]   a in [40, 70]
    a > 35                no            no             maybe
    rows to read          16384 .. 20000

Zones of different sizes, as files of different writers have them, are looked at apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.errors import FieldNotFoundError
from lancelet.file.base import ZoneStatistics
from lancelet.format.field_path import format_path
from lancelet.format.schema import Field, Schema
from lancelet.query.expression import Expression
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.plan import FilterStep
from lancelet.query.prune import ColumnZones, Zones, prune
from lancelet.query.traversal import columns_of

_ROWS_MIN: Final = 4096
"""Fewer rows than this are read sooner than statistics are."""


@dataclass(slots=True)
class _ZoneGroup:
    """The statistics of columns that have the same zones."""

    num_rows: int
    columns: dict[tuple[str, ...], ColumnZones] = field(default_factory=dict)


def candidate_ranges(
    reader: FragmentReader, steps: Sequence[FilterStep], schema: Schema
) -> list[RowRange]:
    """Return the ranges of rows that can match every step, ascending."""
    ranges = [RowRange(0, reader.num_rows)] if reader.num_rows else []
    if reader.num_rows < _ROWS_MIN:
        return ranges
    for step in steps:
        for rows_per_zone, group in _groups(reader, step.expression, schema).items():
            mask = _may_match(step.expression, rows_per_zone, group)
            ranges = _intersect(ranges, _ranges_of(mask, rows_per_zone, reader.num_rows))
    return ranges


def _groups(
    reader: FragmentReader, expression: Expression, schema: Schema
) -> Mapping[int, _ZoneGroup]:
    groups: dict[int, _ZoneGroup] = {}
    for path in columns_of(expression):
        leaf = _leaf(schema, path)
        found = None if leaf is None else reader.zone_statistics(leaf)
        if found is not None and len(found):
            group = groups.setdefault(found.rows_per_zone, _ZoneGroup(found.num_rows))
            group.columns[path] = _zones_of(found)
    return groups


def _leaf(schema: Schema, path: tuple[str, ...]) -> Field | None:
    try:
        found = schema.field_by_path(format_path(path))
    except FieldNotFoundError:  # a row column, or a key of a map
        return None
    return found if found.is_leaf else None


def _zones_of(found: ZoneStatistics) -> ColumnZones:
    has_nan = None if found.nan_count is None else pa.array(found.nan_count > 0)
    return ColumnZones(found.minimum, found.maximum, pa.array(found.null_count), has_nan)


def _may_match(
    expression: Expression, rows_per_zone: int, group: _ZoneGroup
) -> npt.NDArray[np.bool_]:
    starts = np.arange(0, group.num_rows, rows_per_zone)
    counts = np.minimum(group.num_rows - starts, rows_per_zone)
    return prune(expression, Zones(counts, group.columns)).may_be_true


def _ranges_of(mask: npt.NDArray[np.bool_], rows_per_zone: int, num_rows: int) -> list[RowRange]:
    """Return the rows of runs of zones that may match.

    >>> _ranges_of(np.array([True, False, True, True]), 10, 35)
    [RowRange(start=0, stop=10), RowRange(start=20, stop=35)]
    """
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0)) * rows_per_zone
    bounds = np.minimum(edges, num_rows).tolist()
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
