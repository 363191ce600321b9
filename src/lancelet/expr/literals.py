"""Convert constants to the type of the column they are compared with.

`fit` returns the exact value in that type or, if the type cannot represent the constant, the
greatest lower value.

    1.5 as int32              Unrepresentable(floor=1)        x > 1.5  means  x > 1
    -1 as uint8               Unrepresentable(floor=None)     x > -1   means  x is not null
    1.5 as decimal(10,2)      1.50                exact
    0.1 as float32            the nearest float32, as the column was rounded
    '2020-01-01' as timestamp[ms, tz=Europe/Paris]     midnight in Paris

Strings are parsed as the target type, so dates, decimals and durations may be quoted.
"""

from __future__ import annotations

import math
from decimal import ROUND_FLOOR, Context, Decimal, InvalidOperation
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.expr.data_types import is_any_list, is_bytes, is_number, is_temporal, is_text
from lancelet.expr.literal_text import (
    DAY_NS,
    NANOSECONDS,
    NUMBER_TEXT,
    Instant,
    UnfitError,
    parse_instant,
    parse_interval,
    parse_time_ns,
    scalar_of,
    to_narrowest_array,
    zone_offset_ns,
)
from lancelet.values import dataclass

_EXACT: Final = Context(prec=400)


@dataclass(frozen=True, slots=True)
class Unrepresentable:
    """A value that a type cannot represent.

    `floor` is the greatest lower value of the type, or None if there is none.
    """

    floor: pa.Scalar | None


Fitted: TypeAlias = "pa.Scalar | Unrepresentable"


def parse_text_as(text: str, data_type: pa.DataType) -> Fitted:
    """Parse text as a value of a type, or raise `UnfitError`."""
    if is_text(data_type):
        return pa.scalar(text, data_type)
    if is_bytes(data_type):
        return fit(pa.scalar(text.encode()), data_type)
    if pa.types.is_boolean(data_type):
        return pa.scalar(_parse_boolean(text))
    if pa.types.is_floating(data_type) and text.strip().lower().lstrip("+-") in _SPECIAL_FLOATS:
        return _float_scalar(float(text), data_type)
    if is_number(data_type):
        if not NUMBER_TEXT.fullmatch(text.strip()):
            raise UnfitError(f"{text!r} is not a number")
        return _fit_number(Decimal(text.strip()), data_type)
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        return _fit_instant(parse_instant(text), data_type)
    if pa.types.is_time(data_type):
        return _fit_ticks(parse_time_ns(text), data_type)
    if pa.types.is_duration(data_type):
        return fit(parse_interval(text), data_type)
    if pa.types.is_interval(data_type):
        return parse_interval(text)
    raise UnfitError(f"text cannot be parsed as {data_type}")


_SPECIAL_FLOATS: Final = {"nan", "inf", "infinity"}
_BOOLEANS: Final = {"true": True, "t": True, "yes": True, "false": False, "f": False, "no": False}


def _parse_boolean(text: str) -> bool:
    if text.strip().lower() not in _BOOLEANS:
        raise UnfitError(f"{text!r} is not a boolean")
    return _BOOLEANS[text.strip().lower()]


def fit(scalar: pa.Scalar, data_type: pa.DataType) -> Fitted:
    """Convert a constant to a type exactly, or return `Unrepresentable`.

    Raise `UnfitError` if the constant cannot be compared with values of the type.

    >>> fit(pa.scalar(1.5), pa.int32())
    Unrepresentable(floor=<pyarrow.Int32Scalar: 1>)
    >>> fit(pa.scalar("2020-01-01"), pa.date32())
    <pyarrow.Date32Scalar: datetime.date(2020, 1, 1)>
    """
    source = scalar.type
    if not scalar.is_valid:
        return pa.scalar(None, data_type)
    if source == data_type:
        return scalar
    if pa.types.is_dictionary(source):
        return fit(scalar.value, data_type)
    if is_text(source):
        return parse_text_as(scalar.as_py(), data_type)
    if is_bytes(source) and (is_bytes(data_type)):
        return _fit_bytes(scalar.as_py(), data_type)
    if is_number(source) and is_number(data_type):
        return _fit_numeric_scalar(scalar, data_type)
    if is_temporal(source) and is_temporal(data_type):
        return _fit_temporal(scalar, data_type)
    if pa.types.is_interval(source) and pa.types.is_duration(data_type):
        months, days, nanoseconds = scalar.as_py()
        if months:
            raise UnfitError("a month has no fixed duration; use days")
        return _fit_ticks(days * DAY_NS + nanoseconds, data_type)
    if is_any_list(source) and is_any_list(data_type):
        return _fit_list(scalar, data_type)
    raise UnfitError(f"a constant of type {source} cannot be compared as {data_type}")


