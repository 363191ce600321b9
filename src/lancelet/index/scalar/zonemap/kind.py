"""The ZONEMAP kind: zones that cannot have a value are not looked at.

    zone       fragment 0, rows 0 to 8192     min 3   max 90   no nulls
    x = 100    not there
    x > 50     perhaps there: its rows are looked at

Nulls are known exactly, by a set of their own. NaN counts as the greatest value of its zone.
Vectors have no least and no greatest: of them a map says only which are null.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.format.protos import index_details_pb
from lancelet.format.wire import parse_message, render_message
from lancelet.index.base import (
    Found,
    IndexedRows,
    IndexTypeError,
    Move,
    Parameters,
    ScalarKind,
    Segment,
    is_ordered_type,
)
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.index.parts.ordering import order_of
from lancelet.index.parts.spans import interval_of, is_nan
from lancelet.index.parts.zones import (
    ZONE_FIELDS,
    ZONE_ROWS,
    ZonePlaces,
    columns_of_zones,
    cut_into_zones,
    join_zones,
    null_rows_of,
    split_off_nulls,
)
from lancelet.index.question import Interval, IsNull, OneOf, Question, StartsWith
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet

_FILE: Final = "zonemap.lance"
_ROWS_PER_ZONE: Final = "rows_per_zone"
_NULLS: Final = "null_bitmap"


class ZoneMapSegment:
    """An open ZONEMAP, all of which is in memory."""

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the zones."""
        self._file: StoredFile = folder.open(_FILE)
        names = ["min", "max", "null_count", "nan_count", *(field.name for field in ZONE_FIELDS)]
        columns = self._file.read(names)
        self.minimum, self.maximum = columns[:2]
        self.null_counts, self.nan_counts = (column.to_numpy() for column in columns[2:4])
        self.places = ZonePlaces.of(columns[4:])
        self.table = pa.Table.from_arrays(columns, names=names)
        self._order = order_of(self.minimum.type)
        self._has_values = self.maximum.is_valid().to_numpy(zero_copy_only=False)

    @property
    def data_type(self) -> pa.DataType:
        """The type of the values."""
        return self.minimum.type

    def estimate(self, question: Question) -> int | None:
        """Return how many rows the zones have that may answer."""
        if isinstance(question, IsNull) and self.null_rows is not None:
            return self.null_rows.num_listed
        chosen = self._zones(question)
        return None if chosen is None else self.places.num_rows(chosen)

    def search(self, question: Question) -> Found:
        """Return the rows of zones that may answer; nulls are known exactly."""
        if isinstance(question, IsNull) and self.null_rows is not None:
            return Found(self.null_rows)
        chosen = self._zones(question)
        assert chosen is not None, "only what has an estimate is searched"
        return Found(self.places.rows(chosen), is_exact=False)

    def nulls(self) -> RowSet | None:
        """Return the rows without a value; the oldest files do not say."""
        return self.null_rows

    def statistics(self) -> dict[str, Any]:
        """Return how many zones there are, and how many rows each has."""
        return {"num_zones": len(self.places), "rows_per_zone": self.rows_per_zone}

    @property
    def rows_per_zone(self) -> int:
        """How many rows a zone has."""
        return int(self._file.metadata.get(_ROWS_PER_ZONE, ZONE_ROWS))

    @cached_property
    def null_rows(self) -> RowSet | None:
        """The rows without a value, if the file says which."""
        number = self._file.metadata.get(_NULLS)
        return None if number is None else RowSet.parse(self._file.global_buffer(number))

    def _zones(self, question: Question) -> npt.NDArray[np.bool_] | None:
        """Return which zones may have an answer."""
        match question:
            case IsNull():
                return _some(self.null_counts)
            case _ if not is_ordered_type(self.minimum.type):
                return None
            case OneOf(values):
                return self._with_any(values)
            case Interval() | StartsWith():
                interval = interval_of(question, self.minimum.type)
                return None if interval is None else self._within(interval)
            case _:
                return None

    def _with_any(self, values: pa.Array) -> npt.NDArray[np.bool_]:
        wanted = values.take(pa.array(self._order.sort(values)))
        first = self._bounds(wanted, self.minimum, upper=False)
        stop = self._bounds(wanted, self.maximum, upper=True)
        chosen: npt.NDArray[np.bool_] = first < stop
        if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
            chosen |= _some(self.nan_counts)
        chosen &= self._has_values | _some(self.nan_counts)
        return chosen

    def _bounds(self, wanted: pa.Array, bounds: pa.Array, *, upper: bool) -> npt.NDArray[np.int64]:
        """Return how many wanted values lie below the bound of each zone."""
        known = bounds.drop_null()
        places = np.full(len(bounds), len(wanted) if upper else 0, np.int64)
        valid = bounds.is_valid().to_numpy(zero_copy_only=False)
        places[valid] = self._order.search(wanted, known, "right" if upper else "left")
        return places

    def _within(self, interval: Interval) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = self._has_values.copy()
        if interval.lower is not None:
            side = "right" if interval.includes_lower else "left"
            chosen &= self._beside(interval.lower, self.maximum, side) > 0
        if interval.upper is not None:
            side = "left" if interval.includes_upper else "right"
            chosen &= self._beside(interval.upper, self.minimum, side) == 0
        if interval.upper is None or is_nan(interval.upper):
            chosen |= _some(self.nan_counts)
        return chosen

    def _beside(self, bound: pa.Scalar, values: pa.Array, side: Any) -> npt.NDArray[np.int64]:
        """Return 1 for each value that stands behind a bound; 0 where there is no value."""
        places = np.zeros(len(values), np.int64)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        places[valid] = self._order.search(pa.repeat(bound, 1), values.drop_null(), side)
        return places


