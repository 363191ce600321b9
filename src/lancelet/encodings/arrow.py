"""Conversion between Arrow arrays and blocks, mostly without copies.

    pa.array([1, 2, None], int32)   ->  FixedWidth(bits=32, 12 bytes, count 3)
    pa.array(["ab", "c"])           ->  Variable(offsets [0 2 3], data "abc")
    FixedSizeList<float>[2]         ->  FixedSizeList(dimension 2, items FixedWidth(32))

Blocks have no nulls. Null slots have the values of the Arrow buffer, except that null strings
become empty: their bytes are unreadable, so storing them would waste space and leak data. Nulls are
stored as levels or in a separate bitmap.

Decoded bytes are validated: widths against the type, and strings for UTF-8, because Arrow's string
functions rely on it. All-ASCII data, detected at memory speed, needs no further check. Other data
must be UTF-8 as one string, and no value may start within a character.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.errors import (
    ArrayOverflowError,
    CorruptDataError,
    InvalidInputError,
    UnsupportedError,
)

_ALIGNMENT = 8
_INT32_MAX = (1 << 31) - 1
_ASCII_STOP = 0x80


# --- arrow -> block ---------------------------------------------------------------------------


def block_from_arrow(array: pa.Array) -> Block:
    """Return the values of an array as a block, nulls ignored; zero-copy where possible.

    >>> block_from_arrow(pa.array([1, None, 3], pa.int16())).bits
    16
    """
    data_type = array.type
    if data_type.id in NUMBER_BITS:
        return _numbers_from_arrow(array, NUMBER_BITS[data_type.id])
    if isinstance(array, pa.ExtensionArray):
        return block_from_arrow(array.storage)
    if pa.types.is_string_view(data_type):
        return block_from_arrow(pc.cast(array, pa.large_string()))
    if pa.types.is_binary_view(data_type):
        return block_from_arrow(pc.cast(array, pa.large_binary()))
    if is_variable(data_type):
        return _variable_from_arrow(array)
    if pa.types.is_fixed_size_list(data_type):
        return _list_from_arrow(array)
    if pa.types.is_struct(data_type):
        return _fields_from_arrow(array)
    if pa.types.is_null(data_type):
        return FixedWidth(0, np.empty(0, np.uint8), len(array))
    return _numbers_from_arrow(array, bits_per_value(data_type))


NUMBER_BITS: Final[Mapping[int, int]] = {
    data_type.id: data_type.bit_width
    for data_type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1), pa.bool_()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("s"), pa.duration("s")),
    )
}
"""The bit width of each numeric type, by Arrow type id."""


def value_bytes(array: pa.Array) -> int:
    """Return the bytes of the values of an array; exact for slices and faster than `nbytes`.

    >>> value_bytes(pa.array([1, 2, None], pa.int32()))
    13
    """
    bits, count = NUMBER_BITS.get(array.type.id), len(array)
    validity_bytes = (count + 7) // 8 if array.null_count else 0
    if bits is not None:
        return (count * bits + 7) // 8 + validity_bytes
    if not count or not is_variable(array.type):
        return int(array.nbytes)
    kind = _offsets_type(array.type)
    ends = np.frombuffer(array.buffers()[1], kind, count + 1, array.offset * kind.itemsize)
    return int(ends[-1] - ends[0]) + ends.nbytes + validity_bytes


def value_views(array: pa.Array, rows: Iterable[int]) -> Iterator[Bytes]:
    """Yield the bytes of binary values without copying them; scalars of pyarrow are copies.

    >>> [view.tobytes() for view in value_views(pa.array([b"ab", None, b"cde"]), [0, 2])]
    [b'ab', b'cde']
    """
    if not is_variable(array.type):
        yield from (np.frombuffer(array[row].as_buffer(), np.uint8) for row in rows)
        return
    kind = _offsets_type(array.type)
    _, ends, data = array.buffers()
    offsets = np.frombuffer(ends, kind, len(array) + 1, array.offset * kind.itemsize)
    values = np.frombuffer(data or b"", np.uint8)
    yield from (values[offsets[row] : offsets[row + 1]] for row in rows)


def to_numpy(array: pa.Array) -> npt.NDArray[Any]:
    """Return numbers or booleans as NumPy array; unlike `to_numpy`, does not import pandas.

    >>> to_numpy(pa.array([True, False, True]).slice(1))
    array([False,  True])
    """
    kind, start, count = array.type, array.offset, len(array)
    is_boolean = pa.types.is_boolean(kind)
    is_plain = is_boolean or pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if array.null_count or not is_plain or not count:
        copied: npt.NDArray[Any] = array.to_numpy(zero_copy_only=not is_boolean)
        return copied
    if is_boolean:
        return unpack_booleans(array).view(np.bool_)
    dtype = np.dtype(kind.to_pandas_dtype())
    return np.frombuffer(array.buffers()[1], dtype, count, start * dtype.itemsize)


def unpack_booleans(array: pa.Array) -> Bytes:
    """Return booleans as bytes 0 and 1; nulls have the bit of the value buffer.

    >>> unpack_booleans(pa.array([True, False, True]).slice(1))
    array([0, 1], dtype=uint8)
    """
    first, shift = divmod(array.offset, 8)
    bits = np.frombuffer(array.buffers()[1], np.uint8)[first:]
    return np.unpackbits(bits, count=shift + len(array), bitorder="little")[shift:]


def to_arrow(numbers: Int64s) -> pa.Array:
    """Return an int64 array; unlike `pa.array`, does not import pandas.

    >>> to_arrow(np.array([3, 1])).to_pylist()
    [3, 1]
    """
    buffer = pa.py_buffer(np.ascontiguousarray(numbers, np.int64))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, buffer])


def validity_bits(array: pa.Array) -> Bytes | None:
    """Return the validity of an array as a bitmap from bit 0, or `None` without nulls.

    >>> validity_bits(pa.array([1, None, 3])[1:]).tolist()
    [2]
    """
    if array.null_count == 0:
        return None
    if pa.types.is_null(array.type):
        return np.zeros((len(array) + 7) // 8, np.uint8)
    return _bits(array.buffers()[0], array.offset, len(array))


def bits_per_value(data_type: pa.DataType) -> int:
    """Return the bits of a fixed-width type: 1 for booleans, else a multiple of 8.

    >>> bits_per_value(pa.decimal128(15, 2))
    128
    """
    try:
        return int(data_type.bit_width)
    except ValueError as error:
        raise UnsupportedError(
            "no codec can store values of this type", type=str(data_type)
        ) from error


def plain_bits(data_type: pa.DataType) -> int:
    """Return the bit width of numbers and times; 0 for other types.

    >>> plain_bits(pa.int16()), plain_bits(pa.bool_()), plain_bits(pa.string())
    (16, 0, 0)
    """
    is_plain = pa.types.is_primitive(data_type) and not pa.types.is_boolean(data_type)
    return int(data_type.bit_width) if is_plain else 0


def has_fixed_width(data_type: pa.DataType) -> bool:
    """Return whether all values of a type have the same, non-zero bit width.

    >>> has_fixed_width(pa.binary(3)), has_fixed_width(pa.binary(0)), has_fixed_width(pa.null())
    (True, False, False)
    """
    if pa.types.is_fixed_size_binary(data_type):
        return bool(data_type.byte_width)
    return bool(pa.types.is_primitive(data_type) or pa.types.is_decimal(data_type))


def has_no_bytes(data_type: pa.DataType) -> bool:
    """Return whether values are fixed-size binary of length 0."""
    return pa.types.is_fixed_size_binary(data_type) and not data_type.byte_width


def item_type(data_type: pa.DataType) -> pa.DataType:
    """Return the innermost item type of nested fixed-size lists, or the type itself."""
    while pa.types.is_fixed_size_list(data_type):
        data_type = data_type.value_type
    return data_type


def with_null_items(array: pa.Array) -> pa.Array | None:
    """Return nested lists of all-null zero-length binary as lists of nulls, else None.

    >>> array = pa.array([[None, None], None], pa.list_(pa.binary(0), 2))
    >>> with_null_items(array).type
    FixedSizeListType(fixed_size_list<item: null>[2])
    """
    items = array
    while pa.types.is_fixed_size_list(items.type):
        items = items.flatten()
    return _with_null_items(array) if items.null_count == len(items) else None


def is_variable(data_type: pa.DataType) -> bool:
    """Return whether values are strings or binary with 32-bit or 64-bit offsets."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )


