"""Mutations of stored bytes: huge or negative numbers, truncated or repeated parts.

A length check usually detects the damage of a single byte. These mutations keep the structure
around a change: a message is parsed, a value replaced, and the message serialized with correct
lengths. The same applies to the footers of data files and manifests, and to JSON.

    field 1: 5, field 2: {field 1: 7}       field 1: 5, field 2: {field 1: 2**64 - 1}
"""

from __future__ import annotations

import json
import random as chance
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.file.v2.footer import FOOTER_BYTES, TABLE_ROW_BYTES, Footer, parse_footer

Random = chance.Random
Mutation = Callable[[bytes, Random], bytes]

_NUMBERS: Final = (
    0,
    1,
    2,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 42,
    (1 << 48) + 1,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 1,
)
"""Boundary values; the last two are negative as signed integers."""
_VARINT, _WORD, _BYTES, _HALF_WORD = 0, 1, 2, 5
_MANIFEST_FOOTER: Final = struct.Struct("<QHH4s")
_STRINGS: Final = ("<B", "<H", "<I", "<Q")


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Return bytes with one part flipped, removed, repeated, zeroed or set to a boundary value."""
    if not data:
        return b"\0"
    position = random.randrange(len(data))
    size = min(len(data) - position, random.choice((1, 2, 4, 8, 64)))
    match random.randrange(6):
        case 0:
            flipped = bytes([data[position] ^ 1 << random.randrange(8)])
            return data[:position] + flipped + data[position + 1 :]
        case 1:
            return data[:position]
        case 2:
            return (
                data[:position]
                + data[position : position + size] * random.randint(2, 4)
                + data[position:]
            )
        case 3:
            return data[:position] + data[position + size :]
        case 4:
            return data[:position] + bytes(size) + data[position + size :]
        case _:
            form = random.choice(_STRINGS)
            width = struct.calcsize(form)
            word = struct.pack(form, random.choice(_NUMBERS) % (1 << 8 * width))
            start = max(0, min(position // width * width, len(data) - width))
            return data[:start] + word + data[start + width :]


def mutate_message(data: bytes, random: Random) -> bytes:
    """Return a Protocol Buffers message with one value changed at any depth."""
    fields = _fields_of(data)
    if not fields:
        return mutate_bytes(data, random)
    position = random.randrange(len(fields))
    number, kind, value = fields[position]
    if random.random() < 0.1:
        changed = random.choice(([], [fields[position]] * random.randint(2, 4)))
        return _joined([*fields[:position], *changed, *fields[position + 1 :]])
    if kind == _VARINT:
        value = random.choice(_NUMBERS)
    elif kind == _BYTES:
        assert isinstance(value, bytes)
        is_message = bool(value) and _fields_of(value) is not None
        value = (mutate_message if is_message else mutate_bytes)(value, random)
    else:
        width = 8 if kind == _WORD else 4
        value = (random.choice(_NUMBERS) % (1 << 8 * width)).to_bytes(width, "little")
    return _joined([*fields[:position], (number, kind, value), *fields[position + 1 :]])


_Field = tuple[int, int, int | bytes]


def _fields_of(data: bytes) -> list[_Field] | None:
    """Return the fields of a message, or None if the bytes are not a message."""
    fields: list[_Field] = []
    position = 0
    while position < len(data):
        tag, position = _varint_at(data, position)
        number, kind = tag >> 3, tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, position = _varint_at(data, position)
        elif kind in (_WORD, _BYTES, _HALF_WORD):
            size = 8 if kind == _WORD else 4
            if kind == _BYTES:
                size, position = _varint_at(data, position)
            value = data[position : position + size]
            position += size
        else:
            return None
        if not number or position > len(data):
            return None
        fields.append((number, kind, value))
    return fields


def _varint_at(data: bytes, position: int) -> tuple[int, int]:
    """Return a varint and its end, which is after the end of the data for a truncated varint."""
    value = 0
    for shift in range(0, 70, 7):
        if position >= len(data):
            break
        value |= (data[position] & 127) << shift
        position += 1
        if data[position - 1] < 128:
            return value, position
    return value, len(data) + 1


def _joined(fields: Sequence[_Field]) -> bytes:
    data = bytearray()
    for number, kind, value in fields:
        data += _varint(number << 3 | kind)
        if isinstance(value, int):
            data += _varint(value)
        else:
            data += (_varint(len(value)) if kind == _BYTES else b"") + value
    return bytes(data)


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes([*data, value])


def mutate_data_file(data: bytes, random: Random) -> bytes:
    """Return a data file of version 2.0 or later with changed metadata."""
    footer = parse_footer(np.frombuffer(data, np.uint8)[-FOOTER_BYTES:], file_bytes=len(data))
    columns = _table(data, footer.column_table, footer.num_columns)
    buffers = _table(data, footer.buffer_table, footer.num_buffers)
    messages = [data[position : position + size] for position, size in columns]
    pages = data[: footer.column_metadata]
    match random.randrange(8):
        case 0:
            position, size = buffers[0]
            schema = mutate_message(data[position : position + size], random)
            buffers[0] = len(pages), len(schema)
            pages += schema
        case 1:
            position = random.randrange(footer.column_metadata)
            pages = pages[:position] + random.randbytes(1) + pages[position + 1 :]
        case 2:
            random.shuffle(messages)
        case 3:
            table = random.choice((buffers, columns))
            table[random.randrange(len(table))] = (random.choice(_NUMBERS), random.choice(_NUMBERS))
            return (
                pages + b"".join(messages) + _tail(footer, len(pages), messages, columns, buffers)
            )
        case _:
            position = random.randrange(len(messages))
            messages[position] = mutate_message(messages[position], random)
    ends = np.cumsum([0, *map(len, messages)]) + len(pages)
    columns = [(int(end), len(each)) for end, each in zip(ends, messages, strict=False)]
    return pages + b"".join(messages) + _tail(footer, len(pages), messages, columns, buffers)


_Extents = list[tuple[int, int]]


def _table(data: bytes, position: int, count: int) -> _Extents:
    rows = data[position : position + count * TABLE_ROW_BYTES]
    return [(int(start), int(size)) for start, size in struct.iter_unpack("<QQ", rows)]


def _tail(
    footer: Footer, start: int, messages: Sequence[bytes], columns: _Extents, buffers: _Extents
) -> bytes:
    column_table = start + sum(map(len, messages))
    tables = b"".join(struct.pack("<QQ", *row) for row in (*columns, *buffers))
    buffer_table = column_table + len(columns) * TABLE_ROW_BYTES
    own = Footer(start, column_table, buffer_table, len(buffers), len(columns), footer.version)
    return tables + own.to_bytes()


def mutate_manifest(data: bytes, random: Random) -> bytes:
    """Return a manifest file with a changed message or section."""
    end = len(data) - _MANIFEST_FOOTER.size
    position, *rest = _MANIFEST_FOOTER.unpack(data[end:])
    (size,) = struct.unpack_from("<I", data, position)
    head, message = data[:position], data[position + 4 : position + 4 + size]
    if head and random.random() < 0.3:
        (section,) = struct.unpack_from("<I", head)
        changed = mutate_message(head[4 : 4 + section], random)[:section].ljust(section, b"\0")
        head = head[:4] + changed + head[4 + section :]
    else:
        message = mutate_message(message, random)
    body = struct.pack("<I", len(message)) + message
    return head + body + _MANIFEST_FOOTER.pack(len(head), *rest)


def mutate_json(data: bytes, random: Random) -> bytes:
    """Return a JSON document with one value changed at any depth."""

    def changed(value: Any) -> Any:
        if isinstance(value, dict) and value and random.random() < 0.9:
            key = random.choice(sorted(value))
            return {**value, key: changed(value[key])}
        if isinstance(value, list) and value and random.random() < 0.9:
            position = random.randrange(len(value))
            return [*value[:position], changed(value[position]), *value[position + 1 :]]
        numbers = (*_NUMBERS, -1, 0.5, 1e300)
        others: tuple[Any, ...] = (None, True, "", "../../x", "\0", [], {}, [[]], "9" * 40)
        return random.choice((random.choice(numbers), random.choice(others)))

    return json.dumps(changed(json.loads(data))).encode()


def mutate_column(column: pa.Array, random: Random) -> pa.Array:
    """Return the column with one value replaced by another value of its type."""
    if not len(column):
        return column
    values = column.to_pylist()
    position = random.randrange(len(values))
    values[position] = _other(column.type, values[position], random)
    return pa.array(values, column.type)


def _other(data_type: pa.DataType, value: Any, random: Random) -> Any:
    if value is None:
        return None
    if pa.types.is_integer(data_type):
        number = random.choice(_NUMBERS) % (1 << data_type.bit_width)
        is_negative = pa.types.is_signed_integer(data_type) and number >> (data_type.bit_width - 1)
        return number - (1 << data_type.bit_width) if is_negative else number
    if pa.types.is_floating(data_type):
        return random.choice((0.0, -1.0, float("nan"), float("inf"), -1e30))
    if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
        return random.choice((mutate_bytes, mutate_message))(value, random)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return random.choice(("", value + "x", value[:-1], "\U0001f600", "{}", "0", "-1"))
    if isinstance(value, list) and pa.types.is_list(data_type):
        return random.choice(([], value * 2, value[:-1]))
    return value
