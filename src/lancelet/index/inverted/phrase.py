"""Which documents have words in order.

    document    the quick red fox         positions 0 1 2 3
    red fox     places 0 1                3 - 1 = 2 - 0: they are as far apart as in the phrase
    quick fox   slop 1                    one other word may stand between them

Positions are compared as numbers `document * 2**32 + position`, all documents at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.inverted.postings import Postings

UInt32s = npt.NDArray[np.uint32]
_SHIFT: Final = 32


def phrase_documents(lists: Sequence[Postings], places: Sequence[int], slop: int) -> UInt32s:
    """Return the documents that have tokens at these places of a phrase, ascending."""
    shared = reduce(_shared, (each.docs for each in lists))
    if not len(shared) or len(lists) == 1:
        return np.asarray(shared, np.uint32)
    keys = [_keys(each, shared) for each in lists]
    if slop == 0:
        starts = [
            key[(key & 0xFFFFFFFF) >= place] - place
            for key, place in zip(keys, places, strict=True)
        ]
        found = reduce(_shared, starts)
        return np.unique(found >> _SHIFT).astype(np.uint32)
    return _within_slop(keys, places, slop)


def _within_slop(keys: Sequence[Int64s], places: Sequence[int], slop: int) -> UInt32s:
    """Return the documents with the words in order, each at most `slop` too far from the last."""
    reached = keys[0]
    for place, key in enumerate(keys[1:], 1):
        step = places[place] - places[place - 1]
        # The nearest place that comes early enough leaves the least room for others between.
        before = np.searchsorted(reached, key - step, side="right") - 1
        apart = key - reached[np.maximum(before, 0)]
        reached = key[(before >= 0) & (apart <= step + slop)]
        if not len(reached):
            break
    return np.unique(reached >> _SHIFT).astype(np.uint32)


def _keys(postings: Postings, docs: UInt32s) -> Int64s:
    """Return the positions in some documents, as numbers that ascend."""
    assert postings.positions is not None, "phrases are asked with positions"
    starts = np.cumsum(postings.freqs, dtype=np.int64) - postings.freqs
    places = np.searchsorted(postings.docs, docs)
    counts = postings.freqs[places].astype(np.int64)
    ends = np.cumsum(counts)
    chosen = np.arange(ends[-1]) + np.repeat(starts[places] - (ends - counts), counts)
    found: Int64s = np.repeat(docs.astype(np.int64) << _SHIFT, counts)
    found |= postings.positions[chosen].astype(np.int64)
    return found


def _shared(first: npt.NDArray[Any], second: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers that two ascending arrays have both; the shorter one is looked up."""
    few, many = (first, second) if len(first) <= len(second) else (second, first)
    if not len(few):
        return few
    places = np.minimum(np.searchsorted(many, few), len(many) - 1)
    return np.asarray(few[many[places] == few])
