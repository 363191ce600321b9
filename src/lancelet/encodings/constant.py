"""Constant pages: every value is null, or every value is the same, and only levels are stored.

    page of 5 nulls                        nothing
    page of [7, 7, null], value 07000000   definition 0 0 1
    page of [[null], [], null]             repetition 1 1 1, definition 1 3 2

A value of up to 32 bytes is in the message. A longer one, and any string, is in a buffer before
those of the levels: the number of its Arrow buffers, their sizes, and the buffers themselves.

    "abc"     02 00 00 00   08 00 00 00  03 00 00 00   offsets 0 3   "abc"

Levels are whole buffers, so reading some rows reads them all; they are small.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from lancelet.buffers import NO_RANGES, Bytes, Ranges, Reading, Slices
from lancelet.encodings import registry
from lancelet.encodings.arrow import arrow_from_block
from lancelet.encodings.base import (
    FixedWidth,
    RowIndices,
    RowRange,
    Rows,
    StoredPage,
    Variable,
)
from lancelet.encodings.codecs.base import EncodedBlock, Encoding
from lancelet.encodings.leaf import LeafContext, LeafRows, Picked, values_at
from lancelet.encodings.levels import (
    Layers,
    Levels,
    ShreddedLeaf,
    check_levels,
    visible_validity,
)
from lancelet.encodings.miniblock.read import levels_from_block
from lancelet.encodings.miniblock.write import encode_levels
from lancelet.encodings.spans import expand
from lancelet.errors import CorruptDataError

INLINE_BYTES_MAX = 32
"""The longest value that is kept in the message."""

LEVELS_MAX = 1 << 32
"""The most levels that a page is believed to have."""


@dataclass(frozen=True, slots=True, eq=False)
class ConstantLayout:
    """A constant page as its message describes it, whatever the generation.

    With neither an `inline_value` nor a buffer for it, everything is null. Levels without an
    encoding are plain numbers.
    """

    layers: Layers
    inline_value: bytes | None
    has_value_buffer: bool = False
    repetition: Encoding | None = None
    definition: Encoding | None = None
    num_repetition: int = 0
    num_definition: int = 0


class ConstantPage:
    """A page whose rows can be read."""

    def __init__(self, page: StoredPage, layout: ConstantLayout, leaf: LeafContext) -> None:
        """Check the message of a page."""
        if layout.layers.rep_max and len(page.position) == 0:
            raise CorruptDataError(
                "a constant page of lists has no repetition levels", column=leaf.column
            )
        self._page = page
        self._layout = layout
        self._leaf = leaf

    def read(self, rows: Rows) -> Reading[LeafRows]:
        """Read rows of the page, counted from its first one."""
        page, layout = self._page, self._layout
        layers = layout.layers
        slices = Slices(np.empty(0, np.uint8), NO_RANGES.position, NO_RANGES.size)
        if page.size.any():
            slices = yield Ranges(page.position[:3], page.size[:3])
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
                "the levels of a constant page differ in number",
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

    def encoded_bytes(self, rows: RowRange) -> int:
        """Return the bytes of the levels."""
        del rows
        return int(self._page.size.sum())

    def _levels(
        self, slices: Slices, index: int, encoding: Encoding | None, count: int
    ) -> Levels | None:
        if index >= len(slices) or not slices.size[index]:
            if count:
                raise CorruptDataError(
                    "a constant page misses levels", column=self._leaf.column, levels=count
                )
            return None
        data = slices.slice_bytes(index)
        if encoding is not None:
            if count > LEVELS_MAX:
                raise CorruptDataError("a page claims too many levels", levels=count)
            return levels_from_block(registry.decode_block(encoding, data, count))
        if len(data) % 2:
            raise CorruptDataError("levels are not numbers of 16 bits", bytes=len(data))
        return levels_from_block(FixedWidth(16, data, len(data) // 2))

    def _values(self, slices: Slices, definition: Levels | None, num_entries: int) -> pa.Array:
        layers, data_type = self._layout.layers, self._leaf.data_type
        count = num_entries
        if definition is not None:
            count = int(np.count_nonzero(definition <= layers.visible_def_max))
        if self._layout.has_value_buffer:
            one = parse_value(slices.slice_bytes(0))
        elif self._layout.inline_value is not None:
            one = fixed_value(np.frombuffer(self._layout.inline_value, np.uint8))
        elif pa.types.is_struct(data_type):
            # A struct without children is written as if it were null, and never is.
            return pa.Array.from_buffers(data_type, count, [None])
        else:
            return pa.nulls(count, data_type)
        return repeated(one, data_type, count, visible_validity(layers, definition))


def build_constant(
    leaf: ShreddedLeaf, value: FixedWidth | Variable | None, *, has_level_encodings: bool
) -> tuple[ConstantLayout, tuple[Bytes, ...]]:
    """Return the layout and the buffers of a page whose valid slots all hold `value`, if any.

    `has_level_encodings` says whether the file version knows encoded levels here.
    """
    layout = ConstantLayout(leaf.layers, None)
    buffers: list[Bytes] = []
    repetition, definition = leaf.repetition, leaf.definition
    if value is None and leaf.layers.def_max == 1 and repetition is None:
        return layout, ()
    if isinstance(value, FixedWidth) and len(value.data) <= INLINE_BYTES_MAX:
        layout = replace(layout, inline_value=value.data.tobytes())
    elif value is not None:
        layout = replace(layout, has_value_buffer=True)
        buffers.append(build_value(value))
    if repetition is None and definition is None:
        return layout, tuple(buffers)
    if repetition is not None:
        encoded = _smaller(repetition, has_level_encodings=has_level_encodings)
        buffers.append(repetition.view(np.uint8) if encoded is None else encoded.data)
        if encoded is not None:
            layout = replace(layout, repetition=encoded.encoding, num_repetition=len(repetition))
    else:
        buffers.append(np.empty(0, np.uint8))
    if definition is not None:
        encoded = _smaller(definition, has_level_encodings=has_level_encodings)
        buffers.append(definition.view(np.uint8) if encoded is None else encoded.data)
        if encoded is not None:
            layout = replace(layout, definition=encoded.encoding, num_definition=len(definition))
    else:
        buffers.append(np.empty(0, np.uint8))
    return layout, tuple(buffers)


def _smaller(levels: Levels, *, has_level_encodings: bool) -> EncodedBlock | None:
    """Return levels encoded, or `None` if plain numbers take no more."""
    if not has_level_encodings:
        return None
    count = np.array([len(levels)], np.int64)
    encoded = encode_levels(levels, count, has_run_lengths=True)
    if int(encoded.slices.size[0]) >= levels.nbytes:
        return None
    return EncodedBlock(encoded.encoding, encoded.slices.slice_bytes(0))


def entries_of_rows(repetition: Levels | None, rep_max: int, num_rows: int, rows: Rows) -> Picked:
    """Return the entries of rows, given the levels of a whole page."""
    if repetition is None:
        return slice(rows.start, rows.stop) if isinstance(rows, RowRange) else rows.rows
    starts = np.append(np.flatnonzero(repetition == rep_max), len(repetition))
    if len(starts) - 1 != num_rows or (len(repetition) and starts[0] != 0):
        raise CorruptDataError(
            "the repetition levels of a page do not have its rows",
            expected_rows=num_rows,
            found_rows=len(starts) - 1,
        )
    match rows:
        case RowRange(start, stop):
            return slice(int(starts[start]), int(starts[stop]))
        case RowIndices(indices):
            return expand(starts[indices], starts[indices + 1] - starts[indices])


def fixed_value(value: Bytes) -> FixedWidth:
    """Return the bytes of a value of fixed width as a block of one."""
    return FixedWidth(8 * len(value), value, 1)


def parse_value(data: Bytes) -> FixedWidth | Variable:
    """Read a value from its buffer, as a block of one."""
    words = np.frombuffer(data[:12].tobytes().ljust(12, b"\0"), "<u4")
    num_buffers = int(words[0])
    sizes = words[1 : 1 + num_buffers].astype(np.int64)
    start = 4 * (1 + num_buffers)
    if num_buffers not in (1, 2) or start + int(sizes.sum()) > len(data):
        raise CorruptDataError(
            "the value of a constant page is cut short", bytes=len(data), buffers=num_buffers
        )
    first = data[start : start + int(sizes[0])]
    if num_buffers == 1:
        return fixed_value(first)
    if len(first) not in (8, 16):
        raise CorruptDataError("a string has two offsets", bytes=len(first))
    offsets = np.frombuffer(first.tobytes(), f"<i{len(first) // 2}")
    if int(offsets[0]) != 0 or int(offsets[1]) != int(sizes[1]):
        raise CorruptDataError("the offsets of a string are not its own", bytes=int(sizes[1]))
    return Variable(offsets, data[start + len(first) : start + int(sizes.sum())])


def build_value(block: FixedWidth | Variable) -> Bytes:
    """Return the buffer of a block of one value: the inverse of `parse_value`."""
    if isinstance(block, FixedWidth):
        parts = [block.data]
    else:
        offsets = block.offsets - block.offsets[0]
        parts = [offsets.view(np.uint8), block.data[int(block.offsets[0]) : int(block.offsets[1])]]
    head = np.array([len(parts), *(len(part) for part in parts)], "<u4")
    return np.concatenate([head.view(np.uint8), *parts])


def repeated(
    one: FixedWidth | Variable, data_type: pa.DataType, count: int, validity: Bytes | None
) -> pa.Array:
    """Return `count` times a value that is given as a block of one.

    >>> repeated(fixed_value(np.array([7, 0], np.uint8)), pa.int16(), 2, None).to_pylist()
    [7, 7]
    """
    if isinstance(one, Variable):
        value = arrow_from_block(one, data_type, None)
        indices = np.zeros(count, np.int64)
        return values_at(value, indices, validity)
    if pa.types.is_boolean(data_type):
        fill = 0xFF if one.data[:1].any() else 0
        data = np.full((count + 7) // 8, fill, np.uint8)
        return arrow_from_block(FixedWidth(1, data, count), data_type, validity)
    return arrow_from_block(
        FixedWidth(one.bits, np.tile(one.data, count), count), data_type, validity
    )


def _count(entries: Picked) -> int:
    return entries.stop - entries.start if isinstance(entries, slice) else len(entries)
