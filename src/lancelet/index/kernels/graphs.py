"""HNSW graphs as arrays, and shared parts of the graph kernels.

    nodes          0 1 2 | 2        the vectors of level 0, then those of level 1
    level_offsets  0 3 4
    offsets        0 2 4 6 6        start of each node's list in `neighbors`
    neighbors      2 1 0 2 0 1

Graphs are built by inserting batches of vectors. Vectors of a batch do not see each other, so they
can be inserted in parallel, and the graph is independent of the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.values import dataclass

UInt32s: TypeAlias = npt.NDArray[np.uint32]
LevelNumbers: TypeAlias = npt.NDArray[np.uint8]
ParallelMap: TypeAlias = Callable[[Callable[[int], None], Sequence[int]], Iterable[None]]
"""Applies a function to each number, in any order and possibly in parallel."""

_BATCH_SHARE: Final = 1 / 16
_BATCH_MAX: Final = 4096


class Comparison(IntEnum):
    """Distance functions between vectors of a graph; smaller is nearer."""

    FLOAT_L2 = 0
    FLOAT_DOT = 1
    BYTE_L2 = 2
    BYTE_DOT = 3
    TABLE = 4


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """Neighbor lists by level; searches start at `entry`."""

    entry: int
    nodes: UInt32s
    offsets: Int64s
    neighbors: UInt32s
    level_offsets: Int64s


def insertion_batches(count: int) -> Iterator[tuple[int, int]]:
    """Yield the first and last-exclusive row of each insertion batch.

    Vector 0 is present from the start. Batches grow with the graph, which limits missed neighbors.

    >>> list(insertion_batches(36))[-4:]
    [(30, 31), (31, 32), (32, 34), (34, 36)]
    """
    first = 1
    while first < count:
        stop = min(first + max(1, min(int(first * _BATCH_SHARE), _BATCH_MAX)), count)
        yield first, stop
        first = stop


def new_entry(tops: LevelNumbers, entry: int, first: int, stop: int) -> int:
    """Return the entry point after a batch: the first vector on the highest level."""
    highest = first + int(tops[first:stop].argmax())
    return highest if tops[highest] > tops[entry] else entry


def assemble(
    entry: int,
    tops: LevelNumbers,
    base: UInt32s,
    base_counts: UInt32s,
    upper: UInt32s,
    upper_counts: UInt32s,
) -> Graph:
    """Build a graph from fixed-size lists; upper-level lists are ordered by vector."""
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
