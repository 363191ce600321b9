"""Estimate the share of rows that satisfy a condition.

    k = 7                  one of 100 values between the bounds of each zone     0.01
    k >= 40 AND k < 50     bounds 0 and 99, values assumed evenly spaced         0.1
    k IS NULL              counted by the statistics                             exact
    name = 'a'             no estimate from the bounds of strings                a default

Only statistics that pruning has read are used, so an estimate performs no reads of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.file.base import ZoneStatistics
from lancelet.io.metered import IoCounts
from lancelet.scan.plan import leaf_at
from lancelet.scan.row_slices import RowSlice

_EQUAL: Final = 0.005
"""The default share for equality and for text patterns, as in PostgreSQL."""
_EQUAL_COMPUTED: Final = 0.1
"""The default share for equality of computed values, which often have few values."""
_OTHER: Final = 1 / 3
_PATTERNS: Final = frozenset(
    {"contains", "starts_with", "ends_with", "regexp_match", "regexp_like"}
)
_DAYS_BITS: Final = 32
_LARGEST: Final = 1e300
_ABOVE: Final = frozenset({Operator.GREATER, Operator.GREATER_EQUAL})
_BELOW: Final = frozenset({Operator.LESS, Operator.LESS_EQUAL})

Floats = npt.NDArray[np.float64]


def selectivity(expressions: Sequence[Expression], slices: Sequence[RowSlice]) -> float:
    """Return the estimated share of the rows of slices that satisfy all expressions."""
    return _range_share(expressions, slices)


def _all_of(shares: Sequence[float]) -> float:
    return float(np.prod(shares)) if shares else 1.0


def _share(expression: Expression, slices: Sequence[RowSlice]) -> float:
    match expression:
        case ex.And(operands):
            return _range_share(operands, slices)
        case ex.Or(operands):
            return 1 - _all_of([1 - _share(each, slices) for each in operands])
        case ex.Not(operand):
            return 1 - _share(operand, slices)
        case ex.Comparison(Operator.EQUAL, ex.Column(path), ex.Literal(value)):
            bounds = _Bounds.of(path, slices)
            return _EQUAL if bounds is None else bounds.equal([value])
        case ex.Comparison(Operator.EQUAL, _, _):
            return _EQUAL_COMPUTED
        case ex.Comparison(Operator.NOT_EQUAL, left, right):
            return 1 - _share(ex.Comparison(Operator.EQUAL, left, right), slices)
        case ex.Comparison(operator, ex.Column(), ex.Literal()) if operator in _ABOVE | _BELOW:
            return _range_share((expression,), slices)
        case ex.In(ex.Column(path), values):
            bounds = _Bounds.of(path, slices)
            return min(1.0, _EQUAL * len(values)) if bounds is None else bounds.equal(list(values))
        case ex.IsNull(ex.Column(path)):
            found = _statistics(path, slices)
            return _EQUAL if not found else _nulls(found)
        case ex.Call(function, _) if function in _PATTERNS:
            return _EQUAL
    return _OTHER


def _range_share(operands: Sequence[Expression], slices: Sequence[RowSlice]) -> float:
    """Return the share of a conjunction; the bounds of one column are combined to an interval."""
    intervals: dict[tuple[str, ...], tuple[float, float]] = {}
    shares = []
    for each in operands:
        match each:
            case ex.Comparison(operator, ex.Column(path), ex.Literal(value)) if (
                operator in _ABOVE or operator in _BELOW
            ):
                number = _number(value)
                if number is None or _Bounds.of(path, slices) is None:
                    shares.append(_OTHER)
                    continue
                low, high = intervals.get(path, (-np.inf, np.inf))
                is_low = operator in _ABOVE
                intervals[path] = (max(low, number), high) if is_low else (low, min(high, number))
            case _:
                shares.append(_share(each, slices))
    for path, (low, high) in intervals.items():
        bounds = _Bounds.of(path, slices)
        assert bounds is not None, "only columns with bounds have an interval"
        shares.append(bounds.between(low, high))
    return _all_of(shares)


class _Bounds:
    """The bounds of zones of a numeric column, and the examined rows of each zone."""

    def __init__(self, low: Floats, high: Floats, rows: Floats, step: float) -> None:
        # Differences of infinite bounds would not be numbers.
        low, high = np.clip(low, -_LARGEST, _LARGEST), np.clip(high, -_LARGEST, _LARGEST)
        self._low, self._high, self._rows = low, high, rows
        self._width = np.maximum(high - low + step, np.finfo(np.float64).tiny)
        self._step = step

    @staticmethod
    def of(path: tuple[str, ...], slices: Sequence[RowSlice]) -> _Bounds | None:
        """Return the bounds of a column, or None if there are none or they are not numbers."""
        lows, highs, rows = [], [], []
        is_whole = True
        for statistics, own_rows in _statistics(path, slices):
            low, high = _numbers(statistics.minimum), _numbers(statistics.maximum)
            if low is None or high is None:
                return None
            is_whole = not pa.types.is_floating(statistics.minimum.type)
            is_bounded = ~(np.isnan(low) | np.isnan(high)) & (own_rows > 0)
            lows.append(low[is_bounded])
            highs.append(high[is_bounded])
            rows.append(own_rows[is_bounded])
        if not lows or not sum(map(len, lows)):
            return None
        step = 1.0 if is_whole else 0.0
        return _Bounds(np.concatenate(lows), np.concatenate(highs), np.concatenate(rows), step)

    def equal(self, values: Sequence[pa.Scalar]) -> float:
        """Return the share of rows that equal one of the values."""
        numbers = [_number(value) for value in values]
        single = np.minimum(1.0, (self._step or 1.0) / np.maximum(self._width, 1.0))
        if not self._step:
            single = 1 / np.maximum(self._rows, 1.0)
        inside = sum(
            ((self._low <= each) & (each <= self._high) for each in numbers if each is not None),
            np.zeros(len(self._low), np.int64),
        )
        return self._weighted(np.minimum(1.0, inside * single))

    def between(self, low: float, high: float) -> float:
        """Return the share of rows in an interval."""
        covered = np.minimum(high, self._high + self._step) - np.maximum(low, self._low)
        return self._weighted(np.clip(covered / self._width, 0.0, 1.0))

    def _weighted(self, shares: Floats) -> float:
        return float((shares * self._rows).sum() / self._rows.sum())


def _statistics(
    path: tuple[str, ...], slices: Sequence[RowSlice]
) -> list[tuple[ZoneStatistics, Floats]]:
    """Return the statistics of each fragment, and the examined rows of each zone."""
    found = []
    for each in slices:
        reader = each.source.reader
        leaf = leaf_at(each.source.snapshot.schema.fields, path)
        if leaf is None or reader.statistics_reads((leaf,)) == IoCounts():
            continue
        statistics = reader.zone_statistics(leaf)
        if statistics is not None and len(statistics):
            edges = np.clip(statistics.edges, each.rows.start, each.rows.stop)
            share = len(each) / max(1, len(each.rows))
            found.append((statistics, np.diff(edges) * share))
    return found


def _nulls(found: Sequence[tuple[ZoneStatistics, Floats]]) -> float:
    nulls = rows = 0.0
    for statistics, own_rows in found:
        shares = statistics.null_count / np.maximum(np.diff(statistics.edges), 1)
        nulls += float((shares * own_rows).sum())
        rows += float(own_rows.sum())
    return nulls / max(rows, 1.0)


def _number(value: pa.Scalar) -> float | None:
    found = _numbers(pa.repeat(value, 1)) if value.is_valid else None
    return None if found is None or np.isnan(found[0]) else float(found[0])


def _numbers(values: pa.Array) -> Floats | None:
    """Return numbers and times as floating point values, NaN for nulls; None for other types."""
    data_type = values.type
    if pa.types.is_temporal(data_type) and not pa.types.is_interval(data_type):
        values = values.view(pa.int32() if data_type.bit_width == _DAYS_BITS else pa.int64())
    elif not (pa.types.is_integer(data_type) or pa.types.is_floating(data_type)):
        return None
    numbers: Floats = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return numbers
