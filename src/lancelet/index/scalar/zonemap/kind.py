"""The ZONEMAP index kind: prunes zones that cannot contain matching values.

    zone       fragment 0, rows 0 to 8192     min 3   max 90   no nulls
    x = 100    pruned
    x > 50     may match: its rows are rechecked

Nulls are stored exactly, in a separate row set. NaN is the largest value of its zone. Vectors,
lists, structs and dictionaries have no bounds, and a zone map only records their nulls. pylance
does not write bounds of fixed-size binary values either, so a zone with values but without bounds
may contain any value. pylance also counts no nulls in columns of type null, so null counts of such
columns are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import to_numpy
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
    """An open segment of a ZONEMAP index."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the zones."""
        super().__init__(folder, _FILE, ("min", "max", "null_count", "nan_count"))
        self.minimum, self.maximum = self._columns["min"], self._columns["max"]
        self.null_counts = to_numpy(self._columns["null_count"])
        self.nan_counts = to_numpy(self._columns["nan_count"])
        self._order = order_of(self.minimum.type)
        self._has_values = to_numpy(self.maximum.is_valid())
        has_bounds = self._has_values | to_numpy(self.minimum.is_valid())
        without_value = self.null_counts.astype(np.int64) + self.nan_counts
        self._may_match_any: npt.NDArray[np.bool_] = ~has_bounds & (
            without_value < self.locations.lengths
        )

    @property
    def data_type(self) -> pa.DataType:
        """Type of the values."""
        return self.minimum.type

    def statistics(self) -> dict[str, Any]:
        """Return the number of zones and the zone size."""
        return {"num_zones": len(self.locations), "rows_per_zone": self.rows_per_zone}

    @property
    def rows_per_zone(self) -> int:
        """Number of rows per zone."""
        return int(self._file.metadata.get(_ROWS_PER_ZONE, ZONE_ROWS))

    @cached_property
    def null_rows(self) -> RowSet | None:
        """Rows with null values, or None for columns of type null, whose counts are unreliable."""
        return None if pa.types.is_null(self.minimum.type) else super().null_rows

    def _find_zones(self, query: ScalarQuery) -> npt.NDArray[np.bool_] | None:
        match query:
            case IsNull() if not pa.types.is_null(self.minimum.type):
                return _is_positive(self.null_counts)
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
        ordered = values.take(pa.array(self._order.sort(values)))
        first = self._minima.insertion_points(ordered, "left")
        stop = self._maxima.insertion_points(ordered, "right", missing=len(ordered))
        mask: npt.NDArray[np.bool_] = first < stop
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            mask |= _is_positive(self.nan_counts)
        mask &= self._has_values | _is_positive(self.nan_counts)
        mask |= self._may_match_any
        return mask

    def _within(self, interval: Interval) -> npt.NDArray[np.bool_]:
        mask: npt.NDArray[np.bool_] = self._has_values.copy()
        if interval.lower is not None:
            above: Side = "right" if interval.includes_lower else "left"
            mask &= self._maxima.insertion_points(pa.repeat(interval.lower, 1), above) > 0
        if interval.upper is not None:
            below: Side = "left" if interval.includes_upper else "right"
            mask &= self._minima.insertion_points(pa.repeat(interval.upper, 1), below) == 0
        if interval.upper is None or is_nan(interval.upper):
            mask |= _is_positive(self.nan_counts)
        mask |= self._may_match_any
        return mask

    @cached_property
    def _minima(self) -> _Bounds:
        return _Bounds.from_array(self.minimum, self._order)

    @cached_property
    def _maxima(self) -> _Bounds:
        return _Bounds.from_array(self.maximum, self._order)


@dataclass(frozen=True, slots=True, eq=False)
class _Bounds:
    """The lower or upper bounds of all zones, as search targets."""

    order: Order
    is_valid: npt.NDArray[np.bool_] | None
    targets: Any

    @staticmethod
    def from_array(bounds: pa.Array, order: Order) -> _Bounds:
        """Create bounds from an array. Null means that a zone has no bound."""
        is_valid = None
        if bounds.null_count:
            is_valid = to_numpy(bounds.is_valid())
        return _Bounds(order, is_valid, order.to_targets(bounds.drop_null()))

    def insertion_points(
        self, values: pa.Array, side: Side, missing: int = 0
    ) -> npt.NDArray[np.int64]:
        """Return the left or right insertion point of each bound in sorted values."""
        points = self.order.search_keys(self.order.keys(values), self.targets, side)
        if self.is_valid is None:
            return points
        result = np.full(len(self.is_valid), missing, np.int64)
        result[self.is_valid] = points
        return result


class ZoneMap(ScalarKind[ZoneMapSegment]):
    """The ZONEMAP index kind: minimum and maximum of each zone of rows."""

    name = "ZONEMAP"
    title = "ZoneMap"
    type_url = "/lance.table.ZoneMapIndexDetails"
    newest_version = 0
    unsupported_message = (
        "a ZONEMAP index requires a column of comparable values or of nested values without "
        "extension types"
    )
    addresses_since = 0
    can_remap = False  # zones depend on the fragments

    def infer_parameters(self, details: bytes, segment: ZoneMapSegment | None) -> Parameters:  # noqa: ARG002
        """Return the number of rows per zone."""
        message = parse_message(index_details_pb.ZoneMapIndexDetails, details)
        return Parameters({_ROWS_PER_ZONE: message.rows_per_zone or ZONE_ROWS})

    def is_exact(self, query: ScalarQuery) -> bool:
        """Return whether the query matches nulls. All other results must be rechecked."""
        return isinstance(query, IsNull)

    def supports_type(self, data_type: pa.DataType) -> bool:
        """Return whether a type is supported. Extension storage may not represent nulls."""
        return not isinstance(data_type, pa.BaseExtensionType)

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Compute and write the bounds of each zone."""
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
        """Write unchanged zones of all segments, and zones of new rows."""
        zone_rows = max((segment.rows_per_zone for segment in segments), default=ZONE_ROWS)
        unchanged = unmoved_zones(segments, moves, _schema(rows.data_type))
        return _write(rows, folder, zone_rows, unchanged)


def _is_positive(counts: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    mask: npt.NDArray[np.bool_] = counts > 0
    return mask


def _zone_rows(parameters: Parameters) -> int:
    zone_rows = parameters.values.get(_ROWS_PER_ZONE, ZONE_ROWS)
    if not isinstance(zone_rows, int) or zone_rows < 1:
        raise InvalidInputError("rows_per_zone must be a positive integer", found=zone_rows)
    return zone_rows


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
    """Yield the bounds and counts of each zone and add null rows to `nulls`."""
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
    unchanged: Iterable[tuple[pa.Table, RowSet]] = (),
) -> bytes:
    """Write unchanged zones and the zones of new rows."""
    fresh = partial(_summaries, rows, zone_rows)
    facts = {_ROWS_PER_ZONE: zone_rows}
    write_zones(folder, _FILE, _schema(rows.data_type), unchanged, fresh, facts)
    details = index_details_pb.ZoneMapIndexDetails(
        rows_per_zone=zone_rows, use_seeds=False, has_null_bitmap=True
    )
    return render_message(details)
