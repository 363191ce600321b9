"""Find the zones of rows that can match a filter, from their minimum and maximum values.

    zone     min   max   nulls           a > 15
    0        1     10    0               false for all rows: skipped
    1        8     20    0               unknown: read
    2        16    20    0               true for all rows: not evaluated

For each expression, a `Verdict` holds the boolean values its rows can have in each zone, as three
arrays. AND, OR and NOT combine verdicts. Bounds may be inexact, for example truncated strings, and
may be missing.

Float bounds exclude NaN, which is greater than every number: unless a zone is known to be free of
NaN, its maximum counts as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final, Literal, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import FieldNotFoundError
from lancelet.expr import expression as ex
from lancelet.expr.coercion import plain
from lancelet.expr.data_types import is_temporal, is_text
from lancelet.expr.evaluate import compare, literal_prefix
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.scan_types import scan_type
from lancelet.expr.traversal import columns_of
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.schedule import fixed_row_bytes
from lancelet.format.field_path import format_path
from lancelet.format.schema import Field, Schema
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.plan import FilterStep
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Bools: TypeAlias = npt.NDArray[np.bool_]
Side: TypeAlias = Literal["left", "right"]

_ROWS_MIN: Final = 4096
"""Minimum number of rows for reading statistics; fewer rows are read directly."""

_SMALL_FRAGMENTS: Final = 4
_SMALL_ROWS: Final = 1 << 14
_NARROW_BYTES: Final = 16
"""The same minimum in bytes, for filters of fixed-width columns."""


@dataclass(frozen=True, slots=True, eq=False)
class ColumnZones:
    """Statistics of one column by zone; null elements are unknown.

    `minimum` and `maximum` bound the values other than null and NaN. `null_count` is the number
    of rows where the column is null. `has_nan` is False only for zones without NaN.
    """

    minimum: pa.Array
    maximum: pa.Array
    null_count: pa.Array | None = None
    has_nan: pa.Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The boolean values that rows of each zone can have."""

    may_be_true: Bools
    may_be_false: Bools
    may_be_null: Bools

    @property
    def all_true(self) -> Bools:
        """A mask of the zones where all rows are true."""
        return ~self.may_be_false & ~self.may_be_null

    @staticmethod
    def unknown(num_zones: int) -> Verdict:
        """Return the verdict that excludes nothing."""
        anything = np.ones(num_zones, np.bool_)
        return Verdict(anything, anything, anything)


@dataclass(frozen=True, slots=True, eq=False)
class Zones:
    """The zones of a table: row counts, and statistics by column path."""

    num_rows: npt.NDArray[np.int64]
    columns: Mapping[tuple[str, ...], ColumnZones]

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.num_rows)


def prune(expression: Expression, zones: Zones) -> Verdict:
    """Return the possible values of a bound filter in each zone.

    >>> zones = Zones(
    ...     np.array([10, 10]), {("a",): ColumnZones(pa.array([1, 16]), pa.array([10, 20]))}
    ... )
    >>> prune(ex.Comparison(Operator.GREATER, ex.column("a"), ex.literal(15)), zones).may_be_true
    array([False,  True])
    """
    match expression:
        case ex.And(operands):
            return _all_of([prune(operand, zones) for operand in operands])
        case ex.Or(operands):
            negated = [_not(prune(operand, zones)) for operand in operands]
            return _not(_all_of(negated))
        case ex.Not(operand):
            return _not(prune(operand, zones))
        case ex.Literal(scalar):
            return _constant(scalar, len(zones))
        case ex.Column(path) if path in zones.columns:
            if not pa.types.is_boolean(zones.columns[path].minimum.type):
                return Verdict.unknown(len(zones))
            return _compared(Operator.EQUAL, path, pa.scalar(True), zones)
        case ex.IsNull(ex.Column(path)) if path in zones.columns:
            return _is_null(_Column.of(path, zones))
        case ex.IsTrue(operand):
            inner = prune(operand, zones)
            not_true = inner.may_be_false | inner.may_be_null
            return Verdict(inner.may_be_true, not_true, np.zeros(len(zones), np.bool_))
        case ex.Comparison(operator, ex.Column(path), ex.Literal(scalar)) if path in zones.columns:
            return _compared(operator, path, scalar, zones)
        case ex.In(ex.Column(path), values) if path in zones.columns:
            return _in(path, values, zones)
        case ex.Like(ex.Column(path), ex.Literal(scalar), escape, False) if path in zones.columns:
            return _like(path, scalar, escape, zones)
        case ex.Call("starts_with", (ex.Column(path), ex.Literal(scalar))) if path in zones.columns:
            return _starts_with(path, scalar, zones)
        case _:
            return Verdict.unknown(len(zones))


