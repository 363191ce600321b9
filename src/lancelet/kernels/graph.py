"""Graphs of near neighbours as arrays, and what the kernels that make and search them take.

nodes          0 1 2 | 2        the vectors of level 0, then those of level 1
level_offsets  0 3 4
offsets        0 2 4 6 6        where the list of each node begins among `neighbors`
neighbors      2 1 0 2 0 1

A graph is made by inserting vectors, some at a time, which do not see each other. So they can be
inserted side by side, and the graph is the same however many threads there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InternalError
from lancelet.values import dataclass

UInt32s: TypeAlias = npt.NDArray[np.uint32]
LevelNumbers: TypeAlias = npt.NDArray[np.uint8]
ParallelMap: TypeAlias = Callable[[Callable[[int], None], Sequence[int]], Iterable[None]]
"""Calls a function with each of some numbers, in any order or at the same time."""

_BATCH_SHARE: Final = 1 / 16
_BATCH_MAX: Final = 4096

Floats: TypeAlias = npt.NDArray[np.float32]


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


def insertion_batches(count: int) -> Iterator[tuple[int, int]]:
    """Yield the first vectors and those behind the last of what is inserted at once.

    Vector 0 is there from the start. The more there are, the fewer of the near ones are missed.

    >>> list(insertion_batches(36))[-4:]
    [(30, 31), (31, 32), (32, 34), (34, 36)]
    """
    first = 1
    while first < count:
        stop = min(first + max(1, min(int(first * _BATCH_SHARE), _BATCH_MAX)), count)
        yield first, stop
        first = stop


def new_entry(tops: LevelNumbers, entry: int, first: int, stop: int) -> int:
    """Return where searches begin once some vectors were inserted: the first of the highest."""
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


class Metric(IntEnum):
    """A measure of distance; the numbers are those of index details."""

    L2 = 0
    COSINE = 1
    DOT = 2
    HAMMING = 3


_SUMS: Final[dict[int, np.dtype[Any]]] = {
    2: np.dtype(np.float32),
    4: np.dtype(np.float32),
    8: np.dtype(np.float64),
}


def sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which distances between vectors of a type are summed up."""
    return _SUMS[dtype.itemsize]


def check_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None,
) -> None:
    """Raise unless vectors, query and metric fit together."""
    is_bits = vectors.dtype == np.uint8
    if dimension < 1 or len(vectors) % dimension or len(query) != dimension:
        raise InternalError(
            "vectors and query must have the dimension",
            values=len(vectors),
            dimension=dimension,
            query=len(query),
        )
    if is_bits != (metric is Metric.HAMMING) or not (is_bits or vectors.dtype.kind == "f"):
        raise InternalError("the metric is not one of such vectors", metric=metric.name)
    if rows is not None and len(rows):
        check_row_indices(rows, len(vectors) // dimension)


def check_row_indices(rows: Int64s, count: int) -> None:
    """Raise unless rows are among so many."""
    if rows.min() < 0 or rows.max() >= count:
        raise InternalError("a row is outside of the vectors", rows=len(rows), count=count)
