"""Reader of a field of a 0.1 file, across the pages of all batches.

Rows are numbered across the file, and so are list items. Requested rows are split at batch
boundaries; the rest is array arithmetic, regardless of the number of batches.

    batch bounds       [0, 3, 5]     rows 2..4
    ranges             batch 0, from row 2, 1 row;  batch 1, from row 0, 1 row

Strings and lists need one round for offsets, and one for bytes or items.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine, read_together
from lancelet.encodings import base
from lancelet.encodings.arrow import arrow_from_block, bits_per_value
from lancelet.encodings.base import FixedWidth, RowRange, Rows, Variable
from lancelet.encodings.gather import gather, gather_bits
from lancelet.encodings.row_ranges import PartRanges, RowRanges
from lancelet.encodings.v0_1.pages import FieldPages, StoredBatches, is_variable
from lancelet.errors import ArrayOverflowError, CorruptDataError, UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, STRUCT

_INT32_MAX = (1 << 31) - 1


class Node(Protocol):
    """A field or child that can be read by ranges of its values."""

    data_type: pa.DataType
    bounds: Int64s
    """The first value of each batch, followed by the number of values."""

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read the values of `ranges`."""

    def encoded_bytes(self, first: int, stop: int) -> int:
        """Estimate the bytes of these values."""


class FieldReader(base.FieldReader):
    """Reads rows of one top-level field."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the result."""
        return self._node.data_type

    @property
    def num_rows(self) -> int:
        """The number of rows of the field in this file."""
        return int(self._node.bounds[-1])

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        """Read rows, in order, as one array."""
        return (yield from _read(self._node, RowRanges.of_rows(rows, num_rows=self.num_rows)))

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes fetched to read these rows."""
        return self._node.encoded_bytes(rows.start, rows.stop)


def open_field(field: Field, batches: StoredBatches) -> FieldReader:
    """Open a (projected) field after validating its pages."""
    node = _open(field, batches, bounds=batches.bounds)
    if not np.array_equal(node.bounds, batches.bounds):
        raise CorruptDataError(
            "the pages of a field do not match the rows of their batches",
            field=field.name,
            expected_rows=int(batches.bounds[-1]),
            found_rows=int(node.bounds[-1]),
        )
    return FieldReader(node)


def _open(field: Field, batches: StoredBatches, *, bounds: Int64s | None) -> Node:
    """Open a field; `bounds` are those of a struct without pages."""
    if field.logical_type == STRUCT:
        return _Struct(field, batches, bounds=bounds)
    if field.logical_type in LISTS or field.logical_type in LARGE_LISTS:
        return _List(field, batches)
    data_type = field.storage_type
    if pa.types.is_null(data_type):
        return _Null(field, batches)
    if pa.types.is_dictionary(data_type):
        return _Dictionary(field, batches)
    if is_variable(data_type):
        return _Binary(field, batches)
    if field.children:
        raise UnsupportedError(
            "unsupported column type in a file of version 0.1",
            field=field.name,
            logical_type=field.logical_type,
        )
    return _FixedWidthReader(field, batches, data_type)


def _read(node: Node, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
    if not ranges.num_rows:
        return pa.array([], node.data_type)
    return (yield from node.read(ranges))


class _FixedWidthReader:
    """Contiguous fixed-width values; fixed-size lists are stored as items."""

    def __init__(self, field: Field, batches: StoredBatches, data_type: pa.DataType) -> None:
        self.data_type = data_type
        self._item_type, self._items = _innermost(data_type)
        self._bits = bits_per_value(self._item_type)
        values = batches.values_per_batch(field, extra=0)
        self._pages = batches.pages_of(field)
        self.bounds = _bounds(values)
        width = self._items * self._bits
        if width > 8 * max(1, batches.file_bytes) and int(self.bounds[-1]):
            raise CorruptDataError(
                "a value is larger than the file", field=field.name, value_bits=width
            )
        batches.check_within(field, self._pages, (values * width + 7) >> 3)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        parts = ranges.split(self.bounds)
        local = RowRanges(parts.start * self._items, parts.count * self._items)
        position = self._pages.position[parts.part]
        count = ranges.num_rows * self._items
        if self._bits == 1:
            data = gather_bits((yield local.bit_ranges(position, 1)), local)
        else:
            data = gather((yield local.byte_ranges(position, self._bits // 8)))
        items = arrow_from_block(FixedWidth(self._bits, data, count), self._item_type, None)
        return _wrap_lists(items, self.data_type, ranges.num_rows)

    def encoded_bytes(self, first: int, stop: int) -> int:
        return ((stop - first) * self._items * self._bits + 7) // 8


class _Null:
    """Nulls, which are not stored."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self.bounds = _bounds(batches.pages_of(field).length)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        yield from ()
        return pa.nulls(ranges.num_rows, self.data_type)

    def encoded_bytes(self, first: int, stop: int) -> int:
        del first, stop
        return 0


