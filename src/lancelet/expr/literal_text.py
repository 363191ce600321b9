"""Parse and print SQL constants.

    7                      int64            1.50     decimal128(3, 2)      1.5e0   double
    'it''s'                string           X'00ff'  binary                TRUE, NULL
    DATE '2020-01-31'      date32           TIME '12:30:00'                time64[us]
    TIMESTAMP '2020-01-31 12:30:00.5'       INTERVAL '1 month 2 days'

Times have nanosecond precision and are computed with Python integers, so years do not overflow.
"""

from __future__ import annotations

import math
import re
import struct
import sys
import zoneinfo
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.encodings.arrow import to_arrow
from lancelet.expr.data_types import is_any_list, is_bytes, is_text, print_arrow_type
from lancelet.values import dataclass

NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
"""Nanoseconds per tick of each Arrow time unit."""

DAY_NS: Final = 86_400 * 10**9
_EPOCH: Final = date(1970, 1, 1).toordinal()
DECIMAL256_DIGITS: Final = 76
"""Maximum number of digits of an Arrow decimal."""

_DATE: Final = r"(\d{4})-(\d{1,2})-(\d{1,2})"
_CLOCK: Final = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_ZONE: Final = r"\s*(Z|z|[+-]\d{2}(?::?\d{2})?|[A-Za-z]+(?:/[A-Za-z0-9_+-]+)*)?"
_TIMESTAMP_TEXT: Final = re.compile(rf"{_DATE}(?:[T ]\s*{_CLOCK})?{_ZONE}")
_TIME_TEXT: Final = re.compile(_CLOCK)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
NUMBER_TEXT: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_INTERVAL_PART: Final = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+))\s*([A-Za-zµ]+)\s*,?")

_INTERVAL_UNITS: Final[dict[str, tuple[int, int, int]]] = {
    # months, days, nanoseconds
    "year": (12, 0, 0),
    "quarter": (3, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600 * 10**9),
    "minute": (0, 0, 60 * 10**9),
    "second": (0, 0, 10**9),
    "millisecond": (0, 0, 10**6),
    "microsecond": (0, 0, 10**3),
    "nanosecond": (0, 0, 1),
}
_INTERVAL_ALIASES: Final = {
    short: unit
    for unit, shorts in {
        "year": "y yr yrs",
        "month": "mon mons",
        "week": "w",
        "day": "d",
        "hour": "h hr hrs",
        "minute": "m min mins",
        "second": "s sec secs",
        "millisecond": "ms",
        "microsecond": "us µs",
        "nanosecond": "ns",
    }.items()
    for short in shorts.split()
}


class UnfitError(ValueError):
    """A constant cannot be converted to a type; the message gives the reason."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A point in time in nanoseconds since 1970; without a zone it is a local time."""

    nanoseconds: int
    has_zone: bool


def scalar_of(value: object, data_type: pa.DataType | None = None) -> pa.Scalar:
    """Create a constant like `pa.scalar`, without importing pandas.

    `pa.scalar` imports pandas to check for pandas objects, which takes longer than most filters.
    Numbers and strings are therefore created from their bytes.

    >>> scalar_of(7), scalar_of("it")
    (<pyarrow.Int64Scalar: 7>, <pyarrow.StringScalar: 'it'>)
    """
    buffers = _scalar_buffers(value, data_type)
    if buffers is None:
        return pa.scalar(value, data_type)
    return pa.Array.from_buffers(buffers[0], 1, [None, *map(pa.py_buffer, buffers[1:])])[0]


def _scalar_buffers(value: object, data_type: pa.DataType | None) -> tuple[Any, ...] | None:
    """Return the type and buffers of a value, or None if it requires `pa.scalar`."""
    kind = type(value)
    if kind is int and (data_type is None or pa.types.is_integer(data_type)):
        data_type = data_type or pa.int64()
        return _integer_bytes(value, data_type, signed=pa.types.is_signed_integer(data_type))
    if kind is float and (data_type is None or data_type == pa.float64()):
        return pa.float64(), struct.pack("=d", value)
    if kind is str and (data_type is None or data_type == pa.string()):
        assert isinstance(value, str), "that is its type"
        text = value.encode("utf-8", "surrogatepass")
        is_unicode = value.isascii() or not _SURROGATES.search(value)
        return (pa.string(), struct.pack("=ii", 0, len(text)), text) if is_unicode else None
    if kind is Decimal and data_type is not None and pa.types.is_decimal(data_type):
        assert isinstance(value, Decimal), "that is its type"
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, str) or data_type.scale + exponent < 0:
            return None
        number = int("".join(map(str, digits))) * 10 ** (data_type.scale + exponent)
        is_too_long = number >= 10**data_type.precision
        return None if is_too_long else _integer_bytes(-number if value < 0 else number, data_type)
    return None


