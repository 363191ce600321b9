"""HNSW graphs by `native/index/graphs.cpp`; see `reference/graphs.py`."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.index.kernels.graphs import (
    Comparison,
    Graph,
    LevelNumbers,
    ParallelMap,
    UInt32s,
    assemble,
    insertion_batches,
    new_entry,
)
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked

_ALL: Final = np.empty(0, np.uint8)
_PART_MIN: Final = 16
"""Minimum number of vectors per thread."""


def build_graph(
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    tops: LevelNumbers,
    connections: int,
    candidates: int,
    side_by_side: ParallelMap = map,
    parts: int = 1,
) -> Graph:
    """Build an HNSW graph of the rows of a matrix, each up to its highest level."""
    count, width = len(tops), int(tops.sum(dtype=np.int64))
    lists = (
        np.concatenate([[0], np.cumsum(tops, dtype=np.int64)]),
        np.zeros(count * 2 * connections, np.uint32),
        np.zeros(count, np.uint32),
        np.zeros(width * connections, np.uint32),
        np.zeros(width, np.uint32),
    )
    rows = as_bytes(vectors), vectors.shape[1], int(comparison)
    levels = np.ascontiguousarray(tops)
    entry = 0
    for first, stop in insertion_batches(count):
        num_parts = max(1, min(parts, (stop - first) // _PART_MIN))
        part_edges = np.linspace(first, stop, num_parts + 1).astype(np.int64).tolist()

        def insert(part: int, entry: int = entry, part_edges: list[int] = part_edges) -> None:
            status = _native.insert_rows(
                rows,
                (levels, *lists),
                connections,
                candidates,
                entry,
                part_edges[part],
                part_edges[part + 1],
            )
            checked(status, kernel="insert_rows")

        def link(
            part: int, first: int = first, stop: int = stop, stripes: int = len(part_edges) - 1
        ) -> None:
            status = _native.link_rows(
                rows, (levels, *lists), connections, first, stop, part, stripes
            )
            checked(status, kernel="link_rows")

        for step in (insert, link):
            deque(side_by_side(step, range(len(part_edges) - 1)), maxlen=0)
        entry = new_entry(levels, entry, first, stop)
    _, base, base_counts, upper, upper_counts = lists
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
    allowed: npt.NDArray[np.bool_] | None = None,
) -> tuple[UInt32s, npt.NDArray[np.float32]]:
    """Return the rows nearest to a query, best first, and their distances."""
    rows, distances = np.empty(candidates, np.uint32), np.empty(candidates, np.float32)
    found = _native.search_graph(
        (as_bytes(vectors), vectors.shape[1], int(comparison)),
        as_bytes(query),
        (graph.nodes, graph.offsets, graph.neighbors, graph.level_offsets, graph.entry),
        candidates,
        _ALL if allowed is None else as_bytes(allowed),
        rows,
        distances,
    )
    checked(found, kernel="search_graph")
    return rows[:found], distances[:found]


def edge_distances(
    graph: Graph, vectors: npt.NDArray[Any], comparison: Comparison
) -> npt.NDArray[np.float32]:
    """Return the distance of each neighbor from the vector that owns the list."""
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