def _offsets_type(data_type: pa.DataType) -> np.dtype[Any]:
    is_large = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
    return np.dtype(np.int64 if is_large else np.int32)


def _numbers_from_arrow(array: pa.Array, bits: int) -> FixedWidth:
    start, count, values = array.offset, len(array), array.buffers()[1]
    if bits == 1:
        return FixedWidth(1, _bits(values, start, count), count)
    width = bits // 8
    return FixedWidth(bits, _bytes(values)[start * width : (start + count) * width], count)


def _variable_from_arrow(array: pa.Array) -> Variable:
    offsets_type = _offsets_type(array.type)
    if len(array) == 0:
        return Variable(np.zeros(1, offsets_type), np.empty(0, np.uint8))
    if array.null_count:
        array = _clear_null_strings(array)
    _, offsets, data = array.buffers()
    return Variable(
        np.frombuffer(offsets, offsets_type, len(array) + 1, array.offset * offsets_type.itemsize),
        _bytes(data),
    )


def _clear_null_strings(array: pa.Array) -> pa.Array:
    validity, offsets, _ = array.buffers()
    is_valid = np.unpackbits(
        _bits(validity, array.offset, len(array)), bitorder="little", count=len(array)
    ).view(np.bool_)
    kind = _offsets_type(array.type)
    ends = np.frombuffer(offsets, kind, len(array) + 1, array.offset * kind.itemsize)
    if not np.diff(ends)[~is_valid].any():
        return array
    return pc.fill_null(array.view(_binary_like(array.type)), b"")


