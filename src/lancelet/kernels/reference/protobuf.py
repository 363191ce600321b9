"""Columnar protobuf: embedded messages of a large message, and numbers of many small ones.

A manifest with 100 000 fragments is one message with 100 000 embedded ones. Opening a table needs
three numbers of each, so nothing else is decoded:

    message    0a 03 61 62 63   12 04 08 07 20 05   18 09
               field 1, "abc"   field 2, 4 bytes    field 3 = 9

    find_parts(message, field=2)             head [5]  position [7]  size [4]
    read_varints(those slices, [(0, 4)])     values [[5]]  present [[True]]

A path `(outer, inner)` is the number field `inner` of the embedded message `outer`; outer 0 is the
slice itself, and inner 0 requests the size of `outer`. As in other protobuf readers, the last value
of a repeated field wins, and fields of another wire type are skipped.

A file with 10 000 columns has as many small messages, with an embedded message per page. All of
them are processed together, and so are packed numbers:

    find_parts_in(columns, field=2)          owner [0 0 1]  position, size of each page
    read_packed(the parts 40 c0 01, 07)      counts [2 1]  values [64 192 7]

`join_pages` writes the messages of all columns of a file from columns of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import check_slices
from lancelet.kernels.faults import Fault, corrupt

Flags: TypeAlias = npt.NDArray[np.bool_]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
PackedRanges: TypeAlias = tuple[Int64s, Int64s, Int64s]
"""Ranges of many owners: owner i has `bounds[i]` to `bounds[i + 1]`; position and size."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_VARINT_BYTES_MAX: Final = 10


