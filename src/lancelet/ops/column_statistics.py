"""Statistics of columns: nulls, smallest and largest value, and about how many are different.

    fragment 0   statistics of its zones    nulls 3, from 1 to 90      nothing is read
    fragment 1   4 rows deleted             nulls 0, from 5 to 70      the column is read
    together                                nulls 3, from 1 to 90

The zones of a fragment tell of all its rows, so those of one with deleted rows do not help. Neither
do bounds that are no values, as those of long strings are not. An index in the order of the column
that has all rows tells then, as it does for such strings. How many values are different is
estimated from their hashes, to about 2 percent, for which the column is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.file.zones import BOUND_BYTES
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.ops.merge_insert.key_index import Keys
from lancelet.query.execute import execute
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.indexing.first_rows import bounds_by_index
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_REGISTER_BITS: Final = 12
_REGISTERS: Final = 1 << _REGISTER_BITS
_BIAS: Final = 0.7213 / (1 + 1.079 / _REGISTERS)


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """What the values of a column are like.

    Attributes:
        name: The column, or the path of a field.
        type: Its Arrow type.
        num_rows: How many rows there are.
        null_count: In how many there is no value.
        minimum: The smallest value; None if there is none, or the type has no order. NaN is not
            looked at.
        maximum: The largest.
        distinct: About how many values are different; None if that was not asked for, or cannot
            be told, as of maps.
        rows_read: For how many rows the column had to be read.
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
    """Return the statistics of some columns of a version, by default of all."""
    names = snapshot.schema.names if columns is None else columns
    return [_statistics_of(snapshot, name, distinct=distinct) for name in names]


