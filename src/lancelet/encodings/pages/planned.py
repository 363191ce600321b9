"""Reads by column plans: one kernel call from a mapped file to Arrow buffers of many columns.

A plan stores the row-independent state of the pages read before. For the rows of a read, it finds
the chunks that hold any of them; each is decoded once, and a whole chunk directly into the result:

    plans     id: chunks at .., packed    name: chunks at .., zstd, FSST    vector: items at ..
    row 7     ----------------------------- one call ----------------------------->   3 arrays

Kernels decline unsupported layouts, rare encodings and damaged bytes. The column readers then read
the rows or report the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import NO_RANGES, ByteSlices, Int64s, ReadCoroutine
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.encodings.levels import FixedListNode, LeafNode, ListNode, Node, StructNode, paths
from lancelet.kernels import ColumnPlan, FetchedRanges, MappedFile
from lancelet.values import dataclass

_FIXED, _BITS, _STRINGS_32, _STRINGS_64 = range(4)

_STRING_BYTES: Final = 128
"""Estimated bytes per string of few rows, including the scratch space of decoding."""

_FEW_ROWS: Final = 1024
"""Up to this number of rows, the average size of strings is a poor estimate."""

_RECENT_BYTES_MAX: Final = 16 << 20
"""Maximum output size of few rows that is allocated because recent rows had as many bytes."""

_DENSE_BYTES_MAX: Final = 64 << 20
"""The same for many rows, whose sizes vary less."""

_COLUMN_BYTES: Final = 256
"""Maximum padding per column, in bytes."""

_FORMS_CACHED: Final = 1024

_NO_LAYERS: Final = 0b10
"""The layers of a column without enclosing nodes."""

_LAYERS_MAX: Final = 8
_ITEMS_GUESSED: Final = 8
"""Estimated number of items per list."""

_ROUNDS_MAX: Final = 3
"""Page heads are requested once; the rest is left to the column readers."""

_NO_SLICES: Final = ByteSlices(np.empty(0, np.uint8), NO_RANGES.position, NO_RANGES.size)

BufferOffsets: TypeAlias = tuple[int, ...]
"""Offsets of a column in the output buffer of a kernel; see `kernels.TakenRows`."""


@dataclass(frozen=True, slots=True)
class ValueLayout:
    """Memory layout of a type; `width` is the size of a value or offset in bytes.

    `numbers` are the kernel parameters of each column: here a single one without layers.
    """

    data_type: pa.DataType
    kind: int
    width: int
    is_text: bool
    numbers: tuple[tuple[int, ...], ...]
    row_bytes: int
    """Estimated bytes per row."""
    is_vector: bool
    """Whether values are fixed-size lists."""

    @staticmethod
    def of(data_type: pa.DataType, kind: int, width: int, *, is_text: bool = False) -> ValueLayout:
        """Return the layout of a type."""
        row_room = width + 1 + (_STRING_BYTES if kind >= _STRINGS_32 else 0)
        numbers = ((kind, width, int(is_text), _NO_LAYERS, 0),)
        is_vector = kind == _FIXED and data_type.num_fields > 0
        return ValueLayout(data_type, kind, width, is_text, numbers, row_room, is_vector)

    def to_arrow(
        self, data: pa.Buffer, num_rows: int, offsets: Sequence[BufferOffsets]
    ) -> pa.Array:
        """Return the rows that a kernel wrote into a buffer."""
        nulls, validity, values, strings, num_bytes, *_ = offsets[0]
        bits = data.slice(validity, (num_rows + 7) // 8) if nulls else None
        if self.kind == _FIXED:
            values_buffer = data.slice(values, num_rows * self.width)
            if self.is_vector:
                return _lists(self.data_type, num_rows, bits, values_buffer)
            buffers = [bits, values_buffer]
        elif self.kind == _BITS:
            buffers = [bits, data.slice(values, (num_rows + 7) // 8)]
        else:
            string_offsets = data.slice(values, (num_rows + 1) * self.width)
            buffers = [bits, string_offsets, data.slice(strings, num_bytes)]
        return pa.Array.from_buffers(self.data_type, num_rows, buffers, nulls)


@dataclass(frozen=True, slots=True, eq=False)
class NestedLayout:
    """Memory layout of a field with several columns or lists.

    The layers around a column are encoded as bits, innermost first: one is set for each list layer,
    with a bit above all of them; another number has bits for lists with 64-bit offsets.
    """

    node: Node
    leaves: tuple[ValueLayout, ...]
    numbers: tuple[tuple[int, ...], ...]
    is_vector = False

    @staticmethod
    def of(node: Node) -> NestedLayout | None:
        """Return the layout of a tree, or None if the kernels do not support it."""
        leaves: list[ValueLayout] = []
        numbers: list[tuple[int, ...]] = []
        for path in paths(node):
            leaf = path[-1]
            form = layout_of(leaf.data_type) if isinstance(leaf, LeafNode) else None
            if form is None or any(isinstance(each, FixedListNode) for each in path):
                return None
            layers = [*enumerate(reversed(path))]
            lists = sum(1 << depth for depth, each in layers if isinstance(each, ListNode))
            large = sum(
                1 << depth for depth, each in layers if pa.types.is_large_list(each.data_type)
            )
            if len(path) > _LAYERS_MAX:
                return None
            leaves.append(form)
            numbers.append((*form.numbers[0][:3], 1 << len(path) | lists, large))
        return NestedLayout(node, tuple(leaves), tuple(numbers))

    @property
    def row_bytes(self) -> int:
        """Estimated bytes per row."""
        return _ITEMS_GUESSED * sum(form.row_bytes for form in self.leaves)

    def to_arrow(
        self, data: pa.Buffer, num_rows: int, offsets: Sequence[BufferOffsets]
    ) -> pa.Array | None:
        """Return the rows in a buffer, or None if the columns have inconsistent layers."""
        leaves = [
            _BufferedLeaf(form, leaf_offsets, _layers(data, leaf_offsets, len(path) - 1))
            for form, leaf_offsets, path in zip(self.leaves, offsets, paths(self.node), strict=True)
        ]
        array = _assemble(self.node, leaves, data, 0)
        return array if array is not None and len(array) == num_rows else None


class _BufferedLeaf(NamedTuple):
    """A column in an output buffer: the offsets of its values and its layers, outermost first."""

    form: ValueLayout
    offsets: BufferOffsets
    layers: Sequence[Sequence[int]]


def _layers(data: pa.Buffer, offsets: BufferOffsets, count: int) -> list[list[int]]:
    """Return the number of values, of nulls, and the validity and offsets positions per layer."""
    numbers = np.frombuffer(data, np.int64, 4 * count, offsets[-1])
    layers: list[list[int]] = numbers.reshape(-1, 4)[::-1].tolist()
    return layers


def _assemble(
    node: Node, leaves: Sequence[_BufferedLeaf], data: pa.Buffer, depth: int
) -> pa.Array | None:
    """Return the array of a node from its columns, or None if they are inconsistent."""
    if isinstance(node, LeafNode):
        (leaf,) = leaves
        return leaf.form.to_arrow(data, leaf.offsets[-2], (leaf.offsets,))
    count, nulls, *_ = leaves[0].layers[depth]
    buffers = _buffers(node, leaves[0].layers[depth], data)
    for other in leaves[1:]:
        layer = other.layers[depth]
        if layer[:2] != [count, nulls] or _buffers(node, layer, data) != buffers:
            return None
    nodes = node.children if isinstance(node, StructNode) else (node.child,)
    children: list[pa.Array] = []
    for child in nodes:
        child_leaves = leaves[: sum(1 for _ in paths(child))]
        leaves = leaves[len(child_leaves) :]
        array = _assemble(child, child_leaves, data, depth + 1)
        if array is None or (isinstance(node, StructNode) and len(array) != count):
            return None
        children.append(array)
    return pa.Array.from_buffers(node.data_type, count, buffers, nulls, children=children)


def _buffers(node: Node, layer: Sequence[int], data: pa.Buffer) -> list[pa.Buffer | None]:
    count, nulls, validity, offsets = layer
    bits = data.slice(validity, (count + 7) // 8) if nulls else None
    if isinstance(node, StructNode):
        return [bits]
    width = 8 if pa.types.is_large_list(node.data_type) else 4
    return [bits, data.slice(offsets, (count + 1) * width)]


@lru_cache(_FORMS_CACHED)
def layout_of(data_type: pa.DataType) -> ValueLayout | None:
    """Return the memory layout of a type, or `None` if it needs more than one value buffer.

    >>> layout_of(pa.list_(pa.float32(), 128)).numbers
    ((0, 512, 0, 2, 0),)
    """
    types = pa.types
    if types.is_boolean(data_type):
        return ValueLayout.of(data_type, _BITS, 0)
    if types.is_string(data_type) or types.is_binary(data_type):
        return ValueLayout.of(data_type, _STRINGS_32, 4, is_text=types.is_string(data_type))
    if types.is_large_string(data_type) or types.is_large_binary(data_type):
        return ValueLayout.of(data_type, _STRINGS_64, 8, is_text=types.is_large_string(data_type))
    if types.is_fixed_size_list(data_type):
        items = layout_of(data_type.value_type)
        width = 0 if items is None or items.kind != _FIXED else data_type.list_size * items.width
        return ValueLayout.of(data_type, _FIXED, width) if width else None
    if types.is_primitive(data_type) or types.is_decimal(data_type):
        return ValueLayout.of(data_type, _FIXED, data_type.bit_width // 8)
    if types.is_fixed_size_binary(data_type) and data_type.byte_width:
        return ValueLayout.of(data_type, _FIXED, data_type.byte_width)
    return None


class PlannedRows(NamedTuple):
    """Arrays of fields with read statistics; None for fields to be read without a plan."""

    arrays: Sequence[pa.Array | None]
    num_ranges: int
    num_bytes: int
    learned: int


@dataclass(frozen=True, slots=True, eq=False)
class PlannedField:
    """A field whose columns have plans."""

    layout: ValueLayout | NestedLayout
    plans: Sequence[ColumnPlan]

    @property
    def data_type(self) -> pa.DataType:
        """The type of its values."""
        layout = self.layout
        return layout.data_type if isinstance(layout, ValueLayout) else layout.node.data_type

    @property
    def encoded_bytes(self) -> int:
        """The size of its pages."""
        return sum(plan.stored_bytes for plan in self.plans)

    @property
    def mean_row_bytes(self) -> int:
        """Estimated bytes per row of many rows."""
        if isinstance(self.layout, ValueLayout) and self.layout.kind < _STRINGS_32:
            return self.layout.row_bytes
        stored = 3 * self.encoded_bytes // max(1, self.plans[0].num_rows)
        return min(self.layout.row_bytes, stored + 16 * len(self.plans))


class PlannedColumns:
    """Fields of a file that are read together."""

    def __init__(self, fields: Sequence[PlannedField]) -> None:
        """Use the plans of the fields."""
        self._used: list[tuple[ValueLayout | NestedLayout, slice]] = []
        self._plans: list[ColumnPlan] = []
        for field in fields:
            start = len(self._plans)
            self._plans += field.plans
            self._used.append((field.layout, slice(start, len(self._plans))))
        self._row_bytes = sum(layout.row_bytes for layout, _ in self._used)
        self._mean_row_bytes = sum(field.mean_row_bytes for field in fields)
        self._recent_row_bytes = 0

    def read(self, file: MappedFile, rows: Rows) -> PlannedRows | None:
        """Return rows of a mapped file, in any order, or None to use the column readers.

        At least one row is required, and all must be within bounds.
        """
        return self._take(file, _numbers(rows), rows)

    def read_ranges(self, rows: Rows) -> ReadCoroutine[PlannedRows | None]:
        """Read the same from byte ranges: those of unknown page heads, then those of the rows."""
        numbers, is_range, learned = _numbers(rows), isinstance(rows, RowRange), 0
        for _ in range(_ROUNDS_MAX):
            is_head, ranges = kernels.find_ranges(numbers, self._plans, is_range=is_range)
            slices = (yield ranges) if len(ranges) else _NO_SLICES
            fetched = FetchedRanges(ranges, slices)
            if is_head:
                learned += kernels.add_heads(fetched, numbers, self._plans, is_range=is_range)
                continue
            taken = self._take(fetched, numbers, rows)
            return None if taken is None else taken._replace(learned=learned)
        return None

    def _take(
        self, file: MappedFile | FetchedRanges, numbers: Int64s, rows: Rows
    ) -> PlannedRows | None:
        count, is_range = len(rows), isinstance(rows, RowRange)
        recent_max = _RECENT_BYTES_MAX if count <= _FEW_ROWS else _DENSE_BYTES_MAX
        recent = min(self._recent_row_bytes * (count + 1), recent_max)
        mean = self._row_bytes if count <= _FEW_ROWS else 0 if recent else self._mean_row_bytes
        capacity = _COLUMN_BYTES * len(self._plans) + max(mean * (count + 1), recent)
        taken = kernels.take_rows(file, numbers, self._plans, capacity, is_range=is_range)
        if taken is None:
            return None
        # Long strings would otherwise be read twice, as the output is too small at first.
        self._recent_row_bytes = len(taken.data) * 9 // (8 * count) + 1
        data = pa.py_buffer(taken.data)
        arrays: list[pa.Array | None] = []
        for form, columns in self._used:
            own = taken.outputs[columns]
            offsets = None if None in own else cast("Sequence[BufferOffsets]", own)
            arrays.append(None if offsets is None else form.to_arrow(data, count, offsets))
        return PlannedRows(arrays, taken.num_ranges, taken.num_bytes, taken.bytes_added)


def _numbers(rows: Rows) -> Int64s:
    """Return row indices, or the first row of a range and the number of rows."""
    return rows.rows if isinstance(rows, RowIndices) else np.array([rows.start, len(rows)])


def _lists(data_type: pa.DataType, count: int, bits: pa.Buffer | None, values: pa.Buffer) -> Any:
    """Return nested fixed-size lists over an item buffer."""
    items, each = count * data_type.list_size, data_type.value_type
    if each.num_fields:
        children = [_lists(each, items, None, values)]
    else:
        children = [pa.Array.from_buffers(each, items, [None, values], 0)]
    return pa.Array.from_buffers(data_type, count, [bits], children=children)
