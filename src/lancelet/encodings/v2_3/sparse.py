"""Reader of pages with sparse structure: slots from the outside in, then values.

    list<int?>, rows 1..3    list layer: lengths 0 1, children 2..3    validity of slot 2    value 2

Descending, each layer converts the requested slots to those of the next layer and records their
validity and lengths; ascending, the values are wrapped in structs and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import numpy as np
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine, read_together
from lancelet.encodings.base import RowIndices, RowRange, Rows, StoredPage
from lancelet.encodings.levels import (
    FixedListNode,
    LeafNode,
    ListNode,
    Path,
    StructNode,
    rows_multiple,
    wrap_in_fixed_lists,
    wrap_in_lists,
    wrap_in_struct,
)
from lancelet.encodings.pages.leaf import LeafContext, Selection
from lancelet.encodings.pages.structural import PageReader
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
    """Validity and list lengths of the requested slots of a layer."""

    valid: Flags | None
    lengths: Int64s | None = None


class SparsePage(PageReader):
    """Reads rows of a page with sparse structure."""

    def __init__(
        self,
        page: StoredPage,
        message: pb.SparseStructure,
        values: SparseValues,
        leaf: LeafContext,
        *,
        index: int,
    ) -> None:
        """Validate the structure of a page; its buffers follow those of the values."""
        self._message = message
        self._values = values
        self._leaf = leaf
        # The non-negative page index is the cache key of the value metadata.
        self._key = (leaf.column, -1 - index)
        self._multiple = rows_multiple(leaf.path)
        self._num_rows = page.length // self._multiple
        first = values.num_buffers
        stop = first + count_buffers(message)
        if stop > len(page.position):
            raise CorruptDataError(
                "buffers of the structure are missing in a page",
                column=leaf.column,
                expected=stop,
                found=len(page.position),
            )
        self._ranges = ByteRanges(page.position[first:stop], page.size[first:stop])
        _check_path(leaf.path, message)

    def read(self, rows: Rows) -> ReadCoroutine[pa.Array]:
        """Read rows relative to the first row of the page."""
        layers, metadata = yield from read_together(
            [self._read_layers(), self._values.read_metadata()]
        )
        levels, slots = _descend(layers, _to_slots(rows, self._multiple))
        values = yield from self._values.read(metadata, slots, levels[-1].valid, layers)
        return _ascend(self._leaf.path, levels, values)

    def _read_layers(self) -> ReadCoroutine[SparseLayers]:
        header_cache = self._leaf.header_cache
        layers = None if header_cache is None else header_cache.get(self._key, SparseLayers)
        if layers is None:
            buffers: Sequence[Bytes] = ()
            if len(self._ranges):
                slices = yield self._ranges
                # Copies, since cached buffers outlive the memory map.
                buffers = [slices.slice_bytes(index).copy() for index in range(len(slices))]
            layers = parse_structure(self._message, self._num_rows, buffers)
            if header_cache is not None:
                header_cache.put(self._key, layers, value_bytes=layers.nbytes)
        return layers


def _check_path(path: Path, message: pb.SparseStructure) -> None:
    """Raise unless the layers match the path of the leaf."""
    path_layers = [_layer_name(node) for node in path]
    page_layers = [
        (name := layer.WhichOneof("layer"))
        + (str(layer.fixed_size_list.dimension) if name == "fixed_size_list" else "")
        for layer in message.layers
        if layer.WhichOneof("layer") is not None
    ]
    if page_layers != path_layers:
        raise CorruptDataError(
            "the layers of a page do not match the column type",
            column=".".join(node.field.name for node in path),
            expected=path_layers,
            found=page_layers,
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


def _to_slots(rows: Rows, multiple: int) -> Selection:
    """Convert page rows to slots; fixed-size lists count a row per item."""
    match rows:
        case RowRange(start, stop):
            return slice(start // multiple, stop // multiple)
        case RowIndices(indices):
            return indices[::multiple] // multiple


def _descend(layers: SparseLayers, slots: Selection) -> tuple[list[_Level], Selection]:
    """Return the requested slots of each layer, and those of the values."""
    levels: list[_Level] = []
    valid: Flags | None = None
    for layer in layers.each:
        match layer:
            case ValiditySet():
                valid = _intersect(valid, layer.get_validity(slots))
                levels.append(_Level(valid))
            case FixedListSet(dimension=dimension):
                valid = _intersect(valid, layer.validity.get_validity(slots))
                levels.append(_Level(valid))
                valid = None if valid is None else np.repeat(valid, dimension)
                slots = layer.children(slots)
            case ListSet():
                valid = _intersect(valid, layer.validity.get_validity(slots))
                lengths, slots = layer.lengths(slots)
                if valid is not None and lengths[~valid].any():
                    raise CorruptDataError("a null list has children")
                levels.append(_Level(valid, lengths))
                valid = None
            case _:
                assert_never(layer)
    return levels, slots


def _ascend(path: Path, levels: Sequence[_Level], values: pa.Array) -> pa.Array:
    """Wrap the values in structs and lists, from the inside out."""
    array = values
    outwards = zip(reversed(path[:-1]), reversed(path[1:]), reversed(levels[:-1]), strict=True)
    for node, inner, level in outwards:
        validity = None if level.valid is None else np.packbits(level.valid, bitorder="little")
        match node:
            case StructNode():
                array = wrap_in_struct(array, inner, validity)
            case FixedListNode(dimension=dimension):
                array = wrap_in_fixed_lists(array, dimension, validity)
            case ListNode():
                assert level.lengths is not None
                offsets = np.concatenate(([0], np.cumsum(level.lengths)))
                array = wrap_in_lists(array, node, offsets, validity)
            case LeafNode():
                raise AssertionError("a leaf must be the end of its path")
            case _:
                assert_never(node)
    return array


def _intersect(first: Flags | None, other: Flags | None) -> Flags | None:
    if first is None or other is None:
        return other if first is None else first
    return first & other