# --- boolean values ----------------------------------------------------------------------------


def _not(verdict: Verdict) -> Verdict:
    return Verdict(verdict.may_be_false, verdict.may_be_true, verdict.may_be_null)


def _all_of(verdicts: list[Verdict]) -> Verdict:
    found = verdicts[0]
    for other in verdicts[1:]:
        found = Verdict(
            found.may_be_true & other.may_be_true,
            found.may_be_false | other.may_be_false,
            (found.may_be_null & (other.may_be_null | other.may_be_true))
            | (other.may_be_null & (found.may_be_null | found.may_be_true)),
        )
    return found


def _constant(scalar: pa.Scalar, num_zones: int) -> Verdict:
    value = scalar.as_py() if pa.types.is_boolean(scalar.type) else None
    return Verdict(*(np.full(num_zones, value is each) for each in (True, False, None)))


# --- columns ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """The bounds of a column as plain types, and masks of zones with nulls and with values."""

    minimum: pa.Array
    maximum: pa.Array
    may_be_null: Bools
    may_be_valid: Bools

    @staticmethod
    def of(path: tuple[str, ...], zones: Zones) -> _Column:
        stored = zones.columns[path]
        minimum, maximum = (
            bound.cast(plain(bound.type)) for bound in (stored.minimum, stored.maximum)
        )
        if pa.types.is_floating(maximum.type):
            minimum, maximum = _without_nan(minimum), _without_nan(maximum)
            no_nan = pa.scalar(False) if stored.has_nan is None else pc.equal(stored.has_nan, False)
            maximum = pc.if_else(
                pc.fill_null(no_nan, False), maximum, pa.scalar(None, maximum.type)
            )
        if stored.null_count is None:
            unknown = np.ones(len(zones), np.bool_)
            return _Column(minimum, maximum, unknown, unknown)
        nulls = stored.null_count.cast(pa.int64())
        may_be_null = _fill_nulls(pc.greater(nulls, 0), otherwise=True)
        may_be_valid = _fill_nulls(pc.less(nulls, pa.array(zones.num_rows)), otherwise=True)
        return _Column(minimum, maximum, may_be_null, may_be_valid)

    def verdict(self, may_be_true: Bools, may_be_false: Bools) -> Verdict:
        """Return a verdict that is null where the column is null."""
        return Verdict(
            may_be_true & self.may_be_valid, may_be_false & self.may_be_valid, self.may_be_null
        )


