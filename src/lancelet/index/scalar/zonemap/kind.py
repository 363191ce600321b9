"""The ZONEMAP kind: zones that cannot have a value are not looked at.

    zone       fragment 0, rows 0 to 8192     min 3   max 90   no nulls
    x = 100    not there
    x > 50     perhaps there: its rows are looked at

Nulls are known exactly, by a set of their own. NaN counts as the greatest value of its zone.
Vectors, lists, structs and dictionaries have no least and no greatest: of them a map says only
which are null. pylance writes no bounds of byte strings of one width either, so a zone that has
values and no bounds may have any value; and it counts no nulls in a column of nothing but nulls,
so a map of one is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import numpy_of
from lancelet.errors import InvalidInputError
from lancelet.format.protos import index_details_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.base import (
    IndexedRows,
    Move,
    Parameters,
    ScalarKind,
    is_ordered_type,
)
from lancelet.index.folder import SegmentFolder
from lancelet.index.parts.ordering import Order, Side, order_of
from lancelet.index.parts.spans import interval_of, is_nan
from lancelet.index.parts.zone_bounds import compute_bounds
from lancelet.index.parts.zones import (
    ZONE_FIELDS,
    ZONE_ROWS,
    NullRows,
    ZonedSegment,
    unmoved_zones,
    write_zones,
    zone_runs,
)
from lancelet.index.query import Interval, IsNull, OneOf, ScalarQuery, StartsWith
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property, dataclass

_FILE: Final = "zonemap.lance"
_ROWS_PER_ZONE: Final = "rows_per_zone"


class ZoneMapSegment(ZonedSegment):
    """An open ZONEMAP."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the zones."""
        super().__init__(folder, _FILE, ("min", "max", "null_count", "nan_count"))
        self.minimum, self.maximum = self._columns["min"], self._columns["max"]
        self.null_counts = numpy_of(self._columns["null_count"])
        self.nan_counts = numpy_of(self._columns["nan_count"])
        self._order = order_of(self.minimum.type)
        self._has_values = numpy_of(self.maximum.is_valid())
        known = self._has_values | numpy_of(self.minimum.is_valid())
        without_value = self.null_counts.astype(np.int64) + self.nan_counts
        self._has_any: npt.NDArray[np.bool_] = ~known & (without_value < self.locations.lengths)

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""
        return self.minimum.type

    def statistics(self) -> dict[str, Any]:
        """Return how many zones there are, and how many rows each has."""
        return {"num_zones": len(self.locations), "rows_per_zone": self.rows_per_zone}

    @property
    def rows_per_zone(self) -> int:
        """How many rows a zone has."""
        return int(self._file.metadata.get(_ROWS_PER_ZONE, ZONE_ROWS))

    @cached_property
    def null_rows(self) -> RowSet | None:
        """The rows without a value, unless a column of nulls may have been counted wrong."""
        return None if pa.types.is_null(self.minimum.type) else super().null_rows

    def _find_zones(self, query: ScalarQuery) -> npt.NDArray[np.bool_] | None:
        match query:
            case IsNull() if not pa.types.is_null(self.minimum.type):
                return _some(self.null_counts)
            case _ if not is_ordered_type(self.minimum.type):
                return None
            case OneOf(values):
                return self._with_any(values)
            case Interval() | StartsWith():
                interval = interval_of(query, self.minimum.type)
                return None if interval is None else self._within(interval)
            case _:
                return None

    def _with_any(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        wanted = values.take(pa.array(self._order.sort(values)))
        first = self._minima.places(wanted, "left")
        stop = self._maxima.places(wanted, "right", unknown=len(wanted))
        chosen: npt.NDArray[np.bool_] = first < stop
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            chosen |= _some(self.nan_counts)
        chosen &= self._has_values | _some(self.nan_counts)
        chosen |= self._has_any
        return chosen

    def _within(self, interval: Interval) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = self._has_values.copy()
        if interval.lower is not None:
            above: Side = "right" if interval.includes_lower else "left"
            chosen &= self._maxima.places(pa.repeat(interval.lower, 1), above) > 0
        if interval.upper is not None:
            below: Side = "left" if interval.includes_upper else "right"
            chosen &= self._minima.places(pa.repeat(interval.upper, 1), below) == 0
        if interval.upper is None or is_nan(interval.upper):
            chosen |= _some(self.nan_counts)
        chosen |= self._has_any
        return chosen

    @cached_property
    def _minima(self) -> _Bounds:
        return _Bounds.of(self.minimum, self._order)

    @cached_property
    def _maxima(self) -> _Bounds:
        return _Bounds.of(self.maximum, self._order)


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """One bound of each zone, in the form that is looked for among values."""

    order: Order
    is_known: npt.NDArray[np.bool_] | None
    sought: Any

    @staticmethod
    def of(bounds: pa.Array, order: Order) -> _Bounds:
        """Return the bounds that an array has; zones without one are known by null."""
        is_known = None
        if bounds.null_count:
            is_known = numpy_of(bounds.is_valid())
        return _Bounds(order, is_known, order.to_targets(bounds.drop_null()))

    def places(self, wanted: pa.Array, side: Side, unknown: int = 0) -> npt.NDArray[np.int64]:
        """Return how many ordered values lie below each bound, or with `right` not above it."""
        found = self.order.search_keys(self.order.keys(wanted), self.sought, side)
        if self.is_known is None:
            return found
        places = np.full(len(self.is_known), unknown, np.int64)
        places[self.is_known] = found
        return places


class ZoneMap(ScalarKind[ZoneMapSegment]):
    """The smallest and greatest value of each zone of rows."""

    name = "ZONEMAP"
    title = "ZoneMap"
    type_url = "/lance.table.ZoneMapIndexDetails"
    newest_version = 0
    unsupported_message = (
        "a ZONEMAP needs a column of values that it can compare, or of plain nested ones"
    )
    addresses_since = 0
    can_remap = False  # other fragments have other zones

    def infer_parameters(self, details: bytes, segment: ZoneMapSegment | None) -> Parameters:  # noqa: ARG002
        """Return how many rows a zone has."""
        found = parse_message(index_details_pb.ZoneMapIndexDetails, details)
        return Parameters({_ROWS_PER_ZONE: found.rows_per_zone or ZONE_ROWS})

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether it asks for nulls; other answers contain rows that do not match."""
        return isinstance(query, IsNull)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether it is of no extension, whose nulls its storage may not tell."""
        return not isinstance(data_type, pa.BaseExtensionType)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Look at each zone and write what it has."""
        zone_rows = _zone_rows(parameters)
        return _write(rows, folder, zone_rows)

    def open(self, folder: SegmentFolder, details: bytes) -> ZoneMapSegment:  # noqa: ARG002
        """Open a segment."""
        return ZoneMapSegment(folder)

    def merge(
        self,
        segments: Sequence[ZoneMapSegment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Put the zones of all together."""
        zone_rows = max((segment.rows_per_zone for segment in segments), default=ZONE_ROWS)
        kept = unmoved_zones(segments, moves, _schema(rows.data_type))
        return _write(rows, folder, zone_rows, kept)


def _some(counts: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = counts > 0
    return found


def _zone_rows(parameters: Parameters) -> int:
    found = parameters.values.get(_ROWS_PER_ZONE, ZONE_ROWS)
    if not isinstance(found, int) or found < 1:
        raise InvalidInputError("rows_per_zone must be a number above 0", found=found)
    return found


def _schema(data_type: pa.DataType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("min", data_type),
            pa.field("max", data_type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("nan_count", pa.uint32(), nullable=False),
            *ZONE_FIELDS,
        ]
    )


def _summaries(rows: IndexedRows, zone_rows: int, nulls: NullRows) -> Iterator[pa.Table]:
    """Yield what there is to say of each zone; rows without a value go to `nulls`."""
    schema = _schema(rows.data_type)
    for run in zone_runs(rows, zone_rows):
        nulls.add(run)
        bounds = compute_bounds(run.values, zone_rows)
        columns = [
            bounds.minimum,
            bounds.maximum,
            pa.array(run.null_counts()),
            pa.array(bounds.nan_counts),
            *run.columns(),
        ]
        yield pa.Table.from_arrays(columns, schema=schema)


def _write(
    rows: IndexedRows,
    folder: SegmentFolder,
    zone_rows: int,
    kept: Iterable[tuple[pa.Table, RowSet]] = (),
) -> bytes:
    """Write the zones that are kept, and those of rows as they come."""
    fresh = partial(_summaries, rows, zone_rows)
    facts = {_ROWS_PER_ZONE: zone_rows}
    write_zones(folder, _FILE, _schema(rows.data_type), kept, fresh, facts)
    details = index_details_pb.ZoneMapIndexDetails(
        rows_per_zone=zone_rows, use_seeds=False, has_null_bitmap=True
    )
    return render_message(details)
