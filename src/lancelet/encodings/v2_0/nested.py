"""Composite encodings: nullable, fixed-size list, dictionary and packed struct."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, ReadCoroutine, read_together
from lancelet.encodings.arrow import arrow_from_block, bits_per_value
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth
from lancelet.encodings.gather import gather
from lancelet.encodings.row_ranges import RowRanges
from lancelet.encodings.v2_0.page import Decoder, PageCache, StoredBuffer
from lancelet.errors import ArrayOverflowError, CorruptDataError, UnsupportedError
from lancelet.values import dataclass

_NULL_BYTES_MAX = 1 << 32
"""Maximum memory of nulls that are not stored in the file, in bytes."""


@dataclass(frozen=True, slots=True)
class AllNull:
    """Only nulls; nothing is stored."""

    data_type: pa.DataType

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Return nulls."""
        yield from ()
        num_bytes = ranges.num_rows * _null_bytes(self.data_type)
        if num_bytes > _NULL_BYTES_MAX:
            # No stored bytes limit the claimed number of rows.
            raise ArrayOverflowError(
                "nulls of lists of this size do not fit into memory; read fewer rows at a time",
                type=str(self.data_type),
                rows=ranges.num_rows,
                bytes=num_bytes,
            )
        return pa.nulls(ranges.num_rows, self.data_type)


@dataclass(frozen=True, slots=True)
class SomeNull:
    """Values with a validity bitmap."""

    validity: Decoder
    values: Decoder

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read values and bitmap in one round."""
        validity, values = yield from read_together(
            [self.validity.read(ranges), self.values.read(ranges)]
        )
        if values.null_count:
            validity = pc.and_(validity, values.is_valid())
        return _with_validity(values, validity.buffers()[1])


@dataclass(frozen=True, slots=True)
class FixedSizeListItems:
    """Fixed-size lists, stored as their items."""

    data_type: pa.DataType
    items: Decoder

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read the items of the lists."""
        items = yield from self.items.read(ranges.times(self.data_type.list_size))
        return pa.Array.from_buffers(self.data_type, ranges.num_rows, [None], children=[items])


@dataclass(frozen=True, slots=True, eq=False)
class _Items:
    array: pa.Array


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Indices and items.

    In string columns that the writer dictionary-encoded, index 0 is null and items start at 1. In
    Arrow dictionary columns items start at 0, and nulls refer to a null item.
    """

    data_type: pa.DataType
    indices: Decoder
    items: Decoder
    num_items: int
    cache: PageCache

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read indices, and all items on the first read."""
        cached = self.cache.get(_Items)
        if cached is None:
            indices, items = yield from read_together(
                [self.indices.read(ranges), self.items.read(RowRanges.all(self.num_items))]
            )
            # A copy, so that cached items do not retain the memory maps of many files.
            items = pa.concat_arrays([items, items.slice(0, 0)])
            self.cache.put(_Items(items), value_bytes=items.nbytes)
        else:
            indices, items = (yield from self.indices.read(ranges)), cached.array
        if pa.types.is_dictionary(self.data_type):
            return self._as_dictionary(indices, items)
        return self._as_values(indices, items)

    def _as_values(self, indices: pa.Array, items: pa.Array) -> pa.Array:
        self._check(indices, lower=0, upper=self.num_items)
        numbers = pc.cast(indices, pa.int64())
        positions = pc.if_else(pc.equal(numbers, 0), pa.scalar(None, pa.int64()), numbers)
        return pc.take(items, pc.subtract(positions, 1), boundscheck=False)

    def _as_dictionary(self, indices: pa.Array, items: pa.Array) -> pa.Array:
        self._check(indices, lower=0, upper=self.num_items - 1)
        if items.null_count:
            # Null items become null indices, as Arrow users expect.
            valid = items.is_valid().to_numpy(zero_copy_only=False)
            renumbered = pa.array(np.cumsum(valid) - 1, mask=~valid)
            indices = pc.take(renumbered, indices).cast(self.data_type.index_type)
            items = items.drop_null()
        return pa.DictionaryArray.from_arrays(
            indices, items, ordered=self.data_type.ordered, safe=False
        )

    def _check(self, indices: pa.Array, *, lower: int, upper: int) -> None:
        bounds = pc.min_max(indices).as_py()
        if bounds["min"] is not None and not lower <= bounds["min"] <= bounds["max"] <= upper:
            raise CorruptDataError(
                "a dictionary index of a page is out of bounds",
                min=bounds["min"],
                max=bounds["max"],
                items=self.num_items,
            )


