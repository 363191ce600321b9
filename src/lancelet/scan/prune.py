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

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, assert_never

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.expr import expression as ex
from lancelet.expr.coercion import plain
from lancelet.expr.data_types import is_bytes, is_temporal, is_text
from lancelet.expr.evaluate import compare, literal_prefix
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.scan_types import scan_type
from lancelet.file.base import PageStatistics, ZoneStatistics
from lancelet.file.schedule import fixed_row_bytes
from lancelet.format.schema import Field
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.plan import FilterStep
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass

Bools: TypeAlias = npt.NDArray[np.bool_]
Side: TypeAlias = Literal["left", "right"]

_ROWS_MIN: Final = 4096
"""Minimum number of rows for reading statistics; fewer rows are read directly."""

_SMALL_FRAGMENTS: Final = 4
_SMALL_ROWS: Final = 1 << 14
_NARROW_BYTES: Final = 16
"""The same minimum in bytes, for filters of fixed-width columns."""


@dataclass(frozen=True, eq=False)
class ColumnBounds:
    """The bounds of a column in each zone, in the types of comparisons.

    `minimum` and `maximum` bound the values other than null; null elements are unknown. Since NaN
    is greater than every number, the maximum of zones that may have NaN is unknown.
    """

    minimum: pa.Array
    maximum: pa.Array
    may_be_null: Bools
    may_be_valid: Bools

    @staticmethod
    def of(
        minimum: pa.Array,
        maximum: pa.Array,
        num_rows: Int64s,
        null_count: pa.Array | None = None,
        has_nan: pa.Array | None = None,
    ) -> ColumnBounds:
        """Return bounds of stored statistics, in which nulls are unknown."""
        minimum, maximum = (bound.cast(plain(bound.type)) for bound in (minimum, maximum))
        if pa.types.is_floating(maximum.type):
            minimum, maximum = _without_nan(minimum), _without_nan(maximum)
            no_nan = pa.scalar(False) if has_nan is None else pc.equal(has_nan, False)
            unknown = pa.scalar(None, maximum.type)
            maximum = pc.if_else(pc.fill_null(no_nan, False), maximum, unknown)
        if null_count is None:
            always = np.ones(len(num_rows), np.bool_)
            return ColumnBounds(minimum, maximum, always, always)
        nulls = null_count.cast(pa.int64())
        may_be_null = _fill_nulls(pc.greater(nulls, 0), otherwise=True)
        may_be_valid = _fill_nulls(pc.less(nulls, pa.array(num_rows)), otherwise=True)
        return ColumnBounds(minimum, maximum, may_be_null, may_be_valid)

    @staticmethod
    def of_statistics(found: ZoneStatistics | PageStatistics) -> ColumnBounds:
        """Return the bounds of stored statistics."""
        has_nan = None if found.nan_count is None else pa.array(found.nan_count > 0)
        nulls = pa.array(found.null_count)
        return ColumnBounds.of(found.minimum, found.maximum, np.diff(found.edges), nulls, has_nan)

    @cached_property
    def numbers(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
        """The bounds as numbers that NumPy compares; unknown bounds are the widest possible.

        Texts and bytes are numbered in their order. None if the type has no numbers.
        """
        data_type = self.minimum.type
        if self._distinct is not None:
            unknown = -1, 2 * len(self._distinct) + 1  # outside of all positions
            low, high = (
                [other if each is None else self._position(each) for each in _as_bytes(bound)]
                for bound, other in zip((self.minimum, self.maximum), unknown, strict=True)
            )
            return np.array(low, np.int64), np.array(high, np.int64)
        minimum, maximum = self.minimum, self.maximum
        if is_temporal(data_type):
            whole = pa.int32() if data_type.bit_width == 32 else pa.int64()
            minimum, maximum = minimum.cast(whole), maximum.cast(whole)
        elif not pa.types.is_integer(data_type) and not pa.types.is_floating(data_type):
            return None
        kind = np.dtype(minimum.type.to_pandas_dtype())
        if kind.kind == "f":
            lowest, highest = -np.inf, np.inf
        else:
            lowest, highest = np.iinfo(kind).min, np.iinfo(kind).max
        low, high = pc.fill_null(minimum, lowest), pc.fill_null(maximum, highest)
        return low.to_numpy(zero_copy_only=False), high.to_numpy(zero_copy_only=False)

    def number(self, value: pa.Scalar) -> float | None:
        """Return the number of a constant, or None if it cannot be compared as a number."""
        if self.numbers is None:
            return None
        if self._distinct is not None:
            return self._position(value.as_buffer().to_pybytes())
        if is_temporal(self.minimum.type):
            whole: int = value.value
            return whole
        number: float = value.as_py()
        return number if math.isfinite(number) else None

    @cached_property
    def _distinct(self) -> list[bytes] | None:
        """The distinct bounds of text or bytes in ascending order; None for other types."""
        data_type = self.minimum.type
        if not is_text(data_type) and not is_bytes(data_type):
            return None
        bounds = {*_as_bytes(self.minimum), *_as_bytes(self.maximum)} - {None}
        return sorted(each for each in bounds if each is not None)

    def _position(self, value: bytes) -> int:
        """Return an odd number for a bound, and the even one between two bounds for other bytes."""
        assert self._distinct is not None
        index = bisect_left(self._distinct, value)
        is_bound = index < len(self._distinct) and self._distinct[index] == value
        return 2 * index + is_bound


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
    """Zones of rows, and the bounds of columns by path; zone i starts at row `edges[i]`."""

    edges: Int64s
    columns: dict[tuple[str, ...], ColumnBounds]

    def __len__(self) -> int:
        """Return the number of zones."""
        return len(self.edges) - 1


def prune(expression: Expression, zones: Zones) -> Verdict:
    """Return the possible values of a bound filter in each zone.

    >>> bounds = ColumnBounds.of(pa.array([1, 16]), pa.array([10, 20]), np.array([10, 10]))
    >>> zones = Zones(np.array([0, 10, 20]), {("a",): bounds})
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
            return _is_null(zones.columns[path])
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


def _verdict(column: ColumnBounds, may_be_true: Bools, may_be_false: Bools) -> Verdict:
    """Return a verdict that is null where the column is null."""
    valid = column.may_be_valid
    return Verdict(may_be_true & valid, may_be_false & valid, column.may_be_null)


def _fill_nulls(mask: Any, *, otherwise: bool) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(mask, otherwise).to_numpy(zero_copy_only=False)
    return found


def _without_nan(bound: pa.Array) -> pa.Array:
    return pc.if_else(pc.is_nan(bound), pa.scalar(None, bound.type), bound)


def _is_null(column: ColumnBounds) -> Verdict:
    never = np.zeros(len(column.may_be_null), np.bool_)
    return Verdict(column.may_be_null, column.may_be_valid, never)


def _compared(
    operator: Operator, path: tuple[str, ...], scalar: pa.Scalar, zones: Zones
) -> Verdict:
    column = zones.columns[path]
    if operator in {Operator.DISTINCT, Operator.NOT_DISTINCT}:
        found = _not_distinct(column, scalar)
        return found if operator is Operator.NOT_DISTINCT else _not(found)
    never = np.zeros(len(zones), np.bool_)
    if not scalar.is_valid:
        return Verdict(never, never, np.ones(len(zones), np.bool_))
    value = scalar if scalar.type == column.minimum.type else scalar.cast(column.minimum.type)
    return _verdict(column, *_possible(operator, column, value))


def _not_distinct(column: ColumnBounds, scalar: pa.Scalar) -> Verdict:
    never = np.zeros(len(column.may_be_null), np.bool_)
    if not scalar.is_valid:
        return _is_null(column)
    same, other = _possible(Operator.EQUAL, column, scalar.cast(column.minimum.type))
    may_differ = (other & column.may_be_valid) | column.may_be_null
    return Verdict(same & column.may_be_valid, may_differ, never)


def _possible(operator: Operator, column: ColumnBounds, value: pa.Scalar) -> tuple[Bools, Bools]:
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


def _as_bytes(bound: pa.Array) -> list[bytes | None]:
    found: list[bytes | None] = bound.cast(pa.large_binary()).to_pylist()
    return found


def _below(column: ColumnBounds, value: pa.Scalar, *, or_equal: bool) -> Bools:
    """Return a mask of the zones that may contain values below a constant."""
    number = column.number(value)
    if number is not None:
        low: npt.NDArray[Any] = column.numbers[0]  # type: ignore[index]
        return low <= number if or_equal else low < number
    operator = Operator.LESS_EQUAL if or_equal else Operator.LESS
    return _fill_nulls(compare(operator, column.minimum, value), otherwise=True)


def _above(column: ColumnBounds, value: pa.Scalar, *, or_equal: bool) -> Bools:
    """Return a mask of the zones that may contain values above a constant."""
    number = column.number(value)
    if number is not None:
        high: npt.NDArray[Any] = column.numbers[1]  # type: ignore[index]
        return high >= number if or_equal else high > number
    operator = Operator.GREATER_EQUAL if or_equal else Operator.GREATER
    return _fill_nulls(compare(operator, column.maximum, value), otherwise=True)


def _in(path: tuple[str, ...], values: pa.Array, zones: Zones) -> Verdict:
    column = zones.columns[path]
    unique = values.drop_null().cast(column.minimum.type).unique()
    ordered = unique.take(pc.sort_indices(unique))
    first_above = _search(ordered, column.minimum, side="left", otherwise=0)
    first_beyond = _search(ordered, column.maximum, side="right", otherwise=len(ordered))
    may_be_in = first_above < first_beyond
    single = _fill_nulls(compare(Operator.EQUAL, column.minimum, column.maximum), otherwise=False)
    may_be_out = ~(single & may_be_in)
    verdict = _verdict(column, may_be_in, may_be_out)
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
    column = zones.columns[path]
    return Verdict(found.may_be_true, column.may_be_valid, found.may_be_null)


def _starts_with(path: tuple[str, ...], scalar: pa.Scalar, zones: Zones) -> Verdict:
    """Prune a prefix test as the interval from the prefix to its successor."""
    column = zones.columns[path]
    if not scalar.is_valid or not is_text(column.minimum.type):
        return Verdict.unknown(len(zones))
    prefix = scalar.as_py().encode()
    low = pa.scalar(prefix, pa.large_binary())
    may_be_true = _above(column, low, or_equal=True)
    may_be_false = _below(column, low, or_equal=False)
    beyond = prefix.rstrip(b"\xff")
    if beyond:
        high = pa.scalar(beyond[:-1] + bytes((beyond[-1] + 1,)), pa.large_binary())
        may_be_true &= _below(column, high, or_equal=False)
        may_be_false |= _above(column, high, or_equal=True)
    return _verdict(column, may_be_true, may_be_false)


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
        for zones in _zones_of(reader, step.leaves_in(snapshot.schema)):
            verdict = prune(step.expression, zones)
            possible = _intersect(possible, _ranges_of(verdict.may_be_true, zones.edges))
            if certain:
                all_true = _ranges_of(verdict.all_true, zones.edges)
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


def _zones_of(reader: FragmentReader, leaves: Mapping[tuple[str, ...], Field]) -> Iterable[Zones]:
    """Return the zones of columns; columns with equal zones are joined."""
    groups: dict[bytes, Zones] = {}
    for path, leaf in leaves.items():
        for found in _statistics(reader, leaf):
            key = found.edges.tobytes() if len(leaves) > 1 else str(len(groups)).encode()
            zones = groups.setdefault(key, Zones(found.edges, {}))
            zones.columns[path] = found.once(ColumnBounds.of_statistics)
    return groups.values()


def _statistics(reader: FragmentReader, leaf: Field) -> Iterator[ZoneStatistics | PageStatistics]:
    zones = reader.zone_statistics(leaf)
    if zones is None or not len(zones):
        return
    yield zones
    pages = reader.page_statistics(leaf)
    if pages is not None and len(pages) > len(zones):
        yield pages


def _ranges_of(mask: npt.NDArray[np.bool_], edges: Int64s) -> list[RowRange]:
    """Return the row ranges of consecutive zones in a mask.

    >>> _ranges_of(np.array([True, False, True, True]), np.array([0, 10, 20, 30, 35]))
    [RowRange(start=0, stop=10), RowRange(start=20, stop=35)]
    """
    padded = np.zeros(len(mask) + 2, np.bool_)
    padded[1:-1] = mask
    bounds = edges[np.flatnonzero(padded[1:] != padded[:-1])].tolist()
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