def _without_nan(bound: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _fill_nulls(mask: Any, *, otherwise: bool) -> Bools:
    found: Bools = pc.fill_null(mask, otherwise).to_numpy(zero_copy_only=False)
    return found


def _is_null(column: _Column) -> Verdict:
    never = np.zeros(len(column.may_be_null), np.bool_)
    return Verdict(column.may_be_null, column.may_be_valid, never)


def _compared(
    operator: Operator, path: tuple[str, ...], scalar: pa.Scalar, zones: Zones
) -> Verdict:
    column = _Column.of(path, zones)
    if operator in {Operator.DISTINCT, Operator.NOT_DISTINCT}:
        found = _not_distinct(column, scalar)
        return found if operator is Operator.NOT_DISTINCT else _not(found)
    never = np.zeros(len(zones), np.bool_)
    if not scalar.is_valid:
        return Verdict(never, never, np.ones(len(zones), np.bool_))
    value = scalar if scalar.type == column.minimum.type else scalar.cast(column.minimum.type)
    return column.verdict(*_possible(operator, column, value))


def _not_distinct(column: _Column, scalar: pa.Scalar) -> Verdict:
    never = np.zeros(len(column.may_be_null), np.bool_)
    if not scalar.is_valid:
        return _is_null(column)
    same, other = _possible(Operator.EQUAL, column, scalar.cast(column.minimum.type))
    may_differ = (other & column.may_be_valid) | column.may_be_null
    return Verdict(same & column.may_be_valid, may_differ, never)


def _possible(operator: Operator, column: _Column, value: pa.Scalar) -> tuple[Bools, Bools]:
    """Return masks of the zones where a comparison can be true, and where it can be false."""
    match operator:
        case Operator.EQUAL:
            inside = _below(column, value, or_equal=True) & _above(column, value, or_equal=True)
            differs = _below(column, value, or_equal=False) | _above(column, value, or_equal=False)
            return inside, differs
        case Operator.NOT_EQUAL | Operator.GREATER | Operator.GREATER_EQUAL:
            false, true = _possible(operator.negated, column, value)
            return true, false
        case Operator.LESS:
            return _below(column, value, or_equal=False), _above(column, value, or_equal=True)
        case Operator.LESS_EQUAL:
            return _below(column, value, or_equal=True), _above(column, value, or_equal=False)
        case Operator.DISTINCT | Operator.NOT_DISTINCT:
            unknown = np.ones(len(column.minimum), np.bool_)
            return unknown, unknown
        case _:
            assert_never(operator)


def _below(column: _Column, value: pa.Scalar, *, or_equal: bool) -> Bools:
    """Return a mask of the zones that may contain values below a constant."""
    operator = Operator.LESS_EQUAL if or_equal else Operator.LESS
    return _fill_nulls(compare(operator, column.minimum, value), otherwise=True)


def _above(column: _Column, value: pa.Scalar, *, or_equal: bool) -> Bools:
    """Return a mask of the zones that may contain values above a constant."""
    operator = Operator.GREATER_EQUAL if or_equal else Operator.GREATER
    return _fill_nulls(compare(operator, column.maximum, value), otherwise=True)


def _in(path: tuple[str, ...], values: pa.Array, zones: Zones) -> Verdict:
    column = _Column.of(path, zones)
    unique = values.drop_null().cast(column.minimum.type).unique()
    ordered = unique.take(pc.sort_indices(unique))
    first_above = _search(ordered, column.minimum, side="left", otherwise=0)
    first_beyond = _search(ordered, column.maximum, side="right", otherwise=len(ordered))
    may_be_in = first_above < first_beyond
    single = _fill_nulls(compare(Operator.EQUAL, column.minimum, column.maximum), otherwise=False)
    may_be_out = ~(single & may_be_in)
    verdict = column.verdict(may_be_in, may_be_out)
    if not values.null_count:
        return verdict
    # With a null in the list, values without a match are null.
    unknown = verdict.may_be_null | verdict.may_be_false
    return Verdict(verdict.may_be_true, np.zeros(len(zones), np.bool_), unknown)


def _search(ordered: pa.Array, bounds: pa.Array, *, side: Side, otherwise: int) -> Any:
    """Return the insertion position of each bound in sorted values."""
    if not len(ordered):
        return np.zeros(len(bounds), np.int64)
    filled = pc.fill_null(bounds, ordered[0])
    positions = np.searchsorted(_comparable(ordered), _comparable(filled), side=side)
    return np.where(bounds.is_valid().to_numpy(zero_copy_only=False), positions, otherwise)


def _comparable(values: pa.Array) -> npt.NDArray[Any]:
    """Convert values for NumPy, which has no type for times of day."""
    if is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    found: npt.NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def _like(path: tuple[str, ...], scalar: pa.Scalar, escape: str, zones: Zones) -> Verdict:
    if not scalar.is_valid or not is_text(scalar.type):
        return Verdict.unknown(len(zones))
    prefix, is_whole = literal_prefix(scalar.as_py(), escape)
    if is_whole:
        return _compared(Operator.EQUAL, path, pa.scalar(prefix), zones)
    found = _starts_with(path, pa.scalar(prefix), zones)
    # A value with the prefix may still not match the rest of the pattern.
    column = _Column.of(path, zones)
    return Verdict(found.may_be_true, column.may_be_valid, found.may_be_null)


def _starts_with(path: tuple[str, ...], scalar: pa.Scalar, zones: Zones) -> Verdict:
    """Prune a prefix test as the interval from the prefix to its successor."""
    column = _Column.of(path, zones)
    if not scalar.is_valid or not is_text(column.minimum.type):
        return Verdict.unknown(len(zones))
    prefix = scalar.as_py().encode()
    binary = _Column(
        column.minimum.cast(pa.large_binary()),
        column.maximum.cast(pa.large_binary()),
        column.may_be_null,
        column.may_be_valid,
    )
    low = pa.scalar(prefix, pa.large_binary())
    may_be_true = _above(binary, low, or_equal=True)
    may_be_false = _below(binary, low, or_equal=False)
    beyond = prefix.rstrip(b"\xff")
    if beyond:
        high = pa.scalar(beyond[:-1] + bytes((beyond[-1] + 1,)), pa.large_binary())
        may_be_true &= _below(binary, high, or_equal=False)
        may_be_false |= _above(binary, high, or_equal=True)
    return column.verdict(may_be_true, may_be_false)


@dataclass(slots=True)
class _ZoneGroup:
    """Statistics of columns with equal zones; zone i starts at row `edges[i]`."""

    edges: Int64s
    columns: dict[tuple[str, ...], ColumnZones] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class CandidateRanges:
    """The ascending row ranges of a fragment that may match, and those where all rows match."""

    possible: list[RowRange]
    certain: list[RowRange]


def candidate_ranges(
    reader: FragmentReader, steps: Sequence[FilterStep], snapshot: Snapshot
) -> CandidateRanges:
    """Return the row ranges of a fragment that may match all steps, and those that do.

        zones of 8192 rows    a in [1, 9]   a in [5, 30]   a in [40, 70]
        a > 7                 maybe         maybe          all rows
        possible              0 .. 20000
        certain               16384 .. 20000

    Columns with different zone sizes are pruned separately. If pages of a column have fewer rows
    than zones, which is common for large values, page statistics are used too.
    """
    possible = [RowRange(0, reader.num_rows)] if reader.num_rows else []
    if reader.num_rows < _ROWS_MIN or (_is_small(snapshot) and _are_narrow(steps)):
        return CandidateRanges(possible, [])
    certain = possible
    for step in steps:
        matching: list[RowRange] = []
        for group in _groups(reader, step.expression, snapshot.schema):
            verdict = prune(step.expression, Zones(np.diff(group.edges), group.columns))
            possible = _intersect(possible, _ranges_of(verdict.may_be_true, group.edges))
            all_true = _ranges_of(verdict.all_true, group.edges)
            matching = max(matching, all_true, key=lambda ranges: sum(map(len, ranges)))
        certain = _intersect(certain, matching)
    return CandidateRanges(possible, certain)


def _is_small(snapshot: Snapshot) -> bool:
    fragments = snapshot.fragments
    return len(fragments) <= _SMALL_FRAGMENTS and fragments.num_rows <= _SMALL_ROWS


def _are_narrow(steps: Sequence[FilterStep]) -> bool:
    sizes = [fixed_row_bytes(scan_type(each)) for step in steps for each in step.fields]
    fixed = [size for size in sizes if size is not None]
    return len(fixed) == len(sizes) and sum(fixed) <= _NARROW_BYTES


def _groups(
    reader: FragmentReader, expression: Expression, schema: Schema
) -> Collection[_ZoneGroup]:
    groups: dict[bytes, _ZoneGroup] = {}
    for path in columns_of(expression):
        leaf = leaf_on_path(schema, path)
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


def leaf_on_path(schema: Schema, path: tuple[str, ...]) -> Field | None:
    """Return the leaf field on a path, or None."""
    try:
        found = schema.field_by_path(format_path(path))
    except FieldNotFoundError:  # a row column or a map key
        return None
    return found if found.is_leaf else None


def _zones_of(found: ZoneStatistics | PageStatistics) -> ColumnZones:
    has_nan = None if found.nan_count is None else pa.array(found.nan_count > 0)
    return ColumnZones(found.minimum, found.maximum, pa.array(found.null_count), has_nan)


def _ranges_of(mask: npt.NDArray[np.bool_], edges: Int64s) -> list[RowRange]:
    """Return the row ranges of consecutive zones in a mask.

    >>> _ranges_of(np.array([True, False, True, True]), np.array([0, 10, 20, 30, 35]))
    [RowRange(start=0, stop=10), RowRange(start=20, stop=35)]
    """
    bounds = edges[np.diff(mask.astype(np.int8), prepend=0, append=0) != 0].tolist()
    return [RowRange(start, stop) for start, stop in zip(bounds[::2], bounds[1::2], strict=True)]


def _intersect(first: Sequence[RowRange], second: Sequence[RowRange]) -> list[RowRange]:
    """Return the intersection of two ascending lists of ranges.

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
