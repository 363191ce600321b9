"""JSON documents: as text, or as JSONB, the binary form that JSON columns are stored in.

    header    4 bytes, big-endian: 2 in the top digit for a scalar, 8 for an array, 4 for an
              object, and below it the number of items
    entries   4 bytes for each key, then each value: the kind in the top digit, then the length
    payloads  in the order of the entries

    {"a": 1}  40000001 10000001 20000002 61 5001

Documents from storage are not trusted: a length that points past the end is `CorruptDataError`.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any, Final, TypeAlias

from lancelet.errors import CorruptDataError

Json: TypeAlias = Any
"""None, a truth value, a number, text, or a list or dict of these."""

_SCALAR, _OBJECT, _ARRAY = 0x2, 0x4, 0x8
_NULL, _TEXT, _NUMBER, _FALSE, _TRUE, _NESTED = range(6)
_COUNT_MASK: Final = 0x0FFFFFFF
_DEEPEST: Final = 200


def read_document(stored: bytes | str) -> Json:
    """Return the value of a stored document.

    >>> read_document(bytes.fromhex("400000011000000120000002615001"))
    {'a': 1}
    """
    if isinstance(stored, str):
        return json.loads(stored)
    return _read_container(memoryview(stored), 0)


def _read_container(data: memoryview, depth: int) -> Json:
    if depth > _DEEPEST:
        raise CorruptDataError("a JSON document is nested too deeply", deepest=_DEEPEST)
    header = _word(data, 0)
    kind, count = header >> 28, header & _COUNT_MASK
    entries = {_SCALAR: 1, _ARRAY: count, _OBJECT: 2 * count}.get(kind)
    if entries is None or 4 + 4 * entries > len(data):
        raise CorruptDataError(
            "a JSON document has a damaged header", header=header, bytes=len(data)
        )
    values: list[Json] = []
    position = 4 + 4 * entries
    for (entry,) in struct.iter_unpack(">I", data[4:position]):
        size = entry & _COUNT_MASK
        if position + size > len(data):
            raise CorruptDataError("a JSON value points past its document", bytes=len(data))
        values.append(_read_value(entry >> 28, data[position : position + size], depth))
        position += size
    if kind == _SCALAR:
        return values[0]
    if kind == _ARRAY:
        return values
    return dict(zip(values[:count], values[count:], strict=True))


def _word(data: memoryview, position: int) -> int:
    if position + 4 > len(data):
        raise CorruptDataError("a JSON document is cut short", bytes=len(data))
    return int.from_bytes(data[position : position + 4], "big")


def _read_value(kind: int, data: memoryview, depth: int) -> Json:
    if kind == _TEXT:
        return _read_text(data)
    if kind == _NUMBER:
        return _read_number(data)
    if kind == _NESTED:
        return _read_container(data, depth + 1)
    if kind not in {_NULL, _FALSE, _TRUE}:
        raise CorruptDataError("a JSON document holds a value of unknown kind", kind=kind)
    return {_NULL: None, _FALSE: False, _TRUE: True}[kind]


def _read_text(data: memoryview) -> str:
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise CorruptDataError("a JSON text is not UTF-8", bytes=len(data)) from error


def _read_number(data: memoryview) -> int | float:
    tag, payload = (data[0] if len(data) else -1), bytes(data[1:])
    specials = {0x00: 0, 0x10: math.nan, 0x20: math.inf, 0x30: -math.inf}
    if tag in specials and not payload:
        return specials[tag]
    if tag in {0x40, 0x50} and len(payload) in {1, 2, 4, 8}:
        return int.from_bytes(payload, "big", signed=tag == 0x40)
    if tag == 0x60 and len(payload) == 8:
        return float(struct.unpack(">d", payload)[0])
    raise CorruptDataError("a JSON document holds a damaged number", tag=tag, bytes=len(data))


def write_document(value: Json) -> bytes:
    """Return a value as a JSONB document.

    >>> write_document([1]).hex()
    '80000001200000025001'
    """
    if isinstance(value, (list, dict)):
        return _write_container(value)
    kind, payload = _write_value(value)
    return struct.pack(">II", _SCALAR << 28, kind << 28 | len(payload)) + payload


def _write_container(value: list[Json] | dict[str, Json]) -> bytes:
    if isinstance(value, list):
        parts = [_write_value(item) for item in value]
        header = _ARRAY << 28 | len(value)
    else:
        keys = sorted(value)
        parts = [_write_value(key) for key in keys] + [_write_value(value[key]) for key in keys]
        header = _OBJECT << 28 | len(value)
    entries = [kind << 28 | len(payload) for kind, payload in parts]
    words = struct.pack(f">{len(entries) + 1}I", header, *entries)
    return words + b"".join(payload for _, payload in parts)


def _write_value(value: Json) -> tuple[int, bytes]:
    if value is None:
        return _NULL, b""
    if isinstance(value, bool):
        return (_TRUE if value else _FALSE), b""
    if isinstance(value, str):
        return _TEXT, value.encode()
    if isinstance(value, (int, float)):
        return _NUMBER, _write_number(value)
    return _NESTED, _write_container(value)


def _write_number(value: int | float) -> bytes:  # noqa: PYI041  # the two are stored apart
    if isinstance(value, float) or not -(2**63) <= value < 2**64:
        return b"\x60" + struct.pack(">d", value)
    if value == 0:
        return b"\x00"
    signed = value < 0
    size = next(
        size
        for size in (1, 2, 4, 8)
        if (-(2 ** (8 * size - 1)) <= value if signed else value < 2 ** (8 * size))
    )
    return bytes((0x40 if signed else 0x50,)) + value.to_bytes(size, "big", signed=signed)


def print_document(value: Json) -> str:
    """Return JSON text without spaces, keys in order, floats as they were told apart from integers.

    >>> print_document({"b": 1e-7, "a": [1.0, None]})
    '{"a":[1.0,null],"b":1e-7}'
    """
    if isinstance(value, dict):
        pairs = (f"{_quoted(key)}:{print_document(value[key])}" for key in sorted(value))
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, list):
        return f"[{','.join(print_document(item) for item in value)}]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return print_float(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def print_float(value: float) -> str:
    """Return a float as JSON writes it: the shortest text, without zeros in the exponent."""
    if not math.isfinite(value):
        return "null"
    mantissa, letter, exponent = repr(value).partition("e")
    if not letter:
        return mantissa
    sign, digits = exponent[0], exponent[1:].lstrip("0")
    return f"{mantissa}e{sign}{digits}"
