"""Reads one field of a 0.1 file, over the pages of all batches at once.

Rows are numbered through the file, and so are the items of lists, each batch going on where the
one before it ended. What is asked for is cut where batches meet, and everything behind that is
arithmetic over columns of numbers, however many batches there are.

    bounds of batches  [0, 3, 5]     rows 2..4
    pieces             batch 0, from row 2, 1 row;  batch 1, from row 0, 1 row

Strings and lists take a round for their offsets, and then one for what these point at.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes, Int64s, Ranges, Reading, read_together
from lancelet.encodings import base
from lancelet.encodings.arrow import arrow_from_block, bits_per_value
from lancelet.encodings.base import FixedWidth, RowRange, Rows, Variable
from lancelet.encodings.gather import gather, gather_bits
from lancelet.encodings.spans import Pieces, Spans
from lancelet.encodings.v0_1.pages import FieldPages, StoredBatches, is_variable
from lancelet.errors import ArrayOverflowError, CorruptDataError, UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, STRUCT

_INT32_MAX = (1 << 31) - 1


class Node(Protocol):
    """A field, or a part of one, that can be read by spans of its own values."""

    data_type: pa.DataType
    bounds: Int64s
    """The first value of each batch, and the number of values."""

    def read(self, spans: Spans) -> Reading[pa.Array]:
        """Read the values of `spans`."""

    def encoded_bytes(self, first: int, stop: int) -> int:
        """Estimate the bytes of these values."""


class FieldReader(base.FieldReader):
    """Reads rows of one top-level field."""

    def __init__(self, node: Node) -> None:
        self._node = node

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of what is read."""
        return self._node.data_type

    @property
    def num_rows(self) -> int:
        """How many rows the field has in this file."""
        return int(self._node.bounds[-1])

    def read(self, rows: Rows) -> Reading[pa.Array]:
        """Read rows, in order, as one array."""
        return (yield from _read(self._node, Spans.of_rows(rows, num_rows=self.num_rows)))

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes that reading these rows would fetch."""
        return self._node.encoded_bytes(rows.start, rows.stop)


def open_field(field: Field, batches: StoredBatches) -> FieldReader:
    """Return a reader of a (projected) field; its pages are known to lie within the file."""
    node = _open(field, batches, bounds=batches.bounds)
    if not np.array_equal(node.bounds, batches.bounds):
        raise CorruptDataError(
            "the pages of a field do not have the rows of their batches",
            field=field.name,
            expected_rows=int(batches.bounds[-1]),
            found_rows=int(node.bounds[-1]),
        )
    return FieldReader(node)


def _open(field: Field, batches: StoredBatches, *, bounds: Int64s | None) -> Node:
    """Open a field; `bounds` are those of a struct that has no pages to tell."""
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
            "files of version 0.1 have no columns of this type",
            field=field.name,
            logical_type=field.logical_type,
        )
    return _Plain(field, batches, data_type)


def _read(node: Node, spans: Spans) -> Reading[pa.Array]:
    if not spans.num_rows:
        return pa.array([], node.data_type)
    return (yield from node.read(spans))


class _Plain:
    """Values of one width, back to back; a fixed-size list is just its items."""

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

    def read(self, spans: Spans) -> Reading[pa.Array]:
        pieces = spans.split(self.bounds)
        local = Spans(pieces.start * self._items, pieces.count * self._items)
        position = self._pages.position[pieces.part]
        count = spans.num_rows * self._items
        if self._bits == 1:
            data = gather_bits((yield local.bit_ranges(position, 1)), local)
        else:
            data = gather((yield local.byte_ranges(position, self._bits // 8)))
        items = arrow_from_block(FixedWidth(self._bits, data, count), self._item_type, None)
        return _wrap_lists(items, self.data_type, spans.num_rows)

    def encoded_bytes(self, first: int, stop: int) -> int:
        return ((stop - first) * self._items * self._bits + 7) // 8


class _Null:
    """Nulls, of which nothing is stored."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self.bounds = _bounds(batches.pages_of(field).length)

    def read(self, spans: Spans) -> Reading[pa.Array]:
        yield from ()
        return pa.nulls(spans.num_rows, self.data_type)

    def encoded_bytes(self, first: int, stop: int) -> int:
        del first, stop
        return 0


