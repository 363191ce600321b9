"""Posting lists as a search takes them: the blocks of several lists, one list behind the other.

blocks   a0 a1 a2 b0        list a has 300 documents, list b 12
first    0 3 4              where the blocks of each list begin
last     127 255 299 80     the last document of each block
best     1.4 0.9 1.7 1.1    the largest weight in each block, before the idf
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s, Slices

UInt32s = npt.NDArray[np.uint32]
Float32s = npt.NDArray[np.float32]

BLOCKS_TOGETHER: Final = 32
"""What may score best is written down for every block, and once more for so many together."""


@dataclass(frozen=True, slots=True, eq=False)
class PostingLists:
    """The lists of a query; `counts` has how many documents each list has, at least one."""

    blocks: Slices
    last: UInt32s
    best: Float32s
    first: Int64s
    counts: Int64s
    block_docs: int = 128
    is_varint: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """What documents are ranked by; a document is left out where `hidden` is not 0.

    Attributes:
        idf: What the weights of each list are multiplied with, above 0.
        norms: What is added to the frequency below the line, for each document.
        count: The most documents that are wanted.
        hidden: Empty if no document is left out.
    """

    idf: Float32s
    norms: Float32s
    count: int
    hidden: npt.NDArray[np.uint8]