def _binary_like(data_type: pa.DataType) -> pa.DataType:
    return pa.binary() if _offsets_type(data_type) == np.int32 else pa.large_binary()


def _list_from_arrow(array: pa.Array) -> FixedSizeList:
    dimension = array.type.list_size
    items = array.values.slice(array.offset * dimension, len(array) * dimension)
    return FixedSizeList(dimension, validity_bits(items), block_from_arrow(items), len(array))


def _fields_from_arrow(array: pa.Array) -> Fields:
    children = []
    for index in range(array.type.num_fields):
        child = array.field(index)
        if child.null_count:
            raise InvalidInputError(
                "the children of a packed struct cannot be null; pack only columns without nulls",
                child=array.type.field(index).name,
                nulls=child.null_count,
            )
        children.append(block_from_arrow(child))
    return Fields(tuple(children), len(array))


def _bytes(buffer: pa.Buffer | None) -> Bytes:
    return np.empty(0, np.uint8) if buffer is None else np.frombuffer(buffer, np.uint8)


def _bits(buffer: pa.Buffer | None, start: int, count: int) -> Bytes:
    """Return `count` bits from bit `start`, shifted to bit 0 and zero-padded."""
    first, shift = divmod(start, 8)
    bits = _bytes(buffer)[first : (start + count + 7) // 8]
    if shift == 0 and count % 8 == 0:
        return bits
    expanded = np.unpackbits(bits, bitorder="little", count=shift + count)
    return np.packbits(expanded[shift:], bitorder="little")


# --- block -> arrow ---------------------------------------------------------------------------


def arrow_from_block(block: Block, data_type: pa.DataType, validity: Bytes | None) -> pa.Array:
    """Return a stored block as an array of a type, with nulls where `validity` bits are 0.

    >>> values = FixedWidth(16, np.array([7, 8], "<i2").view(np.uint8), 2)
    >>> arrow_from_block(values, pa.int16(), np.array([1], np.uint8)).to_pylist()
    [7, None]
    """
    if isinstance(data_type, pa.BaseExtensionType):
        storage = arrow_from_block(block, data_type.storage_type, validity)
        return pa.ExtensionArray.from_storage(data_type, storage)
    if pa.types.is_string_view(data_type):
        return pc.cast(arrow_from_block(block, pa.large_string(), validity), data_type)
    if pa.types.is_binary_view(data_type):
        return pc.cast(arrow_from_block(block, pa.large_binary(), validity), data_type)
    nulls = None if validity is None else pa.py_buffer(validity)
    match block:
        case Variable():
            return _arrow_from_variable(block, data_type, nulls)
        case FixedWidth():
            return _arrow_from_fixed(block, data_type, nulls)
        case FixedSizeList():
            return _arrow_from_list(block, data_type, nulls)
        case Fields():
            return _arrow_from_fields(block, data_type, nulls)


def _with_null_items(array: pa.Array) -> pa.Array:
    if not pa.types.is_fixed_size_list(array.type):
        return pa.nulls(len(array))
    dimension = array.type.list_size
    start = array.offset * dimension
    items = _with_null_items(array.values.slice(start, len(array) * dimension))
    validity = validity_bits(array)
    nulls = None if validity is None else pa.py_buffer(validity)
    lists = pa.list_(items.type, dimension)
    return pa.Array.from_buffers(lists, len(array), [nulls], children=[items])


def _arrow_from_fixed(
    block: FixedWidth, data_type: pa.DataType, nulls: pa.Buffer | None
) -> pa.Array:
    if block.bits == 0:
        if data_type == pa.binary(0):
            return pa.Array.from_buffers(data_type, block.count, [nulls, pa.py_buffer(b"")])
        # All-null items are stored as validity bits only, whatever their type.
        return pa.nulls(block.count, data_type)
    if pa.types.is_fixed_size_list(data_type) and block.bits % data_type.list_size == 0:
        # Packed structs store lists as wide values.
        dimension = data_type.list_size
        items = FixedWidth(block.bits // dimension, block.data, block.count * dimension)
        lists = FixedSizeList(dimension, None, items, block.count)
        return _arrow_from_list(lists, data_type, nulls)
    if data_type.num_fields or is_variable(data_type) or pa.types.is_dictionary(data_type):
        raise _mismatch(block, data_type)
    bits = bits_per_value(data_type)
    if bits != block.bits:
        raise _mismatch(block, data_type, expected_bits=bits, found_bits=block.bits)
    return pa.Array.from_buffers(data_type, block.count, [nulls, aligned(block.data)])


def _arrow_from_variable(
    block: Variable, data_type: pa.DataType, nulls: pa.Buffer | None
) -> pa.Array:
    if not is_variable(data_type):
        raise _mismatch(block, data_type)
    offsets, data = block.offsets, block.data
    kind = _offsets_type(data_type)
    if kind == np.int32 and offsets.dtype != np.int32:
        if int(offsets[-1]) - int(offsets[0]) > _INT32_MAX:
            raise ArrayOverflowError(
                "more than 2 GiB of strings do not fit into one array; read fewer rows at a time",
                bytes=int(offsets[-1]) - int(offsets[0]),
            )
        data = data[int(offsets[0]) : int(offsets[-1])]
        offsets = (offsets - offsets[0]).astype(np.int32)
    elif offsets.dtype != kind:
        offsets = offsets.astype(kind)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        _check_utf8(offsets, data)
    buffers = [nulls, aligned(offsets.view(np.uint8)), pa.py_buffer(data)]
    return pa.Array.from_buffers(data_type, block.count, buffers)


def _check_utf8(offsets: Any, data: Bytes) -> None:
    start, stop = int(offsets[0]), int(offsets[-1])
    if start == stop:
        return
    text = data[start:stop]
    if int(text.max()) < _ASCII_STOP:
        return
    ends = np.array([0, len(text)], np.int64)
    joined = pa.Array.from_buffers(
        pa.large_string(), 1, [None, pa.py_buffer(ends), pa.py_buffer(text)]
    )
    try:
        joined.validate(full=True)
    except pa.ArrowInvalid as error:
        raise CorruptDataError(
            "a string column contains bytes that are not UTF-8; was it written as binary?",
            bytes=len(text),
        ) from error
    starts = offsets[:-1][offsets[:-1] < stop]
    misplaced = np.flatnonzero(data[starts] & 0xC0 == 0x80)
    if len(misplaced):
        raise CorruptDataError(
            "a string starts within a UTF-8 character",
            value=int(misplaced[0]),
            values=len(offsets) - 1,
        )


def _arrow_from_list(
    block: FixedSizeList, data_type: pa.DataType, nulls: pa.Buffer | None
) -> pa.Array:
    if not pa.types.is_fixed_size_list(data_type) or data_type.list_size != block.dimension:
        raise _mismatch(block, data_type, found_dimension=block.dimension)
    items = arrow_from_block(block.items, data_type.value_type, block.validity)
    return pa.Array.from_buffers(data_type, block.count, [nulls], children=[items])


def _arrow_from_fields(block: Fields, data_type: pa.DataType, nulls: pa.Buffer | None) -> pa.Array:
    if not pa.types.is_struct(data_type) or data_type.num_fields != len(block.children):
        raise _mismatch(block, data_type, found_children=len(block.children))
    children = [
        arrow_from_block(child, data_type.field(index).type, None)
        for index, child in enumerate(block.children)
    ]
    return pa.Array.from_buffers(data_type, block.count, [nulls], children=children)


def _mismatch(block: Block, data_type: pa.DataType, **facts: object) -> CorruptDataError:
    return CorruptDataError(
        "the stored values of a page do not match the schema type",
        type=str(data_type),
        found=type(block).__name__,
        **facts,
    )


def aligned(data: Bytes) -> pa.Buffer:
    """Return a buffer over the bytes, copied only if misaligned for Arrow."""
    buffer = pa.py_buffer(data)
    return pa.py_buffer(data.copy()) if buffer.address % _ALIGNMENT else buffer


def copy_if_shared(array: pa.Array, source: Bytes) -> pa.Array:
    """Return the array with all buffers that overlap `source` copied.

    >>> source = np.arange(4, dtype=np.uint8)
    >>> array = pa.Array.from_buffers(pa.uint8(), 2, [None, pa.py_buffer(source[1:3])])
    >>> copied = copy_if_shared(array, source)
    >>> source[:] = 0
    >>> array.to_pylist(), copied.to_pylist()
    ([0, 0], [1, 2])
    """
    start = source.ctypes.data
    stop = start + source.nbytes
    if any(buffer is not None and start <= buffer.address < stop for buffer in array.buffers()):
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array
