"""Parse and print type names: SQL types (`BIGINT`, `DECIMAL(10, 2)`) and `arrow_cast` types.

    SQL      CAST(x AS BIGINT)                            pa.int64()
    Arrow    arrow_cast(x, 'Timestamp(Second, None)')     pa.timestamp("s")

SQL has names for common types only; Arrow names cover the others. Every printed name can be parsed
back to the same type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa

_SQL_NAMES: Final[dict[str, pa.DataType]] = {
    "BOOLEAN": pa.bool_(),
    "BOOL": pa.bool_(),
    "TINYINT": pa.int8(),
    "TINYINT UNSIGNED": pa.uint8(),
    "SMALLINT": pa.int16(),
    "SMALLINT UNSIGNED": pa.uint16(),
    "INT": pa.int32(),
    "INT UNSIGNED": pa.uint32(),
    "INTEGER": pa.int32(),
    "INTEGER UNSIGNED": pa.uint32(),
    "BIGINT": pa.int64(),
    "BIGINT UNSIGNED": pa.uint64(),
    "FLOAT": pa.float32(),
    "REAL": pa.float32(),
    "DOUBLE": pa.float64(),
    "DOUBLE PRECISION": pa.float64(),
    "STRING": pa.string(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "BYTEA": pa.binary(),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "TIMESTAMP": pa.timestamp("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
}
_PRINTED: Final = (
    *("BOOLEAN", "TINYINT", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "INT"),
    *("INT UNSIGNED", "BIGINT", "BIGINT UNSIGNED", "FLOAT", "DOUBLE", "STRING", "BINARY"),
    *("DATE", "TIME", "TIMESTAMP", "TIMESTAMPTZ"),
)
_SQL_NAME_OF: Final = {_SQL_NAMES[name]: name for name in _PRINTED}
_UNIT_OF_DIGITS: Final = {0: "s", 3: "ms", 6: "us", 9: "ns"}
_DECIMAL128_DIGITS: Final = 38

_SIMPLE_ARROW: Final[dict[str, pa.DataType]] = {
    "Null": pa.null(),
    "Boolean": pa.bool_(),
    **{f"Int{bits}": getattr(pa, f"int{bits}")() for bits in (8, 16, 32, 64)},
    **{f"UInt{bits}": getattr(pa, f"uint{bits}")() for bits in (8, 16, 32, 64)},
    **{f"Float{bits}": getattr(pa, f"float{bits}")() for bits in (16, 32, 64)},
    "Utf8": pa.string(),
    "LargeUtf8": pa.large_string(),
    "Utf8View": pa.string_view(),
    "Binary": pa.binary(),
    "LargeBinary": pa.large_binary(),
    "BinaryView": pa.binary_view(),
    "Date32": pa.date32(),
    "Date64": pa.date64(),
}
_ARROW_NAME_OF: Final = {data_type: name for name, data_type in _SIMPLE_ARROW.items()}
_ARROW_UNITS: Final = {"Second": "s", "Millisecond": "ms", "Microsecond": "us", "Nanosecond": "ns"}
_ARROW_UNIT_OF: Final = {unit: name for name, unit in _ARROW_UNITS.items()}
_ARROW_TOKEN: Final = re.compile(r'\s*([A-Za-z]\w*|-?\d+|"[^"]*"|[(),])')


def sql_type(name: str, parameters: tuple[int, ...]) -> pa.DataType:
    """Return the type of an SQL type name and its parameters, or raise `ValueError`.

    >>> sql_type("decimal", (10, 2))
    Decimal128Type(decimal128(10, 2))
    >>> sql_type("timestamp", (3,))
    TimestampType(timestamp[ms])
    """
    upper = " ".join(name.upper().split())
    if upper in {"DECIMAL", "NUMERIC"}:
        return _decimal(parameters)
    if upper not in _SQL_NAMES:
        supported = ", ".join([*_PRINTED, "DECIMAL(p, s)"])
        message = f"unknown type {name}; expected one of {supported}"
        raise ValueError(message)
    data_type = _SQL_NAMES[upper]
    if not parameters or upper in {"VARCHAR", "CHAR"}:
        return data_type
    if len(parameters) == 1 and parameters[0] in _UNIT_OF_DIGITS:
        unit = _UNIT_OF_DIGITS[parameters[0]]
        if pa.types.is_timestamp(data_type):
            return pa.timestamp(unit, data_type.tz)
        if pa.types.is_time(data_type):
            return pa.time32(unit) if unit in {"s", "ms"} else pa.time64(unit)
    message = f"{name} does not accept the parameters {parameters}"
    raise ValueError(message)


def _decimal(parameters: tuple[int, ...]) -> pa.DataType:
    precision, scale = (*parameters, 0)[:2] if parameters else (_DECIMAL128_DIGITS, 10)
    wide = precision > _DECIMAL128_DIGITS
    return pa.decimal256(precision, scale) if wide else pa.decimal128(precision, scale)


def print_sql_type(data_type: pa.DataType) -> str | None:
    """Return the SQL name of a type, or None if only Arrow has a name for it.

    >>> print_sql_type(pa.timestamp("ms")), print_sql_type(pa.large_string())
    ('TIMESTAMP(3)', None)
    """
    if data_type in _SQL_NAME_OF:
        return _SQL_NAME_OF[data_type]
    if pa.types.is_decimal128(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    if pa.types.is_timestamp(data_type) and data_type.tz is None:
        digits = {unit: digits for digits, unit in _UNIT_OF_DIGITS.items()}[data_type.unit]
        return f"TIMESTAMP({digits})"
    return None


def parse_arrow_type(text: str) -> pa.DataType:
    """Parse an `arrow_cast` type name, or raise `ValueError`.

    >>> parse_arrow_type('Timestamp(Millisecond, Some("UTC"))')
    TimestampType(timestamp[ms, tz=UTC])
    >>> parse_arrow_type("List(Int32)")
    ListType(list<item: int32>)
    """
    tokens = _arrow_tokens(text)
    data_type = _parse_arrow(tokens)
    token = next(tokens, None)
    if token is not None:
        message = f"unexpected {token!r} after the type in {text!r}"
        raise ValueError(message)
    return data_type


def _arrow_tokens(text: str) -> Iterator[str]:
    position = 0
    while position < len(text.rstrip()):
        match = _ARROW_TOKEN.match(text, position)
        if match is None:
            message = f"{text!r} is not an Arrow type"
            raise ValueError(message)
        yield match.group(1)
        position = match.end()


def _parse_arrow(tokens: Iterator[str]) -> pa.DataType:
    name = next(tokens, "")
    if name in _SIMPLE_ARROW:
        return _SIMPLE_ARROW[name]
    if name not in _ARROW_PARSERS:
        supported = ", ".join([*_SIMPLE_ARROW, *_ARROW_PARSERS])
        message = f"unknown Arrow type {name!r}; expected one of {supported}"
        raise ValueError(message)
    _require_token(tokens, "(")
    data_type = _ARROW_PARSERS[name](tokens)
    _require_token(tokens, ")")
    return data_type


def _require_token(tokens: Iterator[str], expected: str) -> None:
    token = next(tokens, "the end")
    if token != expected:
        message = f"expected {expected!r} in the Arrow type, found {token!r}"
        raise ValueError(message)


def _unit(tokens: Iterator[str]) -> str:
    name = next(tokens, "the end")
    if name not in _ARROW_UNITS:
        message = f"expected one of {', '.join(_ARROW_UNITS)}, found {name!r}"
        raise ValueError(message)
    return _ARROW_UNITS[name]


def _timestamp(tokens: Iterator[str]) -> pa.DataType:
    unit = _unit(tokens)
    _require_token(tokens, ",")
    zone = next(tokens, "")
    if zone == "None":
        return pa.timestamp(unit)
    _require_token(iter((zone,)), "Some")
    _require_token(tokens, "(")
    name = next(tokens, "").strip('"')
    _require_token(tokens, ")")
    return pa.timestamp(unit, name)


def _integer(tokens: Iterator[str]) -> int:
    return int(next(tokens, "the end"))


def _two_integers(make: Callable[[int, int], pa.DataType]) -> Callable[..., pa.DataType]:
    def parse(tokens: Iterator[str]) -> pa.DataType:
        first = _integer(tokens)
        _require_token(tokens, ",")
        return make(first, _integer(tokens))

    return parse


def _fixed_size_list(tokens: Iterator[str]) -> pa.DataType:
    size = _integer(tokens)
    _require_token(tokens, ",")
    return pa.list_(_parse_arrow(tokens), size)


_ARROW_PARSERS: Final[dict[str, Callable[[Iterator[str]], pa.DataType]]] = {
    "Timestamp": _timestamp,
    "Time32": lambda tokens: pa.time32(_unit(tokens)),
    "Time64": lambda tokens: pa.time64(_unit(tokens)),
    "Duration": lambda tokens: pa.duration(_unit(tokens)),
    "Decimal128": _two_integers(pa.decimal128),
    "Decimal256": _two_integers(pa.decimal256),
    "FixedSizeBinary": lambda tokens: pa.binary(_integer(tokens)),
    "List": lambda tokens: pa.list_(_parse_arrow(tokens)),
    "LargeList": lambda tokens: pa.large_list(_parse_arrow(tokens)),
    "FixedSizeList": _fixed_size_list,
}


def print_arrow_type(data_type: pa.DataType) -> str:
    """Return the `arrow_cast` name of a type; other types are printed as by Arrow.

    >>> print_arrow_type(pa.timestamp("us"))
    'Timestamp(Microsecond, None)'
    """
    if data_type in _ARROW_NAME_OF:
        return _ARROW_NAME_OF[data_type]
    if pa.types.is_timestamp(data_type):
        zone = f'Some("{data_type.tz}")' if data_type.tz else "None"
        return f"Timestamp({_ARROW_UNIT_OF[data_type.unit]}, {zone})"
    if pa.types.is_time(data_type):
        return f"Time{data_type.bit_width}({_ARROW_UNIT_OF[data_type.unit]})"
    if pa.types.is_duration(data_type):
        return f"Duration({_ARROW_UNIT_OF[data_type.unit]})"
    if pa.types.is_decimal(data_type):
        return f"Decimal{data_type.bit_width}({data_type.precision}, {data_type.scale})"
    if pa.types.is_fixed_size_binary(data_type):
        return f"FixedSizeBinary({data_type.byte_width})"
    if pa.types.is_fixed_size_list(data_type):
        return f"FixedSizeList({data_type.list_size}, {print_arrow_type(data_type.value_type)})"
    if pa.types.is_large_list(data_type):
        return f"LargeList({print_arrow_type(data_type.value_type)})"
    if pa.types.is_list(data_type):
        return f"List({print_arrow_type(data_type.value_type)})"
    return str(data_type)


def is_text(data_type: pa.DataType) -> bool:
    """Return whether a type is a string type."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_string_view(data_type)
    )


def is_bytes(data_type: pa.DataType) -> bool:
    """Return whether a type is a binary type, of variable or fixed size."""
    return bool(
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def is_number(data_type: pa.DataType) -> bool:
    """Return whether a type is an integer, float or decimal type."""
    return bool(
        pa.types.is_integer(data_type)
        or pa.types.is_floating(data_type)
        or pa.types.is_decimal(data_type)
    )


def is_temporal(data_type: pa.DataType) -> bool:
    """Return whether a type is a date, time, timestamp or duration type."""
    return bool(pa.types.is_temporal(data_type)) and not pa.types.is_interval(data_type)


def is_any_list(data_type: pa.DataType) -> bool:
    """Return whether a type is a list type, of variable or fixed size."""
    return bool(
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )
