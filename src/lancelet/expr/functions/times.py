"""Functions of dates, times and timestamps.

`now()`, `current_date` and `current_time` are evaluated once, when the expression is bound, so
all rows and workers use the same instant. Times without a zone are UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet import surroundings
from lancelet.expr.data_types import is_temporal, is_text
from lancelet.expr.functions.base import (
    Function,
    Takes,
    Value,
    check_output,
    constant,
    integer,
    num_rows_of,
    text,
)
from lancelet.expr.functions.calendar import date_part, date_trunc, on_clock, to_unix_seconds
from lancelet.expr.functions.casting import cast

_DIRECTIVE_BYTES_MAX: Final = 32
"""Maximum output bytes per character of a format: `%c` returns 24."""


def _time(data_type: pa.DataType) -> pa.DataType | None:
    return data_type if is_temporal(data_type) else None


def _timestamp(data_type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(data_type):
        return pa.timestamp("us")
    return data_type if pa.types.is_timestamp(data_type) else None


def _castable(data_type: pa.DataType) -> pa.DataType | None:
    is_accepted = is_text(data_type) or pa.types.is_integer(data_type) or is_temporal(data_type)
    return data_type if is_accepted else None


def _part(name: Value, values: Value) -> Value:
    return date_part(constant(name, "the part of date_part"), values)


def _epoch(values: Value) -> Value:
    return date_part("epoch", values)


def _truncate(unit: Value, values: Value) -> Value:
    return date_trunc(constant(unit, "the unit of date_trunc"), values)


def _second(types: Sequence[pa.DataType]) -> pa.DataType:
    return types[1]


def _named_part(name: str) -> Function:
    return Function((name,), (_time,), pa.int32(), lambda values: date_part(name, values))


def _to_timestamp(unit: str, ticks: str) -> Callable[..., Value]:
    """Return a cast to timestamps of `unit`; integers count `ticks`."""

    def convert(values: Value) -> Value:
        if pa.types.is_integer(values.type):
            values = cast(values, pa.timestamp(ticks), or_null=False)
        return cast(values, pa.timestamp(unit), or_null=False)

    return convert


def _to_date(values: Value) -> Value:
    return cast(values, pa.date32(), or_null=False)


def _to_char(values: Value, pattern: Value) -> Value:
    directives = constant(pattern, "the format of to_char")
    if directives is None:
        return pa.scalar(None, pa.string())
    check_output("to_char", num_rows_of([values]) * _DIRECTIVE_BYTES_MAX * len(directives), values)
    return pc.strftime(on_clock(values), directives)


def current(name: str) -> pa.Scalar | None:
    """Return the value of a function of the current time, or None for other functions."""
    now = surroundings.now().replace(tzinfo=None)
    if name in {"now", "current_timestamp"}:
        return pa.scalar(now, pa.timestamp("us"))
    if name in {"current_date", "today"}:
        return pa.scalar(now.date(), pa.date32())
    if name == "current_time":
        return pa.scalar(now.time(), pa.time64("us"))
    return None


_ANY_TIME: Final[tuple[Takes, ...]] = (text, _time)

TIME_FUNCTIONS: Final = (
    Function(("date_part", "datepart"), _ANY_TIME, pa.int32(), _part),
    Function(("epoch",), (_time,), pa.float64(), _epoch),
    Function(("date_trunc", "datetrunc"), (text, _timestamp), _second, _truncate),
    *(
        _named_part(name)
        for name in ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
    ),
    Function(
        ("to_timestamp",), (_castable,), pa.timestamp("ns"), _to_timestamp("ns", "s"), can_fail=True
    ),
    Function(
        ("to_timestamp_seconds",),
        (_castable,),
        pa.timestamp("s"),
        _to_timestamp("s", "s"),
        can_fail=True,
    ),
    Function(
        ("to_timestamp_millis",),
        (_castable,),
        pa.timestamp("ms"),
        _to_timestamp("ms", "ms"),
        can_fail=True,
    ),
    Function(
        ("to_timestamp_micros",),
        (_castable,),
        pa.timestamp("us"),
        _to_timestamp("us", "us"),
        can_fail=True,
    ),
    Function(
        ("to_timestamp_nanos",),
        (_castable,),
        pa.timestamp("ns"),
        _to_timestamp("ns", "ns"),
        can_fail=True,
    ),
    Function(("from_unixtime",), (integer,), pa.timestamp("s"), _to_timestamp("s", "s")),
    Function(("to_unixtime",), (_timestamp,), pa.int64(), to_unix_seconds),
    Function(("to_date", "date"), (_castable,), pa.date32(), _to_date, can_fail=True),
    Function(("to_char", "date_format"), (_timestamp, text), pa.string(), _to_char),
)
"""All functions of dates and times."""
