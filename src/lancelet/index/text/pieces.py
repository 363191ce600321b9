"""What cutters share: where texts lie, pieces of them, and the words that some letters make up.

A cutter takes an array of texts and returns its pieces, the position of each and how many each
text has. Pieces lie in the bytes of the texts wherever they can.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels import find_words

UInt32s = npt.NDArray[np.uint32]
Pieces: TypeAlias = tuple[Slices, UInt32s, Int64s]
Cutter: TypeAlias = Callable[[pa.Array], Pieces]


def texts_of(texts: pa.Array) -> tuple[Int64s, Bytes]:
    """Return where texts begin and end, and their bytes; a null is an empty text."""
    texts = texts.cast(pa.large_string())
    if texts.null_count:
        texts = texts.fill_null("")
    _, offsets, data = texts.buffers()
    if offsets is None:
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    source = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return ends, source


def cut_words(members: Bytes, texts: pa.Array) -> Pieces:
    """Return the words of texts that letters make up of which a bit is set."""
    offsets, data = texts_of(texts)
    words, counts = find_words(offsets, data, members)
    return words, places_within(counts), counts


def places_within(counts: Int64s) -> UInt32s:
    """Return 0, 1, 2, ... for each of the groups of these sizes.

    >>> places_within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return (np.arange(total) - np.repeat(ends - counts, counts)).astype(np.uint32)