class ZoneMap(ScalarKind):
    """The smallest and greatest value of each zone of rows."""

    name = "ZONEMAP"
    title = "ZoneMap"
    type_url = "/lance.table.ZoneMapIndexDetails"
    newest_version = 0
    can_remap = False

    def version(self, parameters: Parameters, *, stable_row_ids: bool) -> int:  # noqa: ARG002
        """Return 0, the only one there is."""
        return 0

    def uses_addresses(self, version: int) -> bool:  # noqa: ARG002
        """Return that rows are numbered by address, always."""
        return True

    def parameters_like(self, details: bytes, segment: Segment | None) -> Parameters:  # noqa: ARG002
        """Return how many rows a zone has."""
        found = parse_message(index_details_pb.ZoneMapIndexDetails, details)
        return Parameters({_ROWS_PER_ZONE: found.rows_per_zone or ZONE_ROWS})

    def check_type(self, data_type: pa.DataType, column: str) -> None:
        """Raise unless values of the type have an order, or are vectors."""
        if not (is_ordered_type(data_type) or pa.types.is_fixed_size_list(data_type)):
            raise IndexTypeError(
                "a ZONEMAP needs a column of numbers, times, texts, byte strings or vectors",
                column=column,
                found=str(data_type),
            )

    def train(self, rows: IndexedRows, folder: SegmentFolder, parameters: Parameters) -> bytes:
        """Look at each zone and write what it has."""
        zone_rows = _zone_rows(parameters)
        table, nulls = _summarised(rows, zone_rows)
        return _write(table, nulls, folder, zone_rows)

    def open(self, folder: SegmentFolder, details: bytes) -> ZoneMapSegment:  # noqa: ARG002
        """Open a segment."""
        return ZoneMapSegment(folder)

    def merge(
        self,
        segments: Sequence[Segment],
        moves: Sequence[Move],
        rows: IndexedRows,
        folder: SegmentFolder,
    ) -> bytes:
        """Put the zones of all together."""
        opened = [_opened(segment) for segment in segments]
        zone_rows = max((segment.rows_per_zone for segment in opened), default=ZONE_ROWS)
        table, nulls = join_zones(*_summarised(rows, zone_rows), opened, moves)
        return _write(table, nulls, folder, zone_rows)

    def remap(self, segment: Segment, move: Move, folder: SegmentFolder) -> None:
        """Return None: other fragments have other zones."""


