"""Reads rows of full-zip pages, where an item is its levels and its value side by side.

    definition of 1 bit, strings     00 03000000 "abc"    01    00 02000000 "de"
    rows                             0                    1     2
    row index                        0 8 9 15

Where a row begins is computed if all items have one width, also across a run of pages, and read
from the row index if they do not; only the entries of the wanted rows are read. Vectors without
nulls need nothing but their position: they are returned as the bytes of the file, not copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Ranges, Reading, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import Block, FixedWidth, RowIndices, Rows, StoredPage, Variable
from lancelet.encodings.gather import gather
from lancelet.encodings.layout import FullZipLayout
from lancelet.encodings.leaf import LeafContext, LeafRows
from lancelet.encodings.levels import Levels, check_levels, visible_validity
from lancelet.encodings.spans import Spans
from lancelet.encodings.stored_pages import StoredPages, bounds_of
from lancelet.encodings.stretches import Stretches
from lancelet.encodings.structural import PageReader
from lancelet.errors import CorruptDataError
from lancelet.kernels import ZipShape

_INDEX_WIDTHS = (1, 2, 4, 8)


class FullZipPage(PageReader):
    """A page whose rows can be read."""

    def __init__(
        self,
        pages: Sequence[StoredPage],
        layout: FullZipLayout,
        leaf: LeafContext,
    ) -> None:
        """Check the message of a page.

        Pages that follow it may be read with it if they have the same layout, in which all
        items have one width and a row is an item.
        """
        pages = StoredPages.of(pages)
        self._page = pages[0]
        self._pages = pages
        self._bounds: Int64s = bounds_of(pages.length)
        self._layout = layout
        self._leaf = leaf
        layers = layout.layers
        # Levels that no entry has are not stored, so fewer bits than the layers need are fine.
        for name, bits, most in (
            ("repetition", layout.bits_rep, layers.rep_max),
            ("definition", layout.bits_def, layers.def_max),
        ):
            if bits > max(1, most).bit_length():
                raise CorruptDataError(
                    f"a full-zip page has {name} levels that its layers do not define",
                    column=leaf.column,
                    bits=bits,
                    most=most,
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
                "a full-zip page misses buffers",
                column=leaf.column,
                expected=1 + self._has_index,
                found=int(pages.num_buffers.min()),
            )
        self._positions, sizes = pages.buffers(0)
        item_bytes = self._shape.control_bytes + self._value_bytes
        if not self._has_index and (pages.length > sizes // max(item_bytes, 1)).any():
            raise CorruptDataError(
                "the rows of a full-zip page are not within it",
                column=leaf.column,
                item_bytes=item_bytes,
            )
        assert len(pages) == 1 or not self._has_index

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows of the page, counted from its first one."""
        if isinstance(rows, RowIndices) and not self._has_index:
            return self._decode((yield self._ranges_of(rows.rows)), len(rows))
        spans = Spans.of_rows(rows, num_rows=int(self._bounds[-1]))
        if self._has_index:
            index = yield self._index_ranges(spans)
            ranges = self._data_ranges(_parse_index(index))
        else:
            ranges = self._ranges_of_spans(spans)
        slices = yield ranges
        return self._decode(slices, spans.num_rows)

    def read_stretches(self, stretches: Stretches) -> Reading[tuple[LeafRows, Int64s]]:
        """Read stretches of rows that have one width; also return where each begins."""
        num_stretches = len(stretches.start)
        spans = Spans(stretches.start, np.full(num_stretches, stretches.count))
        slices = yield self._ranges_of_spans(spans)
        found = self._decode(slices, num_stretches * stretches.count)
        return found, np.arange(num_stretches) * stretches.count

    def places(self, rows: Int64s) -> Ranges | None:
        """Return where rows are that are kept as Arrow has them, or None if they are not."""
        data_type = self._leaf.data_type
        has_more = self._has_index or self._shape.control_bytes > 0
        if has_more or not pa.types.is_fixed_size_list(data_type):
            return None
        if self._value_bytes * 8 != data_type.list_size * data_type.value_type.bit_width:
            return None
        return self._ranges_of(rows)

    def _ranges_of_spans(self, spans: Spans) -> Ranges:
        """Return where rows are that have one width, a range for each part of a page."""
        item_bytes = self._shape.control_bytes + self._value_bytes
        pieces = spans.split(self._bounds)
        start = self._positions[pieces.part] + pieces.start * item_bytes
        return Ranges(start, pieces.count * item_bytes)

    def _ranges_of(self, rows: Int64s) -> Ranges:
        """Return where single rows are that have one width, a range each."""
        item_bytes = self._shape.control_bytes + self._value_bytes
        pages, which, within = kernels.locate_rows(self._bounds, rows)
        position = self._positions[pages][which] + within * item_bytes
        return Ranges(position, np.full(len(rows), item_bytes))

    def _index_ranges(self, spans: Spans) -> Ranges:
        """Return where the row index has the starts of the spans, and then their ends."""
        entries = self._page.length + 1
        width, rest = divmod(int(self._page.size[1]), entries)
        if rest or width not in _INDEX_WIDTHS:
            raise CorruptDataError(
                "the row index of a full-zip page does not belong to its rows",
                column=self._leaf.column,
                rows=self._page.length,
                index_bytes=int(self._page.size[1]),
            )
        which = np.concatenate([spans.start, spans.start + spans.count])
        return Ranges(self._page.position[1] + which * width, np.full(len(which), width))

    def _data_ranges(self, edges: Int64s) -> Ranges:
        """Return the bytes between starts and stops, checked against the page."""
        start, stop = edges
        ascending = bool(np.all(start <= stop)) and bool(np.all(stop[:-1] <= start[1:]))
        if not ascending or int(start[0]) < 0 or int(stop[-1]) > int(self._page.size[0]):
            raise CorruptDataError(
                "the rows of a full-zip page are not within it",
                column=self._leaf.column,
                last_byte=int(stop[-1]),
                page_bytes=int(self._page.size[0]),
            )
        return Ranges(self._page.position[0] + start, stop - start)

    def _decode(self, slices: Slices, num_rows: int) -> LeafRows:
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
                block = _bits_of_bytes(block)
            values = arrow_from_block(block, data_type, validity)
        return LeafRows(layers, repetition, definition, values)

    def _unpack(self, zipped: Variable, definition: Levels | None) -> pa.Array:
        """Return packed structs; nulls have no bytes, so they are left out while decoding."""
        encoding, data_type = self._layout.values, self._leaf.data_type
        if definition is None:
            return arrow_from_block(registry.decode_values(encoding, zipped), data_type, None)
        is_valid = definition[definition <= self._layout.layers.visible_def_max] == 0
        valid = np.flatnonzero(is_valid)
        offsets = np.append(zipped.offsets[valid], zipped.offsets[-1])
        block = registry.decode_values(encoding, Variable(offsets, zipped.data))
        packed = arrow_from_block(block, data_type, None)
        return packed.take(pa.array(np.cumsum(is_valid) - 1, mask=~is_valid))


