"""Reader of full-zip pages, where an item is its levels followed by its value.

    definition of 1 bit, strings     00 03000000 "abc"    01    00 02000000 "de"
    rows                             0                    1     2
    row index                        0 8 9 15

Row positions are computed if all items have the same width, also across a run of pages, and
otherwise read from the row index; only its entries for the requested rows are read. Vectors without
nulls only need their position: the bytes of the file are returned without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import ByteRanges, Bytes, ByteSlices, Int64s, ReadCoroutine
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import Block, FixedWidth, RowIndices, Rows, StoredPage, Variable
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.gather import gather
from lancelet.encodings.levels import Levels, check_levels, visible_validity
from lancelet.encodings.pages.layout import FullZipLayout
from lancelet.encodings.pages.leaf import LeafContext, LeafRows
from lancelet.encodings.pages.stored_pages import StoredPages, to_bounds
from lancelet.encodings.pages.structural import PageReader
from lancelet.encodings.row_ranges import RowRanges
from lancelet.errors import CorruptDataError
from lancelet.kernels import ZipShape

_INDEX_WIDTHS = (1, 2, 4, 8)


class FullZipPage(PageReader):
    """Reads rows of full-zip pages."""

    def __init__(
        self,
        pages: Sequence[StoredPage],
        layout: FullZipLayout,
        leaf: LeafContext,
    ) -> None:
        """Validate the page message.

        Several pages are read as one if they have the same layout, with items of one width and one
        item per row.
        """
        pages = StoredPages.of(pages)
        self._page = pages[0]
        self._pages = pages
        self._bounds: Int64s = to_bounds(pages.length)
        self._layout = layout
        self._leaf = leaf
        layers = layout.layers
        # Levels without entries are not stored, so there may be fewer bits than the layers need.
        for name, bits, level_max in (
            ("repetition", layout.bits_rep, layers.rep_max),
            ("definition", layout.bits_def, layers.def_max),
        ):
            if bits > max(1, level_max).bit_length():
                raise CorruptDataError(
                    f"the {name} levels of a full-zip page exceed its layers",
                    column=leaf.column,
                    bits=bits,
                    max=level_max,
                )
        self._shape = ZipShape(layout.bits_rep, layout.bits_def, layers.visible_def_max)
        self._value_bytes = _whole_bytes(layout, leaf)
        self._has_index = layout.value_bits is None or layers.rep_max > 0
        if layers.rep_max and not layout.bits_rep:
            raise CorruptDataError(
                "a full-zip page of lists has no repetition levels", column=leaf.column
            )
        if int(pages.num_buffers.min()) < 1 + self._has_index:
            raise CorruptDataError(
                "a full-zip page has too few buffers",
                column=leaf.column,
                expected=1 + self._has_index,
                found=int(pages.num_buffers.min()),
            )
        self._positions, sizes = pages.buffers(0)
        item_bytes = self._shape.control_bytes + self._value_bytes
        if not self._has_index and (pages.length > sizes // max(item_bytes, 1)).any():
            raise CorruptDataError(
                "the rows of a full-zip page exceed its buffer",
                column=leaf.column,
                item_bytes=item_bytes,
            )
        assert len(pages) == 1 or not self._has_index

    def read(self, rows: Rows) -> ReadCoroutine[LeafRows]:
        """Read rows relative to the first row of the first page."""
        if isinstance(rows, RowIndices) and not self._has_index:
            return self._decode((yield self._row_byte_ranges(rows.rows)), len(rows))
        ranges_of_rows = RowRanges.of_rows(rows, num_rows=int(self._bounds[-1]))
        if self._has_index:
            index = yield self._index_ranges(ranges_of_rows)
            ranges = self._data_ranges(_parse_index(index))
        else:
            ranges = self._byte_ranges(ranges_of_rows)
        slices = yield ranges
        return self._decode(slices, ranges_of_rows.num_rows)

    def value_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges] | None:
        """Return the byte ranges of rows stored in Arrow layout, else None."""
        data_type = self._leaf.data_type
        if pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type):
            is_plain = self._layout.values.WhichOneof("compression") == VariableCodec.wire_name
            is_list = self._layout.layers.rep_max > 0
            return self._binary_ranges(rows) if is_plain and not is_list else None
        has_more = self._has_index or self._shape.control_bytes > 0
        if has_more or not pa.types.is_fixed_size_list(data_type):
            return None
        if self._value_bytes * 8 != data_type.list_size * data_type.value_type.bit_width:
            return None
        return self._vector_ranges(rows)

    def _vector_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges]:
        yield from ()
        return self._row_byte_ranges(rows)

    def _binary_ranges(self, rows: Int64s) -> ReadCoroutine[ByteRanges]:
        """Return the byte ranges of binary values; none if any is null or has a wrong length."""
        index = yield self._index_ranges(RowRanges(rows, np.ones_like(rows)))
        items = self._data_ranges(_parse_index(index))
        control, length = self._shape.control_bytes, (self._layout.length_bits or 0) // 8
        sizes = items.size - control - length
        if (sizes < 0).any():
            return ByteRanges(items.position[:0], items.size[:0])
        heads = yield ByteRanges(items.position, np.full(len(rows), control + length))
        is_wrong = _numbers(heads.source, heads.position + control, length) != sizes
        if control:
            is_wrong |= _numbers(heads.source, heads.position, control) != 0
        if is_wrong.any():
            return ByteRanges(items.position[:0], items.size[:0])
        return ByteRanges(items.position + control + length, sizes)

    def _byte_ranges(self, row_ranges: RowRanges) -> ByteRanges:
        """Return the byte ranges of fixed-width rows, one per page and range."""
        item_bytes = self._shape.control_bytes + self._value_bytes
        part_ranges = row_ranges.split(self._bounds)
        start = self._positions[part_ranges.part] + part_ranges.start * item_bytes
        return ByteRanges(start, part_ranges.count * item_bytes)

    def _row_byte_ranges(self, rows: Int64s) -> ByteRanges:
        """Return the byte ranges of single fixed-width rows."""
        item_bytes = self._shape.control_bytes + self._value_bytes
        pages, page_of_row, within = kernels.locate_rows(self._bounds, rows)
        position = self._positions[pages][page_of_row] + within * item_bytes
        return ByteRanges(position, np.full(len(rows), item_bytes))

    def _index_ranges(self, row_ranges: RowRanges) -> ByteRanges:
        """Return the ranges of the row index with all starts, then all ends."""
        entries = self._page.length + 1
        width, rest = divmod(int(self._page.size[1]), entries)
        if rest or width not in _INDEX_WIDTHS:
            raise CorruptDataError(
                "the row index of a full-zip page does not match its rows",
                column=self._leaf.column,
                rows=self._page.length,
                index_bytes=int(self._page.size[1]),
            )
        index_entries = np.concatenate([row_ranges.start, row_ranges.start + row_ranges.count])
        return ByteRanges(
            self._page.position[1] + index_entries * width, np.full(len(index_entries), width)
        )

    def _data_ranges(self, edges: Int64s) -> ByteRanges:
        """Return the validated byte ranges between starts and ends."""
        start, stop = edges
        ascending = bool(np.all(start <= stop)) and bool(np.all(stop[:-1] <= start[1:]))
        if not ascending or int(start[0]) < 0 or int(stop[-1]) > int(self._page.size[0]):
            raise CorruptDataError(
                "the rows of a full-zip page exceed its buffer",
                column=self._leaf.column,
                last_byte=int(stop[-1]),
                page_bytes=int(self._page.size[0]),
            )
        return ByteRanges(self._page.position[0] + start, stop - start)

    def _decode(self, slices: ByteSlices, num_rows: int) -> LeafRows:
        layers, shape, data_type = self._layout.layers, self._shape, self._leaf.data_type
        repetition: Levels | None = None
        definition: Levels | None = None
        zipped: FixedWidth | Variable
        if self._layout.value_bits is None:
            length_bytes = (self._layout.length_bits or 0) // 8
            repetition, definition, offsets, data, _ = kernels.unzip_variable(
                slices, shape, length_bytes, _offset_bits(data_type)
            )
            zipped = Variable(offsets, data)
        elif shape.control_bytes == 0:
            zipped = FixedWidth(self._layout.value_bits, gather(slices), num_rows)
        else:
            repetition, definition, data, _ = kernels.unzip_fixed(slices, shape, self._value_bytes)
            count = len(data) // self._value_bytes
            zipped = FixedWidth(self._layout.value_bits, data, count)
        repetition = repetition if shape.bits_rep else None
        definition = definition if shape.bits_def else None
        check_levels(layers, repetition, definition)
        validity = visible_validity(layers, definition)
        if pa.types.is_struct(data_type) and isinstance(zipped, Variable):
            values = self._unpack(zipped, definition)
        else:
            block = registry.decode_values(self._layout.values, zipped)
            if pa.types.is_boolean(data_type):
                block = _pack_bits(block)
            values = arrow_from_block(block, data_type, validity)
        return LeafRows(layers, repetition, definition, values)

    def _unpack(self, zipped: Variable, definition: Levels | None) -> pa.Array:
        """Decode packed structs, skipping nulls, which have no bytes."""
        encoding, data_type = self._layout.values, self._leaf.data_type
        if definition is None:
            return arrow_from_block(registry.decode_values(encoding, zipped), data_type, None)
        is_valid = definition[definition <= self._layout.layers.visible_def_max] == 0
        valid = np.flatnonzero(is_valid)
        offsets = np.append(zipped.offsets[valid], zipped.offsets[-1])
        block = registry.decode_values(encoding, Variable(offsets, zipped.data))
        packed = arrow_from_block(block, data_type, None)
        return packed.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))


def _pack_bits(block: Block) -> Block:
    """Pack booleans, which are stored as a byte each."""
    if not isinstance(block, FixedWidth) or block.bits != 8:
        return block
    return FixedWidth(1, np.packbits(block.data, bitorder="little"), block.count)


def _whole_bytes(layout: FullZipLayout, leaf: LeafContext) -> int:
    """Return the bytes of a value, or 0 for variable-width values."""
    bits = layout.length_bits if layout.value_bits is None else layout.value_bits
    is_length = layout.value_bits is None
    if not bits or bits % 8 or (is_length and bits not in (32, 64)):
        raise CorruptDataError(
            "the values of a full-zip page have an invalid bit width",
            column=leaf.column,
            bits=bits,
        )
    return 0 if is_length else bits // 8


def _offset_bits(data_type: pa.DataType) -> int:
    """Return the offset width of a type."""
    return 32 if pa.types.is_string(data_type) or pa.types.is_binary(data_type) else 64


def _parse_index(slices: ByteSlices) -> Int64s:
    """Return the entries of the row index: one array of starts, one of ends."""
    return _numbers(slices.source, slices.position, int(slices.size[0])).reshape(2, -1)


def _numbers(source: Bytes, position: Int64s, width: int) -> Int64s:
    """Return unsigned numbers; those beyond 63 bits become negative and fail bounds checks."""
    data = kernels.take_fixed(source, position, width)
    numbers: Int64s = data.view(f"<u{width}").astype(np.int64)
    return numbers
