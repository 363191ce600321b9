"""Calendar arithmetic: add months, extract parts, truncate.

    2024-01-31 + 1 month      2024-02-29: limited to the last day of the month
    date_part('dow', ...)     Sunday is 0; 'isodow' counts Monday 1 to Sunday 7
    date_trunc('week', ...)   the preceding Monday

Timestamps with a zone are converted to local time and back. An ambiguous local time refers to the
earlier instant; a nonexistent one is moved forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.expr.coercion import CoercionError
from lancelet.expr.functions.base import Value, of_arrow
from lancelet.expr.literal_text import NANOSECONDS

_TRUNCATED: Final = (
    *("year", "quarter", "month", "week", "day", "hour", "minute"),
    *("second", "millisecond", "microsecond"),
)


def unit_of_interval(interval: pa.Scalar) -> str | None:
    """Return the coarsest unit for the time part of an interval, or None if it has none."""
    if not interval.is_valid or not interval.as_py().nanoseconds:
        return None
    nanoseconds = interval.as_py().nanoseconds
    return next(unit for unit, size in NANOSECONDS.items() if nanoseconds % size == 0)


def add_interval(value: Value, interval: Value, result: pa.DataType, *, negative: bool) -> Value:
    """Add a constant interval to dates or timestamps."""
    if not isinstance(interval, pa.Scalar):
        raise CoercionError("only constant intervals can be added")
    if not interval.is_valid:
        return (
            pa.scalar(None, result)
            if isinstance(value, pa.Scalar)
            else pa.nulls(len(value), result)
        )
    if isinstance(value, pa.Scalar):
        return add_interval(pa.array([value], value.type), interval, result, negative=negative)[0]
    months, days, nanoseconds = (-part if negative else part for part in interval.as_py())
    zone = result.tz if pa.types.is_timestamp(result) else None
    clock = on_clock(value)
    if months or days:
        unit = "D" if pa.types.is_date(clock.type) else clock.type.unit
        moved = _moved(clock.cast(pa.timestamp("s") if unit == "D" else clock.type), months, days)
        clock = moved.cast(clock.type)
    moved_type = pa.timestamp(result.unit) if pa.types.is_timestamp(result) else result
    clock = off_clock(clock.cast(moved_type), zone)
    if not nanoseconds:
        return clock
    size = NANOSECONDS[result.unit]
    return pc.add_checked(clock, pa.scalar(nanoseconds // size, pa.duration(result.unit)))


def _moved(clock: pa.Array, months: int, days: int) -> pa.Array:
    """Add months, limited to the last day of the month, then days to local times."""
    unit = clock.type.unit
    instants = clock.cast(pa.int64()).fill_null(0).to_numpy().view(f"datetime64[{unit}]")
    day = instants.astype("datetime64[D]")
    of_day = instants - day
    if months:
        month = day.astype("datetime64[M]")
        in_month = (day - month.astype("datetime64[D]")).astype(np.int64)
        month = month + months
        length = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(
            np.int64
        )
        day = month.astype("datetime64[D]") + np.minimum(in_month, length - 1)
    moved = (day + days).astype(instants.dtype) + of_day
    ticks = pa.array(moved.view(np.int64)).cast(pa.timestamp(unit))
    return pc.if_else(clock.is_valid(), ticks, pa.scalar(None, ticks.type))


def on_clock(value: Value) -> Value:
    """Convert timestamps with a zone to local times; return others unchanged."""
    zoned = pa.types.is_timestamp(value.type) and value.type.tz is not None
    return pc.local_timestamp(value) if zoned else value


def off_clock(value: Value, zone: str | None) -> Value:
    """Undo `on_clock`."""
    if zone is None:
        return value
    return pc.assume_timezone(value, zone, ambiguous="earliest", nonexistent="latest")


def date_part(part: str, value: Value) -> Value:
    """Return a part of dates, times, timestamps or durations: int32, or double for `epoch`."""
    name = part.lower()
    if name == "epoch":
        return _epoch(value)
    clock = on_clock(value)
    if pa.types.is_date(clock.type):
        clock = clock.cast(pa.timestamp("s"))
    if name not in _PARTS:
        raise CoercionError(
            f"unknown date part {part!r}; expected one of epoch, {', '.join(_PARTS)}"
        )
    if pa.types.is_time(clock.type) and name not in _CLOCK_PARTS:
        raise CoercionError(f"a time of day has no part {part!r}")
    return _PARTS[name](clock).cast(pa.int32())


def _epoch(value: Value) -> Value:
    if pa.types.is_date(value.type):
        value = value.cast(pa.timestamp("s"))
    per_second = 10**9 // NANOSECONDS[value.type.unit]
    width = pa.int32() if pa.types.is_time32(value.type) else pa.int64()
    return pc.divide(value.cast(width).cast(pa.float64(), safe=False), float(per_second))


def _within_second(per_second: int) -> Callable[[Value], Value]:
    def part(clock: Value) -> Value:
        ticks_per_second = 10**9 // NANOSECONDS[clock.type.unit]
        width = pa.int32() if pa.types.is_time32(clock.type) else pa.int64()
        ticks = clock.cast(width).cast(pa.int64())
        minute = pc.multiply(_floor(ticks, 60 * ticks_per_second), 60 * ticks_per_second)
        rest = pc.subtract(ticks, minute)
        if per_second >= ticks_per_second:
            return pc.multiply(rest, per_second // ticks_per_second)
        return pc.divide(rest, ticks_per_second // per_second)

    return part


def _floor(ticks: Value, size: int) -> Value:
    negative = pc.less(ticks, 0)
    shifted = pc.if_else(negative, pc.subtract(ticks, size - 1), ticks)
    return pc.divide(shifted, size)


_CLOCK_PARTS: Final[dict[str, Callable[[Value], Value]]] = {
    "hour": of_arrow("hour"),
    "minute": of_arrow("minute"),
    "second": of_arrow("second"),
    "millisecond": _within_second(10**3),
    "microsecond": _within_second(10**6),
    "nanosecond": _within_second(10**9),
}
_PARTS: Final[dict[str, Callable[[Value], Value]]] = {
    "year": of_arrow("year"),
    "isoyear": of_arrow("iso_year"),
    "quarter": of_arrow("quarter"),
    "month": of_arrow("month"),
    "week": of_arrow("iso_week"),
    "day": of_arrow("day"),
    "doy": of_arrow("day_of_year"),
    "dow": lambda clock: pc.day_of_week(clock, count_from_zero=True, week_start=7),
    "isodow": lambda clock: pc.day_of_week(clock, count_from_zero=False, week_start=1),
    **_CLOCK_PARTS,
}


def date_trunc(unit: str, value: Value) -> Value:
    """Truncate timestamps to a unit from year to second."""
    name = unit.lower()
    if name not in _TRUNCATED:
        raise CoercionError(
            f"unknown truncation unit {unit!r}; expected one of {', '.join(_TRUNCATED)}"
        )
    zone = value.type.tz
    cut = pc.floor_temporal(on_clock(value), unit=name, week_starts_monday=True)
    return off_clock(cut, zone)


def to_unix_seconds(value: Value) -> Value:
    """Return seconds since 1970, truncated toward zero."""
    if pa.types.is_date(value.type):
        value = value.cast(pa.timestamp("s"))
    ticks = value.cast(pa.int64())
    return pc.divide(ticks, 10**9 // NANOSECONDS[value.type.unit])
