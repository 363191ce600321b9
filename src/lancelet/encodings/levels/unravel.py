"""Unraveling: conversion of levels to nested arrays, from the inside out, and merging of siblings.

Each leaf is first rebuilt as if its field had only that leaf; then the leaves of a field, with
equal enclosing lists and structs, are merged into one array:

    list<struct<x>>  +  list<struct<y>>  ->  list<struct<x, y>>

Stored levels are untrusted. Returned arrays are valid: offsets ascend and end at the number of
items, and siblings have equal lengths and lists. Otherwise `CorruptDataError` is raised.
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
    """Raise unless levels are defined by the layers and equal in number."""
    for name, levels, level_max in (
        ("repetition", repetition, layers.rep_max),
        ("definition", definition, layers.def_max),
    ):
        if levels is not None and len(levels) and int(levels.max()) > level_max:
            raise CorruptDataError(
                f"a {name} level exceeds those of the page layers",
                found=int(levels.max()),
                max=level_max,
            )
    if repetition is not None and definition is not None and len(repetition) != len(definition):
        raise CorruptDataError(
            "repetition and definition levels differ in number",
            repetition=len(repetition),
            definition=len(definition),
        )


def check_layers(path: Path, layers: Layers) -> None:
    """Raise unless the layers of a page match the path of a leaf."""
    is_list = [isinstance(node, ListNode) for node in reversed(path)]
    if [kind.is_list for kind in layers.kinds] != is_list:
        raise CorruptDataError(
            "the layers of a page do not match the column type",
            column=".".join(node.field.name for node in path),
            layers=[kind.name for kind in layers.kinds],
        )


def visible_validity(layers: Layers, definition: Levels | None) -> Bytes | None:
    """Return the validity bitmap of the value slots, or `None` if the leaf has no nulls."""
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
    """Return the array of a field with only the leaf at the end of `path`.

    `values` are the visible slots, with the nulls of the leaf.
    """
    array, list_level = values, 0
    outwards = zip(reversed(path[:-1]), reversed(path[1:]), layers.each[1:], strict=True)
    for node, inner, layer in outwards:
        match node:
            case StructNode():
                validity = _slot_validity(layer, definition, len(array))
                array = wrap_in_struct(array, inner, validity)
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
                array = wrap_in_lists(array, node, offsets, bitmap)
            case FixedListNode(dimension=dimension):
                repetition = _collapse_levels(repetition, dimension)
                definition = _collapse_levels(definition, dimension)
                if len(array) % dimension:
                    raise CorruptDataError(
                        "a fixed-size list has missing items",
                        dimension=dimension,
                        items=len(array),
                    )
                validity = _slot_validity(layer, definition, len(array) // dimension)
                array = wrap_in_fixed_lists(array, dimension, validity)
            case LeafNode():
                raise AssertionError("a leaf must be the end of its path")
    return array


def merge(node: Node, leaves: Sequence[pa.Array], reachable: Flags | None = None) -> pa.Array:
    """Merge the arrays of the leaves of a field, in column order, as returned by `unravel`.

    The arrays must have offset 0; copy slices first. `reachable` masks the slots without a null
    parent, by default all. The validity of other slots is undefined and may differ between leaves.
    """
    match node:
        case LeafNode():
            return leaves[0]
        case StructNode(children=children):
            _check_siblings(node, {len(array) for array in leaves})
            validated = _check_validity(node, leaves, reachable)
            below = _reachable_below(validated, reachable, leaves)
            inner = [array.field(0) for array in leaves]
            merged: list[pa.Array] = []
            start = 0
            for child in children:
                stop = start + _num_leaves(child)
                merged.append(merge(child, inner[start:stop], below))
                start = stop
            return pa.Array.from_buffers(
                node.data_type, len(leaves[0]), [validated.buffers()[0]], children=merged
            )
        case ListNode(child=child):
            count = len(leaves[0])
            offsets = leaves[0].buffers()[1]
            size = (count + 1) * (8 if pa.types.is_large_list(node.data_type) else 4)
            ends = _ends(leaves[0], size)
            for other in leaves[1:]:
                if len(other) != count or (count and not _ends(other, size).equals(ends)):
                    raise _siblings_error(node)
            items = merge(child, [array.values for array in leaves])
            validity = _check_validity(node, leaves, reachable).buffers()[0]
            return pa.Array.from_buffers(
                node.data_type, count, [validity, offsets], children=[items]
            )
        case FixedListNode(child=child, dimension=dimension):
            _check_siblings(node, {len(array) for array in leaves})
            validated = _check_validity(node, leaves, reachable)
            below = _reachable_below(validated, reachable, leaves)
            if below is not None:
                below = np.repeat(below, dimension)
            items = merge(child, [array.values for array in leaves], below)
            return pa.Array.from_buffers(
                node.data_type, len(leaves[0]), [validated.buffers()[0]], children=[items]
            )


def wrap_in_struct(array: pa.Array, inner: Node, validity: Bytes | None) -> pa.Array:
    """Return structs with a single child, the array of `inner`."""
    child = pa.field(inner.field.name, array.type)
    return pa.Array.from_buffers(
        pa.struct([child]), len(array), [_buffer(validity)], children=[array]
    )


def wrap_in_fixed_lists(items: pa.Array, dimension: int, validity: Bytes | None) -> pa.Array:
    """Return lists of `dimension` items each."""
    return pa.Array.from_buffers(
        pa.list_(items.type, dimension),
        len(items) // dimension,
        [_buffer(validity)],
        children=[items],
    )


def wrap_in_lists(
    items: pa.Array, node: ListNode, offsets: Int64s, validity: Bytes | None
) -> pa.Array:
    """Return lists of items; the offsets must end at the number of items."""
    if int(offsets[-1]) != len(items):
        raise CorruptDataError(
            "the lists of a page do not match the number of items",
            field=node.field.name,
            expected=len(items),
            found=int(offsets[-1]),
        )
    is_large = pa.types.is_large_list(node.data_type)
    if not is_large and len(items) > _INT32_MAX:
        raise ArrayOverflowError(
            "more than 2**31 items do not fit into one list array; read fewer rows at a time",
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
    """Return the offsets of lists, without trailing bytes of the allocation."""
    return lists.buffers()[1].slice(0, size)


def _num_leaves(node: Node) -> int:
    return 1 if isinstance(node, LeafNode) else sum(1 for _ in paths(node))


def _check_validity(node: Node, leaves: Sequence[pa.Array], reachable: Flags | None) -> pa.Array:
    """Return a leaf with the validity of a node; all must agree in the reachable slots.

    The column of a struct without children may have no levels and is then ignored.
    """
    if len(leaves) == 1:
        return leaves[0]
    with_levels = [
        array
        for path, array in zip(paths(node), leaves, strict=True)
        if not pa.types.is_struct(path[-1].data_type)
    ]
    first, *others = with_levels or leaves
    for other in others:
        if not _has_same_validity(first, other, reachable):
            raise _siblings_error(node, nulls=sorted({first.null_count, other.null_count}))
    return first


def _has_same_validity(first: pa.Array, other: pa.Array, reachable: Flags | None) -> bool:
    """Return whether two arrays of equal length have the same validity in reachable slots."""
    if first.null_count == other.null_count == 0:
        return True
    first_flags, other_flags = _flags(first), _flags(other)
    if reachable is not None:
        first_flags, other_flags = first_flags[reachable], other_flags[reachable]
    return np.array_equal(first_flags, other_flags)


def _reachable_below(
    validated: pa.Array, reachable: Flags | None, leaves: Sequence[pa.Array]
) -> Flags | None:
    """Return a mask of the reachable and valid slots, or `None` if all or with a single leaf."""
    if len(leaves) == 1 or not validated.null_count:
        return reachable
    return _flags(validated) if reachable is None else _flags(validated) & reachable


def _flags(array: pa.Array) -> Flags:
    flags: Flags = array.is_valid().to_numpy(zero_copy_only=False)
    return flags


def _check_siblings(node: Node, lengths: set[int]) -> None:
    if len(lengths) > 1:
        raise _siblings_error(node, lengths=sorted(lengths))


def _siblings_error(node: Node, **facts: object) -> CorruptDataError:
    return CorruptDataError(
        "the columns of a nested field have inconsistent parents",
        field=node.field.name,
        **facts,
    )


def _slot_validity(layer: Layer, definition: Levels | None, count: int) -> Bytes | None:
    """Return the validity of a layer; may also be null under a null parent."""
    if definition is None:
        return None
    bits, slots = pack_validity(
        definition, slot_max=layer.slot_def_max, valid_max=max(0, layer.null_def - 1)
    )
    if slots != count:
        raise CorruptDataError(
            "the levels of a page do not match its values", slots=slots, values=count
        )
    return bits if layer.null_def else None


def _collapse_levels(levels: Levels | None, dimension: int) -> Levels | None:
    """Return the levels of fixed-size lists, whose entries are repeated for all items."""
    if levels is None:
        return None
    if len(levels) % dimension:
        raise CorruptDataError(
            "a fixed-size list has missing entries", dimension=dimension, entries=len(levels)
        )
    each = levels.reshape(-1, dimension)
    return np.ascontiguousarray(each[:, 0])
