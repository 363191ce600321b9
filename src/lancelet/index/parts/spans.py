"""Questions about what is sorted: bounds become spans of rows.

    sorted     null null -1 0 3 3 7
    x >= 3     from the first place that is not below 3, to the end      (4, 7)
    x IN (0)   from the first 0 to behind the last                       (3, 4)

Where a value stands is for the caller to say; here is what bounds mean, nulls and NaN included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias, assert_never

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.index.parts.ordering import Side, order_of
from lancelet.index.question import (
    Contains,
    HasAll,
    HasAny,
    Interval,
    IsNull,
    Meets,
    OneOf,
    Question,
    StartsWith,
)
from lancelet.values import dataclass

Span: TypeAlias = tuple[int, int]
FindPlaces: TypeAlias = Callable[[pa.Array, Side], Int64s]
"""Returns for each value the first place that is not below it, or that is above it."""
FindBothPlaces: TypeAlias = Callable[[pa.Array], tuple[Int64s, Int64s]]
"""Returns both of these places for each value."""


@dataclass(frozen=True, slots=True, eq=False)
class SortedValues:
    """What is sorted: its type, how long it is, how many nulls come first, and how to look."""

    data_type: pa.DataType
    num_rows: int
    num_nulls: int
    places: FindPlaces
    find_both: FindBothPlaces | None = None

    def both_places(self, values: pa.Array) -> tuple[Int64s, Int64s]:
        """Return for each value where its equals start and stop, with one look if that is less."""
        if self.find_both is not None:
            return self.find_both(values)
        return self.places(values, "left"), self.places(values, "right")


def spans_of(question: Question, values: SortedValues) -> list[Span] | None:
    """Return where the answers stand, as spans that may be empty; None if they are no spans."""
    match question:
        case IsNull():
            return [(0, values.num_nulls)]
        case OneOf(wanted):
            starts, stops = values.both_places(wanted)
            spans = list(zip(starts.tolist(), stops.tolist(), strict=True))
            if pa.types.is_floating(wanted.type) and pc.any(pc.is_nan(wanted)).as_py():
                spans.append(_negative_nans(values))
            return spans
        case Interval() | StartsWith():
            interval = interval_of(question, values.data_type)
            return None if interval is None else _spans_of_interval(interval, values)
        case Contains() | HasAny() | HasAll() | Meets():
            return None
    assert_never(question)


def interval_of(question: Interval | StartsWith, data_type: pa.DataType) -> Interval | None:
    """Return the values that a question is about as an interval, or None if they are not one."""
    if isinstance(question, Interval):
        return question
    prefix = question.prefix
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        text = prefix.decode()
        return Interval(
            pa.scalar(text, data_type), _bound(_next_text(text), data_type), True, False
        )
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        following = _next_bytes(prefix)
        return Interval(pa.scalar(prefix, data_type), _bound(following, data_type), True, False)
    return None


def interval_within(first: Interval, second: Interval) -> Interval:
    """Return the values that are in both of two intervals.

    >>> both = interval_within(Interval(pa.scalar(3)), Interval(pa.scalar(3), pa.scalar(9), False))
    >>> both.lower, both.includes_lower, both.upper
    (<pyarrow.Int64Scalar: 3>, False, <pyarrow.Int64Scalar: 9>)
    """
    lower, includes_lower = _tighter(
        (first.lower, first.includes_lower), (second.lower, second.includes_lower), is_lower=True
    )
    upper, includes_upper = _tighter(
        (first.upper, first.includes_upper), (second.upper, second.includes_upper), is_lower=False
    )
    return Interval(lower, upper, includes_lower, includes_upper)


def is_nan(scalar: pa.Scalar) -> bool:
    """Return whether a constant is a float that is no number."""
    return pa.types.is_floating(scalar.type) and math.isnan(scalar.as_py())


def _tighter(
    first: tuple[pa.Scalar | None, bool], second: tuple[pa.Scalar | None, bool], *, is_lower: bool
) -> tuple[pa.Scalar | None, bool]:
    """Return the bound that leaves less; of equal ones, one that leaves its value out."""
    if first[0] is None or second[0] is None:
        return second if first[0] is None else first
    order = order_of(first[0].type)
    one, other = pa.repeat(first[0], 1), pa.repeat(second[0], 1)
    other_is_above = int(order.search(one, other, "left")[0]) == 1
    one_is_above = int(order.search(other, one, "left")[0]) == 1
    if one_is_above == other_is_above:
        return first[0], first[1] and second[1]
    return first if one_is_above == is_lower else second


def _spans_of_interval(interval: Interval, values: SortedValues) -> list[Span]:
    lower, upper = interval.lower, interval.upper
    below_numbers = _negative_nans(values)
    start, stop = below_numbers[1], values.num_rows
    if lower is not None:
        side: Side = "left" if interval.includes_lower else "right"
        start = int(values.places(pa.repeat(lower, 1), side)[0])
    if upper is not None:
        side = "right" if interval.includes_upper else "left"
        stop = int(values.places(pa.repeat(upper, 1), side)[0])
    reaches_nan = upper is None or (interval.includes_upper and is_nan(upper))
    starts_above = lower is not None and not interval.includes_lower and is_nan(lower)
    if reaches_nan and not starts_above:
        return [(start, stop), below_numbers]
    return [(start, stop)]


def _negative_nans(values: SortedValues) -> Span:
    """Return where NaN stands before every number."""
    if not pa.types.is_floating(values.data_type):
        return values.num_nulls, values.num_nulls
    infinity = pa.array([-math.inf]).cast(values.data_type)
    return values.num_nulls, max(int(values.places(infinity, "left")[0]), values.num_nulls)


def _bound(value: str | bytes | None, data_type: pa.DataType) -> pa.Scalar | None:
    return None if value is None else pa.scalar(value, data_type)


def _next_bytes(prefix: bytes) -> bytes | None:
    r"""Return the least bytes above all that have a prefix; None if there are none.

    >>> _next_bytes(b"a\xff")
    b'b'
    """
    rest = prefix.rstrip(b"\xff")
    return rest[:-1] + bytes((rest[-1] + 1,)) if rest else None


def _next_text(prefix: str) -> str | None:
    """Return the least text above every text with a prefix; None if there is none.

    >>> _next_text("ab")
    'ac'
    """
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    code = ord(rest[-1]) + 1
    # Between these lie no characters.
    return rest[:-1] + chr(0xE000 if code == 0xD800 else code)
