"""Reader of a field of a 2.0 file: a tree of columns, each with a sequence of pages.

A leaf reads all pages together. A list first reads offsets to locate its items, and then requests
them from its child. The number of rounds is therefore the nesting depth of lists, plus one or two
for the leaf.

    rows 1..3   ->  offsets column: rows 0..3      round 1
                ->  items 17..42                   round 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Int64s, ReadCoroutine, read_together
from lancelet.encodings import base
from lancelet.encodings.arrow import arrow_from_block, is_variable, validity_bits
from lancelet.encodings.base import (
    FileVersion,
    HeaderCache,
    RowRange,
    Rows,
    StoredColumn,
    StoredPage,
    Variable,
)
from lancelet.encodings.blobs.v1 import DESCRIPTOR_TYPE
from lancelet.encodings.gather import gather
from lancelet.encodings.row_ranges import RowRanges
from lancelet.encodings.take import join_arrays
from lancelet.encodings.v2_0.columns import LIST_TYPES, columns_of
from lancelet.encodings.v2_0.open_page import open_encoding, open_end_offsets
from lancelet.encodings.v2_0.page import (
    ARRAY_ENCODING_URL,
    COLUMN_ENCODING_URL,
    Decoder,
    PageBuffers,
    PageCache,
    parse_envelope,
)
from lancelet.encodings.v2_0.variable import EndOffsets, Extents
from lancelet.errors import ArrayOverflowError, CorruptDataError, InternalError, UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import STRUCT
from lancelet.format.protos import encodings20_pb as pb

_INT32_MAX = (1 << 31) - 1


class Node(Protocol):
    """A field or child that can be read by ranges of its rows."""

    data_type: pa.DataType
    num_rows: int

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read the rows of `ranges`."""


class FieldReader(base.FieldReader):
    """Reads rows of one top-level field."""

    def __init__(self, node: Node, columns: Sequence[StoredColumn]) -> None:
        self._node = node
        self._stored_bytes = sum(
            int(page.size.sum()) for column in columns for page in column.pages
        )

    @property
    def data_type(self) -> pa.DataType:
        """The Arrow type of the result."""
        return self._node.data_type

    @property
    def num_rows(self) -> int:
        """The number of rows of the field in this file."""
        return self._node.num_rows

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        """Read rows, in order, as one array."""
        ranges = RowRanges.of_rows(rows, num_rows=self.num_rows)
        return (yield from _read(self._node, ranges))

    def encoded_bytes(self, rows: RowRange) -> int:
        """Estimate the bytes fetched to read these rows by their share of all rows."""
        return self._stored_bytes * len(rows) // max(1, self.num_rows)


def open_field(
    field: Field,
    columns: Sequence[StoredColumn],
    version: FileVersion,
    header_cache: HeaderCache | None = None,
) -> FieldReader:
    """Open a (projected) field with its columns in the order of `columns_of`."""
    num_columns = len(columns_of(field, version))
    if len(columns) != num_columns:
        raise InternalError(
            "wrong number of columns for a field",
            field=field.name,
            expected=num_columns,
            found=len(columns),
        )
    return FieldReader(_open(field, list(columns), header_cache), columns)


def _open(field: Field, columns: list[StoredColumn], header_cache: HeaderCache | None) -> Node:
    """Open a field and its children, consuming columns from the front of the list."""
    column = columns.pop(0)
    if _is_blob(column):
        descriptors = _Leaf(DESCRIPTOR_TYPE, column, header_cache)
        is_descriptor_type = field.logical_type == STRUCT
        return descriptors if is_descriptor_type else _Blob(field.storage_type, descriptors)
    if field.logical_type in LIST_TYPES:
        return _List(field.storage_type, column, _open(field.children[0], columns, header_cache))
    if field.logical_type == STRUCT and not field.is_packed:
        return _Struct(
            field, column, [_open(child, columns, header_cache) for child in field.children]
        )
    if column.items is not None and _has_lists(column):
        return _ByteLists(field.storage_type, column, header_cache)
    return _Leaf(field.storage_type, column, header_cache)


