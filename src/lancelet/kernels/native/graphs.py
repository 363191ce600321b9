"""Graphs of neighbours by `native/src/graphs.cpp`; `reference/graphs.py` defines them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked
from lancelet.kernels.graph import Comparison, Graph, LevelNumbers, UInt32s, assemble

_ALL: Final = np.empty(0, np.uint8)


def build_graph(
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    tops: LevelNumbers,
    connections: int,
    candidates: int,
) -> Graph:
    """Return a graph of the rows of a matrix, each up to its highest level.

    Lists have at most `connections` members, on level 0 twice as many; they are chosen from the
    best `candidates`.
    """
    count, width = len(tops), int(tops.sum(dtype=np.int64))
    base, base_counts = np.zeros(count * 2 * connections, np.uint32), np.zeros(count, np.uint32)
    upper, upper_counts = np.zeros(width * connections, np.uint32), np.zeros(width, np.uint32)
    entry = _native.build_graph(
        as_bytes(vectors),
        vectors.shape[1],
        int(comparison),
        connections,
        candidates,
        np.ascontiguousarray(tops),
        base,
        base_counts,
        upper,
        upper_counts,
    )
    checked(entry, kernel="build_graph")
    return assemble(
        entry,
        tops,
        base.reshape(count, 2 * connections),
        base_counts,
        upper.reshape(width, connections),
        upper_counts,
    )


def search_graph(
    graph: Graph,
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    query: npt.NDArray[Any],
    candidates: int,
    admitted: npt.NDArray[np.bool_] | None = None,
) -> tuple[UInt32s, npt.NDArray[np.float32]]:
    """Return the rows nearest to a query, the best first, with how they compare.

    The graph was checked: it has only rows of `vectors`. With `admitted` only some are found.
    """
    rows, distances = np.empty(candidates, np.uint32), np.empty(candidates, np.float32)
    found = _native.search_graph(
        as_bytes(vectors),
        vectors.shape[1],
        int(comparison),
        as_bytes(query),
        graph.nodes,
        graph.offsets,
        graph.neighbors,
        graph.level_offsets,
        graph.entry,
        candidates,
        _ALL if admitted is None else as_bytes(admitted),
        rows,
        distances,
    )
    checked(found, kernel="search_graph")
    return rows[:found], distances[:found]


def edge_distances(
    graph: Graph, vectors: npt.NDArray[Any], comparison: Comparison
) -> npt.NDArray[np.float32]:
    """Return how each neighbour compares with the vector whose list it is in."""
    out = np.empty(len(graph.neighbors), np.float32)
    status = _native.edge_distances(
        as_bytes(vectors),
        vectors.shape[1],
        int(comparison),
        graph.nodes,
        graph.offsets,
        graph.neighbors,
        out,
    )
    checked(status, kernel="edge_distances")
    return out