class _Binary:
    """Bytes, followed by the positions in the file at which values begin and end."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self._field = field
        self._nullable = field.nullable
        values = batches.values_per_batch(field, extra=0)
        self._pages = batches.pages_of(field)
        self.bounds = _bounds(values)
        batches.check_within(field, self._pages, (values + 1) * 8)

    def read(self, spans: Spans) -> Reading[pa.Array]:
        pieces = spans.split(self.bounds)
        edges = yield from _read_edges(pieces, self._pages, np.dtype("<i8"))
        data_ranges = self._data_ranges(pieces, edges)
        data = gather((yield data_ranges)) if len(data_ranges) else np.empty(0, np.uint8)
        size = edges.sizes()
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(size)))
        validity = None
        if self._nullable and not size.all():
            validity = np.packbits(size != 0, bitorder="little")
        return arrow_from_block(Variable(offsets, data), self.data_type, validity)

    def encoded_bytes(self, first: int, stop: int) -> int:
        # The bytes of a page lie between its offsets and whatever was written before; the
        # offsets alone are a fair share, as strings of a legacy file are short.
        return 3 * 8 * (stop - first)

    def _data_ranges(self, pieces: Pieces, edges: _Edges) -> Ranges:
        first, last = edges.first, edges.last
        full = last > first
        start, stop = first[full], last[full]
        # Values lie before their offsets, and batches follow each other, so that no byte is
        # claimed twice and what is read never exceeds the file.
        limit = self._pages.position[pieces.part][full]
        bad = (start < 0) | (stop > limit)
        bad[1:] |= start[1:] < stop[:-1]
        if edges.descends() or bad.any():
            raise CorruptDataError(
                "the offsets of strings do not ascend, or point outside of their page",
                field=self._field.name,
                pieces=len(pieces),
            )
        return Ranges(start, stop - start)


class _List:
    """Offsets into the items, which count from 0 in every batch."""

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

    def read(self, spans: Spans) -> Reading[pa.Array]:
        pieces = spans.split(self.bounds)
        edges = yield from _read_edges(pieces, self._pages, self._offset_type)
        first_item = self._items.bounds[pieces.part]
        limit = self._items.bounds[pieces.part + 1] - first_item
        if edges.descends() or (edges.first < 0).any() or (edges.last > limit).any():
            raise CorruptDataError(
                "the offsets of lists do not ascend, or point past their items",
                field=self._field.name,
                pieces=len(pieces),
            )
        wanted = Spans.merged(first_item + edges.first, edges.last - edges.first)
        items = yield from _read(self._items, wanted)
        offsets = np.concatenate((np.zeros(1, np.int64), np.cumsum(edges.sizes())))
        if self._offset_type.itemsize == 4:
            if int(offsets[-1]) > _INT32_MAX:
                raise ArrayOverflowError(
                    "more than 2^31 items do not fit one list array; read fewer rows at a time",
                    field=self._field.name,
                    items=int(offsets[-1]),
                )
            offsets = offsets.astype(np.int32)
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.data_type, spans.num_rows, buffers, children=[items])

    def encoded_bytes(self, first: int, stop: int) -> int:
        items = int(self._items.bounds[-1])
        share = (stop - first) / max(1, int(self.bounds[-1]))
        offsets = (stop - first) * self._offset_type.itemsize
        return offsets + int(self._items.encoded_bytes(0, items) * share)


class _Struct:
    """The children, side by side; which structs were null is not stored."""

    def __init__(self, field: Field, batches: StoredBatches, *, bounds: Int64s | None) -> None:
        self.data_type = field.storage_type
        self._children = [_open(child, batches, bounds=bounds) for child in field.children]
        found = [child.bounds for child in self._children] or ([] if bounds is None else [bounds])
        if not found:
            raise UnsupportedError(
                "lists of structs without fields cannot be read from version 0.1",
                field=field.name,
            )
        if any(not np.array_equal(other, found[0]) for other in found[1:]):
            raise CorruptDataError(
                "the children of a struct differ in their rows", field=field.name
            )
        self.bounds = found[0]

    def read(self, spans: Spans) -> Reading[pa.Array]:
        children = yield from read_together([child.read(spans) for child in self._children])
        return pa.Array.from_buffers(self.data_type, spans.num_rows, [None], children=children)

    def encoded_bytes(self, first: int, stop: int) -> int:
        return sum(child.encoded_bytes(first, stop) for child in self._children)


class _Dictionary:
    """Keys, whose values are kept once for the file."""

    def __init__(self, field: Field, batches: StoredBatches) -> None:
        self.data_type = field.storage_type
        self._field = field
        self._keys = _Plain(field, batches, self.data_type.index_type)
        self.bounds = self._keys.bounds
        values = batches.dictionaries.get(field.id)
        if values is None:
            raise CorruptDataError(
                "the file does not have the values of a dictionary",
                field=field.name,
                field_id=field.id,
            )
        self._values = values

    def read(self, spans: Spans) -> Reading[pa.Array]:
        keys = yield from self._keys.read(spans)
        bounds = pc.min_max(keys).as_py()
        if not len(self._values) and bounds["min"] == bounds["max"] == 0:
            # A dictionary without values can only have held nulls, whose key is written as 0.
            keys = pa.nulls(len(keys), keys.type)
        elif not 0 <= bounds["min"] <= bounds["max"] < len(self._values):
            raise CorruptDataError(
                "a key points outside of its dictionary",
                field=self._field.name,
                least=bounds["min"],
                most=bounds["max"],
                values=len(self._values),
            )
        elif self._values.null_count:
            # What a value that is null looks like to Arrow's functions depends on the function.
            keys = pc.if_else(pc.is_valid(pc.take(self._values, keys)), keys, None)
        return pa.DictionaryArray.from_arrays(
            keys, self._values, ordered=self.data_type.ordered, safe=False
        )

    def encoded_bytes(self, first: int, stop: int) -> int:
        return self._keys.encoded_bytes(first, stop)


class _Edges:
    """Offsets of pieces: for each piece one more than it has values."""

    def __init__(self, pieces: Pieces, values: npt.NDArray[np.int64]) -> None:
        counts = pieces.count + 1
        self._values = values
        self._last = np.cumsum(counts) - 1
        self.first: Int64s = values[self._last - pieces.count]
        self.last: Int64s = values[self._last]

    def sizes(self) -> Int64s:
        """Return the size of every value, piece by piece."""
        sizes: Int64s = np.delete(np.diff(self._values), self._last[:-1])
        return sizes

    def descends(self) -> bool:
        """Whether offsets go backwards within a piece."""
        # Compared and not subtracted, which wraps around for offsets at the limits of 64 bits.
        backwards = self._values[1:] < self._values[:-1]
        backwards[self._last[:-1]] = False
        return bool(backwards.any())


def _read_edges(
    pieces: Pieces, pages: FieldPages, kind: np.dtype[np.int64] | np.dtype[np.int32]
) -> Reading[_Edges]:
    asked = Spans(pieces.start, pieces.count + 1)
    slices = yield asked.byte_ranges(pages.position[pieces.part], kind.itemsize)
    raw = _as_type(gather(slices), kind)
    return _Edges(pieces, raw.astype(np.int64, copy=False))


def _as_type(data: Bytes, kind: np.dtype[np.int64] | np.dtype[np.int32]) -> npt.NDArray[np.int64]:
    """View bytes as numbers, wherever in a file they begin."""
    numbers: npt.NDArray[np.int64] = np.frombuffer(data, kind)
    return numbers


def _bounds(values: Int64s) -> Int64s:
    bounds: Int64s = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=bounds[1:])
    return bounds


def _innermost(data_type: pa.DataType) -> tuple[pa.DataType, int]:
    """Return the item type of nested fixed-size lists, and how many items a value has."""
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
