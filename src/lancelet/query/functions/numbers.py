"""Functions of numbers, and those that choose between values.

    round(2.5), round(-2.5)       3.0, -3.0: halves go away from zero
    sqrt(-1e0), ln(0e0)           NaN, -inf: floats do not fail
    coalesce, greatest, least     skip nulls

Roots and logarithms give doubles whatever they take; rounding keeps floats and decimals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.query.functions.arithmetic import compute_arithmetic
from lancelet.query.functions.base import (
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
    """Return a function of doubles that Arrow has no kernel for, or has not had for long."""

    @on_arrays
    def compute(values: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = pa.array(function(values.to_numpy(zero_copy_only=False)), values.type)
        return pc.if_else(values.is_valid(), found, pa.scalar(None, values.type))

    return compute


def _log(first_value: Value, second: Value | None = None) -> Value:
    """Return the logarithm to base 10, or to the base that comes first."""
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


def _remainder(left: Value, right: Value) -> Value:
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
    Function(("mod",), (number, number), first, _remainder, unify=True, can_fail=True),
    Function(("pi",), (), pa.float64(), lambda: pa.scalar(math.pi)),
    Function(("isnan",), (floating,), pa.bool_(), of_arrow("is_nan")),
    Function(("iszero",), (number,), pa.bool_(), _is_zero),
    Function(("nanvl",), (floating, floating), first, _nanvl, unify=True),
)
"""Every function of numbers."""

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
"""Every function that chooses between values of one type."""
