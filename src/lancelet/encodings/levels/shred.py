"""Shredding: conversion of nested arrays to values and levels per leaf.

Nodes are visited from the outside in. There is one entry per row, or per item within a list, with a
code for the outermost missing layer: twice its depth, plus 1 for null or 2 for empty.

    rows           [{x: 1}, null]    null     [{x: null}]
    list layer     entry    entry    entry    entry           codes  0 0 1 0
    struct layer                                              codes  0 3 1 0
    x              1        any      -        any             codes  0 3 1 5

Entries of missing lists have no slot in the item arrays; all others do, even under a null struct.
Finally, the used codes become definition levels, numbered from the inside (see `layers`); unused
codes need no level. Repetition is stored as the number of continued lists, as the total number of
lists is only available at the leaf. Items of null lists are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import validity_bits
from lancelet.encodings.levels.layers import LayerKind, Layers
from lancelet.encodings.levels.nesting import FixedListNode, LeafNode, ListNode, Node, StructNode
from lancelet.encodings.take import take_rows
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.kernels import Levels, expand_list
from lancelet.values import dataclass

_Flags: TypeAlias = npt.NDArray[np.bool_]

_NULL, _EMPTY = 1, 2
_ALL_VALID: Final = Layers.of([LayerKind.ALL_VALID_ITEM])
_WITH_NULLS: Final = Layers.of([LayerKind.NULLABLE_ITEM])
_NULLABLE: Final = {
    LayerKind.ALL_VALID_ITEM: LayerKind.NULLABLE_ITEM,
    LayerKind.ALL_VALID_LIST: LayerKind.NULLABLE_LIST,
}


@dataclass(frozen=True, slots=True, eq=False)
class ShreddedLeaf:
    """A leaf of a field: its values, one per visible entry, and the levels of all entries.

    `repetition` is set if the leaf is within a list, `definition` if anything is missing. The
    levels include the nulls of `values`, but not those of its children.
    """

    field: Field
    layers: Layers
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array

    @property
    def num_entries(self) -> int:
        """Return the number of entries, including those without a value."""
        levels = self.definition if self.repetition is None else self.repetition
        return len(self.values if levels is None else levels)

    @property
    def num_rows(self) -> int:
        """Return the number of rows; each item of a fixed-size list counts as one."""
        if self.repetition is None:
            return self.num_entries
        return int(np.count_nonzero(self.repetition == self.layers.rep_max))

    @property
    def has_values(self) -> bool:
        """Return whether any value is valid."""
        if len(self.values) == 0:
            return False
        return self.definition is None or int(self.definition.min()) == 0

    def valid_slots(self) -> _Flags:
        """Return a mask of the valid slots: neither the slot nor a parent is null."""
        if self.definition is None:
            return np.ones(len(self.values), np.bool_)
        visible: _Flags = self.definition[self.definition <= self.layers.visible_def_max] == 0
        return visible

    def split(self, row: int) -> tuple[ShreddedLeaf, ShreddedLeaf]:
        """Return the rows before `row` and those from `row`."""
        entry = row
        if self.repetition is not None:
            entry = int(np.flatnonzero(self.repetition == self.layers.rep_max)[row])
        slot = entry
        if self.definition is not None:
            slot = int(np.count_nonzero(self.definition[:entry] <= self.layers.visible_def_max))
        return (
            self._part(slice(None, entry), self.values.slice(0, slot)),
            self._part(slice(entry, None), self.values.slice(slot)),
        )

    def _part(self, entries: slice, values: pa.Array) -> ShreddedLeaf:
        repetition = None if self.repetition is None else self.repetition[entries]
        definition = None if self.definition is None else self.definition[entries]
        return replace(self, repetition=repetition, definition=definition, values=values)


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """The entries at one depth.

    `list_layers` has a flag per visited layer, from the outside. Entries with `codes` up to
    `slotless_max` have no slot in the arrays at this depth; `used_codes` are the codes present.
    `continued` is the repetition, counted from the outside.
    """

    count: int
    list_layers: tuple[bool, ...] = ()
    codes: Levels | None = None
    used_codes: frozenset[int] = frozenset()
    slotless_max: int = 0
    continued: Levels | None = None

    def slots(self) -> npt.NDArray[np.int64] | None:
        """Return the entries with a slot, or `None` if all have one."""
        if self.codes is None or self.slotless_max == 0:
            return None
        return np.flatnonzero((self.codes == 0) | (self.codes > self.slotless_max))

    def with_missing(self, missing: _Flags | None, kind: int) -> _Entries:
        """Mark slots as missing at this depth, unless missing further out."""
        if missing is None:
            return self
        code = 2 * len(self.list_layers) + kind
        used_codes = self.used_codes | {code}
        if self.codes is None:
            codes = missing.astype(np.uint16) * np.uint16(code)
            return replace(self, codes=codes, used_codes=used_codes)
        slots = self.slots()
        entries = np.flatnonzero(missing) if slots is None else slots[missing]
        entries = entries[self.codes[entries] == 0]
        if not len(entries):
            return self
        codes = self.codes.copy()
        codes[entries] = code
        return replace(self, codes=codes, used_codes=used_codes)

    def inside(self, *, is_list: bool = False) -> _Entries:
        """Descend one layer."""
        return replace(self, list_layers=(*self.list_layers, is_list))


def shred(node: Node, array: pa.Array) -> list[ShreddedLeaf]:
    """Return the leaves of the array of a field, in column order."""
    if isinstance(node, LeafNode):
        return [shred_leaf(node.field, array)]
    return list(_shred(node, array, _Entries(len(array))))


def plain_layers(array: pa.Array) -> Layers:
    """Return the layers of an array without enclosing nodes."""
    return _WITH_NULLS if array.null_count else _ALL_VALID


def shred_leaf(field: Field, array: pa.Array) -> ShreddedLeaf:
    """Return the leaf of an array without enclosing nodes."""
    missing = _nulls(array)
    if missing is None:
        return ShreddedLeaf(field, _ALL_VALID, None, None, array)
    return ShreddedLeaf(field, _WITH_NULLS, None, missing.astype(np.uint16), array)


def _shred(node: Node, array: pa.Array, entries: _Entries) -> Iterator[ShreddedLeaf]:
    here = entries.with_missing(_nulls(array), _NULL)
    match node:
        case LeafNode(field=field):
            yield _leaf(field, array, here)
        case StructNode(children=children):
            for index, child in enumerate(children):
                yield from _shred(child, array.field(index), here.inside())
        case ListNode(child=child):
            yield from _shred(child, *_items(array, here))
        case FixedListNode(child=child, dimension=dimension):
            yield from _shred(child, *_fixed_items(array, here, dimension))


def _leaf(field: Field, array: pa.Array, entries: _Entries) -> ShreddedLeaf:
    is_list = (*entries.list_layers, False)
    layers = Layers.of([*reversed(_tightest(is_list, entries.used_codes))])
    definition = None
    if entries.codes is not None:
        level_of_code = np.zeros(2 * len(is_list) + 1, np.uint16)
        for depth, layer in zip(reversed(range(len(is_list))), layers.each, strict=True):
            level_of_code[2 * depth + _NULL] = layer.null_def
            level_of_code[2 * depth + _EMPTY] = layer.empty_def
        definition = entries.codes if len(is_list) == 1 else level_of_code[entries.codes]
    repetition = None
    if entries.continued is not None:
        repetition = np.uint16(layers.rep_max) - entries.continued
    return ShreddedLeaf(field, layers, repetition, definition, array)


def _tightest(is_list: tuple[bool, ...], used_codes: frozenset[int]) -> list[LayerKind]:
    """Return the most specific kinds of layers for the used codes, from the outside in."""
    kinds: list[LayerKind] = []
    has_null_parent = False
    for depth, layer_is_list in enumerate(is_list):
        kind = LayerKind.of(
            is_list=layer_is_list,
            has_nulls=2 * depth + _NULL in used_codes,
            has_empties=2 * depth + _EMPTY in used_codes,
        )
        if has_null_parent:
            # The reference implementation also reads children of a null struct as null: without a
            # level for nulls it miscounts lists and reads other values as valid.
            kind = _NULLABLE.get(kind, kind)
        has_null_parent = not layer_is_list and (has_null_parent or kind.can_be_null)
        kinds.append(kind)
    return kinds


def _items(array: pa.Array, entries: _Entries) -> tuple[pa.Array, _Entries]:
    """Descend from lists to items."""
    offsets = np.asarray(array.offsets).astype(np.int64, copy=False)
    starts, lengths = offsets[:-1], np.diff(offsets)
    slots = entries.slots()
    if entries.codes is not None:
        codes = entries.codes if slots is None else entries.codes[slots]
        lengths = np.where(codes == 0, lengths, 0)
    empty = lengths == 0
    entries = entries.with_missing(empty if empty.any() else None, _EMPTY)
    items = _take_items(array.values, starts, lengths)
    if slots is not None:
        slot_lengths, lengths = lengths, np.zeros(entries.count, np.int64)
        lengths[slots] = slot_lengths
    depth, lists = len(entries.list_layers), sum(entries.list_layers)
    continued, codes = expand_list(
        np.zeros(entries.count, np.uint16) if entries.continued is None else entries.continued,
        np.zeros(entries.count, np.uint16) if entries.codes is None else entries.codes,
        lengths,
        continued=lists + 1,
    )
    inside = replace(
        entries.inside(is_list=True),
        count=len(continued),
        codes=None if entries.codes is None else codes,
        slotless_max=2 * depth + _EMPTY,
        continued=continued,
    )
    return items, inside


def _take_items(items: pa.Array, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Return the items of all lists, without unreferenced ones."""
    total = int(lengths.sum())
    filled = np.flatnonzero(lengths)
    if total == 0:
        return items.slice(0, 0)
    first, last = int(starts[filled[0]]), int(starts[filled[-1]] + lengths[filled[-1]])
    if last - first == total:
        return items.slice(first, total)
    starts, lengths = starts[filled], lengths[filled]
    shifts = starts - (np.cumsum(lengths) - lengths)
    return take_rows(items, np.arange(total) + np.repeat(shifts, lengths))


def _fixed_items(array: pa.Array, entries: _Entries, dimension: int) -> tuple[pa.Array, _Entries]:
    """Descend from fixed-size lists to items, repeating each entry."""
    if len(array) != entries.count:
        raise UnsupportedError(
            "fixed-size lists of structs cannot be in null or empty lists",
            type=str(array.type),
        )
    items = array.values.slice(array.offset * dimension, len(array) * dimension)
    inside = replace(
        entries.inside(),
        count=entries.count * dimension,
        codes=None if entries.codes is None else np.repeat(entries.codes, dimension),
        continued=None if entries.continued is None else np.repeat(entries.continued, dimension),
    )
    return items, inside


def _nulls(array: pa.Array) -> _Flags | None:
    """Return a mask of the nulls of an array, or `None` without nulls."""
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_) if len(array) else None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary.take(array.indices)
    bits = validity_bits(array)
    if bits is None:
        return None
    missing: _Flags = np.unpackbits(bits, count=len(array), bitorder="little") == 0
    return missing
