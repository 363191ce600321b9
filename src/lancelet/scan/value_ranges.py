"""Filters that are ranges of numbers, which are compared while their column is decoded.

    k = 5                      [5, 5]
    k >= 10 AND k < 20         [10, 19]
    day < DATE '2024-01-02'    [the smallest date, 19723]
    price > 0.5                [the next number after 0.5, NaN]
    k = 5 OR k = 7             none: evaluated on decoded values

As in all filters, NaN equals NaN and is larger than all other numbers, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.codecs.base import ValueRange
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator

_LOW: Final = {Operator.EQUAL: 0, Operator.GREATER_EQUAL: 0, Operator.GREATER: 1}
_HIGH: Final = {Operator.EQUAL: 0, Operator.LESS_EQUAL: 0, Operator.LESS: -1}
"""The distance of the first or last value from the constant, by operator."""


def value_range(expression: Expression, data_type: pa.DataType) -> ValueRange | None:
    """Return the range of a filter of one column of this type, or None if it is no range."""
    widest = _all_values(data_type)
    if widest is None:
        return None
    low, high = widest.low, widest.high
    parts = expression.operands if isinstance(expression, ex.And) else (expression,)
    for part in parts:
        match part:
            case ex.Comparison(operator, ex.Column(path), ex.Literal(value)) if (
                operator in _LOW or operator in _HIGH
            ):
                if len(path) > 1 or value.type != data_type or not value.is_valid:
                    return None
                number = value.as_py() if _is_number(data_type) else value.value
                if widest.is_float and math.isnan(number):
                    return None
                # A strict comparison starts after the larger zero and ends before the smaller one.
                first, last = _numbers_equal(number, widest)
                if operator in _LOW:
                    low = max(low, last + 1 if _LOW[operator] else first)
                if operator in _HIGH:
                    high = min(high, first - 1 if _HIGH[operator] else last)
            case _:
                return None
    return ValueRange(low, high, widest.bits, is_float=widest.is_float)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def _all_values(data_type: pa.DataType) -> ValueRange | None:
    """Return the range of all values of a type, or None if it is not supported."""
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        bits = data_type.bit_width
        smallest = _order(-math.inf, bits)
        # NaN values with a sign bit precede the smallest number: the range continues with them.
        return ValueRange(smallest, smallest - 1 + (1 << bits), bits, is_float=True)
    is_integer = pa.types.is_integer(data_type) or pa.types.is_date32(data_type)
    if not is_integer and not pa.types.is_timestamp(data_type):
        return None
    bits = data_type.bit_width
    low = 0 if pa.types.is_unsigned_integer(data_type) else -(1 << (bits - 1))
    return ValueRange(low, low + (1 << bits) - 1, bits)


def _numbers_equal(number: float, values: ValueRange) -> tuple[int, int]:
    """Return the first and the last number that equal a constant; they differ for zero only."""
    if not values.is_float:
        return int(number), int(number)
    if number == 0:
        return _order(-0.0, values.bits), _order(0.0, values.bits)
    return _order(number, values.bits), _order(number, values.bits)


def _order(number: float, bits: int) -> int:
    """Return the integer that orders floating point numbers of `bits` bits."""
    stored = int(np.array([number], f"f{bits // 8}").view(f"u{bits // 8}")[0])
    sign = 1 << (bits - 1)
    return stored ^ ((1 << bits) - 1) if stored & sign else stored | sign
