"""From levels back to nested arrays, from the inside out, and siblings back together.

Each leaf is first rebuilt as if its field had only that leaf; then the leaves of a field, which
repeat the same lists and structs around them, are merged into one array:

    list<struct<x>>  +  list<struct<y>>  ->  list<struct<x, y>>

Levels come from storage. An array that leaves here is sound: offsets ascend and end at the number
of items, and siblings have the same lengths and the same lists, or it is `CorruptDataError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s
from lancelet.encodings.levels.layers import Layer, Layers
from lancelet.encodings.levels.nesting import (
    FixedListNode,
    LeafNode,
    ListNode,
    Node,
    Path,
    StructNode,
    paths,
)
from lancelet.errors import ArrayOverflowError, CorruptDataError
from lancelet.kernels import Levels, pack_validity, unravel_list

Flags: TypeAlias = npt.NDArray[np.bool_]

_INT32_MAX = (1 << 31) - 1


def check_levels(layers: Layers, repetition: Levels | None, definition: Levels | None) -> None:
    """Raise unless levels are among those that the layers define and agree in number."""
    for name, levels, most in (
        ("repetition", repetition, layers.rep_max),
        ("definition", definition, layers.def_max),
    ):
        if levels is not None and len(levels) and int(levels.max()) > most:
            raise CorruptDataError(
                f"a {name} level is not among those of the page's layers",
                found=int(levels.max()),
                most=most,
            )
    if repetition is not None and definition is not None and len(repetition) != len(definition):
        raise CorruptDataError(
            "repetition and definition levels differ in number",
            repetition=len(repetition),
            definition=len(definition),
        )


def check_layers(path: Path, layers: Layers) -> None:
    """Raise unless the layers of a page are those of a leaf's path."""
    expected = [isinstance(node, ListNode) for node in reversed(path)]
    if [kind.is_list for kind in layers.kinds] != expected:
        raise CorruptDataError(
            "the layers of a page are not those of the column's type",
            column=".".join(node.field.name for node in path),
            layers=[kind.name for kind in layers.kinds],
        )


def visible_validity(layers: Layers, definition: Levels | None) -> Bytes | None:
    """Return a bitmap of which value slots hold a value, or `None` if the leaf has no nulls."""
    if definition is None or not layers.each[0].null_def:
        return None
    bits, _ = pack_validity(definition, slot_max=layers.visible_def_max, valid_max=0)
    return bits


