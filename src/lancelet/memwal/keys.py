"""Primary keys of rows in memory: the last row of each key, and hashes for Bloom filters.

The Bloom filter of a table contains SipHash-1-3 of each key. For each column, the input is a byte 0
and the value of an `int32` or `int64` (little-endian), a `string` (followed by a byte 255) or a
`binary` (preceded by its length). A null is a single byte 1. Other types are a single byte 0, so
that filters cannot exclude such keys.
    id 5 (int64)    hash of 00 0500000000000000
    id 5 (uint8)    hash of 00
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.rowids.address import UInt64s

_T = pa.types
_HASHED: Final = (_T.is_int32, _T.is_int64, _T.is_string, _T.is_binary)
_TEXTS: Final = (_T.is_string, _T.is_large_string, _T.is_binary, _T.is_large_binary)
_ORDERED: Final = (_T.is_boolean, _T.is_integer, _T.is_temporal, *_TEXTS)
_ROW: Final = "__row"
_SIP_CONSTANTS: Final = (
    0x736F6D6570736575,
    0x646F72616E646F6D,
    0x6C7967656E657261,
    0x7465646279746573,
)
_SIGN: Final = np.uint64(1 << 63)
_NOT_NULL: Final = pa.scalar(b"\x00")
_NULL: Final = pa.scalar(b"\x01")
_END_OF_TEXT: Final = pa.scalar(b"\xff")


def are_filtered(keys: pa.Schema) -> bool:
    """Return whether Bloom filters distinguish keys of these types."""
    return all(any(each(kind) for each in _HASHED) for kind in keys.types)


def are_ordered(keys: pa.Schema) -> bool:
    """Return whether `ordered_keys` supports keys of these types."""
    return len(keys) == 1 or all(any(each(kind) for each in _ORDERED) for kind in keys.types)


def last_rows(keys: pa.Table) -> Int64s:
    """Return the sorted row indices of the last row of each key.

    >>> last_rows(pa.table({"id": [1, 2, 1]})).tolist()
    [1, 2]
    """
    numbered = keys.append_column(_ROW, pa.array(np.arange(len(keys))))
    last = numbered.group_by(keys.column_names).aggregate([(_ROW, "max")])
    row_indices: Int64s = np.sort(last.column(f"{_ROW}_max").to_numpy())
    return row_indices


def key_hashes(keys: pa.Table) -> UInt64s:
    """Return the hash of each key."""
    joined = _joined([_hashed_form(column.combine_chunks()) for column in keys.columns])
    hashes = np.empty(len(joined), np.uint64)
    for rows, texts in rows_by_length(joined):
        hashes[rows] = sip_hashes(texts)
    return hashes


def rows_by_length(texts: pa.Array) -> Iterator[tuple[Int64s, npt.NDArray[np.uint8]]]:
    """Yield the row indices of binary values with equal length, and their bytes as a matrix."""
    offsets, data = _offsets_and_data(texts)
    lengths = np.diff(offsets)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        yield rows, data[offsets[rows][:, None] + np.arange(length)]


def ordered_keys(keys: pa.Table) -> pa.Array:
    """Return keys as one ordered column: the values, or bytes for several columns."""
    if keys.num_columns == 1:
        only = keys.column(0)
        return only.combine_chunks() if isinstance(only, pa.ChunkedArray) else only
    return _joined([_ordered_form(column.combine_chunks()) for column in keys.columns])


def sip_hashes(texts: npt.NDArray[np.uint8]) -> UInt64s:
    """Return SipHash-1-3 of rows of bytes with equal length, with a zero key."""
    num_rows, length = texts.shape
    padded = np.zeros((num_rows, length // 8 * 8 + 8), np.uint8)
    padded[:, :length] = texts
    padded[:, -1] = length & 0xFF
    state = [np.full(num_rows, word, np.uint64) for word in _SIP_CONSTANTS]
    for word in padded.view("<u8").T:
        state[3] ^= word
        state = _sip_round(*state)
        state[0] ^= word
    state[2] ^= np.uint64(0xFF)
    for _ in range(3):
        state = _sip_round(*state)
    v0, v1, v2, v3 = state
    return v0 ^ v1 ^ v2 ^ v3


def _sip_round(v0: UInt64s, v1: UInt64s, v2: UInt64s, v3: UInt64s) -> list[UInt64s]:
    v0 = v0 + v1
    v1 = _rotate_left(v1, 13) ^ v0
    v0 = _rotate_left(v0, 32)
    v2 = v2 + v3
    v3 = _rotate_left(v3, 16) ^ v2
    v0 = v0 + v3
    v3 = _rotate_left(v3, 21) ^ v0
    v2 = v2 + v1
    v1 = _rotate_left(v1, 17) ^ v2
    return [v0, v1, _rotate_left(v2, 32), v3]


def _rotate_left(values: UInt64s, bits: int) -> UInt64s:
    return (values << np.uint64(bits)) | (values >> np.uint64(64 - bits))


def _joined(parts: Sequence[pa.Array]) -> pa.Array:
    """Return the concatenated bytes of several binary columns for each row."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")


def _hashed_form(column: pa.Array) -> pa.Array:
    kind = column.type
    if _T.is_string(kind):
        parts = [_bytes_of(column), _END_OF_TEXT]
    elif _T.is_binary(kind):
        sizes = pc.binary_length(column).fill_null(0).cast(pa.int64())
        parts = [_fixed(sizes.to_numpy()), _bytes_of(column)]
    elif _T.is_int32(kind) or _T.is_int64(kind):
        parts = [_fixed(_numbers(column))]
    else:
        parts = [pa.repeat(pa.scalar(b""), len(column))]
    return _marked([_NOT_NULL, *parts], _NULL, column)


def _ordered_form(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _bytes_of(column)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        escaped = pc.replace_substring(_bytes_of(column), b"\x00", b"\x00\xff")
        return _marked([_NULL, escaped, pa.scalar(b"\x00\x00")], _NOT_NULL, column)
    numbers = _numbers(column)
    if pa.types.is_boolean(kind):
        own = _fixed(numbers.astype(np.uint8))
    elif numbers.dtype.kind == "i":
        own = _fixed((numbers.astype(np.int64).view(np.uint64) ^ _SIGN).astype(">u8"))
    else:
        own = _fixed(numbers.astype(">u8"))
    return _marked([_NULL, own], _NOT_NULL, column)


def _marked(parts: Sequence[pa.Array], null: pa.Scalar, column: pa.Array) -> pa.Array:
    """Concatenate parts for each row; rows with a null become a single byte."""
    joined = pc.binary_join_element_wise(*parts, b"")
    return pc.if_else(column.is_valid(), joined, null) if column.null_count else joined


def _bytes_of(column: pa.Array) -> pa.Array:
    return column.cast(pa.binary())


def _fixed(numbers: npt.NDArray[np.generic]) -> pa.Array:
    """Return the bytes of each number."""
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    kind = pa.binary(numbers.dtype.itemsize)
    return pa.Array.from_buffers(kind, len(numbers), [None, data]).cast(pa.binary())


def _offsets_and_data(column: pa.Array) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int32)[column.offset :][: len(column) + 1].astype(np.int64)
    empty = np.empty(0, np.uint8)
    return starts, empty if data is None else np.frombuffer(data, np.uint8)


def _numbers(column: pa.Array) -> npt.NDArray[np.generic]:
    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    filled: npt.NDArray[np.generic] = column.fill_null(0).to_numpy(zero_copy_only=False)
    return filled
