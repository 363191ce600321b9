"""Functions without an Arrow kernel, evaluated in Python value by value.

    levenshtein('kitten', 'sitting')     3
    translate('hello', 'lo', '01')       he001
    md5('a')                             0cc175b9c0f1b6a831c399e269772661

They return null for null arguments and take about a microsecond per value.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import hashlib
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import surroundings
from lancelet.about import __version__
from lancelet.expr.coercion import CoercionError
from lancelet.expr.data_types import print_arrow_type
from lancelet.expr.functions.base import (
    Compute,
    Function,
    Value,
    anything,
    constant,
    integer,
    on_arrays,
    real,
    text,
    text_or_bytes,
)

_DIGESTS: Final = ("md5", "sha224", "sha256", "sha384", "sha512", "blake2s", "blake2b")
_TIME_FORMATS: Final = ("%H:%M:%S.%f", "%H:%M:%S", "%H:%M")
_LARGEST_FACTORIAL: Final = 20
_NANOSECONDS: Final = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY: Final = 86_400 * 10**9


def each(function: Callable[..., Any], gives: pa.DataType) -> Compute:
    """Vectorize a function of single values; rows with a null argument are null."""

    @on_arrays
    def compute(*columns: pa.Array) -> pa.Array:
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        found = [None if any(v is None for v in row) else function(*row) for row in rows]
        return pa.array(found, gives)

    return compute


# --- numbers ---------------------------------------------------------------------------------


def _real(function: Callable[[Any], Any]) -> Compute:
    @on_arrays
    def compute(values: pa.Array) -> pa.Array:
        with np.errstate(all="ignore"):
            found = pa.array(function(values.to_numpy(zero_copy_only=False)), pa.float64())
        return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.float64()))

    return compute


def _factorial(value: int) -> int:
    if value < 0:
        raise CoercionError("the factorial of a negative number is undefined")
    if value > _LARGEST_FACTORIAL:
        raise CoercionError(f"overflow: the factorial of {value} is larger than an int64")
    found = 1
    for factor in range(2, value + 1):
        found *= factor
    return found


def _of_integers(function: Callable[[Any, Any], Any]) -> Compute:
    @on_arrays
    def compute(left: pa.Array, right: pa.Array) -> pa.Array:
        is_valid = pc.and_(left.is_valid(), right.is_valid())
        numbers = (pc.fill_null(side, 0).to_numpy() for side in (left, right))
        found = pa.array(function(*numbers), pa.int64())
        return pc.if_else(is_valid, found, pa.scalar(None, pa.int64()))

    return compute


def _random(num_rows: int) -> pa.Array:
    return pa.array(np.random.default_rng(surroundings.random_bits(64)).random(num_rows))


# --- text ------------------------------------------------------------------------------------


def _ascii(value: str) -> int:
    return ord(value[0]) if value else 0


def _chr(value: int) -> str:
    try:
        return chr(value)
    except (ValueError, OverflowError) as error:
        raise CoercionError(f"chr: {value} is not a code point") from error


def _find_in_set(value: str, members: str) -> int:
    items = members.split(",")
    return items.index(value) + 1 if value in items else 0


def _levenshtein(left: str, right: str) -> int:
    before = list(range(len(right) + 1))
    for row, letter in enumerate(left, 1):
        now = [row]
        for column, other in enumerate(right, 1):
            change = before[column - 1] + (letter != other)
            now.append(min(before[column] + 1, now[-1] + 1, change))
        before = now
    return before[-1]


def _substr_index(value: str, delimiter: str, count: int) -> str:
    if not delimiter or not count:
        return ""
    parts = value.split(delimiter)
    return delimiter.join(parts[:count] if count > 0 else parts[count:])


def _translate(value: str, old: str, new: str) -> str:
    table: dict[int, str] = {}
    for index, letter in enumerate(old):
        table.setdefault(ord(letter), new[index] if index < len(new) else "")
    return value.translate(table)


def _overlay(value: str, by: str, start: int, length: int | None = None) -> str:
    begin = max(0, start - 1)
    return value[:begin] + by + value[max(0, start - 1 + (len(by) if length is None else length)) :]


def _to_hex(value: int) -> str:
    return f"{value & (1 << 64) - 1:x}"


def _regexp_instr(values: Value, pattern: Value, *rest: Value) -> Value:
    """Return the position of a match in characters from 1, or 0 if there is none."""
    text = constant(pattern, "a regular expression")
    if text is None:
        return pa.scalar(None, pa.int64())
    try:
        expression = re.compile(text)
    except re.error as error:
        raise CoercionError(f"not a regular expression: {error}") from error

    def position(value: str, start: int = 1, count: int = 1) -> int:
        if start < 1 or count < 1:
            raise CoercionError("regexp_instr: the start and the match number must be at least 1")
        for number, match in enumerate(expression.finditer(value, start - 1), 1):
            if number == count:
                return match.start() + 1
        return 0

    return each(position, pa.int64())(values, *rest)


# --- bytes -----------------------------------------------------------------------------------


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _encode(value: str | bytes, form: str) -> str:
    match form.lower():
        case "hex":
            return _bytes(value).hex()
        case "base64":
            return base64.b64encode(_bytes(value)).decode().rstrip("=")
        case "base64pad":
            return base64.b64encode(_bytes(value)).decode()
    raise CoercionError(f"encode: unknown encoding {form!r}; expected hex, base64 or base64pad")


def _decode(value: str | bytes, form: str) -> bytes:
    given = _bytes(value)
    try:
        match form.lower():
            case "hex":
                return binascii.unhexlify(given)
            case "base64" | "base64pad":
                bare = given.rstrip(b"=")
                return base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise CoercionError(f"decode: the text is not valid {form}: {error}") from error
    raise CoercionError(f"decode: unknown encoding {form!r}; expected hex, base64 or base64pad")


def _hash(name: str) -> Callable[[str | bytes], bytes]:
    return lambda value: hashlib.new(name, _bytes(value), usedforsecurity=False).digest()


def _md5(value: str | bytes) -> str:
    return _hash("md5")(value).hex()


def _digest(values: Value, method: Value) -> Value:
    name = constant(method, "the method of digest")
    if name is None:
        return pa.scalar(None, pa.binary())
    if name not in _DIGESTS:
        raise CoercionError(
            f"digest: unknown method {name!r}; expected one of {', '.join(_DIGESTS)}"
        )
    return each(_hash(name), pa.binary())(values)


def _uuid(num_rows: int) -> pa.Array:
    return pa.array([str(surroundings.new_uuid()) for _ in range(num_rows)], pa.string())


# --- times -----------------------------------------------------------------------------------


def _make_date(year: int, month: int, day: int) -> dt.date:
    try:
        return dt.date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise CoercionError(f"make_date: {error}") from error


def _make_time(hour: int, minute: int, second: int) -> dt.time:
    try:
        return dt.time(hour, minute, second)
    except (ValueError, OverflowError) as error:
        raise CoercionError(f"make_time: {error}") from error


def _to_time(value: str) -> dt.time:
    for form in _TIME_FORMATS:
        try:
            return dt.datetime.strptime(value, form).time()  # noqa: DTZ007 - times have no zone
        except ValueError:
            continue
    raise CoercionError(f"to_time: {value!r} is not a time such as 12:30:00")


def _to_local_time(values: Value) -> Value:
    return pc.local_timestamp(values) if values.type.tz is not None else values


def _a_timestamp(data_type: pa.DataType) -> pa.DataType | None:
    if pa.types.is_date(data_type):
        return pa.timestamp("us")
    return data_type if pa.types.is_timestamp(data_type) else None


def _interval(data_type: pa.DataType) -> pa.DataType | None:
    return data_type if pa.types.is_interval(data_type) else None


def _date_bin(width: Value, values: Value, origin: Value | None = None) -> Value:
    """Return the start of the interval that contains a time, aligned to 1970 or an origin."""
    span = constant(width, "the width of date_bin")
    start = None if origin is None else constant(origin, "the origin of date_bin")
    if span is None or (origin is not None and start is None):
        return pa.scalar(None, values.type)
    if span.months:
        return _month_bin(span, values, origin)
    ticks = _NANOSECONDS[values.type.unit]
    step = span.days * _DAY + span.nanoseconds
    if step <= 0 or step % ticks:
        raise CoercionError("the width of date_bin must be a positive multiple of the time unit")
    step //= ticks
    shift = 0 if origin is None else int(origin.cast(values.type).value)

    @on_arrays
    def compute(times: pa.Array) -> pa.Array:
        numbers = pc.fill_null(times.cast(pa.int64()), 0).to_numpy() - shift
        begins = pa.array(numbers // step * step + shift).cast(times.type)
        return pc.if_else(times.is_valid(), begins, pa.scalar(None, times.type))

    return compute(values)


def _month_bin(span: Any, values: Value, origin: Value | None) -> Value:
    if span.days or span.nanoseconds or span.months < 0 or origin is not None:
        raise CoercionError("a width in months cannot be combined with days or an origin")

    @on_arrays
    def compute(times: pa.Array) -> pa.Array:
        filled = pc.fill_null(times, pa.scalar(0, times.type)).to_numpy(zero_copy_only=False)
        months = filled.astype("datetime64[M]").astype(np.int64) // span.months * span.months
        begins = months.astype("datetime64[M]").astype(filled.dtype)
        return pc.if_else(
            times.is_valid(), pa.array(begins, times.type), pa.scalar(None, times.type)
        )

    return compute(values)


# --- types -----------------------------------------------------------------------------------


@on_arrays
def _type_of(values: pa.Array) -> pa.Array:
    return pa.repeat(print_arrow_type(values.type), len(values))


_REALS: Final[dict[str, Callable[[Any], Any]]] = {
    "acosh": np.arccosh,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "cosh": np.cosh,
    "sinh": np.sinh,
    "tanh": np.tanh,
    "cot": lambda values: 1 / np.tan(values),
    "degrees": np.degrees,
    "radians": np.radians,
}

VALUE_FUNCTIONS: Final = (
    *(
        Function((name,), (real,), pa.float64(), _real(function))
        for name, function in _REALS.items()
    ),
    Function(("factorial",), (integer,), pa.int64(), each(_factorial, pa.int64()), can_fail=True),
    Function(("gcd",), (integer, integer), pa.int64(), _of_integers(np.gcd)),
    Function(("lcm",), (integer, integer), pa.int64(), _of_integers(np.lcm)),
    Function(("random",), (), pa.float64(), _random, per_row=True),
    Function(("ascii",), (text,), pa.int32(), each(_ascii, pa.int32())),
    Function(("chr",), (integer,), pa.string(), each(_chr, pa.string()), can_fail=True),
    Function(("find_in_set",), (text, text), pa.int32(), each(_find_in_set, pa.int32())),
    Function(("levenshtein",), (text, text), pa.int32(), each(_levenshtein, pa.int32())),
    Function(
        ("substr_index", "substring_index"),
        (text, text, integer),
        pa.string(),
        each(_substr_index, pa.string()),
    ),
    Function(("translate",), (text, text, text), pa.string(), each(_translate, pa.string())),
    Function(
        ("overlay",),
        (text, text, integer, integer),
        pa.string(),
        each(_overlay, pa.string()),
        optional=1,
    ),
    Function(("to_hex",), (integer,), pa.string(), each(_to_hex, pa.string())),
    Function(
        ("regexp_instr",), (text, text, integer, integer), pa.int64(), _regexp_instr, optional=2
    ),
    Function(
        ("encode",), (text_or_bytes, text), pa.string(), each(_encode, pa.string()), can_fail=True
    ),
    Function(
        ("decode",), (text_or_bytes, text), pa.binary(), each(_decode, pa.binary()), can_fail=True
    ),
    Function(("md5",), (text_or_bytes,), pa.string(), each(_md5, pa.string())),
    *(
        Function((name,), (text_or_bytes,), pa.binary(), each(_hash(name), pa.binary()))
        for name in ("sha224", "sha256", "sha384", "sha512")
    ),
    Function(("digest",), (text_or_bytes, text), pa.binary(), _digest),
    Function(("uuid",), (), pa.string(), _uuid, per_row=True),
    Function(
        ("make_date",), (integer,) * 3, pa.date32(), each(_make_date, pa.date32()), can_fail=True
    ),
    Function(
        ("make_time",),
        (integer,) * 3,
        pa.time32("s"),
        each(_make_time, pa.time32("s")),
        can_fail=True,
    ),
    Function(
        ("to_time",), (text,), pa.time64("ns"), each(_to_time, pa.time64("ns")), can_fail=True
    ),
    Function(
        ("to_local_time",),
        (_a_timestamp,),
        lambda types: pa.timestamp(types[0].unit),
        _to_local_time,
    ),
    Function(
        ("date_bin",),
        (_interval, _a_timestamp, _a_timestamp),
        lambda types: types[1],
        _date_bin,
        optional=1,
    ),
    Function(("arrow_typeof",), (anything,), pa.string(), _type_of),
    Function(("version",), (), pa.string(), lambda: pa.scalar(f"lancelet {__version__}")),
)
"""All functions without an Arrow kernel."""