def unravel(
    path: Path,
    layers: Layers,
    *,
    repetition: Levels | None,
    definition: Levels | None,
    values: pa.Array,
) -> pa.Array:
    """Return the array of a field that has only the leaf at the end of `path`.

    `values` are the visible slots, with the leaf's own nulls.
    """
    array, list_level = values, 0
    outwards = zip(reversed(path[:-1]), reversed(path[1:]), layers.each[1:], strict=True)
    for node, inner, layer in outwards:
        match node:
            case StructNode():
                validity = _slot_validity(layer, definition, len(array))
                array = struct_around(array, inner, validity)
            case ListNode():
                list_level += 1
                if repetition is None:
                    raise CorruptDataError("a page of lists has no repetition levels")
                offsets, bitmap, repetition, definition = unravel_list(
                    repetition,
                    definition,
                    list_level=list_level,
                    item_max=layer.inner_def_max,
                    slot_max=layer.slot_def_max,
                    null_level=layer.null_def,
                    empty_level=layer.empty_def,
                )
                array = lists_around(array, node, offsets, bitmap)
            case FixedListNode(dimension=dimension):
                repetition = _one_of_each(repetition, dimension)
                definition = _one_of_each(definition, dimension)
                if len(array) % dimension:
                    raise CorruptDataError(
                        "a list of a fixed size misses items",
                        dimension=dimension,
                        items=len(array),
                    )
                validity = _slot_validity(layer, definition, len(array) // dimension)
                array = fixed_lists_around(array, dimension, validity)
            case LeafNode():
                raise AssertionError("a leaf is always the end of its path")
    return array


def merge(node: Node, leaves: Sequence[pa.Array], reachable: Flags | None = None) -> pa.Array:
    """Return a field's array from those of its leaves, in column order, each as `unravel` gives.

    The arrays start at offset 0; a slice must have been copied before. Only `reachable` slots, all
    by default, are below no null. The validity of the others is undefined and may differ between
    leaves.
    """
    match node:
        case LeafNode():
            return leaves[0]
        case StructNode(children=children):
            _check_siblings(node, {len(array) for array in leaves})
            agreed = _agreed(node, leaves, reachable)
            below = _reachable_below(agreed, reachable, leaves)
            inner = [array.field(0) for array in leaves]
            merged: list[pa.Array] = []
            start = 0
            for child in children:
                stop = start + _num_leaves(child)
                merged.append(merge(child, inner[start:stop], below))
                start = stop
            return pa.Array.from_buffers(
                node.data_type, len(leaves[0]), [agreed.buffers()[0]], children=merged
            )
        case ListNode(child=child):
            count = len(leaves[0])
            offsets = leaves[0].buffers()[1]
            size = (count + 1) * (8 if pa.types.is_large_list(node.data_type) else 4)
            ends = _ends(leaves[0], size)
            for other in leaves[1:]:
                if len(other) != count or (count and not _ends(other, size).equals(ends)):
                    raise _siblings_differ(node)
            items = merge(child, [array.values for array in leaves])
            validity = _agreed(node, leaves, reachable).buffers()[0]
            return pa.Array.from_buffers(
                node.data_type, count, [validity, offsets], children=[items]
            )
        case FixedListNode(child=child, dimension=dimension):
            _check_siblings(node, {len(array) for array in leaves})
            agreed = _agreed(node, leaves, reachable)
            below = _reachable_below(agreed, reachable, leaves)
            if below is not None:
                below = np.repeat(below, dimension)
            items = merge(child, [array.values for array in leaves], below)
            return pa.Array.from_buffers(
                node.data_type, len(leaves[0]), [agreed.buffers()[0]], children=[items]
            )


def struct_around(array: pa.Array, inner: Node, validity: Bytes | None) -> pa.Array:
    """Return structs of a single child, which is the array of `inner`."""
    child = pa.field(inner.field.name, array.type)
    return pa.Array.from_buffers(
        pa.struct([child]), len(array), [_buffer(validity)], children=[array]
    )


def fixed_lists_around(items: pa.Array, dimension: int, validity: Bytes | None) -> pa.Array:
    """Return lists of `dimension` items each."""
    return pa.Array.from_buffers(
        pa.list_(items.type, dimension),
        len(items) // dimension,
        [_buffer(validity)],
        children=[items],
    )


def lists_around(
    items: pa.Array, node: ListNode, offsets: Int64s, validity: Bytes | None
) -> pa.Array:
    """Return lists of items, whose offsets must end at the number of items."""
    if int(offsets[-1]) != len(items):
        raise CorruptDataError(
            "the lists of a page do not add up to its items",
            field=node.field.name,
            expected=len(items),
            found=int(offsets[-1]),
        )
    is_large = pa.types.is_large_list(node.data_type)
    if not is_large and len(items) > _INT32_MAX:
        raise ArrayOverflowError(
            "more than 2**31 items do not fit one list array; read fewer rows at a time",
            field=node.field.name,
            items=len(items),
        )
    kind, dtype = (pa.large_list, np.int64) if is_large else (pa.list_, np.int32)
    child = node.child.field
    buffers = [_buffer(validity), pa.py_buffer(offsets.astype(dtype, copy=False))]
    return pa.Array.from_buffers(
        kind(pa.field(child.name, items.type, child.nullable)),
        len(offsets) - 1,
        buffers,
        children=[items],
    )


def _buffer(bitmap: Bytes | None) -> pa.Buffer | None:
    return None if bitmap is None else pa.py_buffer(bitmap)


def _ends(lists: pa.Array, size: int) -> pa.Buffer:
    """Return the offsets of lists, without what an allocation may have behind them."""
    return lists.buffers()[1].slice(0, size)


def _num_leaves(node: Node) -> int:
    return 1 if isinstance(node, LeafNode) else sum(1 for _ in paths(node))


def _agreed(node: Node, leaves: Sequence[pa.Array], reachable: Flags | None) -> pa.Array:
    """Return a leaf that has the validity of a node; all must agree in the reachable slots.

    The column of a struct without children may have no levels, and then reports no nulls.
    """
    if len(leaves) == 1:
        return leaves[0]
    knowing = [
        array
        for path, array in zip(paths(node), leaves, strict=True)
        if not pa.types.is_struct(path[-1].data_type)
    ]
    first, *others = knowing or leaves
    for other in others:
        if not _agree(first, other, reachable):
            raise _siblings_differ(node, nulls=sorted({first.null_count, other.null_count}))
    return first


def _agree(one: pa.Array, other: pa.Array, reachable: Flags | None) -> bool:
    """Return whether the same reachable slots of two arrays of one length are valid."""
    if one.null_count == other.null_count == 0:
        return True
    left, right = _flags(one), _flags(other)
    if reachable is not None:
        left, right = left[reachable], right[reachable]
    return np.array_equal(left, right)


def _reachable_below(
    agreed: pa.Array, reachable: Flags | None, leaves: Sequence[pa.Array]
) -> Flags | None:
    """Return which slots are reachable and valid, or `None` if all are or there is one leaf."""
    if len(leaves) == 1 or not agreed.null_count:
        return reachable
    return _flags(agreed) if reachable is None else _flags(agreed) & reachable


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _check_siblings(node: Node, lengths: set[int]) -> None:
    if len(lengths) > 1:
        raise _siblings_differ(node, lengths=sorted(lengths))


def _siblings_differ(node: Node, **facts: object) -> CorruptDataError:
    return CorruptDataError(
        "the columns of a nested field do not agree on what is around them",
        field=node.field.name,
        **facts,
    )


def _slot_validity(layer: Layer, definition: Levels | None, count: int) -> Bytes | None:
    """Return the validity of an item layer: what is null here or, if masked, further out."""
    if definition is None:
        return None
    bits, slots = pack_validity(
        definition, slot_max=layer.slot_def_max, valid_max=max(0, layer.null_def - 1)
    )
    if slots != count:
        raise CorruptDataError(
            "the levels of a page do not belong to its values", slots=slots, values=count
        )
    return bits if layer.null_def else None


def _one_of_each(levels: Levels | None, dimension: int) -> Levels | None:
    """Return the levels of fixed-size lists: their entries are repeated for all items."""
    if levels is None:
        return None
    if len(levels) % dimension:
        raise CorruptDataError(
            "a list of a fixed size misses entries", dimension=dimension, entries=len(levels)
        )
    each = levels.reshape(-1, dimension)
    return np.ascontiguousarray(each[:, 0])
