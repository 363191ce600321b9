"""Filters that are ranges of integers, which are compared while their column is decoded.

k = 5                      [5, 5]
k >= 10 AND k < 20         [10, 19]
day < DATE '2024-01-02'    [the smallest date, 19723]
k = 5 OR k = 7             none: evaluated on decoded values
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lancelet.encodings.codecs.base import IntegerRange
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator

_LOW: Final = {Operator.EQUAL: 0, Operator.GREATER_EQUAL: 0, Operator.GREATER: 1}
_HIGH: Final = {Operator.EQUAL: 0, Operator.LESS_EQUAL: 0, Operator.LESS: -1}
"""The distance of the first or last integer from the constant, by operator."""


def integer_range(expression: Expression, data_type: pa.DataType) -> IntegerRange | None:
    """Return the range of a filter of one column of this type, or None if it is no range."""
    is_unsigned = pa.types.is_unsigned_integer(data_type)
    is_integer = pa.types.is_integer(data_type) or pa.types.is_date32(data_type)
    if not is_integer and not pa.types.is_timestamp(data_type):
        return None
    bits = data_type.bit_width
    low = 0 if is_unsigned else -(1 << (bits - 1))
    high = low + (1 << bits) - 1
    parts = expression.operands if isinstance(expression, ex.And) else (expression,)
    for part in parts:
        match part:
            case ex.Comparison(operator, ex.Column(path), ex.Literal(value)) if (
                operator in _LOW or operator in _HIGH
            ):
                if len(path) > 1 or value.type != data_type or not value.is_valid:
                    return None
                number = value.as_py() if pa.types.is_integer(data_type) else value.value
                if operator in _LOW:
                    low = max(low, number + _LOW[operator])
                if operator in _HIGH:
                    high = min(high, number + _HIGH[operator])
            case _:
                return None
    return IntegerRange(low, high, bits)