class _Binary:
    """Bytes, followed by file positions where values start and end."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self._field = field
        self._nullable = field.nullable
        values = batches.values_per_batch(field, extra=0)
        self._pages = batches.pages_of(field)
        self.bounds = _bounds(values)
        batches.check_within(field, self._pages, (values + 1) * 8)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        parts = ranges.split(self.bounds)
        edges = yield from _read_edges(parts, self._pages, np.dtype("<i8"))
        data_ranges = self._data_ranges(parts, edges)
        data = gather((yield data_ranges)) if len(data_ranges) else np.empty(0, np.uint8)
        size = edges.sizes()
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
        validity = None
        if self._nullable and not size.all():
            validity = np.packbits(size != 0, bitorder="little")
        return arrow_from_block(Variable(offsets, data), self.data_type, validity)

    def encoded_bytes(self, first: int, stop: int) -> int:
        # The size of the bytes is only known from the offsets; since strings of legacy files are
        # short, the size of the offsets is used as estimate.
        return 3 * 8 * (stop - first)

    def _data_ranges(self, parts: PartRanges, edges: _Edges) -> ByteRanges:
        first, last = edges.first, edges.last
        full = last > first
        start, stop = first[full], last[full]
        # Values precede their offsets, and batches are sequential, so that valid ranges never
        # overlap and never exceed the file.
        limit = self._pages.position[parts.part][full]
        is_invalid = (start < 0) | (stop > limit)
        is_invalid[1:] |= start[1:] < stop[:-1]
        if edges.descends() or is_invalid.any():
            raise CorruptDataError(
                "string offsets do not ascend or exceed their page",
                field=self._field.name,
                ranges=len(parts),
            )
        return ByteRanges(start, stop - start)


class _List:
    """Offsets into the items, relative to the batch."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self._field = field
        self._offset_type = np.dtype("<i8" if field.logical_type in LARGE_LISTS else "<i4")
        values = batches.values_per_batch(field, extra=1)
        self._pages = batches.pages_of(field)
        self.bounds = _bounds(values)
        width = self._offset_type.itemsize
        batches.check_within(field, self._pages, (values + 1) * width)
        self._items = _open(field.children[0], batches, bounds=None)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        parts = ranges.split(self.bounds)
        edges = yield from _read_edges(parts, self._pages, self._offset_type)
        first_item = self._items.bounds[parts.part]
        limit = self._items.bounds[parts.part + 1] - first_item
        if edges.descends() or (edges.first < 0).any() or (edges.last > limit).any():
            raise CorruptDataError(
                "list offsets do not ascend or exceed their items",
                field=self._field.name,
                ranges=len(parts),
            )
        item_ranges = RowRanges.merged(first_item + edges.first, edges.last - edges.first)
        items = yield from _read(self._items, item_ranges)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(edges.sizes())))
        if self._offset_type.itemsize == 4:
            if int(offsets[-1]) > _INT32_MAX:
                raise ArrayOverflowError(
                    (
                        "more than 2^31 items do not fit into one list array; read fewer rows at a "
                        "time"
                    ),
                    field=self._field.name,
                    items=int(offsets[-1]),
                )
            offsets = offsets.astype(np.int32)
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.data_type, ranges.num_rows, buffers, children=[items])

    def encoded_bytes(self, first: int, stop: int) -> int:
        items = int(self._items.bounds[-1])
        share = (stop - first) / max(1, int(self.bounds[-1]))
        offsets = (stop - first) * self._offset_type.itemsize
        return offsets + int(self._items.encoded_bytes(0, items) * share)


