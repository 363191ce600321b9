"""Sorting texts and byte strings by eight bytes at a time, as numbers.

    user-17, user-9, user-170        shared beginning "user-", left out
    31370000.., 39000000.., 31373000..    the next eight bytes as a number, and how many there are
    user-17, user-170, user-9        numbers in order, those that tie decided by the bytes behind

Numbers are sorted several times faster than strings are compared. What ties for long is compared
after all.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import numpy_of
from lancelet.index.parts.sort_numbers import sort_numbers
from lancelet.rowids.address import UInt64s

_WORD: Final = 8
_ROUNDS_MAX: Final = 4
"""Texts that agree for so many words are compared as texts."""


def sort_texts(values: pa.Array) -> Int64s:
    """Return the places of texts or byte strings in their order, equals as they come.

    >>> sort_texts(pa.array(["b", "a", "", "a0", "a"])).tolist()
    [2, 1, 4, 3, 0]
    """
    wide = values.cast(pa.large_binary())
    offsets = np.frombuffer(wide.buffers()[1], np.int64)[wide.offset :][: len(wide) + 1]
    data = np.frombuffer(wide.buffers()[2] or b"", np.uint8)
    starts, lengths = offsets[:-1], np.diff(offsets)
    at = _shared(wide)
    padded = np.concatenate([data, np.zeros(_WORD, np.uint8)])
    words = _words(padded, starts, lengths, at)
    ordered, numbers = sort_numbers(words, np.arange(len(words), dtype=np.uint64))
    order = numbers.view(np.int64)
    places = np.flatnonzero(_in_ties(ordered))
    groups: Int64s = np.cumsum(_is_new(ordered[places]))
    known = np.minimum(np.maximum(lengths - at, 0), _WORD + 1)
    for _ in range(_ROUNDS_MAX):
        if not len(places):
            return order
        rows = order[places]
        at += _WORD
        words = _words(padded, starts[rows], lengths[rows], at)
        own = np.lexsort((words, known[rows], groups))
        order[places] = rows[own]
        groups, words, known_now = groups[own], words[own], known[rows[own]]
        same = np.zeros(len(places), np.bool_)
        same[1:] = (
            (groups[1:] == groups[:-1])
            & (known_now[1:] == known_now[:-1])
            & (words[1:] == words[:-1])
            & (known_now[1:] > _WORD)
        )
        starts_group = ~same
        ties = same | np.append(same[1:], False)
        groups = np.cumsum(starts_group)[ties]
        places = places[ties]
        known = np.minimum(np.maximum(lengths - at, 0), _WORD + 1)
    if len(places):
        order[places] = _compared(wide, order[places], groups)
    return order


def _shared(values: pa.Array) -> int:
    """Return how many bytes at the beginning all values share."""
    if not len(values):
        return 0
    bounds = pc.min_max(values)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    pairs = enumerate(zip(least, greatest, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(least), len(greatest)))


def _words(padded: npt.NDArray[np.uint8], starts: Int64s, lengths: Int64s, at: int) -> UInt64s:
    """Return eight bytes of each value from a place on as a number; missing bytes are zero."""
    windows: npt.NDArray[Any] = np.ndarray((len(padded) - _WORD + 1,), ">u8", padded, 0, (1,))
    words: UInt64s = windows[np.minimum(starts + at, len(windows) - 1)].astype(np.uint64)
    # Most values are longer, so only the others are looked at once more.
    short = np.flatnonzero(lengths < at + _WORD)
    if len(short):
        rest = np.maximum(lengths[short] - at, 0)
        shift = ((_WORD - rest) * 8).astype(np.uint64)
        words[short] = np.where(rest > 0, (words[short] >> shift) << shift, np.uint64(0))
    return words


def _is_new(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    new = np.ones(len(ordered), np.bool_)
    new[1:] = ordered[1:] != ordered[:-1]
    return new


def _in_ties(ordered: UInt64s) -> npt.NDArray[np.bool_]:
    """Return which of ordered numbers have an equal beside them."""
    new = _is_new(ordered)
    tied: npt.NDArray[np.bool_] = ~new | ~np.append(new[1:], True)
    return tied


def _compared(values: pa.Array, rows: Int64s, groups: Int64s) -> Int64s:
    """Return rows in the order of their values, within groups that are in order already."""
    table = pa.table({"group": groups, "value": values.take(pa.array(rows))})
    keys = [("group", "ascending"), ("value", "ascending")]
    # Arrow does not promise a stable sort by several keys, so places decide at last.
    table = table.append_column("place", pa.array(np.arange(len(rows))))
    order = pc.sort_indices(table, sort_keys=[*keys, ("place", "ascending")])
    found: Int64s = rows[numpy_of(order).astype(np.int64)]
    return found
