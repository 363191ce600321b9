"""Reader of constant pages.

Constant pages of several columns with only a fixed-width value can be read as one:

    column a   3 rows of 7         rows 0 1 2 | 3 4 5
    column b   3 rows of 9              7 7 7   9 9 9
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lancelet.buffers import NO_RANGES, ByteRanges, ByteSlices, ReadCoroutine
from lancelet.encodings.base import FixedWidth, RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import Encoding
from lancelet.encodings.constant.value import fixed_value, parse_value, repeat_value
from lancelet.encodings.levels import LayerKind, Layers, Levels, check_levels, visible_validity
from lancelet.encodings.miniblock.read import levels_from_block
from lancelet.encodings.pages.layout import ConstantLayout
from lancelet.encodings.pages.leaf import LeafContext, LeafRows, Selection
from lancelet.encodings.pages.structural import PageReader
from lancelet.encodings.row_ranges import expand
from lancelet.errors import CorruptDataError

LEVELS_MAX = 1 << 32
"""Maximum accepted number of levels per page."""


class ConstantPage(PageReader):
    """Reads rows of a constant page."""

    def __init__(self, page: StoredPage, layout: ConstantLayout, leaf: LeafContext) -> None:
        """Validate the page message."""
        if layout.layers.rep_max and len(page.position) == 0:
            raise CorruptDataError(
                "a constant page of lists has no repetition levels", column=leaf.column
            )
        if _is_empty_struct(leaf.data_type) and not page.size.any() and not layout.layers.rep_max:
            # The reference writes a single layer for nested structs without children.
            layout = replace(layout, layers=_all_valid(len(leaf.path)))
        self._page = page
        self._layout = layout
        self._leaf = leaf

    def read(self, rows: Rows) -> ReadCoroutine[LeafRows]:
        """Read rows relative to the first row of the page."""
        page, layout = self._page, self._layout
        layers = layout.layers
        slices = ByteSlices(np.empty(0, np.uint8), NO_RANGES.position, NO_RANGES.size)
        if page.size.any():
            slices = yield ByteRanges(page.position[:3], page.size[:3])
        first = int(layout.has_value_buffer)
        repetition = self._levels(slices, first, layout.repetition, layout.num_repetition)
        definition = self._levels(slices, first + 1, layout.definition, layout.num_definition)
        if not layers.rep_max:
            repetition = None
        check_levels(layers, repetition, definition)
        entries = entries_of_rows(repetition, layers.rep_max, page.length, rows)
        num_entries = page.length if repetition is None else len(repetition)
        if definition is not None and len(definition) != num_entries:
            raise CorruptDataError(
                "the repetition and definition levels of a constant page differ in number",
                column=self._leaf.column,
                expected=num_entries,
                found=len(definition),
            )
        if repetition is not None:
            repetition = repetition[entries]
        if definition is not None:
            definition = definition[entries]
        values = self._values(slices, definition, _count(entries))
        return LeafRows(layers, repetition, definition, values)

    def _levels(
        self, slices: ByteSlices, index: int, encoding: Encoding | None, count: int
    ) -> Levels | None:
        if index >= len(slices) or not slices.size[index]:
            if count:
                raise CorruptDataError(
                    "levels are missing in a constant page", column=self._leaf.column, levels=count
                )
            return None
        data = slices.slice_bytes(index)
        if encoding is not None:
            if count > LEVELS_MAX:
                raise CorruptDataError("a page claims too many levels", levels=count)
            return levels_from_block(registry.decode_block(encoding, data, count))
        if len(data) % 2:
            raise CorruptDataError("levels must have 16 bits", bytes=len(data))
        return levels_from_block(FixedWidth(16, data, len(data) // 2))

    def _values(self, slices: ByteSlices, definition: Levels | None, num_entries: int) -> pa.Array:
        layers, data_type = self._layout.layers, self._leaf.data_type
        count = num_entries
        if definition is not None:
            count = int(np.count_nonzero(definition <= layers.visible_def_max))
        if self._layout.has_value_buffer:
            value = parse_value(slices.slice_bytes(0))
        elif self._layout.inline_value is not None:
            value = fixed_value(np.frombuffer(self._layout.inline_value, np.uint8))
        elif _is_empty_struct(data_type):
            # Empty structs are stored as all-null pages and decoded as valid.
            return pa.Array.from_buffers(data_type, count, [None])
        else:
            return pa.nulls(count, data_type)
        return repeat_value(value, data_type, count, visible_validity(layers, definition))


def entries_of_rows(
    repetition: Levels | None, rep_max: int, num_rows: int, rows: Rows
) -> Selection:
    """Return the entries of rows, from the repetition levels of the entire page."""
    if repetition is None:
        return slice(rows.start, rows.stop) if isinstance(rows, RowRange) else rows.rows
    starts = np.append(np.flatnonzero(repetition == rep_max), len(repetition))
    if len(starts) - 1 != num_rows or (len(repetition) and starts[0] != 0):
        raise CorruptDataError(
            "the repetition levels of a page do not match its rows",
            expected_rows=num_rows,
            found_rows=len(starts) - 1,
        )
    match rows:
        case RowRange(start, stop):
            return slice(int(starts[start]), int(starts[stop]))
        case RowIndices(indices):
            return expand(starts[indices], starts[indices + 1] - starts[indices])


def _is_empty_struct(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_struct(data_type)) and data_type.num_fields == 0


def _all_valid(count: int) -> Layers:
    return Layers.of([LayerKind.ALL_VALID_ITEM] * count)


def _count(entries: Selection) -> int:
    return entries.stop - entries.start if isinstance(entries, slice) else len(entries)
