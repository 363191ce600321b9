"""Casts with SQL semantics where Arrow differs; values that do not fit are an error.

    CAST(2.9 AS INT)            2, truncated toward zero; NaN and 1e20 are errors
    CAST(1.005 AS DECIMAL(3,2)) rounded half up
    CAST(1.0e0 AS STRING)       '1.0'                CAST(TIMESTAMP ... AS STRING)  with a 'T'
    CAST(ts AS TIMESTAMP(0))    truncated to seconds
    naive to zoned timestamp    local time of the zone; zoned to naive returns UTC

`or_null` (TRY_CAST) converts values that do not fit to null. Failing values are located by
bisection, so a few of them cost a few casts.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr.data_types import is_text
from lancelet.expr.functions.base import Value
from lancelet.expr.functions.calendar import off_clock, on_clock
from lancelet.expr.literal_text import NANOSECONDS

_WIDEST_DECIMAL: Final = 76
_INT64_DIGITS: Final = 18
_UNIT_NAMES: Final = {"s": "second", "ms": "millisecond", "us": "microsecond"}


def cast(value: Value, target: pa.DataType, *, or_null: bool) -> Value:
    """Cast plain values to another type; `pa.ArrowInvalid` names the first value that fails."""
    if value.type == target:
        return value
    if isinstance(value, pa.Scalar):
        return cast(pa.array([value], value.type), target, or_null=or_null)[0]
    if pa.types.is_null(value.type):
        return pa.nulls(len(value), target)
    return _cast_or_null(value, target) if or_null else _cast(value, target)


def _cast_or_null(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return _cast(values, target)
    except pa.ArrowInvalid:
        if len(values) == 1:
            return pa.nulls(1, target)
        middle = len(values) // 2
        halves = (values[:middle], values[middle:])
        return pa.concat_arrays([_cast_or_null(half, target) for half in halves])


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if is_text(target):
        return _to_text(values, target)
    if pa.types.is_integer(target) and (
        pa.types.is_floating(source) or pa.types.is_decimal(source)
    ):
        # The checked cast must reject NaN and numbers out of range, but accept fractions.
        return pc.trunc(values).cast(target)
    if pa.types.is_decimal(target):
        return _to_decimal(values, target)
    if pa.types.is_floating(target):
        if pa.types.is_decimal128(source) and source.precision <= _INT64_DIGITS:
            values = _decimals_to_doubles(values)
        return values.cast(target, safe=False)
    if pa.types.is_temporal(source) and pa.types.is_temporal(target):
        return _between_times(values, target)
    if pa.types.is_integer(source) and pa.types.is_temporal(target):
        width = pa.int32() if target.bit_width == 32 else pa.int64()
        return _checked_times(values.cast(width).cast(target))
    if pa.types.is_temporal(source) and pa.types.is_integer(target):
        width = pa.int32() if source.bit_width == 32 else pa.int64()
        return values.cast(width).cast(target)
    if pa.types.is_dictionary(target):
        return _cast(values, target.value_type).dictionary_encode().cast(target)
    return values.cast(target)


def _checked_times(values: pa.Array) -> pa.Array:
    """Raise for times of day out of range, which Arrow casts without an error."""
    if pa.types.is_time(values.type):
        values.validate(full=True)
    return values


def _to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if pa.types.is_floating(source):
        return _floats_to_text(values).cast(target)
    if pa.types.is_timestamp(source):
        return _timestamps_to_text(values).cast(target)
    if pa.types.is_time(source):
        return _short_fractions(values.cast(pa.string())).cast(target)
    if pa.types.is_duration(source):
        raise pa.ArrowInvalid("durations cannot be cast to text; extract parts with date_part")
    return values.cast(target)


def _floats_to_text(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    texts = pc.replace_substring_regex(texts, r"^(-?\d+)$", r"\1.0")
    return pc.replace_substring_regex(texts, r"^-?nan$", "NaN")


def _timestamps_to_text(values: pa.Array) -> pa.Array:
    zone = values.type.tz
    texts = pc.replace_substring(on_clock(values).cast(pa.string()), " ", "T", max_replacements=1)
    texts = _short_fractions(texts)
    if zone is None:
        return texts
    offset = pc.replace_substring_regex(pc.strftime(values, "%z"), r"(\d\d)$", r":\1")
    offset = pc.if_else(pc.equal(offset, "+00:00"), "Z", offset)
    return pc.binary_join_element_wise(texts, offset, "")


def _short_fractions(texts: pa.Array) -> pa.Array:
    """Trim fractional seconds to the fewest groups of three digits."""
    texts = pc.replace_substring_regex(texts, r"(\.\d*?)(000)+$", r"\1")
    return pc.replace_substring_regex(texts, r"\.$", "")


def _to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if pa.types.is_decimal(source) and source.scale > target.scale:
        values = pc.round(values, target.scale, "half_towards_infinity")
    if pa.types.is_integer(source):
        # Arrow requires enough precision for every int64, even if the values are small.
        values = values.cast(pa.decimal256(_WIDEST_DECIMAL, target.scale))
    if pa.types.is_floating(source):
        values = values.cast(pa.float64())
    return values.cast(target)


def _decimals_to_doubles(values: pa.Array) -> pa.Array:
    """Convert by one division, so 0.3 is the double 0.3; Arrow multiplies by an inexact power."""
    data = values.buffers()[1]
    halves = np.frombuffer(data, np.int64) if data is not None else np.empty(0, np.int64)
    digits = halves[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    doubles = pa.array(digits / 10.0**values.type.scale)
    return pc.if_else(values.is_valid(), doubles, pa.scalar(None, pa.float64()))


def _between_times(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    if not pa.types.is_timestamp(source):
        if pa.types.is_timestamp(target):
            return off_clock(values.cast(pa.timestamp(target.unit)), target.tz)
        return values.cast(target, safe=pa.types.is_date(source))
    if not pa.types.is_timestamp(target):
        # Dates and times of day are taken from the local time of the zone.
        return on_clock(values).cast(target, safe=False)
    if NANOSECONDS[target.unit] > NANOSECONDS[source.unit]:
        values = pc.floor_temporal(values, unit=_UNIT_NAMES[target.unit])
    if source.tz is None and target.tz is not None:
        return off_clock(values.cast(pa.timestamp(target.unit)), target.tz)
    return values.cast(target)
