"""Encode keys as numbers or bytes that are equal exactly if the keys are equal.

    int32 7                 the number 7 (the bits of the value)
    int32 7, int16 1        one number, since both fit into 64 bits
    "ab"                    the bytes "ab"
    "ab", int32 7           [2] "ab" [7]: strings have a length prefix
    [1, null]               [2 items] [1][1] [0]: items and struct fields have a validity byte

All NaN values are equal, and -0.0 equals 0.0. The bytes of keys with a null column are undefined,
since such keys are never equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import UnsupportedError
from lancelet.rowids.address import UInt64s

Bools: TypeAlias = npt.NDArray[np.bool_]
Bytes2d: TypeAlias = npt.NDArray[np.uint8]
"""The bytes of fixed-width values, one row per value."""

_WORD_BYTES: Final = 8
_NULL: Final = b"\x00"
_VALID: Final = b"\x01"


def key_validity(columns: Sequence[pa.Array]) -> Bools | None:
    """Return a mask of the keys without nulls; None if no key has nulls."""
    valid: Bools | None = None
    for column in columns:
        if column.null_count:
            own = column.is_valid().to_numpy(zero_copy_only=False)
            valid = own if valid is None else valid & own
    return valid


def integer_keys(columns: Sequence[pa.Array]) -> UInt64s | None:
    """Return keys as numbers, or None if they do not fit into 64 bits.

    >>> integer_keys([pa.array([1, 2], pa.int8()), pa.array([3, 4], pa.int8())]).tolist()
    [769, 1026]
    """
    parts: list[Bytes2d] = []
    for column in columns:
        fixed = _fixed(_stored(column))
        if fixed is None:
            return None
        parts.append(fixed)
    if sum(part.shape[1] for part in parts) > _WORD_BYTES:
        return None
    if parts[0].shape[1] == _WORD_BYTES:
        return np.ascontiguousarray(parts[0]).view(np.uint64).reshape(-1)
    integers = np.zeros((len(columns[0]), _WORD_BYTES), np.uint8)
    at = 0
    for part in parts:
        integers[:, at : at + part.shape[1]] = part
        at += part.shape[1]
    return integers.view("<u8").reshape(-1).astype(np.uint64, copy=False)


def key_bytes(columns: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    r"""Return keys as byte strings.

    >>> key_bytes([pa.array(["ab"]), pa.array([7], pa.int8())])[0].as_py()
    b'\x02\x00\x00\x00\x00\x00\x00\x00ab\x07'
    """
    stored = [_stored(column) for column in columns]
    if len(stored) == 1 and _is_text(stored[0].type):
        return _text(stored[0])
    return _joined([_sized(column) for column in stored])


def _stored(array: pa.Array) -> pa.Array:
    """Convert values to their storage type."""
    if isinstance(array, pa.ExtensionArray):
        return _stored(array.storage)
    if pa.types.is_dictionary(array.type):
        return _stored(array.cast(array.type.value_type))
    return array


def _is_text(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def _text(array: pa.Array) -> pa.LargeBinaryArray:
    if pa.types.is_fixed_size_binary(array.type):
        array = array.cast(pa.binary())
    return pc.fill_null(array.cast(pa.large_binary()), b"")


def _fixed(array: pa.Array) -> Bytes2d | None:
    """Return the bytes of fixed-width values, one row per value; None for other types."""
    data_type = array.type
    if pa.types.is_boolean(data_type):
        array, data_type = array.cast(pa.uint8()), pa.uint8()
    if pa.types.is_floating(data_type):
        return _float_bytes(array)
    is_fixed = (
        pa.types.is_integer(data_type)
        or pa.types.is_temporal(data_type)
        or pa.types.is_decimal(data_type)
    )
    return _buffer(array, data_type.bit_width // 8) if is_fixed else None


def _float_bytes(array: pa.Array) -> Bytes2d:
    values = _buffer(array, array.type.bit_width // 8)
    floats: npt.NDArray[Any] = values.view(array.type.to_pandas_dtype()).reshape(-1)
    floats = floats + floats.dtype.type(0)  # -0.0 becomes 0.0
    floats[np.isnan(floats)] = np.nan
    return floats.view(np.uint8).reshape(values.shape)


def _buffer(array: pa.Array, width: int) -> Bytes2d:
    data = array.buffers()[1]
    start, size = array.offset * width, len(array) * width
    if data is None:
        return np.zeros((len(array), width), np.uint8)
    return np.frombuffer(data, np.uint8)[start : start + size].reshape(len(array), width)


def _sized(array: pa.Array) -> pa.LargeBinaryArray:
    """Encode values as self-delimiting bytes."""
    fixed = _fixed(array)
    if fixed is not None:
        return _rows_of(fixed)
    if _is_text(array.type):
        text = _text(array)
        return _joined([_count_bytes(pc.binary_length(text)), text])
    if pa.types.is_struct(array.type):
        return _joined([_item(_stored(child)) for child in array.flatten()] or [_empty(len(array))])
    if pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        return _list_bytes(array)
    if pa.types.is_fixed_size_list(array.type):
        item = array.type.value_field
        return _list_bytes(array.cast(pa.large_list(item)))
    if pa.types.is_null(array.type):
        return _empty(len(array))
    raise UnsupportedError("rows cannot be matched by a key of this type", type=str(array.type))


def _item(array: pa.Array) -> pa.LargeBinaryArray:
    """Encode nested values as bytes with a validity byte."""
    filled = _joined([_repeated(_VALID, len(array)), _sized(array)])
    return pc.if_else(array.is_valid(), filled, _scalar(_NULL)) if array.null_count else filled


def _list_bytes(array: pa.Array) -> pa.LargeBinaryArray:
    """Encode lists as the number of items and the concatenated items."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).cast(pa.int64())
    items = _item(_stored(pc.list_flatten(array)))
    starts = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths.to_numpy(), out=starts[1:])
    offsets, data = variable_buffers(items)
    joined = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(array), [None, pa.py_buffer(offsets[starts]), pa.py_buffer(data)]
    )
    return _joined([_count_bytes(lengths), joined])


def variable_buffers(
    array: pa.LargeBinaryArray,
) -> tuple[Int64s, Bytes]:
    """Return the offsets and the data of binary values."""
    _, offsets, data = array.buffers()
    if not len(array) or offsets is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int64)[array.offset : array.offset + len(array) + 1]
    return bounds, np.frombuffer(data or b"", np.uint8)


def _count_bytes(counts: pa.Array) -> pa.LargeBinaryArray:
    return _rows_of(_buffer(counts.cast(pa.int64()), 8))


def _rows_of(values: Bytes2d) -> pa.LargeBinaryArray:
    count, width = values.shape
    offsets = np.arange(count + 1, dtype=np.int64) * width
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), count, buffers)


def _joined(parts: Sequence[pa.Array]) -> pa.LargeBinaryArray:
    if len(parts) == 1:
        return parts[0]
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary()))


def _repeated(value: bytes, count: int) -> pa.LargeBinaryArray:
    return pa.repeat(_scalar(value), count)


def _scalar(value: bytes) -> pa.LargeBinaryScalar:
    # Not at import: the first scalar of a process makes Arrow import pandas.
    return pa.scalar(value, pa.large_binary())


def _empty(count: int) -> pa.LargeBinaryArray:
    return _repeated(b"", count)