class _Struct:
    """The children; null structs are not stored."""

    def __init__(self, field: Field, batches: StoredBatches, *, bounds: Int64s | None) -> None:
        self.data_type = field.storage_type
        self._children = [_open(child, batches, bounds=bounds) for child in field.children]
        child_bounds = [child.bounds for child in self._children] or (
            [] if bounds is None else [bounds]
        )
        if not child_bounds:
            raise UnsupportedError(
                "version 0.1 does not support lists of structs without fields",
                field=field.name,
            )
        if any(not np.array_equal(other, child_bounds[0]) for other in child_bounds[1:]):
            raise CorruptDataError(
                "the children of a struct have different row counts", field=field.name
            )
        self.bounds = child_bounds[0]

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        children = yield from read_together([child.read(ranges) for child in self._children])
        return pa.Array.from_buffers(self.data_type, ranges.num_rows, [None], children=children)

    def encoded_bytes(self, first: int, stop: int) -> int:
        return sum(child.encoded_bytes(first, stop) for child in self._children)


class _Dictionary:
    """Keys into a dictionary stored once per file."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self._field = field
        self._keys = _FixedWidthReader(field, batches, self.data_type.index_type)
        self.bounds = self._keys.bounds
        values = batches.dictionaries.get(field.id)
        if values is None:
            raise CorruptDataError(
                "the values of a dictionary are missing in the file",
                field=field.name,
                field_id=field.id,
            )
        self._values = values

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        keys = yield from self._keys.read(ranges)
        bounds = pc.min_max(keys).as_py()
        if not len(self._values) and bounds["min"] == bounds["max"] == 0:
            # With an empty dictionary, all rows are nulls, stored as key 0.
            keys = pa.nulls(len(keys), keys.type)
        elif not 0 <= bounds["min"] <= bounds["max"] < len(self._values):
            raise CorruptDataError(
                "a dictionary key is out of bounds",
                field=self._field.name,
                min=bounds["min"],
                max=bounds["max"],
                values=len(self._values),
            )
        elif self._values.null_count:
            # Arrow functions treat null dictionary items inconsistently.
            keys = pc.if_else(pc.is_valid(pc.take(self._values, keys)), keys, None)
        return pa.DictionaryArray.from_arrays(
            keys, self._values, ordered=self.data_type.ordered, safe=False
        )

    def encoded_bytes(self, first: int, stop: int) -> int:
        return self._keys.encoded_bytes(first, stop)


class _Edges:
    """Offsets of ranges, one more per range than values."""

    def __init__(self, parts: PartRanges, values: npt.NDArray[np.int64]) -> None:
        counts = parts.count + 1
        self._values = values
        self._last = np.cumsum(counts) - 1
        self.first: Int64s = values[self._last - parts.count]
        self.last: Int64s = values[self._last]

    def sizes(self) -> Int64s:
        """Return the size of every value, in range order."""
        sizes: Int64s = np.delete(np.diff(self._values), self._last[:-1])
        return sizes

    def descends(self) -> bool:
        """Return whether offsets decrease within a range."""
        # Compared instead of subtracted, which could overflow.
        backwards = self._values[1:] < self._values[:-1]
        backwards[self._last[:-1]] = False
        return bool(backwards.any())


def _read_edges(
    parts: PartRanges, pages: FieldPages, kind: np.dtype[np.int64] | np.dtype[np.int32]
) -> ReadCoroutine[_Edges]:
    requested = RowRanges(parts.start, parts.count + 1)
    slices = yield requested.byte_ranges(pages.position[parts.part], kind.itemsize)
    raw = _as_type(gather(slices), kind)
    return _Edges(parts, raw.astype(np.int64, copy=False))


def _as_type(data: Bytes, kind: np.dtype[np.int64] | np.dtype[np.int32]) -> npt.NDArray[np.int64]:
    """Reinterpret bytes as numbers, regardless of alignment."""
    numbers: npt.NDArray[np.int64] = np.frombuffer(data, kind)
    return numbers


def _bounds(values: Int64s) -> Int64s:
    bounds: Int64s = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=bounds[1:])
    return bounds


def _innermost(data_type: pa.DataType) -> tuple[pa.DataType, int]:
    """Return the item type of nested fixed-size lists, and the number of items per value."""
    items = 1
    while pa.types.is_fixed_size_list(data_type):
        items *= data_type.list_size
        data_type = data_type.value_type
    return data_type, items


def _wrap_lists(items: pa.Array, data_type: pa.DataType, count: int) -> pa.Array:
    if not pa.types.is_fixed_size_list(data_type):
        return items
    inner = _wrap_lists(items, data_type.value_type, count * data_type.list_size)
    return pa.Array.from_buffers(data_type, count, [None], children=[inner])
