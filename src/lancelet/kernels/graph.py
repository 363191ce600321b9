"""Graphs of near neighbours as arrays, and what the kernels that make and search them take.

nodes          0 1 2 | 2        the vectors of level 0, then those of level 1
level_offsets  0 3 4
offsets        0 2 4 6 6        where the list of each node begins among `neighbors`
neighbors      2 1 0 2 0 1
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s

UInt32s: TypeAlias = npt.NDArray[np.uint32]
LevelNumbers: TypeAlias = npt.NDArray[np.uint8]


class Comparison(IntEnum):
    """How vectors of a graph are compared; the smaller the nearer."""

    FLOAT_L2 = 0
    FLOAT_DOT = 1
    BYTE_L2 = 2
    BYTE_DOT = 3
    TABLE = 4


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Lists of near neighbours, level by level; the search begins at `entry`."""

    entry: int
    nodes: UInt32s
    offsets: Int64s
    neighbors: UInt32s
    level_offsets: Int64s


def assemble(
    entry: int,
    tops: LevelNumbers,
    base: UInt32s,
    base_counts: UInt32s,
    upper: UInt32s,
    upper_counts: UInt32s,
) -> Graph:
    """Return a graph of lists with room to spare, those of upper levels vector by vector."""
    count = len(tops)
    rows = np.repeat(np.arange(count), tops)
    firsts = np.cumsum(tops, dtype=np.int64) - tops
    levels = np.arange(len(rows)) - firsts[rows] + 1
    order = np.lexsort((rows, levels))
    highest = int(tops.max(initial=0))
    sizes = [count, *(int((levels == level).sum()) for level in range(1, highest + 1))]
    counts = np.concatenate([base_counts, upper_counts[order]]).astype(np.int64)
    neighbors = [
        base[np.arange(base.shape[1]) < base_counts[:, None]],
        upper[order][np.arange(upper.shape[1]) < upper_counts[order][:, None]],
    ]
    return Graph(
        entry,
        np.concatenate([np.arange(count), rows[order]]).astype(np.uint32),
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        np.concatenate(neighbors),
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
    )
