r"""JSON documents in binary form, as JSON columns store them.

A container is a header, an entry per part, and the payloads of the parts, all numbers big-endian:

    {"b":1,"a":[2]}

    40000002                       object of 2 pairs
    10000001 10000001              keys: string of 1 byte, twice, in the order of their bytes
    5000000a 20000002              values: container of 10 bytes, number of 2 bytes
    61 62                          "a" "b"
    80000001 20000002 5002         array of 1: number of 2 bytes, unsigned 2
    5001                           unsigned 1

    header   20 = a scalar, 40 | pairs = an object, 80 | items = an array
    entry    kind << 28 | bytes: 0 null, 1 string, 2 number, 3 false, 4 true, 5 container
    number   00 = zero, 40 = signed, 50 = unsigned, 60 = double; whole numbers in 1, 2, 4 or 8 bytes

Only what is JSON by its standard is accepted: not `NaN`, not a trailing comma, not a key twice.
Doubles that are not finite can come from numbers such as `1e400`; they read back as null.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from typing import Final, NoReturn, TypeAlias

import pyarrow as pa

from lancelet.errors import CorruptDataError, InvalidInputError

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

_ARRAY: Final = 0x80000000
_OBJECT: Final = 0x40000000
_SCALAR: Final = 0x20000000
_KINDS: Final = 0xE0000000
_COUNT: Final = 0x1FFFFFFF

_NULL, _STRING, _NUMBER, _FALSE, _TRUE, _CONTAINER = range(6)
_BYTES_MAX: Final = (1 << 28) - 1

_ZERO, _NAN, _PLUS_INFINITY, _MINUS_INFINITY = 0x00, 0x10, 0x20, 0x30
_SIGNED, _UNSIGNED, _DOUBLE = 0x40, 0x50, 0x60
_WIDTHS: Final = (1, 2, 4, 8)

_DEPTH_MAX: Final = 200
_WORD: Final = struct.Struct(">I")


def encode_jsonb(texts: pa.Array) -> pa.Array:
    """Return documents, given as text, in binary form."""
    return pa.array(
        (None if text is None else _encode_document(text) for text in texts.to_pylist()),
        pa.large_binary(),
        size=len(texts),
    )


def decode_jsonb(documents: pa.Array) -> pa.Array:
    """Return binary documents as text without spaces, in Arrow's type for JSON."""
    texts = pa.array(
        (None if data is None else _decode_document(data) for data in documents.to_pylist()),
        pa.string(),
        size=len(documents),
    )
    return pa.ExtensionArray.from_storage(pa.json_(pa.string()), texts)


# --- encode -----------------------------------------------------------------------------------


def _encode_document(text: str) -> bytes:
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        return _encode_root(document)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"a value of a JSON column is not JSON: {error}", text=text[:100]
        ) from error


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a key twice")
    return found


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number")


def _encode_root(document: Json) -> bytes:
    if isinstance(document, (dict, list)):
        return _encode_container(document, depth=0)
    kind, payload = _encode_value(document, depth=0)
    return _WORD.pack(_SCALAR) + _entry(kind, payload) + payload


def _encode_container(container: dict[str, Json] | list[Json], *, depth: int) -> bytes:
    if depth > _DEPTH_MAX:
        raise ValueError(f"containers nest deeper than {_DEPTH_MAX}")
    if isinstance(container, dict):
        pairs = sorted((key.encode(), value) for key, value in container.items())
        keys = [key for key, _ in pairs]
        values: list[Json] = [value for _, value in pairs]
        header = _OBJECT | len(pairs)
    else:
        keys, values = [], container
        header = _ARRAY | len(container)
    encoded = [_encode_value(value, depth=depth) for value in values]
    parts = [(_STRING, key) for key in keys] + encoded
    entries = [_entry(kind, payload) for kind, payload in parts]
    return b"".join([_WORD.pack(header), *entries, *(payload for _, payload in parts)])


def _encode_value(value: Json, *, depth: int) -> tuple[int, bytes]:
    match value:
        case None:
            return _NULL, b""
        case bool():
            return (_TRUE if value else _FALSE), b""
        case str():
            return _STRING, value.encode()
        case int() | float():
            return _NUMBER, _encode_number(value)
        case _:
            return _CONTAINER, _encode_container(value, depth=depth + 1)


def _encode_number(value: float) -> bytes:
    if isinstance(value, int):
        if value == 0:
            return bytes([_ZERO])
        if -(1 << 63) <= value < 1 << 64:
            is_signed = value < 0
            tag = _SIGNED if is_signed else _UNSIGNED
            # A negative number needs a bit for its sign; ~value is its magnitude without one.
            bits = (~value).bit_length() + 1 if is_signed else value.bit_length()
            width = next(width for width in _WIDTHS if bits <= 8 * width)
            return bytes([tag]) + value.to_bytes(width, "big", signed=is_signed)
        value = _as_double(value)
    if math.isinf(value):
        return bytes([_PLUS_INFINITY if value > 0 else _MINUS_INFINITY])
    return bytes([_DOUBLE]) + struct.pack(">d", value)


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _entry(kind: int, payload: bytes) -> bytes:
    if len(payload) > _BYTES_MAX:
        raise ValueError(f"a part of a document has more than {_BYTES_MAX} bytes")
    return _WORD.pack(kind << 28 | len(payload))


