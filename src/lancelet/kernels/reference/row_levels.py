"""Rows of lists: in which chunks of mini-block pages they are, and their entries in these.

The index says how many rows have begun and ended before each chunk. A row begins where a
repetition level is the greatest there is:

    chunks       0: [2 0 0]   1: [0 2 2]      begun [0 1 3]   ended [0 0 3]
    rows 0 and 2     chunks 0 and 1, entries 0..2 of chunk 0, 0 and 2 of chunk 1
"""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.kernels.arguments import Levels
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.reference.levels import unpack_levels
from lancelet.kernels.row_levels import LevelLimits, PackedLevels, RowLevels


def chunks_of_rows(begun: Int64s, ended: Int64s, rows: Int64s) -> Int64s:
    """Return the chunks that hold any of the rows; both ascend, each at most once.

    >>> chunks_of_rows(np.array([0, 1, 3]), np.array([0, 0, 3]), np.array([0])).tolist()
    [0, 1]
    """
    kernel = "chunks_of_rows"
    if not len(rows):
        return np.empty(0, np.int64)
    if len(begun) != len(ended) or len(begun) < 2:
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, place=0)
    bad = (rows < begun[0]) | (rows < ended[0]) | (rows >= ended[-1])
    bad[1:] |= rows[1:] <= rows[:-1]
    first = np.searchsorted(begun, rows, side="right") - 1
    last = np.searchsorted(ended, rows, side="right") - 1
    bad |= (first >= len(begun) - 1) | (last >= len(begun) - 1)
    if bad.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, place=int(bad.argmax()))
    holds = [np.arange(start, stop + 1) for start, stop in zip(first, last, strict=True)]
    return np.unique(np.concatenate(holds))


def take_row_levels(
    num_levels: Int64s,
    repetition: PackedLevels,
    definition: PackedLevels | None,
    counts: Int64s,
    chunks: Int64s,
    begun: Int64s,
    rows: Int64s,
    limits: LevelLimits,
) -> RowLevels:
    """Return the entries of rows, given all `chunks` that hold them and no other rows asked for.

    Chunk i has `num_levels[i]` entries and `counts[i]` values, and is chunk `chunks[i]` of the
    index `begun`.
    """
    kernel = "take_row_levels"
    if not len(num_levels) == len(counts) == len(chunks) == len(repetition.slices):
        raise InvalidInputError("every chunk has levels and values", chunks=len(chunks))
    parts: list[tuple[Levels, Levels, Int64s, Int64s]] = []
    for place, chunk in enumerate(chunks.tolist()):
        if not 0 <= num_levels[place] <= np.iinfo(np.uint16).max:
            raise corrupt(Fault.BAD_COUNT, kernel=kernel, place=place)
        if not 0 <= chunk < len(begun) - 1:
            raise corrupt(Fault.BAD_INDEX, kernel=kernel, place=place)
        own = slice(place, place + 1)
        rep = unpack_levels(repetition.slices[own], num_levels[own], repetition.width)
        dfn = np.zeros_like(rep)
        if definition is not None:
            dfn = unpack_levels(definition.slices[own], num_levels[own], definition.width)
        if (rep > limits.rep_max).any() or (dfn > limits.def_max).any():
            raise corrupt(Fault.BAD_LEVELS, kernel=kernel, place=place)
        row = begun[chunk] - 1 + np.cumsum(rep == limits.rep_max)
        is_slot = dfn <= limits.slot_max
        if (
            begun[chunk] + np.count_nonzero(rep == limits.rep_max) != begun[chunk + 1]
            or np.count_nonzero(is_slot) != counts[place]
        ):
            raise corrupt(Fault.BAD_LENGTH, kernel=kernel, place=place)
        wanted = np.isin(row, rows)
        index = (np.cumsum(is_slot) - 1)[wanted & is_slot]
        parts.append((rep[wanted], dfn[wanted], np.full(len(index), place, np.int64), index))
    no_levels, no_places = np.empty(0, np.uint16), np.empty(0, np.int64)
    rep = np.concatenate([no_levels, *(part[0] for part in parts)])
    dfn = np.concatenate([no_levels, *(part[1] for part in parts)])
    return RowLevels(
        rep,
        None if definition is None else dfn,
        np.concatenate([no_places, *(part[2] for part in parts)]),
        np.concatenate([no_places, *(part[3] for part in parts)]),
        np.packbits(dfn[dfn <= limits.slot_max] == 0, bitorder="little"),
    )