def _fit_numeric_scalar(scalar: pa.Scalar, data_type: pa.DataType) -> Fitted:
    value = scalar.as_py()
    if isinstance(value, float) or pa.types.is_floating(scalar.type):
        value = float(value)
        if pa.types.is_floating(data_type):
            return _float_scalar(value, data_type)
        if not math.isfinite(value):
            below_all = value == -math.inf
            return Unrepresentable(None if below_all else limits(data_type)[1])
        return _fit_number(Decimal(repr(value)), data_type)
    return _fit_number(Decimal(value), data_type)


def _fit_number(value: Decimal, data_type: pa.DataType) -> Fitted:
    if pa.types.is_floating(data_type):
        # Rounded to the nearest value, or to infinity out of range.
        return _float_scalar(float(value), data_type)
    scale = data_type.scale if pa.types.is_decimal(data_type) else 0
    low, high = limits(data_type)
    if value < Decimal(low.as_py()):
        return Unrepresentable(None)
    if value > Decimal(high.as_py()):
        return Unrepresentable(high)
    try:
        floor = value.quantize(Decimal(1).scaleb(-scale), rounding=ROUND_FLOOR, context=_EXACT)
    except InvalidOperation as error:
        raise UnfitError(f"{value} has too many digits") from error
    fitted = scalar_of(floor if pa.types.is_decimal(data_type) else int(floor), data_type)
    return fitted if floor == value else Unrepresentable(fitted)


def _float_scalar(value: float, data_type: pa.DataType) -> pa.Scalar:
    return scalar_of(value, pa.float64()).cast(data_type, safe=False)


def limits(data_type: pa.DataType) -> tuple[pa.Scalar, pa.Scalar]:
    """Return the minimum and maximum of an integer, decimal or temporal type."""
    if pa.types.is_decimal(data_type):
        greatest = Decimal(10**data_type.precision - 1).scaleb(-data_type.scale, context=_EXACT)
        return pa.scalar(greatest.copy_negate(), data_type), pa.scalar(greatest, data_type)
    bits = data_type.bit_width
    if pa.types.is_unsigned_integer(data_type):
        return pa.scalar(0, data_type), pa.scalar(2**bits - 1, data_type)
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    storage = pa.int32() if bits == 32 else pa.int64()
    if pa.types.is_integer(data_type):
        return scalar_of(low, data_type), scalar_of(high, data_type)
    return pa.scalar(low, storage).cast(data_type), pa.scalar(high, storage).cast(data_type)


def _fit_bytes(value: bytes, data_type: pa.DataType) -> Fitted:
    if pa.types.is_fixed_size_binary(data_type) and len(value) != data_type.byte_width:
        raise UnfitError(f"{len(value)} bytes cannot be compared with {data_type}")
    return pa.scalar(value, data_type)


def _fit_temporal(scalar: pa.Scalar, data_type: pa.DataType) -> Fitted:
    source = scalar.type
    points = (pa.types.is_date, pa.types.is_timestamp)
    if any(is_(source) for is_ in points) and any(is_(data_type) for is_ in points):
        has_zone = pa.types.is_timestamp(source) and source.tz is not None
        return _fit_instant(Instant(scalar.value * tick_ns(source), has_zone), data_type)
    for is_kind in (pa.types.is_time, pa.types.is_duration):
        if is_kind(source) and is_kind(data_type):
            return _fit_ticks(scalar.value * tick_ns(source), data_type)
    raise UnfitError(f"a constant of type {source} cannot be compared with {data_type}")