# --- decode -----------------------------------------------------------------------------------


def _decode_document(data: bytes) -> str:
    return "".join(_decode_container(data, 0, len(data), depth=0))


def _decode_container(data: bytes, start: int, stop: int, *, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX:
        raise CorruptDataError("a JSON document nests too deeply", depth_max=_DEPTH_MAX)
    header = _word(data, start, stop)
    kind, count = header & _KINDS, header & _COUNT
    if kind == _SCALAR:
        parts = _parts(data, start, stop, count=1)
        yield from _decode_value(data, *parts[0], depth=depth)
    elif kind == _ARRAY:
        yield "["
        for index, part in enumerate(_parts(data, start, stop, count=count)):
            yield "," if index else ""
            yield from _decode_value(data, *part, depth=depth)
        yield "]"
    elif kind == _OBJECT:
        parts = _parts(data, start, stop, count=2 * count)
        yield "{"
        for index, (key, part) in enumerate(zip(parts[:count], parts[count:], strict=True)):
            yield "," if index else ""
            yield from _decode_value(data, *key, depth=depth)
            yield ":"
            yield from _decode_value(data, *part, depth=depth)
        yield "}"
    else:
        raise CorruptDataError("a JSON document begins with an unknown header", header=header)


def _parts(data: bytes, start: int, stop: int, *, count: int) -> list[tuple[int, int, int]]:
    """Return kind, start and stop of every part of a container."""
    payload = start + _WORD.size * (1 + count)
    if payload > stop:
        raise CorruptDataError("a JSON document is cut short", parts=count, bytes=stop - start)
    parts: list[tuple[int, int, int]] = []
    for index in range(count):
        entry = _word(data, start + _WORD.size * (1 + index), stop)
        end = payload + (entry & _BYTES_MAX)
        if end > stop:
            raise CorruptDataError("a part of a JSON document is cut short", part=index)
        parts.append((entry >> 28, payload, end))
        payload = end
    return parts


def _decode_value(data: bytes, kind: int, start: int, stop: int, *, depth: int) -> Iterator[str]:
    if kind == _STRING:
        try:
            yield json.dumps(data[start:stop].decode(), ensure_ascii=False)
        except UnicodeDecodeError as error:
            raise CorruptDataError("a string of a JSON document is not UTF-8") from error
    elif kind == _NUMBER:
        yield _decode_number(data[start:stop])
    elif kind == _CONTAINER:
        yield from _decode_container(data, start, stop, depth=depth + 1)
    elif kind in (_NULL, _FALSE, _TRUE):
        yield {_NULL: "null", _FALSE: "false", _TRUE: "true"}[kind]
    else:
        raise CorruptDataError("a JSON document has a part of an unknown kind", kind=kind)


def _decode_number(data: bytes) -> str:
    tag, payload = data[:1], data[1:]
    if tag in (b"\x40", b"\x50") and len(payload) in _WIDTHS:
        return str(int.from_bytes(payload, "big", signed=tag == b"\x40"))
    if tag == b"\x60" and len(payload) == 8:
        (value,) = struct.unpack(">d", payload)
        return _double_text(value)
    if tag == b"\x00" and not payload:
        return "0"
    if tag in (b"\x10", b"\x20", b"\x30") and not payload:
        return "null"
    raise CorruptDataError("a number of a JSON document has an unknown form", found=data[:9])


def _double_text(value: float) -> str:
    """Return the shortest text of a double, with the exponents that the reference writes.

    >>> [_double_text(value) for value in (100.0, 1e16, 0.00001, 1e-6, -0.0)]
    ['100.0', '1e+16', '0.00001', '1e-6', '-0.0']
    """
    if not math.isfinite(value):
        return "null"
    digits, exponent_mark, exponent = repr(value).partition("e")
    if not exponent_mark:
        return digits
    if exponent == "-05":
        sign = "-" if value < 0 else ""
        return f"{sign}0.0000{digits.lstrip('-').replace('.', '')}"
    return f"{digits}e{int(exponent):+d}" if exponent[0] == "+" else f"{digits}e{int(exponent)}"


def _word(data: bytes, position: int, stop: int) -> int:
    if position + _WORD.size > stop:
        raise CorruptDataError("a JSON document is cut short", position=position, bytes=stop)
    found: int = _WORD.unpack_from(data, position)[0]
    return found
