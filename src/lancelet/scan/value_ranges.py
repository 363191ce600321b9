"""Filters that are ranges of numbers, which are compared while their column is decoded.

    k = 5                      [5, 5]
    k >= 10 AND k < 20         [10, 19]
    day < DATE '2024-01-02'    [the smallest date, 19723]
    price > 0.5                [the next number after 0.5, NaN]
    k IN (5, 7) OR k > 20      [5, 5], [7, 7], [21, the largest number]
    k % 2 = 0                  none: evaluated on decoded values

As in all filters, NaN equals NaN and is larger than all other numbers, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.codecs.base import ValueRanges
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.values import dataclass

_RANGES_MAX: Final = 8
"""More ranges take longer to compare than decoded values take to look up."""


def value_ranges(expression: Expression, data_type: pa.DataType) -> ValueRanges | None:
    """Return the ranges of a filter of one column of this type, or None if it has none.

    Nulls do not pass.
    """
    every = _all_values(data_type)
    if every is None:
        return None
    found = _ranges_of(expression, data_type, every)
    if found is None or len(found) > _RANGES_MAX:
        return None
    return ValueRanges(tuple(found), every.bits, is_float=every.is_float)


def _ranges_of(
    expression: Expression, data_type: pa.DataType, every: _Values
) -> list[tuple[int, int]] | None:
    """Return ascending ranges without numbers in two of them."""
    match expression:
        case ex.And(operands) | ex.Or(operands):
            parts = [_ranges_of(each, data_type, every) for each in operands]
            present = [part for part in parts if part is not None]
            if len(present) < len(parts):
                return None
            if isinstance(expression, ex.Or):
                return _joined([each for part in present for each in part])
            outside = [each for part in present for each in _complement(part, every)]
            return _complement(_joined(outside), every)
        case ex.Not(operand):
            part = _ranges_of(operand, data_type, every)
            return None if part is None else _complement(part, every)
        case ex.Comparison(operator, ex.Column(path), ex.Literal(value)) if len(path) == 1:
            numbers = _numbers_equal(value, data_type, every)
            return None if numbers is None else _compared(operator, *numbers, every)
        case ex.In(ex.Column(path), values) if len(path) == 1 and len(values) <= _RANGES_MAX:
            equal = [_numbers_equal(each, data_type, every) for each in values]
            valid = [each for each in equal if each is not None]
            return _joined(valid) if len(valid) == len(equal) else None
    return None


def _compared(
    operator: Operator, first: int, last: int, every: _Values
) -> list[tuple[int, int]] | None:
    """Return the numbers that compare so to a constant with the numbers `first` to `last`."""
    below, above = (every.low, first - 1), (last + 1, every.high)
    match operator:
        case Operator.EQUAL:
            found = [(first, last)]
        case Operator.NOT_EQUAL:
            found = [below, above]
        case Operator.LESS:
            found = [below]
        case Operator.LESS_EQUAL:
            found = [(every.low, last)]
        case Operator.GREATER:
            found = [above]
        case Operator.GREATER_EQUAL:
            found = [(first, every.high)]
        case _:
            return None
    return [(low, high) for low, high in found if low <= high]


def _joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of ranges, ascending.

    >>> _joined([(5, 9), (1, 2), (3, 3), (7, 8)])
    [(1, 3), (5, 9)]
    """
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return found


def _complement(ranges: list[tuple[int, int]], every: _Values) -> list[tuple[int, int]]:
    """Return the ranges between ascending ranges."""
    edges = [every.low, *(edge for low, high in ranges for edge in (low - 1, high + 1)), every.high]
    return [(low, high) for low, high in zip(edges[::2], edges[1::2], strict=True) if low <= high]


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


@dataclass(frozen=True, slots=True)
class _Values:
    """All values of a type: the lowest and the highest number."""

    low: int
    high: int
    bits: int
    is_float: bool = False


def _all_values(data_type: pa.DataType) -> _Values | None:
    """Return all values of a type, or None if it is not supported."""
    if pa.types.is_float32(data_type) or pa.types.is_float64(data_type):
        bits = data_type.bit_width
        smallest = _order(-math.inf, bits)
        # NaN values with a sign bit precede the smallest number: the range continues with them.
        return _Values(smallest, smallest - 1 + (1 << bits), bits, is_float=True)
    is_integer = pa.types.is_integer(data_type) or pa.types.is_date32(data_type)
    if not is_integer and not pa.types.is_timestamp(data_type):
        return None
    bits = data_type.bit_width
    low = 0 if pa.types.is_unsigned_integer(data_type) else -(1 << (bits - 1))
    return _Values(low, low + (1 << bits) - 1, bits)


def _numbers_equal(
    value: pa.Scalar, data_type: pa.DataType, every: _Values
) -> tuple[int, int] | None:
    """Return the first and the last number that equal a constant; they differ for zero only.

    None if it is null, NaN or of another type.
    """
    if value.type != data_type or not value.is_valid:
        return None
    number = value.as_py() if _is_number(data_type) else value.value
    if not every.is_float:
        return int(number), int(number)
    if math.isnan(number):
        return None
    if number == 0:
        return _order(-0.0, every.bits), _order(0.0, every.bits)
    return _order(number, every.bits), _order(number, every.bits)


def _order(number: float, bits: int) -> int:
    """Return the integer that orders floating point numbers of `bits` bits."""
    stored = int(np.array([number], f"f{bits // 8}").view(f"u{bits // 8}")[0])
    sign = 1 << (bits - 1)
    return stored ^ ((1 << bits) - 1) if stored & sign else stored | sign