def _bits_of_bytes(block: Block) -> Block:
    """Return booleans, which items hold as a byte each, as the bits they are elsewhere."""
    if not isinstance(block, FixedWidth) or block.bits != 8:
        return block
    return FixedWidth(1, np.packbits(block.data, bitorder="little"), block.count)


def _whole_bytes(layout: FullZipLayout, leaf: LeafContext) -> int:
    """Return the bytes of a value, or 0 if values differ in length."""
    bits = layout.length_bits if layout.value_bits is None else layout.value_bits
    is_length = layout.value_bits is None
    if not bits or bits % 8 or (is_length and bits not in (32, 64)):
        raise CorruptDataError(
            "the values of a full-zip page have an impossible width",
            column=leaf.column,
            bits=bits,
        )
    return 0 if is_length else bits // 8


def _offset_bits(data_type: pa.DataType) -> int:
    """Return the width of offsets that the values are wanted with."""
    return 32 if pa.types.is_string(data_type) or pa.types.is_binary(data_type) else 64


def _parse_index(slices: Slices) -> Int64s:
    """Return the entries of the row index: one row of starts, one of stops."""
    width = int(slices.size[0])
    data: Bytes = kernels.take_fixed(slices.source, slices.position, width)
    entries = data.view(f"<u{width}").reshape(2, -1)
    # What does not fit 63 bits becomes negative, and is refused with what lies out of bounds.
    return entries.astype(np.int64)
