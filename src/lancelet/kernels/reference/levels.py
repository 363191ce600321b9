"""Lists to levels and back, one list layer a call.

Nesting is stored as two numbers per entry: which list an entry opens (repetition) and what is
missing (definition). For `list<list<int>>` with the inner list at level 1 and the outer at 2:

    rows         [[7, 8], []]   null   [[9]]
    repetition    2  0    1     2      2
    definition    0  0    1     2      0       1: inner list empty, 2: outer list null
    values        7  8                 9

`expand_list` walks inwards, adding the entries of one list layer; `unravel_list` walks outwards,
taking one layer off. Both see levels as they are at that layer and hand on those of the next.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.errors import CorruptDataError

Levels: TypeAlias = npt.NDArray[np.uint16]


def expand_list(
    repetition: Levels, definition: Levels, lengths: Int64s, *, continued: int
) -> tuple[Levels, Levels]:
    """Return the levels after each entry has become the items of its list.

    `lengths` has a number per entry: an entry of length 0 (a null or empty list, or what lies
    under one) stays a single entry. The first item inherits both levels; the others have
    `continued` as repetition and are, so far, fully defined.

    >>> rep, definition = np.array([1, 1], np.uint16), np.array([0, 5], np.uint16)
    >>> [x.tolist() for x in expand_list(rep, definition, np.array([3, 0]), continued=0)]
    [[1, 0, 0, 1], [0, 0, 0, 5]]
    """
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
    item_def_max: int,
    slot_def_max: int,
    null_def: int,
    empty_def: int,
) -> tuple[Int64s, Bytes | None, Levels, Levels | None]:
    """Take the lists of one layer off the levels.

    An entry with `definition <= item_def_max` has an item in this layer, and an entry that
    opens a list at `list_level` or further out has a list, if `definition <= slot_def_max`.

    Returns the offsets of the lists, a bitmap of their validity if the layer can be null
    (`null_def` is not 0), and the levels of the entries that open lists, for the next layer.

    >>> rep = np.array([2, 0, 1, 2, 2], np.uint16)
    >>> definition = np.array([0, 0, 1, 2, 0], np.uint16)
    >>> offsets, _, outer_rep, _ = unravel_list(rep, definition, list_level=1,
    ...     item_def_max=0, slot_def_max=1, null_def=0, empty_def=1)
    >>> offsets.tolist(), outer_rep.tolist()
    ([0, 2, 2, 3], [2, 1, 2, 2])
    """
    opens = repetition >= list_level
    if len(opens) and not opens[0]:
        raise CorruptDataError("levels begin in the middle of a list", list_level=list_level)
    starts = np.flatnonzero(opens)
    outer_repetition = repetition[starts]
    if definition is None:
        offsets = np.append(starts, len(repetition)).astype(np.int64)
        return offsets, None, outer_repetition, None
    is_item = definition <= item_def_max
    continues = ~opens
    if np.any(continues & ~is_item) or np.any(continues[1:] & ~is_item[:-1]):
        raise CorruptDataError(
            "levels continue a list that is null or empty", list_level=list_level
        )
    items_before = np.zeros(len(definition) + 1, np.int64)
    np.cumsum(is_item, out=items_before[1:])
    outer_definition = definition[starts]
    is_slot = outer_definition <= slot_def_max
    offsets = np.append(items_before[starts[is_slot]], items_before[-1])
    validity = None
    if null_def:
        slots = outer_definition[is_slot]
        valid = (slots <= item_def_max) | ((slots == empty_def) if empty_def else False)
        validity = np.packbits(valid, bitorder="little")
    return offsets, validity, outer_repetition, outer_definition
