"""From nested arrays to levels: every leaf gets its values and what is missing around them.

The walk goes from the outside in. It carries one entry per row, or per item once inside a list,
with a code for the first thing that was missing: twice the depth of the layer, plus 1 for null
or 2 for empty.

    rows           [{x: 1}, null]    null     [{x: null}]
    list layer     entry    entry    entry    entry           codes  0 0 1 0
    struct layer                                              codes  0 3 1 0
    x              1        any      -        any             codes  0 3 1 5

Entries that are missing before a list goes deeper have no slot in the arrays inside it, the
others do, even under a null struct. In the end the codes that occur become definition levels,
numbered from the inside (see `layers`), and those that do not occur cost nothing. Repetition is
carried as the number of lists that an entry continues, because how many there are is known at
the leaf only. Whatever an array holds behind a null list is left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
_SOME_NULL: Final = Layers.of([LayerKind.NULLABLE_ITEM])
_NULLABLE: Final = {
    LayerKind.ALL_VALID_ITEM: LayerKind.NULLABLE_ITEM,
    LayerKind.ALL_VALID_LIST: LayerKind.NULLABLE_LIST,
}


@dataclass(frozen=True, slots=True, eq=False)
class ShreddedLeaf:
    """A leaf of a field: its values, one per visible entry, and the levels of all entries.

    `repetition` is there if the leaf lies in a list, `definition` if anything is missing. Nulls
    of `values` itself are part of the levels already; those of what it contains are not.
    """

    field: Field
    layers: Layers
    repetition: Levels | None
    definition: Levels | None
    values: pa.Array

    @property
    def num_entries(self) -> int:
        """Return how many entries there are, with and without a value."""
        levels = self.definition if self.repetition is None else self.repetition
        return len(self.values if levels is None else levels)

    @property
    def num_rows(self) -> int:
        """Return how many rows there are; each item of a fixed-size list is one."""
        if self.repetition is None:
            return self.num_entries
        return int(np.count_nonzero(self.repetition == self.layers.rep_max))

    @property
    def has_values(self) -> bool:
        """Whether any slot holds a value."""
        if len(self.values) == 0:
            return False
        return self.definition is None or int(self.definition.min()) == 0

    def valid_slots(self) -> _Flags:
        """Return which slots hold a value: neither the slot nor what is around it is null."""
        if self.definition is None:
            return np.ones(len(self.values), np.bool_)
        visible: _Flags = self.definition[self.definition <= self.layers.visible_def_max] == 0
        return visible

    def page(self, place: int, count: int) -> ShreddedLeaf:
        """Return one of `count` pages, which have as many rows and are not of lists."""
        if count == 1:
            return self
        rows = len(self.values) // count
        start = place * rows
        return self._part(slice(start, start + rows), self.values.slice(start, rows))

    def cut(self, row: int) -> tuple[ShreddedLeaf, ShreddedLeaf]:
        """Return the rows before `row`, and those from it on."""
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

    `list_layers` has a flag per layer passed, from the outside. `codes` up to `gone_max` have no
    slot in the arrays at this depth; `occurring` are those there are. `continued` is the
    repetition, counted from the outside.
    """

    count: int
    list_layers: tuple[bool, ...] = ()
    codes: Levels | None = None
    occurring: frozenset[int] = frozenset()
    gone_max: int = 0
    continued: Levels | None = None

    def slots(self) -> npt.NDArray[np.int64] | None:
        """Return which entries have a slot, or `None` if all have one."""
        if self.codes is None or self.gone_max == 0:
            return None
        return np.flatnonzero((self.codes == 0) | (self.codes > self.gone_max))

    def marked(self, missing: _Flags | None, kind: int) -> _Entries:
        """Note which slots are missing at this depth, where nothing is missing further out."""
        if missing is None:
            return self
        code = 2 * len(self.list_layers) + kind
        occurring = self.occurring | {code}
        if self.codes is None:
            codes = missing.astype(np.uint16) * np.uint16(code)
            return replace(self, codes=codes, occurring=occurring)
        slots = self.slots()
        at = np.flatnonzero(missing) if slots is None else slots[missing]
        at = at[self.codes[at] == 0]
        if not len(at):
            return self
        codes = self.codes.copy()
        codes[at] = code
        return replace(self, codes=codes, occurring=occurring)

    def inside(self, *, is_list: bool = False) -> _Entries:
        """Go one layer in."""
        return replace(self, list_layers=(*self.list_layers, is_list))


def shred(node: Node, array: pa.Array) -> list[ShreddedLeaf]:
    """Return the leaves of a field's array, in column order."""
    if isinstance(node, LeafNode):
        return [shred_leaf(node.field, array)]
    return list(_shred(node, array, _Entries(len(array))))


