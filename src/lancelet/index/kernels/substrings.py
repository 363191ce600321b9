"""Wavelet trees: bytes as bits in a tree of nodes, for fast rank queries."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.values import dataclass

UInt32s: TypeAlias = npt.NDArray[np.uint32]
UInt64s: TypeAlias = npt.NDArray[np.uint64]
Int32s: TypeAlias = npt.NDArray[np.int32]

NODES_MAX: Final = 255
"""Maximum number of nodes of a binary tree with 256 leaves."""

STEPS_PER_ROW: Final = 256
"""Maximum average distance of rows from samples, relative to the sample rate."""


@dataclass(frozen=True, slots=True, eq=False)
class WaveletTree:
    """The wavelet tree of the Burrows-Wheeler transform of a text.

    Node i has `bits[i]` bits in `bit_words[starts[i] : starts[i + 1]]`, one per byte below it: 0 if
    the byte is below the first of `children[2 * i : 2 * i + 2]`, 1 if below the second. A child is
    a node index, above that of its parent, or -1 - byte. `ranks` has the number of set bits before
    each word and in each node. `counts` has the number of bytes below each byte value, and in
    total.
    """

    bit_words: UInt64s
    ranks: UInt32s
    starts: Int64s
    bits: Int64s
    children: Int32s
    counts: Int64s

    @property
    def length(self) -> int:
        """Length of the text in bytes."""
        return int(self.counts[-1])

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        return self.bit_words.nbytes + self.ranks.nbytes
