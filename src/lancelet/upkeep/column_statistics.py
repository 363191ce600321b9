"""Column statistics: null count, minimum, maximum and approximate number of distinct values.

    fragment 0   zone statistics            nulls 3, from 1 to 90      no values are read
    fragment 1   4 rows deleted             nulls 0, from 5 to 70      the column is read
    total                                   nulls 3, from 1 to 90

Zone statistics include deleted rows and truncate the bounds of long strings. In these cases an
ordered index on the column is used if it covers all rows; otherwise the column is read. The number
of distinct values is estimated from hashes with an error of about 2 percent, which always reads the
column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.merge.key_index import Keys
from lancelet.errors import UnsupportedError
from lancelet.expr.python_values import values_of
from lancelet.file.zones import BOUND_BYTES
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.rowids.address import UInt64s
from lancelet.scan.execute import execute
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.indexing.first_rows import bounds_by_index
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_REGISTER_BITS: Final = 12
_REGISTERS: Final = 1 << _REGISTER_BITS
_BIAS: Final = 0.7213 / (1 + 1.079 / _REGISTERS)


class Source(Enum):
    """Where statistics are stored."""

    ZONES = "zone statistics"
    ZONES_WITH_DELETED = "zone statistics, which include deleted rows"
    INDEX = "an index"


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """The statistics of a column.

    Attributes:
        name: The column name or field path.
        type: The Arrow type.
        num_rows: The number of rows.
        null_count: The number of null values.
        minimum: The smallest value; None if all values are null or the type is not ordered. NaN is
            ignored.
        maximum: The largest value.
        distinct: The approximate number of distinct values; None if not requested, or if the type
            is not supported, such as maps.
        rows_read: The number of rows read.
    """

    name: str
    type: str
    num_rows: int
    null_count: int
    minimum: Any
    maximum: Any
    distinct: int | None
    rows_read: int


def column_statistics(
    snapshot: Snapshot, columns: Sequence[str] | None = None, *, distinct: bool = False
) -> list[ColumnStatistics]:
    """Return the statistics of columns of a version, by default of all."""
    names = snapshot.schema.names if columns is None else columns
    return [_compute_statistics(snapshot, name, distinct=distinct) for name in names]


def stored_statistics(snapshot: Snapshot, name: str) -> tuple[Source, ColumnStatistics] | None:
    """Return statistics that require no reads of values, with their source, or None.

    Those that include deleted rows are returned only if exact ones would require reads.
    """
    field = snapshot.schema.field_by_path(name)
    source, parts = _stored_parts(snapshot, name, field)
    if None in parts:
        source = Source.ZONES_WITH_DELETED
        parts = [
            _from_zones(snapshot, each, field, with_deleted=True) for each in snapshot.fragments
        ]
    available = [part for part in parts if part is not None]
    if len(available) < len(parts):
        return None
    found = _summarize(snapshot, name, field, available, None)
    if source is Source.ZONES_WITH_DELETED:
        found = replace(found, num_rows=int(snapshot.fragments.physical_rows.sum()))
    return source, found


def fragment_bounds(
    snapshot: Snapshot, fragment: Fragment, name: str
) -> tuple[int, pa.Scalar, pa.Scalar] | None:
    """Return the null count, minimum and maximum of a column in a fragment.

    Returns None if the data files have no exact statistics, or if rows were deleted. NaN is
    ignored.
    """
    field = snapshot.schema.field_by_path(name)
    statistics = _from_zones(snapshot, fragment, field)
    if statistics is None or statistics.bounds.type != field.arrow_type:
        return None
    minimum, maximum = _min_max(statistics.bounds)
    return statistics.null_count, minimum, maximum


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The statistics of some rows; null entries in `bounds` are ignored."""

    null_count: int
    bounds: pa.Array
    rows_read: int = 0


def _compute_statistics(snapshot: Snapshot, name: str, *, distinct: bool) -> ColumnStatistics:
    field = snapshot.schema.field_by_path(name)
    sketch = _Distinct() if distinct and _is_hashable(field.arrow_type) else None
    parts = list(_fragment_statistics(snapshot, name, field, sketch))
    return _summarize(snapshot, name, field, parts, sketch)


def _summarize(
    snapshot: Snapshot, name: str, field: Field, parts: Sequence[_Part], sketch: _Distinct | None
) -> ColumnStatistics:
    bounds = [part.bounds for part in parts if len(part.bounds)]
    minimum, maximum = values_of(_min_max(pa.concat_arrays(bounds))) if bounds else (None, None)
    return ColumnStatistics(
        name=name,
        type=str(field.arrow_type),
        num_rows=snapshot.num_rows,
        null_count=sum(part.null_count for part in parts),
        minimum=minimum,
        maximum=maximum,
        distinct=None if sketch is None else sketch.estimate(),
        rows_read=sum(part.rows_read for part in parts),
    )


def _fragment_statistics(
    snapshot: Snapshot, name: str, field: Field, sketch: _Distinct | None
) -> Iterator[_Part]:
    if sketch is not None:
        for fragment in snapshot.fragments:
            yield _from_values(snapshot, fragment, name, sketch)
        return
    _, parts = _stored_parts(snapshot, name, field)
    if None not in parts:
        yield from (part for part in parts if part is not None)
        return
    for fragment, part in zip(snapshot.fragments, parts, strict=True):
        yield part or _from_values(snapshot, fragment, name, None)