def _integer_bytes(
    value: Any, data_type: pa.DataType, *, signed: bool = True
) -> tuple[Any, ...] | None:
    try:
        return data_type, value.to_bytes(data_type.bit_width // 8, sys.byteorder, signed=signed)
    except OverflowError:
        return None


def parse_number(text: str) -> pa.Scalar:
    """Parse a number to an integer, a decimal or, with an exponent, a double.

    >>> parse_number("7").type, parse_number("1.50").type, parse_number("1e3").type
    (DataType(int64), Decimal128Type(decimal128(3, 2)), DataType(double))
    >>> parse_number("-0.0")
    <pyarrow.DoubleScalar: -0.0>
    """
    if re.fullmatch(r"[+-]?\d+", text):
        return scalar_of_integer(int(text))
    if "e" in text.lower():
        return scalar_of(float(text))
    value = Decimal(text)
    if not value and value.is_signed():
        return pa.scalar(-0.0)  # decimals have no negative zero
    digits = value.as_tuple()
    scale = -int(digits.exponent)
    precision = max(len(digits.digits), scale, 1)
    if precision > DECIMAL256_DIGITS:
        return scalar_of(float(text))
    return scalar_of(value, decimal_type(precision, scale))


def scalar_of_integer(value: int) -> pa.Scalar:
    """Return an integer as the first of int64, uint64, decimal and double that holds it."""
    if -(2**63) <= value < 2**63:
        return scalar_of(value, pa.int64())
    if 0 <= value < 2**64:
        return scalar_of(value, pa.uint64())
    digits = len(str(abs(value)))
    if digits <= DECIMAL256_DIGITS:
        return scalar_of(Decimal(value), decimal_type(digits, 0))
    return scalar_of(float(Decimal(value)))


def to_narrowest_array(values: Sequence[int | Decimal | None]) -> pa.Array:
    """Return integers and decimals as an array of the narrowest type that holds all.

    >>> to_narrowest_array([1, Decimal("2.5")]).type
    Decimal128Type(decimal128(2, 1))
    """
    valid = [value for value in values if value is not None]
    if all(isinstance(value, int) and -(2**63) <= value < 2**63 for value in valid):
        if len(valid) == len(values):
            return to_arrow(np.array(valid, np.int64))
        return pa.array(values, pa.int64())
    scale = max(max(0, -int(Decimal(value).as_tuple().exponent)) for value in valid)
    integer_digits = max(len(str(abs(int(value)))) for value in valid)
    if integer_digits + scale > DECIMAL256_DIGITS:
        return pa.array([None if value is None else float(value) for value in values])
    decimals = [None if value is None else Decimal(value) for value in values]
    return pa.array(decimals, decimal_type(integer_digits + scale, scale))


def decimal_type(precision: int, scale: int) -> pa.DataType:
    """Return the narrowest decimal type with the given precision."""
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def parse_instant(text: str) -> Instant:
    """Parse a timestamp or date with nanosecond precision; a date means midnight.

    >>> parse_instant("1970-01-01T01:00:00.5+01:00")
    Instant(nanoseconds=500000000, has_zone=True)
    """
    match = _TIMESTAMP_TEXT.fullmatch(text.strip())
    if match is None:
        raise UnfitError(f"{text!r} is not a timestamp; write 'YYYY-MM-DD HH:MM:SS.fff'")
    year, month, day, *clock, zone = match.groups()
    try:
        days = date(int(year), int(month), int(day)).toordinal() - _EPOCH
    except ValueError as error:
        raise UnfitError(f"{text!r} is not a date: {error}") from error
    nanoseconds = days * DAY_NS + (_clock_ns(text, *clock) if clock[0] else 0)
    if zone is None:
        return Instant(nanoseconds, has_zone=False)
    return Instant(nanoseconds - _offset_ns(text, zone, nanoseconds), has_zone=True)


def _clock_ns(text: str, hour: str, minute: str, second: str | None, fraction: str | None) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise UnfitError(f"{text!r} is not a time of day")
    return ((hours * 60 + minutes) * 60 + seconds) * 10**9 + int((fraction or "").ljust(9, "0"))


def _offset_ns(text: str, zone: str, local_ns: int) -> int:
    if zone in {"Z", "z"}:
        return 0
    if zone[0] in "+-":
        digits = zone[1:].replace(":", "").ljust(4, "0")
        seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        return (-seconds if zone[0] == "-" else seconds) * 10**9
    try:
        info = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        raise UnfitError(f"{text!r} has the unknown time zone {zone!r}") from error
    local = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=local_ns // 1000)
    offset = local.replace(tzinfo=info).utcoffset()
    return 0 if offset is None else round(offset.total_seconds()) * 10**9


def parse_time_ns(text: str) -> int:
    """Parse a time of day and return the nanoseconds since midnight.

    >>> parse_time_ns("00:00:01.5")
    1500000000
    """
    match = _TIME_TEXT.fullmatch(text.strip())
    if match is None:
        raise UnfitError(f"{text!r} is not a time of day; write 'HH:MM:SS.fff'")
    return _clock_ns(text, *match.groups())


def parse_interval(text: str) -> pa.Scalar:
    """Parse an interval of months, days and nanoseconds.

    >>> tuple(parse_interval("1 year 2 days 3 hours").as_py())
    (12, 2, 10800000000000)
    """
    months, days, nanoseconds = Decimal(0), Decimal(0), Decimal(0)
    position, text = 0, text.strip()
    while position < len(text):
        match = _INTERVAL_PART.match(text, position)
        if match is None:
            if not position and (clock := _TIME_TEXT.fullmatch(text)):
                return _interval(0, 0, _clock_ns(text, *clock.groups()))
            raise UnfitError(f"{text!r} is not an interval; write for example '1 day 2 hours'")
        amount, name = Decimal(match.group(1)), match.group(2).lower()
        name = _INTERVAL_ALIASES.get(name, name)
        unit = _INTERVAL_UNITS.get(name) or _INTERVAL_UNITS.get(name.removesuffix("s"))
        if unit is None:
            raise UnfitError(
                f"unknown interval unit {name!r}; expected one of {', '.join(_INTERVAL_UNITS)}"
            )
        months, days = months + amount * unit[0], days + amount * unit[1]
        nanoseconds += amount * unit[2]
        position = match.end()
    # A fraction of a day is converted to time; a fraction of a month has no exact length.
    nanoseconds += (days % 1) * DAY_NS
    if months % 1 or not text:
        raise UnfitError(f"{text!r} is not an interval of whole months")
    return _interval(int(months), int(days - days % 1), int(nanoseconds))


def _interval(months: int, days: int, nanoseconds: int) -> pa.Scalar:
    return pa.scalar(pa.MonthDayNano([months, days, nanoseconds]))


def zone_offset_ns(zone: str, local_ns: int) -> int:
    """Return the UTC offset of a zone at a local time, in nanoseconds."""
    return _offset_ns(zone, zone, local_ns)


# --- printing --------------------------------------------------------------------------------


def print_scalar(scalar: pa.Scalar) -> str:
    """Return a constant as SQL that can be parsed back to the same value.

    >>> print_scalar(pa.scalar(1.5)), print_scalar(pa.scalar("it's")), print_scalar(pa.scalar(b"a"))
    ('1.5e0', "'it''s'", "X'61'")
    """
    data_type = scalar.type
    if not scalar.is_valid:
        return "NULL"
    if pa.types.is_dictionary(data_type):
        return print_scalar(scalar.value)
    if pa.types.is_boolean(data_type):
        return str(scalar.as_py()).upper()
    if pa.types.is_integer(data_type) or pa.types.is_decimal(data_type):
        return _print_exact(scalar)
    if pa.types.is_floating(data_type):
        return _print_float(scalar)
    if is_text(data_type):
        return quote_text(scalar.as_py())
    if is_bytes(data_type):
        return f"X'{scalar.as_py().hex()}'"
    if is_any_list(data_type):
        return f"[{', '.join(print_scalar(item) for item in scalar.values)}]"
    return _print_temporal(scalar)


def quote_text(text: str) -> str:
    """Quote text with single quotes, doubling quotes within it."""
    return "'" + text.replace("'", "''") + "'"


def _print_exact(scalar: pa.Scalar) -> str:
    text = f"{scalar.as_py():f}" if pa.types.is_decimal(scalar.type) else str(scalar.as_py())
    fractional = pa.types.is_decimal(scalar.type) and "." not in text and abs(int(text)) < 2**64
    return f"{text}." if fractional else text


def _print_float(scalar: pa.Scalar) -> str:
    value = float(scalar.as_py())
    if not math.isfinite(value):
        return f"arrow_cast('{value}', 'Float64')"
    if not pa.types.is_float64(scalar.type):
        return str(scalar.cast(pa.string()).as_py())
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{exponent or 0}"


def _print_temporal(scalar: pa.Scalar) -> str:
    data_type = scalar.type
    if pa.types.is_interval(data_type):
        months, days, nanoseconds = scalar.as_py()
        return f"INTERVAL '{months} months {days} days {nanoseconds} nanoseconds'"
    if pa.types.is_duration(data_type):
        seconds = Decimal(scalar.value * NANOSECONDS[data_type.unit]).scaleb(-9)
        return f"INTERVAL '{seconds:f} seconds'"
    text = print_ticks(scalar.value, data_type)
    if text is None:
        return f"arrow_cast({scalar.value}, '{print_arrow_type(data_type)}')"
    return text


def print_ticks(ticks: int, data_type: pa.DataType) -> str | None:
    """Return SQL for a date, time or timestamp, or None for years outside of 1 to 9999."""
    if pa.types.is_time(data_type):
        return f"TIME '{_print_clock(ticks * NANOSECONDS[data_type.unit])}'"
    if pa.types.is_date32(data_type):
        nanoseconds = ticks * DAY_NS
    else:
        nanoseconds = ticks * NANOSECONDS[getattr(data_type, "unit", "ms")]
    days, clock_ns = divmod(nanoseconds, DAY_NS)
    if not 1 <= days + _EPOCH <= date.max.toordinal():
        return None
    day = date.fromordinal(days + _EPOCH).isoformat()
    if pa.types.is_date(data_type) and not clock_ns:
        return f"DATE '{day}'"
    digits = {"s": "(0)", "ms": "(3)", "ns": "(9)"}.get(getattr(data_type, "unit", "ms"), "")
    zone = "Z" if pa.types.is_timestamp(data_type) and data_type.tz else ""
    return f"TIMESTAMP{digits} '{day} {_print_clock(clock_ns)}{zone}'"


def _print_clock(nanoseconds: int) -> str:
    seconds, fraction = divmod(nanoseconds, 10**9)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:09}".rstrip("0") if fraction else text
