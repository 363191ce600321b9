"""Arithmetic operators and functions of numbers.

    int32 + int32     int32, an error on overflow          7 / 2      3, truncated
    int32 + double    double                               7 / 0      an error; 7.0e0 / 0 is inf
    decimal(10,2) * decimal(10,2)    decimal(21,4), exact
    timestamp + INTERVAL '1 month'   the same local time a month later
    timestamp - timestamp            a duration            date - date        days, int64

Overflow is an error, values never wrap around. Decimal division truncates to the scale of the
result, as in Arrow.

    round(2.5), round(-2.5)       3.0, -3.0: halves are rounded away from zero
    sqrt(-1e0), ln(0e0)           NaN, -inf: float functions do not raise
    greatest, least               skip nulls

Roots and logarithms return doubles; rounding preserves float and decimal types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr.coercion import (
    CoercionError,
    as_decimal,
    common_integer,
    common_type,
    finest_unit,
)
from lancelet.expr.data_types import is_number
from lancelet.expr.functions.base import (
    Compute,
    Function,
    Value,
    anything,
    constant,
    first,
    floating,
    integer,
    number,
    of_arrow,
    on_arrays,
    real,
)
from lancelet.expr.functions.calendar import add_interval, unit_of_interval
from lancelet.expr.literal_text import DECIMAL256_DIGITS, decimal_type

_CHECKED: Final[dict[str, Callable[..., Value]]] = {
    "+": of_arrow("add_checked"),
    "-": of_arrow("subtract_checked"),
    "*": of_arrow("multiply_checked"),
    "/": of_arrow("divide_checked"),
    "<<": of_arrow("shift_left_checked"),
    ">>": of_arrow("shift_right_checked"),
    "&": of_arrow("bit_wise_and"),
    "|": of_arrow("bit_wise_or"),
    "#": of_arrow("bit_wise_xor"),
}
_FLOATING: Final[dict[str, Callable[..., Value]]] = {
    "+": of_arrow("add"),
    "-": of_arrow("subtract"),
    "*": of_arrow("multiply"),
    "/": of_arrow("divide"),
}
_BITS: Final = frozenset({"<<", ">>", "&", "|", "#"})
_INT64_DIGITS: Final = 18


def arithmetic_types(
    sign: str, left: pa.DataType, right: pa.DataType
) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    """Return the types to convert two plain operand types to, and the result type.

    >>> arithmetic_types("+", pa.int32(), pa.int64())
    (DataType(int64), DataType(int64), DataType(int64))
    """
    if is_number(left) and is_number(right):
        return _number_types(sign, left, right)
    found = _time_types(sign, left, right)
    if found is None and sign == "+":
        swapped = _time_types(sign, right, left)
        found = (swapped[1], swapped[0], swapped[2]) if swapped else None
    if found is None:
        raise CoercionError(f"operator {sign} does not support {left} and {right}")
    return found


def _number_types(
    sign: str, left: pa.DataType, right: pa.DataType
) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    if pa.types.is_integer(left) and pa.types.is_integer(right):
        shared = common_integer(left, right)
        # No integer type holds all products of uint64 and int64, so results must fit int64.
        shared = pa.int64() if pa.types.is_decimal(shared) else shared
        return shared, shared, shared
    if sign in _BITS:
        raise CoercionError(f"operator {sign} requires integers, found {left} and {right}")
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        shared = common_type(left, right)
        return shared, shared, shared
    return _decimal_types(sign, as_decimal(left), as_decimal(right))


def _decimal_types(
    sign: str, left: pa.DataType, right: pa.DataType
) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    match sign:
        case "+" | "-":
            precision = whole + scale + 1
        case "*":
            precision, scale = left.precision + right.precision + 1, left.scale + right.scale
        case "/":
            left = _with_digits(left, 4)
            scale = max(4, left.scale + right.precision - right.scale + 1)
            precision = left.precision - left.scale + right.scale + scale
        case _:
            precision = whole + scale
            if precision > _INT64_DIGITS:
                raise CoercionError(f"{left} % {right} needs too many digits; cast to double")
            shared = decimal_type(precision, scale)
            return shared, shared, shared
    if precision > DECIMAL256_DIGITS:
        raise CoercionError(f"{left} {sign} {right} needs too many digits; cast to double")
    result = decimal_type(precision, scale)
    if pa.types.is_decimal256(result):
        left = pa.decimal256(left.precision, left.scale)
        right = pa.decimal256(right.precision, right.scale)
    return left, right, result


def _with_digits(data_type: pa.DataType, more: int) -> pa.DataType:
    """Return a decimal type with a larger scale, limited by the maximum precision."""
    precision = data_type.precision + more
    return decimal_type(precision, data_type.scale + more) if precision <= 38 else data_type


def _time_types(
    sign: str, left: pa.DataType, right: pa.DataType
) -> tuple[pa.DataType, pa.DataType, pa.DataType] | None:
    is_point = pa.types.is_timestamp(left) or pa.types.is_date(left)
    is_span = pa.types.is_duration(right) or pa.types.is_interval(right)
    if sign in {"+", "-"} and is_point and is_span:
        if pa.types.is_interval(right):
            return left, right, left
        unit = finest_unit(left, right)
        zone = left.tz if pa.types.is_timestamp(left) else None
        return pa.timestamp(unit, zone), pa.duration(unit), pa.timestamp(unit, zone)
    if sign == "-" and is_point and (pa.types.is_timestamp(right) or pa.types.is_date(right)):
        if pa.types.is_date(left) and pa.types.is_date(right):
            return pa.date32(), pa.date32(), pa.int64()
        shared = common_type(left, right)
        return shared, shared, pa.duration(shared.unit)
    if sign in {"+", "-"} and pa.types.is_time(left) and pa.types.is_duration(right):
        unit = finest_unit(left, right)
        time = pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)
        return time, pa.duration(unit), time
    if pa.types.is_duration(left):
        if sign in {"+", "-"} and pa.types.is_duration(right):
            shared = common_type(left, right)
            return shared, shared, shared
        if sign in {"*", "/"} and pa.types.is_integer(right):
            return left, pa.int64(), left
    return None


def result_with_interval(left: pa.DataType, interval: pa.Scalar) -> pa.DataType:
    """Return the result type of a date or timestamp plus a constant interval."""
    unit = unit_of_interval(interval)
    if unit is None:
        return left
    zone = left.tz if pa.types.is_timestamp(left) else None
    return pa.timestamp(finest_unit(left, pa.duration(unit)), zone)


def compute_arithmetic(sign: str, left: Value, right: Value) -> Value:
    """Compute `left sign right` for operands of the types from `arithmetic_types`."""
    if pa.types.is_interval(right.type):
        result = result_with_interval(left.type, right)
        return add_interval(left, right, result, negative=sign == "-")
    if pa.types.is_interval(left.type):
        return compute_arithmetic(sign, right, left)
    if sign == "%":
        return _remainder(left, right)
    if pa.types.is_floating(left.type):
        return _FLOATING[sign](left, right)
    if pa.types.is_date(left.type):
        return pc.subtract_checked(_as_days(left), _as_days(right))
    return _CHECKED[sign](left, right)


def _as_days(dates: Value) -> Value:
    return dates.cast(pa.int32()).cast(pa.int64())


def negate(value: Value) -> Value:
    """Return the negated value."""
    if pa.types.is_floating(value.type):
        return pc.negate(value)
    return pc.negate_checked(value)


def _remainder(left: Value, right: Value) -> Value:
    """Return the remainder of truncated division, with the sign of `left`."""
    if pa.types.is_floating(left.type):
        return _remainder_of_floats(left, right)
    if pa.types.is_integer(left.type):
        return pc.subtract(left, pc.multiply(pc.divide_checked(left, right), right))
    shared = left.type
    quotient = pc.trunc(pc.divide(left, right)).cast(pa.decimal128(shared.precision, 0))
    return pc.subtract(left, pc.multiply(quotient, right).cast(shared)).cast(shared)


def _remainder_of_floats(left: Value, right: Value) -> Value:
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return _remainder_of_floats(pa.array([left.as_py()], left.type), right)[0]
    valid = pc.and_(pc.is_valid(left), pc.is_valid(right))
    with np.errstate(invalid="ignore"):
        remainder = pa.array(np.fmod(_floats(left), _floats(right)), left.type)
    return pc.if_else(valid, remainder, pa.scalar(None, left.type))


def _floats(value: Value) -> Value:
    """Return a NumPy float array; callers mask the rows that are null."""
    if isinstance(value, pa.Scalar):
        return float("nan") if value.as_py() is None else float(value.as_py())
    return np.asarray(value.to_numpy(zero_copy_only=False))


def _round(values: Value, digits: Value | None = None) -> Value:
    count = 0 if digits is None else constant(digits, "the digits of round")
    if count is None:
        return pa.scalar(None, values.type)
    return pc.round(values, count, "half_towards_infinity")


def _trunc(values: Value, digits: Value | None = None) -> Value:
    count = 0 if digits is None else constant(digits, "the digits of trunc")
    if count is None:
        return pa.scalar(None, values.type)
    return pc.round(values, count, "towards_zero")


def _float_or_decimal(data_type: pa.DataType) -> pa.DataType | None:
    return data_type if pa.types.is_decimal(data_type) else floating(data_type)


def _abs(values: Value) -> Value:
    return pc.abs(values) if pa.types.is_floating(values.type) else pc.abs_checked(values)


def _by_numpy(function: Callable[..., Any]) -> Compute:
    """Wrap a NumPy function of doubles, for functions that some pyarrow versions lack."""

    @on_arrays
    def compute(values: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = pa.array(function(values.to_numpy(zero_copy_only=False)), values.type)
        return pc.if_else(values.is_valid(), found, pa.scalar(None, values.type))

    return compute


def _log(first_value: Value, second: Value | None = None) -> Value:
    """Return the logarithm to base 10, or to the base in the first argument."""
    return pc.log10(first_value) if second is None else pc.logb(second, first_value)


def _is_zero(values: Value) -> Value:
    return pc.equal(values, pa.scalar(0, values.type))


def _nanvl(values: Value, instead: Value) -> Value:
    return pc.if_else(pc.is_nan(values), instead, values)


def _nullif(values: Value, unwanted: Value) -> Value:
    same = pc.fill_null(pc.equal(values, unwanted), False)
    return pc.if_else(same, pa.scalar(None, values.type), values)


def _extreme(kernel: Any) -> Callable[..., Value]:
    return lambda *values: kernel(*values, skip_nulls=True)


def _mod(left: Value, right: Value) -> Value:
    return compute_arithmetic("%", left, right)


NUMBER_FUNCTIONS: Final = (
    Function(("abs",), (number,), first, _abs, can_fail=True),
    Function(("round",), (_float_or_decimal, integer), first, _round, optional=1, can_fail=True),
    Function(("trunc",), (_float_or_decimal, integer), first, _trunc, optional=1, can_fail=True),
    Function(("floor",), (_float_or_decimal,), first, of_arrow("floor")),
    Function(("ceil", "ceiling"), (_float_or_decimal,), first, of_arrow("ceil")),
    Function(("power", "pow"), (real, real), pa.float64(), of_arrow("power")),
    Function(("sqrt",), (real,), pa.float64(), of_arrow("sqrt")),
    Function(("cbrt",), (real,), pa.float64(), _by_numpy(np.cbrt)),
    Function(("exp",), (real,), pa.float64(), _by_numpy(np.exp)),
    Function(("ln",), (real,), pa.float64(), of_arrow("ln")),
    Function(("log",), (real, real), pa.float64(), _log, optional=1),
    Function(("log10",), (real,), pa.float64(), of_arrow("log10")),
    Function(("log2",), (real,), pa.float64(), of_arrow("log2")),
    Function(("sin",), (real,), pa.float64(), of_arrow("sin")),
    Function(("cos",), (real,), pa.float64(), of_arrow("cos")),
    Function(("tan",), (real,), pa.float64(), of_arrow("tan")),
    Function(("asin",), (real,), pa.float64(), of_arrow("asin")),
    Function(("acos",), (real,), pa.float64(), of_arrow("acos")),
    Function(("atan",), (real,), pa.float64(), of_arrow("atan")),
    Function(("atan2",), (real, real), pa.float64(), of_arrow("atan2")),
    Function(("signum", "sign"), (real,), pa.float64(), of_arrow("sign")),
    Function(("mod",), (number, number), first, _mod, unify=True, can_fail=True),
    Function(("pi",), (), pa.float64(), lambda: pa.scalar(math.pi)),
    Function(("isnan",), (floating,), pa.bool_(), of_arrow("is_nan")),
    Function(("iszero",), (number,), pa.bool_(), _is_zero),
    Function(("nanvl",), (floating, floating), first, _nanvl, unify=True),
)
"""All numeric functions."""

CHOICE_FUNCTIONS: Final = (
    Function(("coalesce",), (anything,), first, of_arrow("coalesce"), repeats=True, unify=True),
    Function(("nvl", "ifnull"), (anything, anything), first, of_arrow("coalesce"), unify=True),
    Function(("nullif",), (anything, anything), first, _nullif, unify=True),
    Function(
        ("greatest",),
        (anything,),
        first,
        _extreme(of_arrow("max_element_wise")),
        repeats=True,
        unify=True,
    ),
    Function(
        ("least",),
        (anything,),
        first,
        _extreme(of_arrow("min_element_wise")),
        repeats=True,
        unify=True,
    ),
)
"""All conditional functions, which return one of their arguments."""
