"""Conversion between lists and levels, one list layer per call.

Nesting is stored as two numbers per entry: the list that the entry opens (repetition) and the
missing layers (definition). For `list<list<int>>` with the inner list at level 1 and the outer at
2:

    rows         [[7, 8], []]   null   [[9]]
    repetition    2  0    1     2      2
    definition    0  0    1     2      0       1: inner list empty, 2: outer list null
    values        7  8                 9

`expand_list` adds the entries of one list layer, from the outside in; `unravel_list` removes one
layer, from the inside out. Both return the levels of the next layer.
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import Levels, check_partition, check_same_levels, check_slices
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.bitpack import unpack_blocks


def expand_list(
    repetition: Levels, definition: Levels, lengths: Int64s, *, continued: int
) -> tuple[Levels, Levels]:
    """Return the levels after replacing each entry by the items of its list.

    `lengths` has a number per entry. An entry of length 0 (a null or empty list, or a parent of
    one) remains a single entry. The first item inherits both levels; the others have repetition
    `continued` and definition 0.

    >>> rep, definition = np.array([1, 1], np.uint16), np.array([0, 5], np.uint16)
    >>> [x.tolist() for x in expand_list(rep, definition, np.array([3, 0]), continued=0)]
    [[1, 0, 0, 1], [0, 0, 0, 5]]
    """
    check_same_levels(repetition, definition, lengths)
    counts = np.maximum(lengths, 1)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    starts = ends - counts
    expanded_repetition = np.full(total, continued, np.uint16)
    expanded_repetition[starts] = repetition
    expanded_definition = np.zeros(total, np.uint16)
    expanded_definition[starts] = definition
    return expanded_repetition, expanded_definition


def unravel_list(
    repetition: Levels,
    definition: Levels | None,
    *,
    list_level: int,
    item_max: int,
    slot_max: int,
    null_level: int,
    empty_level: int,
) -> tuple[Int64s, Bytes | None, Levels, Levels | None]:
    """Remove one list layer from the levels.

    An entry with a definition of at most `item_max` has an item in this layer. An entry that opens
    a list at `list_level` or above has a list if its definition is at most `slot_max`.

    Returns the offsets of the lists, a validity bitmap if the layer is nullable (`null_level` is
    not 0), and the levels of the entries that open lists, for the next layer.

    >>> rep = np.array([2, 0, 1, 2, 2], np.uint16)
    >>> definition = np.array([0, 0, 1, 2, 0], np.uint16)
    >>> offsets, _, outer_rep, _ = unravel_list(rep, definition, list_level=1,
    ...     item_max=0, slot_max=1, null_level=0, empty_level=1)
    >>> offsets.tolist(), outer_rep.tolist()
    ([0, 2, 2, 3], [2, 1, 2, 2])
    """
    kernel = "unravel_list"
    check_same_levels(repetition, definition)
    opens = repetition >= list_level
    if len(opens) and not opens[0]:
        raise corrupt(Fault.BAD_LEVELS, kernel=kernel, index=0)
    starts = np.flatnonzero(opens)
    if definition is None:
        offsets = np.append(starts, len(repetition)).astype(np.int64)
        return offsets, None, repetition[starts], None
    is_item = definition <= item_max
    wrong = ~opens & ~is_item
    wrong[1:] |= ~opens[1:] & ~is_item[:-1]
    if wrong.any():
        raise corrupt(Fault.BAD_LEVELS, kernel=kernel, index=int(wrong.argmax()))
    items_before = np.zeros(len(definition) + 1, np.int64)
    np.cumsum(is_item, out=items_before[1:])
    outer = definition[starts]
    is_slot = outer <= slot_max
    offsets = np.append(items_before[starts[is_slot]], items_before[-1])
    validity = None
    if null_level:
        slots = outer[is_slot]
        valid = (slots <= item_max) | ((slots == empty_level) & (empty_level > 0))
        validity = np.packbits(valid, bitorder="little")
    return offsets, validity, repetition[starts], outer


def pack_validity(definition: Levels, *, slot_max: int, valid_max: int) -> tuple[Bytes, int]:
    """Return a bitmap of entries up to `slot_max`, valid up to `valid_max`, and its size.

    >>> bits, slots = pack_validity(np.array([0, 2, 1, 0], np.uint16), slot_max=1, valid_max=0)
    >>> bits.tolist(), slots
    ([5], 3)
    """
    slots = definition[definition <= slot_max]
    return np.packbits(slots <= valid_max, bitorder="little"), len(slots)


def count_slots(definition: Levels, counts: Int64s, *, slot_max: int) -> Int64s:
    """Return the number of entries per chunk with a level of at most `slot_max`."""
    check_partition(counts, len(definition), kernel="count_slots")
    before = np.zeros(len(definition) + 1, np.int64)
    np.cumsum(definition <= slot_max, out=before[1:])
    return np.diff(before[np.concatenate(([0], np.cumsum(counts)))])


def rank_slots(definition: Levels, entries: Int64s, *, slot_max: int) -> Int64s:
    """Return the slots of ascending entries, skipping entries without a slot.

    >>> rank_slots(np.array([0, 2, 1, 0], np.uint16), np.array([1, 2, 3]), slot_max=1).tolist()
    [1, 2]
    """
    wrong = (entries < 0) | (entries >= len(definition))
    wrong[1:] |= entries[1:] <= entries[:-1]
    if wrong.any():
        raise corrupt(Fault.BAD_INDEX, kernel="rank_slots", index=int(wrong.argmax()))
    is_slot = definition <= slot_max
    slots: Int64s = np.cumsum(is_slot) - 1
    return slots[entries[is_slot[entries]]]


def unpack_levels(slices: ByteSlices, counts: Int64s, width: int) -> Levels:
    """Unpack out-of-line blocks of 16-bit words, `counts[i]` levels of each slice.

    Equivalent to `unpack_blocks` per slice, but efficient for many short slices.
    """
    check_slices(slices, counts, kernel="unpack_levels")
    parts = [
        unpack_blocks(slices.slice_bytes(i), width, int(counts[i]), 16) for i in range(len(slices))
    ]
    return np.concatenate([np.empty(0, np.uint16), *parts])
