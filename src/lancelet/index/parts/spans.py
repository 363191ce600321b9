"""Row ranges of queries over sorted values.

    sorted     null null -1 0 3 3 7
    x >= 3     from the first value that is not below 3, to the end      (4, 7)
    x IN (0)   from the first 0 to after the last 0                      (3, 4)

The caller provides the search of insertion points. This module implements the semantics of bounds,
nulls and NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.index.parts.ordering import Side, order_of
from lancelet.index.query import (
    Contains,
    HasAll,
    HasAny,
    Intersects,
    Interval,
    IsNull,
    OneOf,
    ScalarQuery,
    StartsWith,
)
from lancelet.values import dataclass

Span: TypeAlias = tuple[int, int]
SearchFunction: TypeAlias = Callable[[pa.Array, Side], Int64s]
"""Returns the left or right insertion point of each value."""
SearchBothFunction: TypeAlias = Callable[[pa.Array], tuple[Int64s, Int64s]]
"""Returns both insertion points of each value."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedValues:
    """Sorted values: their type, row count, leading nulls, and search functions."""

    data_type: pa.DataType
    num_rows: int
    num_nulls: int
    search: SearchFunction
    search_both: SearchBothFunction | None = None

    def equal_ranges(self, values: pa.Array) -> tuple[Int64s, Int64s]:
        """Return the start and stop of the rows equal to each value."""
        if self.search_both is not None:
            return self.search_both(values)
        return self.search(values, "left"), self.search(values, "right")


def row_ranges_of(query: ScalarQuery, values: SortedValues) -> list[Span] | None:
    """Return the ranges of matching rows, which may be empty, or None if they are not ranges."""
    match query:
        case IsNull():
            return [(0, values.num_nulls)]
        case OneOf(targets):
            starts, stops = values.equal_ranges(targets)
            spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
            if pa.types.is_floating(targets.type) and pc.any(pc.is_nan(targets)).as_py():
                spans.append(_negative_nan_range(values))
            return spans
        case Interval() | StartsWith():
            interval = interval_of(query, values.data_type)
            return None if interval is None else _spans_of_interval(interval, values)
        case Contains() | HasAny() | HasAll() | Intersects():
            return None
    assert_never(query)


def interval_of(query: Interval | StartsWith, data_type: pa.DataType) -> Interval | None:
    """Convert a query to an interval. Return None if it is not one."""
    if isinstance(query, Interval):
        return query
    prefix = query.prefix
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        text = prefix.decode()
        return Interval(
            pa.scalar(text, data_type), _bound(_next_string(text), data_type), True, False
        )
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        following = _next_bytes(prefix)
        return Interval(pa.scalar(prefix, data_type), _bound(following, data_type), True, False)
    return None


def intersect_intervals(first: Interval, second: Interval) -> Interval:
    """Return the intersection of two intervals.

    >>> first, second = Interval(pa.scalar(3)), Interval(pa.scalar(3), pa.scalar(9), False)
    >>> both = intersect_intervals(first, second)
    >>> both.lower, both.includes_lower, both.upper
    (<pyarrow.Int64Scalar: 3>, False, <pyarrow.Int64Scalar: 9>)
    """
    lower, includes_lower = _intersect_bounds(
        (first.lower, first.includes_lower), (second.lower, second.includes_lower), is_lower=True
    )
    upper, includes_upper = _intersect_bounds(
        (first.upper, first.includes_upper), (second.upper, second.includes_upper), is_lower=False
    )
    return Interval(lower, upper, includes_lower, includes_upper)


def is_nan(scalar: pa.Scalar) -> bool:
    """Return whether a scalar is NaN."""
    return pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py())


def _intersect_bounds(
    first: tuple[pa.Scalar | None, bool], second: tuple[pa.Scalar | None, bool], *, is_lower: bool
) -> tuple[pa.Scalar | None, bool]:
    """Return the more restrictive bound; exclusive bounds win ties."""
    if first[0] is None or second[0] is None:
        return second if first[0] is None else first
    order = order_of(first[0].type)
    first_value, second_value = pa.repeat(first[0], 1), pa.repeat(second[0], 1)
    second_is_above = int(order.search(first_value, second_value, "left")[0]) == 1
    first_is_above = int(order.search(second_value, first_value, "left")[0]) == 1
    if first_is_above == second_is_above:
        return first[0], first[1] and second[1]
    return first if first_is_above == is_lower else second


def _spans_of_interval(interval: Interval, values: SortedValues) -> list[Span]:
    lower, upper = interval.lower, interval.upper
    below_numbers = _negative_nan_range(values)
    start, stop = below_numbers[1], values.num_rows
    if lower is not None:
        side: Side = "left" if interval.includes_lower else "right"
        start = int(values.search(pa.repeat(lower, 1), side)[0])
    if upper is not None:
        side = "right" if interval.includes_upper else "left"
        stop = int(values.search(pa.repeat(upper, 1), side)[0])
    reaches_nan = upper is None or (interval.includes_upper and is_nan(upper))
    starts_above = lower is not None and not interval.includes_lower and is_nan(lower)
    if reaches_nan and not starts_above:
        return [(start, stop), below_numbers]
    return [(start, stop)]


def _negative_nan_range(values: SortedValues) -> Span:
    """Return the range of the NaN values that sort before -inf."""
    if not pa.types.is_floating(values.data_type):
        return values.num_nulls, values.num_nulls
    infinity = pa.array([-math.inf]).cast(values.data_type)
    return values.num_nulls, max(int(values.search(infinity, "left")[0]), values.num_nulls)


def _bound(value: str | bytes | None, data_type: pa.DataType) -> pa.Scalar | None:
    return None if value is None else pa.scalar(value, data_type)


def _next_bytes(prefix: bytes) -> bytes | None:
    r"""Return the smallest value above all values with a prefix, or None if it does not exist.

    >>> _next_bytes(b"a\xff")
    b'b'
    """
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def _next_string(prefix: str) -> str | None:
    """Return the smallest string above all strings with a prefix, or None if it does not exist.

    >>> _next_string("ab")
    'ac'
    """
    head = prefix.rstrip("\U0010ffff")
    if not head:
        return None
    code = ord(head[-1]) + 1
    # Surrogates are not characters.
    return head[:-1] + chr(0xE000 if code == 0xD800 else code)
