"""Reads rows of pages with sparse structure: slots from the outside in, then their values.

    list<int?>, rows 1..3    list layer: lengths 0 1, children 2..3    validity of slot 2    value 2

On the way in, each layer turns the slots that are wanted into those of the next one and keeps
what it says of them; on the way out, arrays are wrapped around the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Ranges, Reading, read_together
from lancelet.encodings.base import RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.leaf import LeafContext, Picked
from lancelet.encodings.levels import (
    FixedListNode,
    LeafNode,
    ListNode,
    Path,
    StructNode,
    fixed_lists_around,
    lists_around,
    rows_multiple,
    struct_around,
)
from lancelet.encodings.structural import PageReader
from lancelet.encodings.v2_3.structure import (
    FixedListSet,
    Flags,
    ListSet,
    SparseLayers,
    ValiditySet,
    count_buffers,
    parse_structure,
)
from lancelet.encodings.v2_3.values import SparseValues
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings23_pb as pb
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class _Level:
    """What a layer says of the slots that were wanted: validity, and lengths of lists."""

    valid: Flags | None
    lengths: Int64s | None = None


class SparsePage(PageReader):
    """A page whose rows can be read."""

    def __init__(
        self,
        page: StoredPage,
        message: pb.SparseStructure,
        values: SparseValues,
        leaf: LeafContext,
        *,
        index: int,
    ) -> None:
        """Check the structure of a page, whose buffers follow those of its values."""
        self._message = message
        self._values = values
        self._leaf = leaf
        # The head of the values may be kept under the number of the page.
        self._key = (leaf.column, -1 - index)
        self._multiple = rows_multiple(leaf.path)
        self._num_rows = page.length // self._multiple
        first = values.num_buffers
        stop = first + count_buffers(message)
        if stop > len(page.position):
            raise CorruptDataError(
                "a page misses buffers of its structure",
                column=leaf.column,
                expected=stop,
                found=len(page.position),
            )
        self._ranges = Ranges(page.position[first:stop], page.size[first:stop])
        _check_path(leaf.path, message)

    def read(self, rows: Rows) -> Reading[pa.Array]:
        """Read rows of the page, counted from its first one."""
        layers, head = yield from read_together([self._read_layers(), self._values.read_head()])
        levels, slots = _descend(layers, _slots_of_rows(rows, self._multiple))
        values = yield from self._values.read(head, slots, levels[-1].valid, layers)
        return _ascend(self._leaf.path, levels, values)

    def _read_layers(self) -> Reading[SparseLayers]:
        memo = self._leaf.memo
        layers = None if memo is None else memo.get(self._key, SparseLayers)
        if layers is None:
            buffers: Sequence[Bytes] = ()
            if len(self._ranges):
                slices = yield self._ranges
                # Copies, for what is kept outlives a map that later reads check.
                buffers = [slices.slice_bytes(index).copy() for index in range(len(slices))]
            layers = parse_structure(self._message, self._num_rows, buffers)
            if memo is not None:
                memo.put(self._key, layers, value_bytes=layers.nbytes)
        return layers


def _check_path(path: Path, message: pb.SparseStructure) -> None:
    """Raise unless the layers are those of a leaf's path."""
    expected = [_layer_name(node) for node in path]
    found = [
        (name := layer.WhichOneof("layer"))
        + (str(layer.fixed_size_list.dimension) if name == "fixed_size_list" else "")
        for layer in message.layers
        if layer.WhichOneof("layer") is not None
    ]
    if found != expected:
        raise CorruptDataError(
            "the layers of a page are not those of the column's type",
            column=".".join(node.field.name for node in path),
            expected=expected,
            found=found,
        )


def _layer_name(node: LeafNode | StructNode | ListNode | FixedListNode) -> str:
    match node:
        case ListNode():
            return "list"
        case FixedListNode(dimension=dimension):
            return f"fixed_size_list{dimension}"
        case LeafNode() | StructNode():
            return "validity"
        case _:
            assert_never(node)


def _slots_of_rows(rows: Rows, multiple: int) -> Picked:
    """Return rows of a page as slots; lists of a fixed size count one for each of their items."""
    match rows:
        case RowRange(start, stop):
            return slice(start // multiple, stop // multiple)
        case RowIndices(indices):
            return indices[::multiple] // multiple


def _descend(layers: SparseLayers, picked: Picked) -> tuple[list[_Level], Picked]:
    """Return what each layer says of the wanted slots, and the slots of the values."""
    levels: list[_Level] = []
    valid: Flags | None = None
    for layer in layers.each:
        match layer:
            case ValiditySet():
                valid = _both(valid, layer.of(picked))
                levels.append(_Level(valid))
            case FixedListSet(dimension=dimension):
                valid = _both(valid, layer.validity.of(picked))
                levels.append(_Level(valid))
                valid = None if valid is None else np.repeat(valid, dimension)
                picked = layer.children(picked)
            case ListSet():
                valid = _both(valid, layer.validity.of(picked))
                lengths, picked = layer.lengths(picked)
                if valid is not None and lengths[~valid].any():
                    raise CorruptDataError("a null list has children")
                levels.append(_Level(valid, lengths))
                valid = None
            case _:
                assert_never(layer)
    return levels, picked


def _ascend(path: Path, levels: Sequence[_Level], values: pa.Array) -> pa.Array:
    """Wrap arrays around the values, from the inside out."""
    array = values
    outwards = zip(reversed(path[:-1]), reversed(path[1:]), reversed(levels[:-1]), strict=True)
    for node, inner, level in outwards:
        validity = None if level.valid is None else np.packbits(level.valid, bitorder="little")
        match node:
            case StructNode():
                array = struct_around(array, inner, validity)
            case FixedListNode(dimension=dimension):
                array = fixed_lists_around(array, dimension, validity)
            case ListNode():
                assert level.lengths is not None
                offsets = np.concatenate(([0], np.cumsum(level.lengths)))
                array = lists_around(array, node, offsets, validity)
            case LeafNode():
                raise AssertionError("a leaf is always the end of its path")
            case _:
                assert_never(node)
    return array


def _both(one: Flags | None, other: Flags | None) -> Flags | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