@dataclass(frozen=True, slots=True)
class PackedStruct:
    """Structs stored row by row: the children of a row are contiguous."""

    data_type: pa.DataType
    buffer: StoredBuffer

    @staticmethod
    def open(data_type: pa.DataType, buffer: StoredBuffer, *, count: int) -> PackedStruct:
        """Validate that the buffer contains `count` rows of the type."""
        buffer.check_size(count * 8 * packed_bytes(data_type), count=count)
        return PackedStruct(data_type, buffer)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read rows and split them into children."""
        row_bytes = packed_bytes(self.data_type)
        slices = yield ranges.byte_ranges(self.buffer.position, row_bytes)
        rows = gather(slices).reshape(ranges.num_rows, row_bytes)
        children = []
        start = 0
        for child in _child_types(self.data_type):
            stop = start + packed_bytes(child)
            data = np.ascontiguousarray(rows[:, start:stop]).reshape(-1)
            children.append(_block(child, data, ranges.num_rows))
            start = stop
        return arrow_from_block(Fields(tuple(children), ranges.num_rows), self.data_type, None)


def _null_bytes(data_type: pa.DataType) -> int:
    """Return the bytes of a null in Arrow."""
    if pa.types.is_fixed_size_list(data_type):
        return int(data_type.list_size) * _null_bytes(data_type.value_type)
    return 0 if pa.types.is_null(data_type) else 8


def packed_bytes(data_type: pa.DataType) -> int:
    """Return the bytes of a value in a packed row; only whole bytes of one width can be packed."""
    if pa.types.is_struct(data_type):
        return sum(packed_bytes(child) for child in _child_types(data_type))
    if pa.types.is_fixed_size_list(data_type):
        return packed_bytes(data_type.value_type) * int(data_type.list_size)
    bits = bits_per_value(data_type)
    if bits % 8:
        raise UnsupportedError("a packed struct cannot contain booleans", type=str(data_type))
    return bits // 8


def _child_types(data_type: pa.DataType) -> list[pa.DataType]:
    return [data_type.field(index).type for index in range(data_type.num_fields)]


def _block(data_type: pa.DataType, data: Bytes, count: int) -> Block:
    if not pa.types.is_fixed_size_list(data_type):
        return FixedWidth(bits_per_value(data_type), data, count)
    dimension = data_type.list_size
    items = _block(data_type.value_type, data, count * dimension)
    return FixedSizeList(dimension, None, items, count)


def _with_validity(array: pa.Array, validity: pa.Buffer) -> pa.Array:
    """Return an array with offset 0 and another validity bitmap."""
    if pa.types.is_dictionary(array.type):
        indices = _with_validity(array.indices, validity)
        return pa.DictionaryArray.from_arrays(
            indices, array.dictionary, ordered=array.type.ordered, safe=False
        )
    children = []
    num_buffers = array.type.num_buffers
    if pa.types.is_fixed_size_list(array.type):
        children = [array.values]
    elif pa.types.is_struct(array.type):
        children = [array.field(index) for index in range(array.type.num_fields)]
    buffers = [validity, *array.buffers()[1:num_buffers]]
    return pa.Array.from_buffers(array.type, len(array), buffers, children=children)
