"""Convert constants to the types of the operands they are compared or combined with.

    x > 1.5 with x int32         x > 1
    x IN (1, 2.5) with x int32   x IN (1)
    x + 1 with x int8            1 as int64; as int8 if the sum is the whole computed column
    d * 2 with d decimal(10,2)   2 as decimal(1,0), which saves digits

`coercion` determines the common type of two columns, `literals` converts values to a type.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr import expression as ex
from lancelet.expr.data_types import is_number, is_text
from lancelet.expr.expression import Bound, Expression, Operator
from lancelet.expr.functions.calendar import unit_of_interval
from lancelet.expr.functions.casting import cast
from lancelet.expr.literal_text import UnfitError
from lancelet.expr.literals import Unrepresentable, fit, limits

_DOUBLE_DIGITS: Final = 15


def compare_unrepresentable(
    operator: Operator, value: Bound, unrepresentable: Unrepresentable
) -> Expression:
    """Compare with a constant that the type cannot represent, using the next lower value.

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
    if unrepresentable.floor is None:
        lowest = ex.Literal(limits(value.data_type)[0])
        operator = Operator.GREATER_EQUAL if above else Operator.LESS
        return ex.Comparison(operator, value.expression, lowest)
    operator = Operator.GREATER if above else Operator.LESS_EQUAL
    return ex.Comparison(operator, value.expression, ex.Literal(unrepresentable.floor))


def fit_all(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Convert constants to a type, dropping values that the type cannot represent."""
    if values.type == data_type:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), data_type)
    if pa.types.is_integer(values.type) and pa.types.is_integer(data_type):
        low, high = (limit.as_py() for limit in limits(data_type))
        bounds = pc.min_max(values).as_py()
        if bounds["min"] is not None and low <= bounds["min"] and bounds["max"] <= high:
            return values.cast(data_type)
    elif is_text(values.type) and is_text(data_type):
        return values.cast(data_type)
    elif pa.types.is_floating(data_type) and _is_short_number(values.type):
        return cast(values, data_type, or_null=False)
    fitted = [fit(value, data_type) for value in values]
    remaining = [value for value in fitted if not isinstance(value, Unrepresentable)]
    return pa.array(remaining, data_type) if remaining else pa.array([], data_type)


def _is_short_number(data_type: pa.DataType) -> bool:
    """Return whether casting to double is exact; long decimals must be rounded individually."""
    if pa.types.is_decimal(data_type):
        return bool(data_type.precision <= _DOUBLE_DIGITS)
    return is_number(data_type)


def adapt_constant(sign: str, bound: Bound, other: Bound, *, narrow: bool) -> Bound:
    """Convert a constant operand of an arithmetic operator to suit the other operand.

    Integer constants become 64-bit, so that `small_column + 1` does not overflow. With `narrow`,
    for a computed column that consists of the sum alone, they take the type of the column.
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
    """Convert a decimal constant to double, the default type in SQL."""
    return refit(Bound(literal, literal.data_type), pa.float64())


def refit(bound: Bound, data_type: pa.DataType) -> Bound:
    """Convert a constant to another type, or return it unchanged if that type cannot hold it."""
    assert isinstance(bound.expression, ex.Literal)
    try:
        fitted = fit(bound.expression.scalar, data_type)
    except UnfitError:
        return bound
    return bound if isinstance(fitted, Unrepresentable) else Bound(ex.Literal(fitted), data_type)
