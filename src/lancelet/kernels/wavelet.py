"""Wavelet trees: bytes as bits in a tree of nodes, so that equal bytes are counted fast."""

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
"""A tree of two children each, whose leaves are bytes, has no more."""

STEPS_PER_ROW: Final = 256
"""How much farther from a sample than samples are apart rows may be, on average."""


@dataclass(frozen=True, slots=True, eq=False)
class WaveletTree:
    """The tree of the last column of a text's sorted rotations, its Burrows-Wheeler transform.

    Node i has the bits `words[starts[i] : starts[i + 1]]`, as many as `bits[i]`, one for each byte
    below it: 0 if that is below the first of `children[2 * i : 2 * i + 2]`, 1 if below the
    second. A child is the number of a node, above that of its parent, or -1 - byte. `ranks` has
    how many bits are set before each word, and at the end, of each node. `counts` has how many
    bytes are below each byte value, and in all.
    """

    words: UInt64s
    ranks: UInt32s
    starts: Int64s
    bits: Int64s
    children: Int32s
    counts: Int64s

    @property
    def length(self) -> int:
        """How long the text is."""
        return int(self.counts[-1])

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        return self.words.nbytes + self.ranks.nbytes
