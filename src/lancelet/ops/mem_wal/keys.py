"""Primary keys of rows in memory: which of them come last, and hashes to rule tables out by.

The filter of a table holds SipHash-1-3 of each key: of each column a byte 0, then the value (its
own width, little-endian; text with a byte 255 behind it); of a null a byte 1 alone.

    id 5 (int64)    hash of 00 0500000000000000
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.rowids.address import UInt64s

_ROW: Final = "__row"
_WORDS: Final = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
_MASK: Final = (1 << 64) - 1
_SIGN: Final = 1 << 63


def last_rows(keys: pa.Table) -> Int64s:
    """Return the places of the rows that are the last of their key, in order.

    >>> last_rows(pa.table({"id": [1, 2, 1]})).tolist()
    [1, 2]
    """
    numbered = keys.append_column(_ROW, pa.array(np.arange(len(keys))))
    last = numbered.group_by(keys.column_names).aggregate([(_ROW, "max")])
    places: Int64s = np.sort(last.column(f"{_ROW}_max").to_numpy())
    return places


def key_hashes(keys: pa.Table) -> UInt64s:
    """Return the hash of each key."""
    texts = [_encoded(column.combine_chunks()) for column in keys.columns]
    joined = [b"".join(parts) for parts in zip(*texts, strict=True)]
    return np.array([sip_hash(data) for data in joined], np.uint64)


def ordered_keys(keys: pa.Table) -> pa.Array:
    """Return keys as one column whose order is theirs: the value, or bytes for several columns."""
    if keys.num_columns == 1:
        only = keys.column(0)
        return only.combine_chunks() if isinstance(only, pa.ChunkedArray) else only
    texts = [_ordered(column.combine_chunks()) for column in keys.columns]
    return pa.array([b"".join(parts) for parts in zip(*texts, strict=True)], pa.binary())


def sip_hash(data: bytes) -> int:
    """Return SipHash-1-3 of bytes, with a key of zeros."""
    v0, v1, v2, v3 = _WORDS
    padded = data + bytes(-(len(data) + 1) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v3 ^= word
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
        v0 ^= word
    v2 ^= 0xFF
    for _ in range(3):
        v0, v1, v2, v3 = _sip_round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


def _sip_round(v0: int, v1: int, v2: int, v3: int) -> tuple[int, int, int, int]:
    v0 = (v0 + v1) & _MASK
    v1 = _turn(v1, 13) ^ v0
    v0 = _turn(v0, 32)
    v2 = (v2 + v3) & _MASK
    v3 = _turn(v3, 16) ^ v2
    v0 = (v0 + v3) & _MASK
    v3 = _turn(v3, 21) ^ v0
    v2 = (v2 + v1) & _MASK
    v1 = _turn(v1, 17) ^ v2
    return v0, v1, _turn(v2, 32), v3


def _turn(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (64 - bits))) & _MASK


def _encoded(column: pa.Array) -> list[bytes]:
    return [b"\x01" if value is None else b"\x00" + value for value in _raw(column, b"\xff")]


def _raw(column: pa.Array, behind: bytes) -> Sequence[bytes | None]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return [None if text is None else text.encode() + behind for text in column.to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        sized = ((each, len(each).to_bytes(8, "little")) for each in column.drop_null().to_pylist())
        found = iter([size + data for data, size in sized])
        return [next(found) if valid else None for valid in column.is_valid().to_pylist()]
    numbers = _numbers(column)
    width = numbers.dtype.itemsize
    data = numbers.tobytes()
    parts = [data[at : at + width] for at in range(0, len(data), width)]
    valid = column.is_valid().to_pylist()
    return [part if is_valid else None for part, is_valid in zip(parts, valid, strict=True)]


def _numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    filled: npt.NDArray[np.generic] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return filled


def _ordered(column: pa.Array) -> list[bytes]:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = column.cast(pa.binary())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return [
            b"\x00" if data is None else b"\x01" + data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"
            for data in column.to_pylist()
        ]
    numbers = _numbers(column)
    is_signed = numbers.dtype.kind == "i"
    if pa.types.is_boolean(kind):
        encoded = [bytes([value]) for value in numbers.tolist()]
    else:
        shift = _SIGN if is_signed else 0
        encoded = [(int(value) + shift).to_bytes(8, "big") for value in numbers.tolist()]
    return [
        b"\x01" + data if valid else b"\x00"
        for data, valid in zip(encoded, column.is_valid().to_pylist(), strict=True)
    ]