def _some(counts: npt.NDArray[np.uint32]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = counts > 0
    return found


def _zone_rows(parameters: Parameters) -> int:
    found = parameters.values.get(_ROWS_PER_ZONE, ZONE_ROWS)
    if not isinstance(found, int) or found < 1:
        raise InvalidInputError("rows_per_zone must be a number above 0", found=found)
    return found


def _summarised(rows: IndexedRows, zone_rows: int) -> tuple[pa.Table, RowSet]:
    """Return what there is to say of each zone, and which rows have no value."""
    null_rows: list[UInt64s] = []
    zones = list(cut_into_zones(split_off_nulls(rows, null_rows), zone_rows))
    summaries = [_bounds_of(zone.values) for zone in zones]
    schema = pa.schema(
        [
            pa.field("min", rows.data_type),
            pa.field("max", rows.data_type),
            pa.field("null_count", pa.uint32(), nullable=False),
            pa.field("nan_count", pa.uint32(), nullable=False),
            *ZONE_FIELDS,
        ]
    )
    columns = [
        _scalars([summary[0] for summary in summaries], rows.data_type),
        _scalars([summary[1] for summary in summaries], rows.data_type),
        pa.array([zone.values.null_count for zone in zones], pa.uint32()),
        pa.array([summary[2] for summary in summaries], pa.uint32()),
        *columns_of_zones(zones),
    ]
    return pa.Table.from_arrays(columns, schema=schema), null_rows_of(null_rows)


def _bounds_of(values: pa.Array) -> tuple[pa.Scalar, pa.Scalar, int]:
    """Return the smallest and greatest value of a zone, and how many are NaN."""
    num_nan = 0
    if pa.types.is_floating(values.type):
        nan = pc.is_nan(values)
        num_nan = nan.true_count
        if num_nan:
            values = values.filter(pc.invert(nan), null_selection_behavior="drop")
    if values.null_count == len(values) or not is_ordered_type(values.type):
        nothing = pa.scalar(None, values.type)
        return nothing, _nan(values.type) if num_nan else nothing, num_nan
    if not _has_min_max(values.type):
        valid = values.drop_null()
        order = order_of(values.type).sort(valid)
        least, greatest = valid[int(order[0])], valid[int(order[-1])]
    else:
        bounds = pc.min_max(values)
        least, greatest = bounds["min"], bounds["max"]
    return least, _nan(values.type) if num_nan else greatest, num_nan


def _has_min_max(data_type: pa.DataType) -> bool:
    """Return whether Arrow knows the least of such values; it sorts others all the same."""
    return not (
        pa.types.is_fixed_size_binary(data_type)
        or pa.types.is_duration(data_type)
        or pa.types.is_float16(data_type)
    )


def _nan(data_type: pa.DataType) -> pa.Scalar:
    return pa.array([np.nan]).cast(data_type)[0]


def _scalars(scalars: Sequence[pa.Scalar], data_type: pa.DataType) -> pa.Array:
    parts = [pa.array([], data_type), *(pa.repeat(scalar, 1) for scalar in scalars)]
    return pa.concat_arrays(parts)


def _write(table: pa.Table, nulls: RowSet, folder: SegmentFolder, zone_rows: int) -> bytes:
    with folder.create(_FILE, table.schema) as file:
        file.write(table)
        file.add_schema_metadata(_ROWS_PER_ZONE, str(zone_rows))
        file.add_schema_metadata(_NULLS, str(file.add_global_buffer(nulls.render())))
    details = index_details_pb.ZoneMapIndexDetails(
        rows_per_zone=zone_rows, use_seeds=False, has_null_bitmap=True
    )
    return render_message(details)


def _opened(segment: Segment) -> ZoneMapSegment:
    assert isinstance(segment, ZoneMapSegment), "segments of one index are of one kind"
    return segment
