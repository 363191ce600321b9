"""Encodings made of others: nullable, fixed-size list, dictionary and packed struct."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Reading, read_together
from lancelet.encodings.arrow import arrow_from_block, bits_per_value
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth
from lancelet.encodings.gather import gather
from lancelet.encodings.spans import Spans
from lancelet.encodings.v2_0.page import Decoder, PageCache, StoredBuffer
from lancelet.errors import ArrayOverflowError, CorruptDataError, UnsupportedError
from lancelet.values import dataclass

_NULL_BYTES_MAX = 1 << 32
"""The most memory that nulls may take which take none in the file."""


@dataclass(frozen=True, slots=True)
class AllNull:
    """Nulls only; nothing is stored."""

    data_type: pa.DataType

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Return nulls."""
        yield from ()
        num_bytes = spans.num_rows * _null_bytes(self.data_type)
        if num_bytes > _NULL_BYTES_MAX:
            # Nothing in the file backs the claim, so it may be any number.
            raise ArrayOverflowError(
                "nulls of lists this long do not fit into memory; read fewer rows at a time",
                type=str(self.data_type),
                rows=spans.num_rows,
                bytes=num_bytes,
            )
        return pa.nulls(spans.num_rows, self.data_type)


@dataclass(frozen=True, slots=True)
class SomeNull:
    """Values beside a bitmap of which are valid."""

    validity: Decoder
    values: Decoder

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read values and bitmap in one round."""
        validity, values = yield from read_together(
            [self.validity.read(spans), self.values.read(spans)]
        )
        if values.null_count:
            validity = pc.and_(validity, values.is_valid())
        return _with_validity(values, validity.buffers()[1])


@dataclass(frozen=True, slots=True)
class FixedSizeListItems:
    """Lists of one length, as their items."""

    data_type: pa.DataType
    items: Decoder

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read the items of the lists."""
        items = yield from self.items.read(spans.times(self.data_type.list_size))
        return pa.Array.from_buffers(self.data_type, spans.num_rows, [None], children=[items])


@dataclass(frozen=True, slots=True, eq=False)
class _Items:
    array: pa.Array


@dataclass(frozen=True, slots=True)
class Dictionary:
    """Indices into items.

    A string column that the writer found to repeat itself counts items from 1, and 0 is null.
    An Arrow dictionary column counts from 0, and a null is an index of an item that is null.
    """

    data_type: pa.DataType
    indices: Decoder
    items: Decoder
    num_items: int
    cache: PageCache

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read indices, and all items the first time."""
        kept = self.cache.get(_Items)
        if kept is None:
            indices, items = yield from read_together(
                [self.indices.read(spans), self.items.read(Spans.all(self.num_items))]
            )
            # A copy, for what is kept of many files must not keep their maps.
            items = pa.concat_arrays([items, items.slice(0, 0)])
            self.cache.put(_Items(items), value_bytes=items.nbytes)
        else:
            indices, items = (yield from self.indices.read(spans)), kept.array
        if pa.types.is_dictionary(self.data_type):
            return self._as_dictionary(indices, items)
        return self._as_values(indices, items)

    def _as_values(self, indices: pa.Array, items: pa.Array) -> pa.Array:
        self._check(indices, least=0, most=self.num_items)
        numbers = pc.cast(indices, pa.int64())
        wanted = pc.if_else(pc.equal(numbers, 0), pa.scalar(None, pa.int64()), numbers)
        return pc.take(items, pc.subtract(wanted, 1), boundscheck=False)

    def _as_dictionary(self, indices: pa.Array, items: pa.Array) -> pa.Array:
        self._check(indices, least=0, most=self.num_items - 1)
        if items.null_count:
            # Nulls leave the items and become nulls of the indices, as Arrow's users expect.
            valid = items.is_valid().to_numpy(zero_copy_only=False)
            renumbered = pa.array(np.cumsum(valid) - 1, mask=~valid)
            indices = pc.take(renumbered, indices).cast(self.data_type.index_type)
            items = items.drop_null()
        return pa.DictionaryArray.from_arrays(
            indices, items, ordered=self.data_type.ordered, safe=False
        )

    def _check(self, indices: pa.Array, *, least: int, most: int) -> None:
        bounds = pc.min_max(indices).as_py()
        if bounds["min"] is not None and not least <= bounds["min"] <= bounds["max"] <= most:
            raise CorruptDataError(
                "an index points outside of its page's dictionary",
                least=bounds["min"],
                most=bounds["max"],
                items=self.num_items,
            )


@dataclass(frozen=True, slots=True)
class PackedStruct:
    """Structs row by row: the bytes of all children of a row lie side by side."""

    data_type: pa.DataType
    buffer: StoredBuffer

    @staticmethod
    def open(data_type: pa.DataType, buffer: StoredBuffer, *, count: int) -> PackedStruct:
        """Check that the buffer holds `count` rows of the type."""
        buffer.check_holds(count * 8 * packed_bytes(data_type), count=count)
        return PackedStruct(data_type, buffer)

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read rows and take them apart."""
        row_bytes = packed_bytes(self.data_type)
        slices = yield spans.byte_ranges(self.buffer.position, row_bytes)
        rows = gather(slices).reshape(spans.num_rows, row_bytes)
        children = []
        start = 0
        for child in _child_types(self.data_type):
            stop = start + packed_bytes(child)
            data = np.ascontiguousarray(rows[:, start:stop]).reshape(-1)
            children.append(_block(child, data, spans.num_rows))
            start = stop
        return arrow_from_block(Fields(tuple(children), spans.num_rows), self.data_type, None)


def _null_bytes(data_type: pa.DataType) -> int:
    """Return the bytes that Arrow keeps for a null."""
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
        raise UnsupportedError("a packed struct cannot hold single bits", type=str(data_type))
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
    """Return an array that begins where its buffers do, with another bitmap of nulls."""
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