def shred_alike(
    field: Field, arrays: Sequence[pa.Array]
) -> Iterator[tuple[Sequence[int], ShreddedLeaf]]:
    """Yield the leaves of arrays of one kind and length which nothing is around.

    Arrays that have no nulls, some, or nothing else share a leaf each; their places come with it.
    """
    kinds: dict[int, list[int]] = {}
    for place, array in enumerate(arrays):
        nulls = array.null_count
        kinds.setdefault((nulls > 0) + (nulls == len(array) > 0), []).append(place)
    for nulls, places in kinds.items():
        own = [arrays[place] for place in places] if len(kinds) > 1 else arrays
        joined = own[0] if len(own) == 1 else _joined(own)
        yield (
            places,
            shred_leaf(field, joined)
            if nulls
            else ShreddedLeaf(field, _ALL_VALID, None, None, joined),
        )


def plain_layers(array: pa.Array) -> Layers:
    """Return the layers of an array which nothing is around."""
    return _SOME_NULL if array.null_count else _ALL_VALID


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return arrays of one type, or of numbers of one width, as one of the type of the first."""
    data_type = arrays[0].type
    return pa.concat_arrays(
        [array if array.type == data_type else array.view(data_type) for array in arrays]
    )


def shred_leaf(field: Field, array: pa.Array) -> ShreddedLeaf:
    """Return the leaf that the array of a field is which nothing is around."""
    missing = _nulls(array)
    if missing is None:
        return ShreddedLeaf(field, _ALL_VALID, None, None, array)
    return ShreddedLeaf(field, _SOME_NULL, None, missing.astype(np.uint16), array)


def _shred(node: Node, array: pa.Array, entries: _Entries) -> Iterator[ShreddedLeaf]:
    here = entries.marked(_nulls(array), _NULL)
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
    layers = Layers.of([*reversed(_tightest(is_list, entries.occurring))])
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


def _tightest(is_list: tuple[bool, ...], occurring: frozenset[int]) -> list[LayerKind]:
    """Return the tightest kinds of layers for the codes that occur, from the outside in."""
    kinds: list[LayerKind] = []
    is_null_around = False
    for depth, layer_is_list in enumerate(is_list):
        kind = LayerKind.of(
            is_list=layer_is_list,
            has_nulls=2 * depth + _NULL in occurring,
            has_empties=2 * depth + _EMPTY in occurring,
        )
        if is_null_around:
            # The reference implementation reads what is under a null struct as null too: it
            # miscounts lists that have no level for that, and takes other values to be valid.
            kind = _NULLABLE.get(kind, kind)
        is_null_around = not layer_is_list and (is_null_around or kind.can_be_null)
        kinds.append(kind)
    return kinds


def _items(array: pa.Array, entries: _Entries) -> tuple[pa.Array, _Entries]:
    """Go from lists to their items."""
    offsets = np.asarray(array.offsets).astype(np.int64, copy=False)
    starts, lengths = offsets[:-1], np.diff(offsets)
    slots = entries.slots()
    if entries.codes is not None:
        codes = entries.codes if slots is None else entries.codes[slots]
        lengths = np.where(codes == 0, lengths, 0)
    empty = lengths == 0
    entries = entries.marked(empty if empty.any() else None, _EMPTY)
    items = _kept_items(array.values, starts, lengths)
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
        gone_max=2 * depth + _EMPTY,
        continued=continued,
    )
    return items, inside


def _kept_items(items: pa.Array, starts: Int64s, lengths: Int64s) -> pa.Array:
    """Return the items of lists that are kept, without what lies between and behind them."""
    total = int(lengths.sum())
    kept = np.flatnonzero(lengths)
    if total == 0:
        return items.slice(0, 0)
    first, last = int(starts[kept[0]]), int(starts[kept[-1]] + lengths[kept[-1]])
    if last - first == total:
        return items.slice(first, total)
    starts, lengths = starts[kept], lengths[kept]
    shifts = starts - (np.cumsum(lengths) - lengths)
    return take_rows(items, np.arange(total) + np.repeat(shifts, lengths))


def _fixed_items(array: pa.Array, entries: _Entries, dimension: int) -> tuple[pa.Array, _Entries]:
    """Go from lists of a fixed size to their items: each entry is there for all of them."""
    if len(array) != entries.count:
        raise UnsupportedError(
            "fixed-size lists of structs cannot lie in lists that are null or empty",
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
    """Return which values of an array are null, or `None` if none is."""
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_) if len(array) else None
    if pa.types.is_dictionary(array.type) and array.dictionary.null_count:
        array = array.dictionary.take(array.indices)
    bits = validity_bits(array)
    if bits is None:
        return None
    missing: _Flags = np.unpackbits(bits, count=len(array), bitorder="little") == 0
    return missing
