"""Determine the common type of two operands and the physical type of computations.

`plain` returns the type used for computations: dictionaries are decoded, views become large
strings, half floats become floats. Columns that are only read keep their type.

Two columns are converted to the smallest type that represents both exactly. Only an integer or
decimal combined with a float may lose digits, because floats are rounded anyway.

    int32, int64      int64              uint64, int64     decimal128(20, 0)
    int64, double     double             int32, decimal128(10, 2)     decimal128(12, 2)
    date32, timestamp[ms]   timestamp[ms]      timestamp[s], timestamp[ns]   timestamp[ns]
    timestamp, timestamp with a zone      the zone; naive timestamps are local times of the zone

Constants are not handled here: they take the type of their column (`literals.fit`).
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lancelet.expr.data_types import is_any_list, is_bytes, is_number, is_text
from lancelet.expr.literal_text import DECIMAL256_DIGITS, NANOSECONDS, decimal_type

_INTEGER_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
UINT64_DIGITS: Final = 20


class CoercionError(ValueError):
    """Two types have no common type; the message names both."""


def plain(data_type: pa.DataType) -> pa.DataType:
    """Return the type used for computations with values of a type.

    >>> plain(pa.dictionary(pa.int8(), pa.string())), plain(pa.float16())
    (DataType(string), DataType(float))
    """
    if isinstance(data_type, pa.BaseExtensionType):
        return plain(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return plain(data_type.value_type)
    if pa.types.is_float16(data_type):
        return pa.float32()
    if pa.types.is_string_view(data_type):
        return pa.large_string()
    if pa.types.is_binary_view(data_type):
        return pa.large_binary()
    if pa.types.is_fixed_size_binary(data_type):
        return pa.binary()
    if pa.types.is_decimal(data_type) and data_type.bit_width < 128:
        return pa.decimal128(data_type.precision, data_type.scale)
    return data_type


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the common type of two plain types, or raise `CoercionError`.

    >>> common_type(pa.uint64(), pa.int8())
    Decimal128Type(decimal128(20, 0))
    """
    if left == right or pa.types.is_null(right):
        return left
    if pa.types.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _common_number(left, right)
    if is_text(left) and is_text(right):
        return pa.large_string()
    if (is_text(left) or is_bytes(left)) and (is_text(right) or is_bytes(right)):
        return pa.large_binary()
    if pa.types.is_temporal(left) and pa.types.is_temporal(right):
        return _common_time(left, right)
    if is_any_list(left) and is_any_list(right):
        item = common_type(plain(left.value_type), plain(right.value_type))
        return pa.large_list(item)
    raise CoercionError(f"{left} and {right} cannot be compared")


def _common_number(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pa.types.is_floating(left) or pa.types.is_floating(right):
        both = pa.types.is_floating(left) and pa.types.is_floating(right)
        return pa.float32() if both and left == right == pa.float32() else pa.float64()
    if pa.types.is_decimal(left) or pa.types.is_decimal(right):
        return _common_decimal(as_decimal(left), as_decimal(right))
    return common_integer(left, right)


def common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the smallest integer or decimal type that holds all values of two integer types."""
    signed = [not pa.types.is_unsigned_integer(each) for each in (left, right)]
    widths = [left.bit_width, right.bit_width]
    if signed[0] == signed[1]:
        return left if widths[0] >= widths[1] else right
    unsigned_width = widths[signed.index(False)]
    if unsigned_width == 64:
        return pa.decimal128(UINT64_DIGITS, 0)
    width = max(unsigned_width * 2, widths[signed.index(True)])
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[width]


def as_decimal(data_type: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds all values of an integer or decimal type."""
    if pa.types.is_decimal(data_type):
        return data_type
    if pa.types.is_uint64(data_type):
        return pa.decimal128(UINT64_DIGITS, 0)
    return pa.decimal128(_INTEGER_DIGITS[data_type.bit_width], 0)


def _common_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    integer_digits = max(left.precision - left.scale, right.precision - right.scale)
    if integer_digits + scale > DECIMAL256_DIGITS:
        raise CoercionError(
            f"the common type of {left} and {right} needs too many digits; cast to double"
        )
    return decimal_type(integer_digits + scale, scale)


def _common_time(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    are_instants = [pa.types.is_date(each) or pa.types.is_timestamp(each) for each in (left, right)]
    if all(are_instants):
        zones = [each.tz for each in (left, right) if pa.types.is_timestamp(each) and each.tz]
        return pa.timestamp(finest_unit(left, right), zones[0] if zones else None)
    if pa.types.is_time(left) and pa.types.is_time(right):
        unit = finest_unit(left, right)
        return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)
    if pa.types.is_duration(left) and pa.types.is_duration(right):
        return pa.duration(finest_unit(left, right))
    raise CoercionError(f"{left} and {right} cannot be compared")


def finest_unit(*types: pa.DataType) -> str:
    """Return the finest unit of temporal types; dates count as seconds.

    >>> finest_unit(pa.date32(), pa.timestamp("ms"))
    'ms'
    """
    units = ["ms" if pa.types.is_date64(each) else getattr(each, "unit", "s") for each in types]
    return min(units, key=lambda unit: NANOSECONDS[unit] if unit != "D" else NANOSECONDS["s"])
