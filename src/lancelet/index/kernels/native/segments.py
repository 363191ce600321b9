"""Segments of texts by `native/index/segments.cpp`; `reference/segments.py` defines them."""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.segments import Language, SegmentRules
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

_INT64: Final = np.dtype(np.int64)
_SEGMENT_BYTES: Final = 4
"""Minimum average segment size; for shorter segments, texts are processed twice."""


def find_segments(
    offsets: Int64s, data: Bytes, members: Bytes, rules: SegmentRules, *, splits: bool
) -> tuple[ByteSlices, Int64s, Int64s]:
    """Return the segments with a member character, their number per text, and runs per language."""
    texts = as_int64s(offsets), as_bytes(data)
    dictionary = rules.units, rules.children, rules.num_children, rules.is_word
    own = (as_bytes(members), rules.classes, *dictionary)
    counts = np.empty(max(0, len(offsets) - 1), np.int64)
    text_bytes = int(texts[0][-1] - texts[0][0]) if len(counts) else 0
    total = max(0, min(text_bytes, data.nbytes)) // _SEGMENT_BYTES
    room = -1
    while total > room:
        room = total
        language_counts = np.zeros(len(Language), np.int64)
        position, size = empty(room, _INT64), empty(room, _INT64)
        status = _native.locate_segments(
            *texts, own, int(splits), position, size, counts, language_counts
        )
        total = checked(status, kernel="find_segments")
    return ByteSlices(data, position[:total], size[:total]), counts, language_counts
