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

Only standard JSON is accepted, without `NaN`, trailing commas and duplicate keys.
Doubles that are not finite can come from numbers such as `1e400`; they read back as null.
Documents arrive and leave end to end, with their offsets; a null takes no bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import check_documents
from lancelet.kernels.faults import Fault, corrupt

Flags: TypeAlias = npt.NDArray[np.bool_]
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
_WHOLE_CHARACTERS_MAX: Final = len(str(-(1 << 63)))
_WORD: Final = struct.Struct(">I")


def encode_jsonb(offsets: Int64s, data: Bytes, is_valid: Flags) -> tuple[Int64s, Bytes]:
    """Return JSON texts in binary form, and their offsets.

    >>> text = np.frombuffer(b"[]7", np.uint8)
    >>> encode_jsonb(np.array([0, 2, 3]), text, np.ones(2, np.bool_))[1].tobytes().hex()
    '8000000020000000200000025007'
    """
    return _convert(_encode_document, offsets, data, is_valid, kernel="encode_jsonb")


def decode_jsonb(offsets: Int64s, data: Bytes, is_valid: Flags) -> tuple[Int64s, Bytes]:
    """Return binary documents as JSON texts without spaces, and their offsets."""
    return _convert(_decode_document, offsets, data, is_valid, kernel="decode_jsonb")


def json_fault(text: bytes) -> str:
    """Return the error message for a document that `encode_jsonb` rejects.

    >>> json_fault(b"[1,]")
    'Expecting value: line 1 column 4 (char 3)'
    """
    try:
        _encode_document(text)
    except (ValueError, RecursionError) as error:
        return str(error)
    return "it cannot be stored"


def _convert(
    convert: Callable[[bytes], bytes], offsets: Int64s, data: Bytes, is_valid: Flags, *, kernel: str
) -> tuple[Int64s, Bytes]:
    check_documents(offsets, data, is_valid, kernel=kernel)
    parts: list[bytes] = []
    for row, (start, stop) in enumerate(pairwise(offsets.tolist())):
        try:
            parts.append(convert(data[start:stop].tobytes()) if is_valid[row] else b"")
        except (ValueError, RecursionError) as error:
            raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=row) from error
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return ends, np.frombuffer(b"".join(parts), np.uint8)


# --- encode -----------------------------------------------------------------------------------


def _encode_document(text: bytes) -> bytes:
    document = json.loads(
        text.decode(), object_pairs_hook=_object, parse_int=_whole, parse_constant=_refuse_constant
    )
    return _encode_root(document)


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has a duplicate key")
    return found


def _whole(text: str) -> float:
    # Parsing long integers is slow in Python, and they become doubles anyway.
    return int(text) if len(text) <= _WHOLE_CHARACTERS_MAX else float(text)


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
            # A negative number needs a sign bit; ~value has the bits of its magnitude.
            bits = (~value).bit_length() + 1 if is_signed else value.bit_length()
            width = next(width for width in _WIDTHS if bits <= 8 * width)
            return bytes([tag]) + value.to_bytes(width, "big", signed=is_signed)
        value = float(value)
    if math.isinf(value):
        return bytes([_PLUS_INFINITY if value > 0 else _MINUS_INFINITY])
    return bytes([_DOUBLE]) + struct.pack(">d", value)


def _entry(kind: int, payload: bytes) -> bytes:
    if len(payload) > _BYTES_MAX:
        raise ValueError(f"a part of a document has more than {_BYTES_MAX} bytes")
    return _WORD.pack(kind << 28 | len(payload))


# --- decode -----------------------------------------------------------------------------------


def _decode_document(data: bytes) -> bytes:
    return "".join(_decode_container(data, 0, len(data), depth=0)).encode(errors="surrogateescape")


def _decode_container(data: bytes, start: int, stop: int, *, depth: int) -> Iterator[str]:
    if depth > _DEPTH_MAX:
        raise ValueError(f"JSON document exceeds the maximum nesting depth of {_DEPTH_MAX}")
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
        raise ValueError("a JSON document begins with an unknown header")


def _parts(data: bytes, start: int, stop: int, *, count: int) -> list[tuple[int, int, int]]:
    """Return kind, start and stop of each part of a container."""
    payload = start + _WORD.size * (1 + count)
    if payload > stop:
        raise ValueError("a JSON document is truncated")
    parts: list[tuple[int, int, int]] = []
    for index in range(count):
        entry = _word(data, start + _WORD.size * (1 + index), stop)
        end = payload + (entry & _BYTES_MAX)
        if end > stop:
            raise ValueError("a part of a JSON document is truncated")
        parts.append((entry >> 28, payload, end))
        payload = end
    return parts


def _decode_value(data: bytes, kind: int, start: int, stop: int, *, depth: int) -> Iterator[str]:
    if kind == _STRING:
        # Consumers of the text validate UTF-8.
        text = data[start:stop].decode(errors="surrogateescape")
        yield json.dumps(text, ensure_ascii=False)
    elif kind == _NUMBER:
        yield _decode_number(data[start:stop])
    elif kind == _CONTAINER:
        yield from _decode_container(data, start, stop, depth=depth + 1)
    elif kind in (_NULL, _FALSE, _TRUE):
        yield {_NULL: "null", _FALSE: "false", _TRUE: "true"}[kind]
    else:
        raise ValueError("a JSON document has a part of an unknown kind")


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
    raise ValueError("a number of a JSON document has an unknown form")


def _double_text(value: float) -> str:
    """Return the shortest text of a double, with exponents as in the reference implementation.

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
        raise ValueError("a JSON document is truncated")
    found: int = _WORD.unpack_from(data, position)[0]
    return found