def find_parts(message: Bytes, field: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return tag position, content position and size of the embedded messages `field`."""
    found = list(_parts(message.tobytes(), field, kernel="find_parts"))
    heads, positions, sizes = np.array(found, np.int64).reshape(-1, 3).T
    return heads, positions, sizes


def find_parts_in(slices: ByteSlices, field: int) -> tuple[Int64s, Int64s, Int64s]:
    """Return owner, position and size of the embedded messages `field` of many messages."""
    kernel = "find_parts_in"
    check_slices(slices, kernel=kernel)
    found = [
        (index, position + at, size)
        for index, position in enumerate(slices.position.tolist())
        for _, at, size in _parts(
            slices.slice_bytes(index).tobytes(), field, kernel=kernel, index=index
        )
    ]
    owner, positions, sizes = np.array(found, np.int64).reshape(-1, 3).T
    return owner, positions, sizes


def join_pages(
    heads: ByteSlices, edges: Int64s, column_heads: Int64s, numbers: Int64s, buffers: PackedRanges
) -> tuple[Bytes, Int64s]:
    """Return the concatenated metadata of columns, and the end of each.

    Column i has the head `column_heads[i]` of `heads` and the pages `edges[i]` to `edges[i + 1]`.
    `numbers` are the head, the length and the priority of each page.

    >>> heads, one = ByteSlices.whole(np.array([65, 66], np.uint8)), np.array([0])
    >>> page, edges = np.array([[0], [7], [0]]), np.array([0, 1])
    >>> data, ends = join_pages(heads, edges, one, page, (edges, one + 64, one))
    >>> data.tobytes().hex(" "), ends.tolist()
    ('0a 02 41 42 12 0c 0a 01 40 12 01 00 18 07 22 02 41 42', [18])
    """
    kernel = "join_pages"
    check_slices(heads, kernel=kernel)
    bounds, position, size = buffers
    out, ends = bytearray(), []
    page_heads, lengths, priorities = numbers
    for column, head in enumerate(column_heads.tolist()):
        first, stop = edges[column : column + 2].tolist()
        if not 0 <= first <= stop < len(bounds):
            raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=column)
        out += _field(0x0A, _head(heads, head, column))
        for page in range(first, stop):
            own = slice(*bounds[page : page + 2].tolist())
            if not 0 <= own.start <= own.stop <= len(position):
                raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=column)
            body = b"".join(
                _field(tag, b"".join(map(_as_varint, column_values[own].tolist())))
                for tag, column_values in ((0x0A, position), (0x12, size))
                if own.start < own.stop
            )
            body += _number(0x18, int(lengths[page]))
            body += _field(0x22, _head(heads, int(page_heads[page]), column))
            out += _field(0x12, body + _number(0x28, int(priorities[page])))
        ends.append(len(out))
    return np.frombuffer(out, np.uint8), np.array(ends, np.int64)


def _head(heads: ByteSlices, number: int, column: int) -> bytes:
    if not 0 <= number < len(heads):
        raise corrupt(Fault.BAD_INDEX, kernel="join_pages", index=column)
    return heads.slice_bytes(number).tobytes()


def _field(tag: int, content: bytes) -> bytes:
    return bytes([tag]) + _as_varint(len(content)) + content


def _number(tag: int, value: int) -> bytes:
    return bytes([tag]) + _as_varint(value) if value else b""


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def read_packed(slices: ByteSlices) -> tuple[Int64s, UInt64s]:
    """Return the number of packed integers in each slice, and all their values."""
    kernel = "read_packed"
    check_slices(slices, kernel=kernel)
    counts: list[int] = []
    values: list[int] = []
    for index in range(len(slices)):
        data, at, before = slices.slice_bytes(index).tobytes(), 0, len(values)
        while at < len(data):
            value, at = _varint(data, at, kernel=kernel, index=index)
            values.append(value)
        counts.append(len(values) - before)
    return np.array(counts, np.int64), np.array(values, np.uint64)


def read_varints(slices: ByteSlices, paths: Int64s) -> tuple[UInt64s, Flags]:
    """Return the number at each path of each message, and whether it is present.

    `paths` are pairs; both results have a row per path and a column per message.
    """
    kernel = "read_varints"
    check_slices(slices, kernel=kernel)
    pairs = paths.reshape(-1, 2)
    values = np.zeros((len(pairs), len(slices)), np.uint64)
    present = np.zeros((len(pairs), len(slices)), np.bool_)
    messages = np.arange(len(slices), dtype=np.int64)
    stop = slices.position + slices.size
    _read(slices.source, slices.position, stop, messages, pairs, 0, values, present)
    return values, present


def _read(
    source: Bytes,
    start: Int64s,
    stop: Int64s,
    message: Int64s,
    pairs: Int64s,
    outer: int,
    values: UInt64s,
    present: Flags,
) -> None:
    """Step through messages in parallel, one field at a time."""
    kernel = "read_varints"
    at = start.copy()
    inside = pairs[:, 0] == outer
    embedded = sorted({int(pair[0]) for pair in pairs if pair[0]}) if outer == 0 else []
    while True:
        more = at < stop
        if not more.all():
            at, stop, message = at[more], stop[more], message[more]
        if not len(at):
            return
        tag, at = _varints(source, at, stop, message, kernel=kernel)
        number = (tag >> np.uint64(3)).astype(np.int64)
        wire_type = (tag & np.uint64(7)).astype(np.int64)
        _check(
            (number == 0) | (tag >= np.uint64(1 << 32)) | ~np.isin(wire_type, [0, 1, 2, 5]),
            Fault.BAD_STREAM,
            message,
        )
        is_number = np.isin(wire_type, [_VARINT, _BYTES])
        value = np.zeros(len(at), np.uint64)
        value[is_number], at[is_number] = _varints(
            source, at[is_number], stop[is_number], message[is_number], kernel=kernel
        )
        _check(
            (wire_type == _BYTES) & (value > (stop - at).astype(np.uint64)),
            Fault.TOO_SHORT,
            message,
        )
        step = np.where(wire_type == _BYTES, value.astype(np.int64), 0)
        step[wire_type == _FIXED64] = 8
        step[wire_type == _FIXED32] = 4
        for row in np.flatnonzero(inside & (pairs[:, 1] > 0)):
            hit = (wire_type == _VARINT) & (number == pairs[row, 1])
            values[row, message[hit]] = value[hit]
            present[row, message[hit]] = True
        for field in embedded:
            hit = (wire_type == _BYTES) & (number == field)
            for row in np.flatnonzero((pairs[:, 0] == field) & (pairs[:, 1] == 0)):
                values[row, message[hit]] = value[hit]
                present[row, message[hit]] = True
            if hit.any() and (pairs[:, 1][pairs[:, 0] == field] > 0).any():
                begin = at[hit]
                _read(source, begin, begin + step[hit], message[hit], pairs, field, values, present)
        at = at + step
        _check(at > stop, Fault.TOO_SHORT, message)


def _varints(
    source: Bytes, at: Int64s, stop: Int64s, message: Int64s, *, kernel: str
) -> tuple[UInt64s, Int64s]:
    """Read one number at each position; return them and the positions after them."""
    value = np.zeros(len(at), np.uint64)
    at = at.copy()
    open_ones = np.arange(len(at))
    for index in range(_VARINT_BYTES_MAX):
        _check(at[open_ones] >= stop[open_ones], Fault.TOO_SHORT, message[open_ones])
        byte = source[at[open_ones]].astype(np.uint64)
        at[open_ones] += 1
        value[open_ones] |= (byte & np.uint64(0x7F)) << np.uint64(7 * index)
        open_ones = open_ones[byte >= 0x80]
        if not len(open_ones):
            return value, at
    raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=int(message[open_ones[0]]))


def _check(bad: Flags, fault: Fault, message: Int64s) -> None:
    if bad.any():
        raise corrupt(fault, kernel="read_varints", index=int(message[bad.argmax()]))


def _parts(
    data: bytes, field: int, *, kernel: str, index: int | None = None
) -> Iterator[tuple[int, int, int]]:
    """Yield tag position, content position and size of the embedded messages `field`.

    Faults have the given index, or else the tag position.
    """
    at = 0
    while at < len(data):
        head = at
        where = head if index is None else index
        tag, at = _varint(data, at, kernel=kernel, index=where)
        wire_type = tag & 7
        if tag >> 3 == 0 or tag >= 1 << 32:
            raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=where)
        if wire_type == _VARINT:
            _, at = _varint(data, at, kernel=kernel, index=where)
        elif wire_type == _BYTES:
            size, at = _varint(data, at, kernel=kernel, index=where)
            if size > len(data) - at:
                raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=where)
            if tag >> 3 == field:
                yield head, at, size
            at += size
        elif wire_type in (_FIXED64, _FIXED32):
            at += 8 if wire_type == _FIXED64 else 4
            if at > len(data):
                raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=where)
        else:
            raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=where)


def _varint(data: bytes, at: int, *, kernel: str, index: int) -> tuple[int, int]:
    value = 0
    for byte_index in range(_VARINT_BYTES_MAX):
        if at + byte_index >= len(data):
            raise corrupt(Fault.TOO_SHORT, kernel=kernel, index=index)
        byte = data[at + byte_index]
        value |= (byte & 0x7F) << 7 * byte_index
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at + byte_index + 1
    raise corrupt(Fault.BAD_STREAM, kernel=kernel, index=index)
