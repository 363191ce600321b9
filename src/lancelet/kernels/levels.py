"""Arguments and results of `take_row_levels`; see `reference/levels.py`."""

from __future__ import annotations

from typing import NamedTuple

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.kernels.arguments import Levels


class PackedLevels(NamedTuple):
    """Levels of chunks, one slice each, bit-packed with `width` bits."""

    slices: ByteSlices
    width: int


class LevelLimits(NamedTuple):
    """The maximum levels, and the maximum definition level with a value slot."""

    rep_max: int
    def_max: int
    slot_max: int


class RowLevels(NamedTuple):
    """The entries of rows, and their value slots.

    Slot i is value `value_index[i]` of chunk `chunk_index[i]`; its bit in `validity` is 1 if its
    definition level is 0.
    """

    repetition: Levels
    definition: Levels | None
    chunk_index: Int64s
    value_index: Int64s
    validity: Bytes
