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
from lancelet.errors import InvalidInputError
from lancelet.kernels.arguments import Levels, check_partition, check_same_levels, check_slices
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.levels import LevelLimits, PackedLevels, RowLevels
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


def chunks_of_rows(begun: Int64s, ended: Int64s, rows: Int64s) -> Int64s:
    """Return the chunks that hold any of the ascending, unique rows.

    `begun` and `ended` are the numbers of rows that begin and end before each chunk of a page. A
    row begins where the repetition level is the maximum:

        chunks           0: [2 0 0]   1: [0 2 2]      begun [0 1 3]   ended [0 0 3]
        rows 0 and 2     chunks 0 and 1, entries 0..2 of chunk 0, 0 and 2 of chunk 1

    >>> chunks_of_rows(np.array([0, 1, 3]), np.array([0, 0, 3]), np.array([0])).tolist()
    [0, 1]
    """
    kernel = "chunks_of_rows"
    if not len(rows):
        return np.empty(0, np.int64)
    if len(begun) != len(ended) or len(begun) < 2:
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=0)
    bad = (rows < begun[0]) | (rows < ended[0]) | (rows >= ended[-1])
    bad[1:] |= rows[1:] <= rows[:-1]
    first = np.searchsorted(begun, rows, side="right") - 1
    last = np.searchsorted(ended, rows, side="right") - 1
    bad |= (first >= len(begun) - 1) | (last >= len(begun) - 1)
    if bad.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(bad.argmax()))
    ranges = [np.arange(start, stop + 1) for start, stop in zip(first, last, strict=True)]
    return np.unique(np.concatenate(ranges))


def take_row_levels(
    num_levels: Int64s,
    repetition: PackedLevels,
    definition: PackedLevels | None,
    counts: Int64s,
    chunks: Int64s,
    begun: Int64s,
    rows: Int64s,
    limits: LevelLimits,
) -> RowLevels:
    """Return the levels of rows, given all chunks that hold them.

    Chunk i has `num_levels[i]` entries and `counts[i]` values, and is chunk `chunks[i]` of the
    index `begun`.
    """
    kernel = "take_row_levels"
    if not len(num_levels) == len(counts) == len(chunks) == len(repetition.slices):
        raise InvalidInputError("every chunk has levels and values", chunks=len(chunks))
    parts: list[tuple[Levels, Levels, Int64s, Int64s]] = []
    for number, chunk in enumerate(chunks.tolist()):
        if not 0 <= num_levels[number] <= np.iinfo(np.uint16).max:
            raise corrupt(Fault.BAD_COUNT, kernel=kernel, index=number)
        if not 0 <= chunk < len(begun) - 1:
            raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=number)
        own = slice(number, number + 1)
        rep = unpack_levels(repetition.slices[own], num_levels[own], repetition.width)
        dfn = np.zeros_like(rep)
        if definition is not None:
            dfn = unpack_levels(definition.slices[own], num_levels[own], definition.width)
        if (rep > limits.rep_max).any() or (dfn > limits.def_max).any():
            raise corrupt(Fault.BAD_LEVELS, kernel=kernel, index=number)
        row = begun[chunk] - 1 + np.cumsum(rep == limits.rep_max)
        is_slot = dfn <= limits.slot_max
        if (
            begun[chunk] + np.count_nonzero(rep == limits.rep_max) != begun[chunk + 1]
            or np.count_nonzero(is_slot) != counts[number]
        ):
            raise corrupt(Fault.BAD_LENGTH, kernel=kernel, index=number)
        selected = np.isin(row, rows)
        index = (np.cumsum(is_slot) - 1)[selected & is_slot]
        parts.append((rep[selected], dfn[selected], np.full(len(index), number, np.int64), index))
    no_levels, no_indices = np.empty(0, np.uint16), np.empty(0, np.int64)
    rep = np.concatenate([no_levels, *(part[0] for part in parts)])
    dfn = np.concatenate([no_levels, *(part[1] for part in parts)])
    return RowLevels(
        rep,
        None if definition is None else dfn,
        np.concatenate([no_indices, *(part[2] for part in parts)]),
        np.concatenate([no_indices, *(part[3] for part in parts)]),
        np.packbits(dfn[dfn <= limits.slot_max] == 0, bitorder="little"),
    )
