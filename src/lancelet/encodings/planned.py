"""A few rows of columns by their plans, from the map of a file to Arrow in one call of a kernel.

A take of one row is a chain of array operations for every column: find the chunk, find its parts,
unpack or decompress, pick. Each of them costs more than the value. A plan has found out, of the
pages that were touched before, all that does not depend on the row, and a kernel does the rest:

    plans     id: chunks at .., packed    name: chunks at .., zstd, FSST    vector: items at ..
    row 7     ----------------------------- one call ----------------------------->   3 arrays

A kernel declines what it does not know: pages that are laid out otherwise, encodings that are rare,
bytes that are damaged. Then the readers of the columns read the rows, or find out what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet import kernels
from lancelet.buffers import Int64s
from lancelet.encodings.levels import FixedListNode, LeafNode, ListNode, Node, StructNode, paths
from lancelet.kernels import ColumnPlan, MappedFile
from lancelet.values import dataclass

ROWS_MAX: Final = 256
"""Of more rows, so much is decoded that what it takes to get there does not matter; and rows that
are in no order come back to chunks, which the kernel decodes again."""

RANGE_MAX: Final = 1024
"""Rows that follow each other do not, and take half as long up to here."""

_FIXED, _BITS, _STRINGS_32, _STRINGS_64 = range(4)

_STRING_BYTES: Final = 128
"""A guess of what a string takes, with what decoding it needs beside."""

_COLUMN_BYTES: Final = 32
"""What padding takes at most."""

_FORMS_KEPT: Final = 1024

_ALONE: Final = 0b10
"""The path of a column around which nothing is."""

_LAYERS_MAX: Final = 8
_ITEMS_GUESSED: Final = 8
"""So many items a row of lists is guessed to have."""

Place: TypeAlias = tuple[int, ...]
"""Where a kernel put the values of a column; see `kernels.TakenRows`."""


@dataclass(frozen=True, slots=True)
class Form:
    """What values of a type are in memory; `width` are the bytes of one, or of an offset.

    `numbers` are what kernels are told of each column: it is one, around which nothing is.
    """

    data_type: pa.DataType
    kind: int
    width: int
    is_text: bool
    numbers: tuple[tuple[int, ...], ...]
    row_room: int
    """A guess of how many bytes a row takes."""

    @staticmethod
    def of(data_type: pa.DataType, kind: int, width: int, *, is_text: bool = False) -> Form:
        """Return the form of a type."""
        row_room = width + 1 + (_STRING_BYTES if kind >= _STRINGS_32 else 0)
        numbers = ((kind, width, int(is_text), _ALONE, 0),)
        return Form(data_type, kind, width, is_text, numbers, row_room)

    def to_arrow(self, data: pa.Buffer, num_rows: int, places: Sequence[Place]) -> pa.Array:
        """Return the rows that a kernel put into a buffer, at a place."""
        nulls, validity, values, strings, num_bytes, *_ = places[0]
        bits = data.slice(validity, (num_rows + 7) // 8) if nulls else None
        if self.kind == _FIXED:
            held = data.slice(values, num_rows * self.width)
            if self.data_type.num_fields:
                return _lists(self.data_type, num_rows, bits, held)
            buffers = [bits, held]
        elif self.kind == _BITS:
            buffers = [bits, data.slice(values, (num_rows + 7) // 8)]
        else:
            offsets = data.slice(values, (num_rows + 1) * self.width)
            buffers = [bits, offsets, data.slice(strings, num_bytes)]
        return pa.Array.from_buffers(self.data_type, num_rows, buffers, nulls)


@dataclass(frozen=True, slots=True, eq=False)
class NestedForm:
    """What values of a field of several columns, or in lists, are in memory.

    A column within layers is told by bits, from its values outwards: set for each layer of lists,
    with a bit above all of them; and the same, set where offsets of lists have 64 bits.
    """

    node: Node
    leaves: tuple[Form, ...]
    numbers: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(node: Node) -> NestedForm | None:
        """Return the form of a tree, or None if kernels do not know it."""
        leaves: list[Form] = []
        numbers: list[tuple[int, ...]] = []
        for path in paths(node):
            leaf = path[-1]
            form = form_of(leaf.data_type) if isinstance(leaf, LeafNode) else None
            if form is None or any(isinstance(each, FixedListNode) for each in path):
                return None
            layers = [*enumerate(reversed(path))]
            lists = sum(1 << at for at, each in layers if isinstance(each, ListNode))
            large = sum(1 << at for at, each in layers if pa.types.is_large_list(each.data_type))
            if len(path) > _LAYERS_MAX:
                return None
            leaves.append(form)
            numbers.append((*form.numbers[0][:3], 1 << len(path) | lists, large))
        return NestedForm(node, tuple(leaves), tuple(numbers))

    @property
    def row_room(self) -> int:
        """A guess of how many bytes a row takes."""
        return _ITEMS_GUESSED * sum(form.row_room for form in self.leaves)

    def to_arrow(self, data: pa.Buffer, num_rows: int, places: Sequence[Place]) -> pa.Array | None:
        """Return the rows at places, or None if the columns do not agree on what is around them."""
        leaves = [
            _PlacedLeaf(form, place, _layers(data, place, len(path) - 1))
            for form, place, path in zip(self.leaves, places, paths(self.node), strict=True)
        ]
        found = _assembled(self.node, leaves, data, 0)
        return found if found is not None and len(found) == num_rows else None


class _PlacedLeaf(NamedTuple):
    """A column of a field: where its values are, and the layers around them, outermost first."""

    form: Form
    place: Place
    layers: Sequence[Sequence[int]]


def _layers(data: pa.Buffer, place: Place, count: int) -> list[list[int]]:
    """Return the number of values, of nulls, and where validity and offsets are, of each layer."""
    words = np.frombuffer(data, np.int64, 4 * count, place[-1])
    layers: list[list[int]] = words.reshape(-1, 4)[::-1].tolist()
    return layers


def _assembled(
    node: Node, leaves: Sequence[_PlacedLeaf], data: pa.Buffer, depth: int
) -> pa.Array | None:
    """Return the array of a node from its columns, or None if these do not agree."""
    if isinstance(node, LeafNode):
        (leaf,) = leaves
        return leaf.form.to_arrow(data, leaf.place[-2], (leaf.place,))
    count, nulls, *_ = leaves[0].layers[depth]
    buffers = _buffers(node, leaves[0].layers[depth], data)
    for other in leaves[1:]:
        own = other.layers[depth]
        if own[:2] != [count, nulls] or _buffers(node, own, data) != buffers:
            return None
    nodes = node.children if isinstance(node, StructNode) else (node.child,)
    children: list[pa.Array] = []
    for child in nodes:
        own_leaves = leaves[: sum(1 for _ in paths(child))]
        leaves = leaves[len(own_leaves) :]
        array = _assembled(child, own_leaves, data, depth + 1)
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


@lru_cache(_FORMS_KEPT)
def form_of(data_type: pa.DataType) -> Form | None:
    """Return what values of a type are in memory, or `None` if they are more than one buffer.

    >>> form_of(pa.list_(pa.float32(), 128)).numbers
    ((0, 512, 0, 2, 0),)
    """
    types = pa.types
    if types.is_boolean(data_type):
        return Form.of(data_type, _BITS, 0)
    if types.is_string(data_type) or types.is_binary(data_type):
        return Form.of(data_type, _STRINGS_32, 4, is_text=types.is_string(data_type))
    if types.is_large_string(data_type) or types.is_large_binary(data_type):
        return Form.of(data_type, _STRINGS_64, 8, is_text=types.is_large_string(data_type))
    if types.is_fixed_size_list(data_type):
        items = form_of(data_type.value_type)
        width = 0 if items is None or items.kind != _FIXED else data_type.list_size * items.width
        return Form.of(data_type, _FIXED, width) if width else None
    if types.is_primitive(data_type) or types.is_decimal(data_type):
        return Form.of(data_type, _FIXED, data_type.bit_width // 8)
    if types.is_fixed_size_binary(data_type) and data_type.byte_width:
        return Form.of(data_type, _FIXED, data_type.byte_width)
    return None


class FoundRows(NamedTuple):
    """The rows of columns, and what was read for them; None is to be read in the general way."""

    arrays: Sequence[pa.Array | None]
    num_ranges: int
    num_bytes: int
    learned: int


class PlannedColumns:
    """Fields of a file that are read together; those without plans are left to others."""

    def __init__(
        self,
        forms: Sequence[Form | NestedForm | None],
        plans: Sequence[Sequence[ColumnPlan | None]],
    ) -> None:
        """Take the plans of the columns of each field, in the order of the forms."""
        self._used: list[tuple[Form | NestedForm, slice]] = []
        self._missing: list[int] = []
        self._plans: list[ColumnPlan] = []
        for place, (form, columns) in enumerate(zip(forms, plans, strict=True)):
            own = [plan for plan in columns if plan is not None]
            if form is None or len(own) < len(columns):
                self._missing.append(place)
                continue
            start = len(self._plans)
            self._plans += own
            self._used.append((form, slice(start, len(self._plans))))
        self._row_room = sum(form.row_room for form, _ in self._used)

    def read(self, file: MappedFile, rows: Int64s) -> FoundRows | None:
        """Return rows in any order, or None if they are to be read in the general way.

        All of them are rows that the fields have.
        """
        if not self._plans:
            return None
        count = len(rows)
        room = _COLUMN_BYTES * len(self._plans) + self._row_room * (count + 1)
        found = kernels.take_rows(file, rows, self._plans, room)
        if found is None:
            return None
        data = pa.py_buffer(found.data)
        arrays: list[pa.Array | None] = []
        for form, own in self._used:
            places = [place for place in found.places[own] if place is not None]
            is_whole = len(places) == own.stop - own.start
            arrays.append(form.to_arrow(data, count, places) if is_whole else None)
        for place in self._missing:
            arrays.insert(place, None)
        return FoundRows(arrays, found.num_ranges, found.num_bytes, found.learned)


def _lists(data_type: pa.DataType, count: int, bits: pa.Buffer | None, values: pa.Buffer) -> Any:
    """Return lists of a fixed size, at any depth, over the bytes of their items."""
    items, each = count * data_type.list_size, data_type.value_type
    if each.num_fields:
        children = [_lists(each, items, None, values)]
    else:
        children = [pa.Array.from_buffers(each, items, [None, values], 0)]
    return pa.Array.from_buffers(data_type, count, [bits], children=children)