def _stored_parts(
    snapshot: Snapshot, name: str, field: Field
) -> tuple[Source, Sequence[_Part | None]]:
    """Return the statistics of an index on all rows, or of the zones of each fragment."""
    from_zones = [_from_zones(snapshot, fragment, field) for fragment in snapshot.fragments]
    if None in from_zones:
        path = tuple(each.name for each in snapshot.schema.fields_on_path(name))
        by_index = bounds_by_index(snapshot, path)
        if by_index is not None:
            return Source.INDEX, [_Part(*by_index)]
    return Source.ZONES, from_zones


def _from_zones(
    snapshot: Snapshot, fragment: Fragment, field: Field, *, with_deleted: bool = False
) -> _Part | None:
    """Return the exact statistics in the zones of a fragment, or None."""
    if not field.is_leaf or fragment.overlays or (fragment.deletion_file and not with_deleted):
        return None
    zones = FragmentReader(snapshot, fragment).zone_statistics(field)
    if zones is None or zones.num_rows != snapshot.physical_rows(fragment):
        return None
    bounds = pa.concat_arrays([zones.minimum, zones.maximum])
    without_values = zones.null_count + (0 if zones.nan_count is None else zones.nan_count)
    has_values = without_values < np.diff(zones.edges)
    if bool(np.any(np.tile(has_values, 2) & bounds.is_null().to_numpy(zero_copy_only=False))):
        return None
    return _Part(int(zones.null_count.sum()), bounds) if _are_exact(bounds) else None


def _are_exact(bounds: pa.Array) -> bool:
    """Return whether the bounds are exact values; those of long strings are truncated."""
    data_type = bounds.type
    if not (_is_text(data_type) or pa.types.is_fixed_size_binary(data_type)):
        return True
    longest = pc.max(pc.binary_length(bounds.cast(pa.large_binary()))).as_py()
    return longest is None or longest < BOUND_BYTES


def _is_text(data_type: pa.DataType) -> bool:
    return data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _from_values(
    snapshot: Snapshot, fragment: Fragment, name: str, sketch: _Distinct | None
) -> _Part:
    options = ScanOptions(columns=(name,), fragments=(int(fragment.id),))
    nulls, rows, bounds_by_batch = 0, 0, []
    for batch in execute(plan_scan(snapshot, options)):
        values = batch.column(0)
        rows, nulls = rows + len(values), nulls + values.null_count
        if sketch is not None:
            sketch.add(values)
        bounds_by_batch.append(_bounds_of(values))
    non_empty = [bounds for bounds in bounds_by_batch if len(bounds)]
    return _Part(nulls, pa.concat_arrays(non_empty) if non_empty else pa.nulls(0), rows)


def _bounds_of(values: pa.Array) -> pa.Array:
    """Return the minimum and maximum, or no values if the type is not ordered."""
    if isinstance(values, pa.DictionaryArray):
        values = values.cast(values.type.value_type)
    if isinstance(values, pa.ExtensionArray) or not _has_order(values.type):
        return pa.nulls(0)
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.is_nan(values)))
    return _min_max(values)


def _has_order(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_primitive(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or _is_text(data_type)
    )


def _min_max(values: pa.Array) -> pa.Array:
    """Return the minimum and maximum, also for types without a `min_max` kernel.

    >>> _min_max(pa.array([7, 5, None], pa.duration("s"))).cast(pa.int64()).to_pylist()
    [5, 7]
    """
    original_type = values.type
    if pa.types.is_duration(original_type):
        values = values.cast(pa.int64())
    elif pa.types.is_float16(original_type):
        values = values.cast(pa.float32())
    bounds = pc.min_max(values)
    return pa.array([bounds["min"], bounds["max"]], values.type).cast(original_type)


def _is_hashable(data_type: pa.DataType) -> bool:
    try:
        Keys.of([pa.array([], data_type)])
    except UnsupportedError:
        return False
    return True


class _Distinct:
    """Estimates the number of distinct values with HyperLogLog.

    Each register stores the maximum number of leading zeros of its hashes, plus one.
    """

    def __init__(self) -> None:
        self._registers: npt.NDArray[np.uint8] = np.zeros(_REGISTERS, np.uint8)

    def add(self, values: pa.Array) -> None:
        """Add the non-null values."""
        present = values.drop_null()
        if len(present):
            hashes: UInt64s = Keys.of([present]).hashes
            registers = (hashes >> np.uint64(64 - _REGISTER_BITS)).astype(np.int64)
            # The sentinel bit limits the number of leading zeros.
            rest = (hashes << np.uint64(_REGISTER_BITS)) | np.uint64(1 << (_REGISTER_BITS - 1))
            zeros = 63 - np.floor(np.log2(rest.astype(np.float64))).astype(np.int64)
            np.maximum.at(self._registers, registers, (zeros + 1).astype(np.uint8))

    def estimate(self) -> int:
        """Return the approximate number of distinct values."""
        registers = self._registers.astype(np.float64)
        estimate = _BIAS * _REGISTERS**2 / float(np.exp2(-registers).sum())
        empty = int(np.count_nonzero(self._registers == 0))
        if empty and estimate <= 2.5 * _REGISTERS:
            estimate = _REGISTERS * float(np.log(_REGISTERS / empty))
        return round(estimate)
