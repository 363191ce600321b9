"""What goes into and comes out of finding the rows of lists; see `reference/levels.py`."""

from __future__ import annotations

from typing import NamedTuple

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels.arguments import Levels


class PackedLevels(NamedTuple):
    """Levels of chunks, a slice each, packed with `width` bits."""

    slices: Slices
    width: int


class LevelLimits(NamedTuple):
    """The greatest levels there are, and the greatest definition level with a value slot."""

    rep_max: int
    def_max: int
    slot_max: int


class RowLevels(NamedTuple):
    """The entries of some rows, and the value slots that they have.

    Slot i is value `within[i]` of the chunk at place `which[i]`; its bit in `validity` is 1 if its
    definition level is 0.
    """

    repetition: Levels
    definition: Levels | None
    chunk_index: Int64s
    value_index: Int64s
    validity: Bytes
