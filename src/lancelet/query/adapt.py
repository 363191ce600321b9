"""Constants beside expressions: how a comparison, a list or a sum makes them fit.

    x > 1.5 with x int32         x > 1
    x IN (1, 2.5) with x int32   x IN (1)
    x + 1 with x int8            1 as int64, unless that is all there is to a computed column
    d * 2 with d decimal(10,2)   2 as decimal(1,0), so digits are not wasted

What two columns meet in is the business of `coercion`, what a value is as a type of `literals`.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.query import expression as ex
from lancelet.query.data_types import is_number, is_text
from lancelet.query.expression import Bound, Expression, Operator
from lancelet.query.functions.calendar import unit_of_interval
from lancelet.query.functions.casting import cast
from lancelet.query.literal_text import UnfitError
from lancelet.query.literals import Gap, fit, limits

_DOUBLE_DIGITS: Final = 15


def beside_gap(operator: Operator, value: Bound, gap: Gap) -> Expression:
    """Compare with a constant that the type cannot hold, through its neighbour below.

    With 1 < 1.5 < 2: x > 1.5 and x >= 1.5 are x > 1, and x < 1.5 and x <= 1.5 are x <= 1.
    """
    same = ex.Comparison(Operator.EQUAL, value.expression, value.expression)
    match operator:
        case Operator.EQUAL:
            return ex.Comparison(Operator.NOT_EQUAL, value.expression, value.expression)
        case Operator.NOT_EQUAL:
            return same
        case Operator.DISTINCT:
            return ex.literal(True)
        case Operator.NOT_DISTINCT:
            return ex.literal(False)
    above = operator in {Operator.GREATER, Operator.GREATER_EQUAL}
    if gap.floor is None:
        least = ex.Literal(limits(value.data_type)[0])
        operator = Operator.GREATER_EQUAL if above else Operator.LESS
        return ex.Comparison(operator, value.expression, least)
    operator = Operator.GREATER if above else Operator.LESS_EQUAL
    return ex.Comparison(operator, value.expression, ex.Literal(gap.floor))


def fit_all(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return constants as values of a type; those it cannot hold match nothing and go."""
    if values.type == data_type:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), data_type)
    if pa.types.is_integer(values.type) and pa.types.is_integer(data_type):
        low, high = (limit.as_py() for limit in limits(data_type))
        span = pc.min_max(values).as_py()
        if span["min"] is not None and low <= span["min"] and span["max"] <= high:
            return values.cast(data_type)
    elif is_text(values.type) and is_text(data_type):
        return values.cast(data_type)
    elif pa.types.is_floating(data_type) and _is_short_number(values.type):
        return cast(values, data_type, or_null=False)
    fitted = [fit(value, data_type) for value in values]
    kept = [value for value in fitted if not isinstance(value, Gap)]
    return pa.array(kept, data_type) if kept else pa.array([], data_type)


def _is_short_number(data_type: pa.DataType) -> bool:
    """Whether a cast to double gives the nearest one: long decimals are rounded one by one."""
    if pa.types.is_decimal(data_type):
        return bool(data_type.precision <= _DOUBLE_DIGITS)
    return is_number(data_type)


def adapted(sign: str, bound: Bound, other: Bound, *, narrow: bool) -> Bound:
    """Return a side of some arithmetic; a constant takes a type that suits the other side.

    Whole numbers are 64 bits wide, so that `small_column + 1` does not overflow. A computed
    column that is just that sum is `narrow`: there the constant takes the column's type.
    """
    literal = bound.expression
    if not isinstance(literal, ex.Literal) or literal.is_null:
        return bound
    if isinstance(other.expression, ex.Literal):
        both_exact = pa.types.is_decimal(literal.data_type) and sign == "/"
        return as_double(literal) if both_exact else bound
    target = other.data_type
    if pa.types.is_duration(target) and pa.types.is_interval(literal.data_type):
        return refit(bound, target)
    if pa.types.is_time(target) and pa.types.is_interval(literal.data_type):
        return refit(bound, pa.duration(unit_of_interval(literal.scalar) or "s"))
    if not (is_number(literal.data_type) and is_number(target)):
        return bound
    if pa.types.is_integer(literal.data_type) and pa.types.is_decimal(target):
        digits = len(str(abs(literal.scalar.as_py())))
        return refit(bound, pa.decimal128(digits, 0)) if digits <= 38 else bound
    if pa.types.is_decimal(literal.data_type) and not pa.types.is_floating(target):
        return bound if pa.types.is_decimal(target) else as_double(literal)
    if narrow or pa.types.is_uint64(target):
        return refit(bound, target)
    if pa.types.is_integer(literal.data_type) and pa.types.is_floating(target):
        return refit(bound, target)
    return as_double(literal) if pa.types.is_decimal(literal.data_type) else bound


def as_double(literal: ex.Literal) -> Bound:
    """Return a decimal constant as the double that SQL takes it for."""
    return refit(Bound(literal, literal.data_type), pa.float64())


def refit(bound: Bound, data_type: pa.DataType) -> Bound:
    """Return a constant as another type, or as it is if that has no such value."""
    assert isinstance(bound.expression, ex.Literal)
    try:
        fitted = fit(bound.expression.scalar, data_type)
    except UnfitError:
        return bound
    return bound if isinstance(fitted, Gap) else Bound(ex.Literal(fitted), data_type)