def _fit_instant(instant: Instant, data_type: pa.DataType) -> Fitted:
    nanoseconds = instant.nanoseconds
    zone = data_type.tz if pa.types.is_timestamp(data_type) else None
    if zone is not None and not instant.has_zone:
        # Without a zone, the time is a local time in the zone of the column.
        nanoseconds -= zone_offset_ns(zone, nanoseconds)
    return _fit_ticks(nanoseconds, data_type)


def tick_ns(data_type: pa.DataType) -> int:
    """Return the nanoseconds per tick of a temporal type."""
    if pa.types.is_date32(data_type):
        return DAY_NS
    if pa.types.is_date64(data_type):
        return NANOSECONDS["ms"]
    return NANOSECONDS[data_type.unit]


def _fit_ticks(nanoseconds: int, data_type: pa.DataType) -> Fitted:
    ticks, remainder = divmod(nanoseconds, tick_ns(data_type))
    low, high = limits(data_type)
    if ticks < low.value:
        return Unrepresentable(None)
    if ticks > high.value:
        return Unrepresentable(high)
    storage = pa.int32() if data_type.bit_width == 32 else pa.int64()
    fitted = pa.scalar(ticks, storage).cast(data_type)
    return Unrepresentable(fitted) if remainder else fitted


def _fit_list(scalar: pa.Scalar, data_type: pa.DataType) -> pa.Scalar:
    fitted = [fit(value, data_type.value_type) for value in scalar.values]
    parts = [part for part in fitted if not isinstance(part, Unrepresentable)]
    if len(parts) < len(fitted):
        raise UnfitError(
            f"a list of {scalar.type.value_type} has values that {data_type} cannot represent"
        )
    items = pa.array(parts, data_type.value_type)
    if pa.types.is_fixed_size_list(data_type):
        if len(items) != data_type.list_size:
            raise UnfitError(f"a list of {len(items)} items cannot be compared with {data_type}")
        return pa.FixedSizeListArray.from_arrays(items, type=data_type)[0]
    large = pa.types.is_large_list(data_type)
    offsets = pa.array([0, len(items)], pa.int64() if large else pa.int32())
    make = pa.LargeListArray if large else pa.ListArray
    return make.from_arrays(offsets, items, type=data_type)[0]


# --- arrays of constants ---------------------------------------------------------------------


def arrays_of_constants(scalars: list[pa.Scalar]) -> list[pa.Array]:
    """Group scalars into arrays by type; nulls are added to the first."""
    exact = [item for item in scalars if item.is_valid and _is_exact(item.type)]
    inexact = [item for item in scalars if item.is_valid and not _is_exact(item.type)]
    arrays = [to_narrowest_array([item.as_py() for item in exact])] if exact else []
    arrays += [
        pa.array([item for item in inexact if item.type == data_type], data_type)
        for data_type in dict.fromkeys(item.type for item in inexact)
    ]
    nulls = len(scalars) - len(exact) - len(inexact)
    arrays = arrays or [pa.array([], pa.null())]
    return [pa.concat_arrays([arrays[0], pa.nulls(nulls, arrays[0].type)]), *arrays[1:]]


def list_of_constants(scalars: list[pa.Scalar]) -> pa.Scalar | None:
    """Return scalars as one list, or None if they have different types."""
    arrays = arrays_of_constants(scalars)
    if len(arrays) > 1:
        return None
    return pa.scalar([_array_item(scalar) for scalar in scalars], pa.list_(arrays[0].type))


def _array_item(scalar: pa.Scalar) -> object:
    if not scalar.is_valid:
        return None
    return scalar.as_py() if _is_exact(scalar.type) else scalar


def _is_exact(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_decimal(data_type))