def fragment_bounds(
    snapshot: Snapshot, fragment: Fragment, name: str
) -> tuple[int, pa.Scalar, pa.Scalar] | None:
    """Return how many nulls a column of a fragment has, its least and its greatest value.

    None says that its files do not tell, or tell of rows that were deleted too. NaN is no value.
    """
    field = snapshot.schema.field_by_path(name)
    known = _from_zones(snapshot, fragment, field)
    if known is None or known.bounds.type != field.arrow_type:
        return None
    least, most = _min_max(known.bounds)
    return known.null_count, least, most


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The statistics of some rows; bounds are arrays, whose nulls say nothing."""

    null_count: int
    bounds: pa.Array
    rows_read: int = 0


def _statistics_of(snapshot: Snapshot, name: str, *, distinct: bool) -> ColumnStatistics:
    field = snapshot.schema.field_by_path(name)
    seen = _Distinct() if distinct and _can_be_told_apart(field.arrow_type) else None
    parts = list(_parts_of(snapshot, name, field, seen))
    bounds = [part.bounds for part in parts if len(part.bounds)]
    least, most = _min_max(pa.concat_arrays(bounds)).to_pylist() if bounds else (None, None)
    return ColumnStatistics(
        name=name,
        type=str(field.arrow_type),
        num_rows=snapshot.num_rows,
        null_count=sum(part.null_count for part in parts),
        minimum=least,
        maximum=most,
        distinct=None if seen is None else seen.estimate(),
        rows_read=sum(part.rows_read for part in parts),
    )


def _parts_of(
    snapshot: Snapshot, name: str, field: Field, seen: _Distinct | None
) -> Iterator[_Part]:
    if seen is not None:
        for fragment in snapshot.fragments:
            yield _from_values(snapshot, fragment, name, seen)
        return
    known = [_from_zones(snapshot, fragment, field) for fragment in snapshot.fragments]
    if None in known:
        path = tuple(each.name for each in snapshot.schema.fields_on_path(name))
        by_index = bounds_by_index(snapshot, path)
        if by_index is not None:
            yield _Part(*by_index)
            return
    for fragment, part in zip(snapshot.fragments, known, strict=True):
        yield part or _from_values(snapshot, fragment, name, None)


def _from_zones(snapshot: Snapshot, fragment: Fragment, field: Field) -> _Part | None:
    """Return what the zones of a fragment tell of all its rows, or None."""
    if not field.is_leaf or fragment.deletion_file or fragment.overlays:
        return None
    zones = FragmentReader(snapshot, fragment).zone_statistics(field)
    if zones is None or zones.num_rows != snapshot.physical_rows(fragment):
        return None
    bounds = pa.concat_arrays([zones.minimum, zones.maximum])
    without_values = zones.null_count + (0 if zones.nan_count is None else zones.nan_count)
    has_values = without_values < np.diff(zones.edges)
    if bool(np.any(np.tile(has_values, 2) & bounds.is_null().to_numpy(zero_copy_only=False))):
        return None
    return _Part(int(zones.null_count.sum()), bounds) if _are_values(bounds) else None


def _are_values(bounds: pa.Array) -> bool:
    """Return whether bounds are values that occur: those of long strings were cut."""
    data_type = bounds.type
    if not (_is_text(data_type) or pa.types.is_fixed_size_binary(data_type)):
        return True
    longest = pc.max(pc.binary_length(bounds.cast(pa.large_binary()))).as_py()
    return longest is None or longest < BOUND_BYTES


def _is_text(data_type: pa.DataType) -> bool:
    return data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def _from_values(
    snapshot: Snapshot, fragment: Fragment, name: str, seen: _Distinct | None
) -> _Part:
    options = ScanOptions(columns=(name,), fragments=(int(fragment.id),))
    nulls, rows, found = 0, 0, []
    for batch in execute(plan_scan(snapshot, options)):
        values = batch.column(0)
        rows, nulls = rows + len(values), nulls + values.null_count
        if seen is not None:
            seen.add(values)
        found.append(_bounds_of(values))
    kept = [bounds for bounds in found if len(bounds)]
    return _Part(nulls, pa.concat_arrays(kept) if kept else pa.nulls(0), rows)


def _bounds_of(values: pa.Array) -> pa.Array:
    """Return the smallest and the largest of some values; nothing if they have no order."""
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
    """Return the smallest and the largest of some values, of types that Arrow does not order too.

    >>> _min_max(pa.array([7, 5, None], pa.duration("s"))).cast(pa.int64()).to_pylist()
    [5, 7]
    """
    own = values.type
    if pa.types.is_duration(own):
        values = values.cast(pa.int64())
    elif pa.types.is_float16(own):
        values = values.cast(pa.float32())
    found = pc.min_max(values)
    return pa.array([found["min"], found["max"]], values.type).cast(own)


def _can_be_told_apart(data_type: pa.DataType) -> bool:
    try:
        Keys.of([pa.array([], data_type)])
    except UnsupportedError:
        return False
    return True


class _Distinct:
    """Estimates how many values are different: the more there are, the rarer hashes occur.

    Of the hashes that fall into a register, the most zeros in front of one are kept.
    """

    def __init__(self) -> None:
        self._registers: npt.NDArray[np.uint8] = np.zeros(_REGISTERS, np.uint8)

    def add(self, values: pa.Array) -> None:
        """Count the values that are not null."""
        present = values.drop_null()
        if len(present):
            hashes: UInt64s = Keys.of([present]).hashes
            which = (hashes >> np.uint64(64 - _REGISTER_BITS)).astype(np.int64)
            # The lowest bit set stands for the end of what is left of a hash.
            rest = (hashes << np.uint64(_REGISTER_BITS)) | np.uint64(1 << (_REGISTER_BITS - 1))
            zeros = 63 - np.floor(np.log2(rest.astype(np.float64))).astype(np.int64)
            np.maximum.at(self._registers, which, (zeros + 1).astype(np.uint8))

    def estimate(self) -> int:
        """Return about how many different values were added."""
        registers = self._registers.astype(np.float64)
        estimate = _BIAS * _REGISTERS**2 / float(np.exp2(-registers).sum())
        empty = int(np.count_nonzero(self._registers == 0))
        if empty and estimate <= 2.5 * _REGISTERS:
            estimate = _REGISTERS * float(np.log(_REGISTERS / empty))
        return round(estimate)