def _read(node: Node, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
    if not ranges.num_rows:
        return pa.array([], node.data_type)
    return (yield from node.read(ranges))


class _Pages:
    """The pages of a column, with lookup by row."""

    def __init__(self, column: StoredColumn) -> None:
        self.column = column
        lengths = [page.length for page in column.pages]
        if any(not 0 <= length < 1 << 48 for length in lengths):
            raise CorruptDataError(
                "a page claims an invalid number of rows", column=column.index, rows=max(lengths)
            )
        self.bounds: Int64s = np.concatenate(([0], np.cumsum(np.array(lengths, np.int64))))

    @property
    def num_rows(self) -> int:
        return int(self.bounds[-1])

    def overlapping(self, ranges: RowRanges) -> list[tuple[int, RowRanges]]:
        """Return the pages with any of the rows, and these rows relative to the page."""
        first = int(np.searchsorted(self.bounds, ranges.start[0], side="right")) - 1
        stop = int(ranges.start[-1] + ranges.count[-1])
        last = int(np.searchsorted(self.bounds, stop, side="left"))
        parts = []
        for index in range(first, last):
            part = ranges.within(int(self.bounds[index]), int(self.bounds[index + 1]))
            if len(part):
                parts.append((index, part))
        return parts

    def encoding(self, index: int) -> pb.ArrayEncoding:
        return parse_envelope(
            self.column.pages[index].encoding, ARRAY_ENCODING_URL, pb.ArrayEncoding
        )

    def buffers(self, index: int, header_cache: HeaderCache | None) -> PageBuffers:
        cache = PageCache(header_cache, self.column.index, index)
        return PageBuffers(self.column, self.column.pages[index], cache)


class _Leaf:
    """Values without child columns."""

    def __init__(
        self, data_type: pa.DataType, column: StoredColumn, header_cache: HeaderCache | None
    ) -> None:
        self.data_type = data_type
        self._pages = _Pages(column)
        self.num_rows = self._pages.num_rows
        self._header_cache = header_cache
        self._decoders: dict[int, Decoder] = {}

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        parts = yield from read_together(
            [self._decoder(index).read(part) for index, part in self._pages.overlapping(ranges)]
        )
        return join_arrays(parts)

    def _decoder(self, index: int) -> Decoder:
        decoder = self._decoders.get(index)
        if decoder is None:
            decoder = self._decoders[index] = open_encoding(
                self._pages.encoding(index),
                self.data_type,
                count=self._pages.column.pages[index].length,
                buffers=self._pages.buffers(index, self._header_cache),
            )
        return decoder


class _Struct:
    """A header column without data, and the children."""

    def __init__(self, field: Field, column: StoredColumn, children: list[Node]) -> None:
        self.data_type = field.storage_type
        self.num_rows = _Pages(column).num_rows
        self._children = children
        for child, node in zip(field.children, children, strict=True):
            if node.num_rows != self.num_rows:
                raise CorruptDataError(
                    "the columns of a struct have different row counts",
                    field=field.name,
                    child=child.name,
                    expected_rows=self.num_rows,
                    found_rows=node.num_rows,
                )

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        children = yield from read_together([child.read(ranges) for child in self._children])
        return pa.Array.from_buffers(self.data_type, ranges.num_rows, [None], children=children)


class _List:
    """Offsets per page; items continue from page to page."""

    def __init__(self, data_type: pa.DataType, column: StoredColumn, items: Node) -> None:
        self.data_type = data_type
        self._pages = _Pages(column)
        self.num_rows = self._pages.num_rows
        self._items = items
        self._offsets: list[EndOffsets] = []
        self._first_item: list[int] = []
        first_item = 0
        for index, page in enumerate(column.pages):
            message = self._list_message(index, page)
            self._offsets.append(
                open_end_offsets(
                    message.offsets,
                    message.null_offset_adjustment,
                    limit=message.num_items,
                    count=page.length,
                    buffers=self._pages.buffers(index, None),
                )
            )
            self._first_item.append(first_item)
            first_item += message.num_items
        if first_item > items.num_rows:
            raise CorruptDataError(
                "lists claim more items than are stored",
                column=column.index,
                expected_items=first_item,
                found_items=items.num_rows,
            )

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        parts = self._pages.overlapping(ranges)
        extents = yield from read_together(
            [self._offsets[index].read(part) for index, part in parts]
        )
        items = yield from _read(self._items, self._item_ranges(parts, extents))
        offsets = np.zeros(ranges.num_rows + 1, np.int64)
        np.cumsum(np.concatenate([part.stop - part.start for part in extents]), out=offsets[1:])
        valid = np.concatenate([part.valid for part in extents])
        validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
        if pa.types.is_list(self.data_type):
            if int(offsets[-1]) > _INT32_MAX:
                raise ArrayOverflowError(
                    (
                        "more than 2^31 items do not fit into one list array; read fewer rows at a "
                        "time"
                    ),
                    items=int(offsets[-1]),
                )
            offsets = offsets.astype(np.int32)
        buffers = [validity, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(self.data_type, ranges.num_rows, buffers, children=[items])

    def _item_ranges(
        self, parts: Sequence[tuple[int, RowRanges]], extents: Sequence[Extents]
    ) -> RowRanges:
        start = [
            extent.runs.start + self._first_item[index]
            for (index, _), extent in zip(parts, extents, strict=True)
        ]
        count = [extent.runs.count for extent in extents]
        return RowRanges.merged(np.concatenate(start), np.concatenate(count))

    def _list_message(self, index: int, page: StoredPage) -> pb.List:
        encoding = self._pages.encoding(index)
        if encoding.WhichOneof("array_encoding") != "list":
            raise CorruptDataError(
                "a page of a list column has no list offsets",
                column=self._pages.column.index,
                first_row=page.first_row,
                found=encoding.WhichOneof("array_encoding"),
            )
        return encoding.list


class _ByteLists:
    """Strings of the first 2.0 writers: lists of bytes, which are the next column."""

    def __init__(
        self, data_type: pa.DataType, column: StoredColumn, header_cache: HeaderCache | None
    ) -> None:
        if column.items is None or not is_variable(data_type):
            raise CorruptDataError(
                "a column has lists, but its type has none",
                column=column.index,
                type=str(data_type),
            )
        self.data_type = data_type
        items = _Leaf(pa.uint8(), column.items, header_cache)
        self._lists = _List(pa.large_list(pa.uint8()), column, items)
        self.num_rows = self._lists.num_rows

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        lists = yield from self._lists.read(ranges)
        offsets = np.frombuffer(lists.buffers()[1], np.int64, len(lists) + 1)
        data = np.frombuffer(lists.values.buffers()[1], np.uint8, len(lists.values))
        return arrow_from_block(Variable(offsets, data), self.data_type, validity_bits(lists))


class _Blob:
    """Descriptors of values stored outside of pages.

    A null has position 1 and size 0, an empty value position 0.
    """

    def __init__(self, data_type: pa.DataType, descriptors: Node) -> None:
        self.data_type = data_type
        self.num_rows = descriptors.num_rows
        self._descriptors = descriptors

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        descriptors = yield from self._descriptors.read(ranges)
        position = descriptors.field(0).to_numpy().view(np.int64)
        size = descriptors.field(1).to_numpy().view(np.int64)
        full = size != 0
        _check_ascending(position[full], size[full])
        slices = yield ByteRanges(position[full], size[full])
        offsets = np.concatenate(([0], np.cumsum(size)))
        valid = full | (position != 1)
        validity = None if valid.all() else np.packbits(valid, bitorder="little")
        return arrow_from_block(Variable(offsets, gather(slices)), self.data_type, validity)


def _check_ascending(position: Int64s, size: Int64s) -> None:
    # Values are written sequentially, so valid ranges never exceed the file.
    stop = position + size
    wraps = stop < position
    if (position < 0).any() or (size < 0).any() or wraps.any() or (position[1:] < stop[:-1]).any():
        raise CorruptDataError(
            "the values of a blob column overlap or precede the file", values=len(position)
        )


def _has_lists(column: StoredColumn) -> bool:
    if not column.pages:
        return False
    encoding = parse_envelope(column.pages[0].encoding, ARRAY_ENCODING_URL, pb.ArrayEncoding)
    return bool(encoding.WhichOneof("array_encoding") == "list")


def _is_blob(column: StoredColumn) -> bool:
    if not column.encoding:
        return False
    encoding = parse_envelope(column.encoding, COLUMN_ENCODING_URL, pb.ColumnEncoding)
    match encoding.WhichOneof("column_encoding"):
        case "blob":
            return True
        case "zone_index":
            raise UnsupportedError(
                "a column has a zone index; no released writer creates one",
                column=column.index,
            )
        case _:
            return False
