"""Construction and search of HNSW graphs of vectors.

To insert a vector, the search descends greedily to its highest level. On each level below, it finds
the best candidates and connects the vector with a diverse subset: a candidate is selected if it is
nearer to the vector than to all candidates selected before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

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

_Near: TypeAlias = tuple[float, int]
_Measure: TypeAlias = Callable[[Sequence[int]], list[float]]
_Links: TypeAlias = Callable[[int], Sequence[int]]


def build_graph(
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    tops: LevelNumbers,
    connections: int,
    candidates: int,
    side_by_side: ParallelMap = map,  # noqa: ARG001 - sequential
    parts: int = 1,  # noqa: ARG001
) -> Graph:
    """Return a graph of the rows of a matrix, each up to its highest level.

    Lists have at most `connections` members, on level 0 twice as many; they are chosen from the
    best `candidates`. The number of `parts` does not affect the graph.
    """
    lists: list[list[list[int]]] = [[[] for _ in range(int(top) + 1)] for top in tops]
    entry = 0
    for first, stop in insertion_batches(len(tops)):
        for row in range(first, stop):
            measure = _measure(vectors, comparison, vectors[row])
            near = (measure([entry])[0], entry)
            top, own = int(tops[entry]), int(tops[row])
            for level in range(top, own, -1):
                near = _descend(measure, near, lambda each, at=level: lists[each][at])  # type: ignore[misc]  # a default binds the level
            for level in range(min(top, own), -1, -1):
                found = _widen(
                    measure,
                    near,
                    candidates,
                    lambda each, at=level: lists[each][at],  # type: ignore[misc]  # a default binds the level
                    None,
                )
                near = found[0]
                lists[row][level] = _diverse(vectors, comparison, found, connections, connections)
        for row in range(first, stop):
            for level in range(int(tops[row]), -1, -1):
                room = connections * (2 if level == 0 else 1)
                for other in lists[row][level]:
                    _link_back(vectors, comparison, lists[other][level], other, row, room)
        entry = new_entry(tops, entry, first, stop)
    width = int(tops.sum(dtype=np.int64))
    base, base_counts = _padded([each[0] for each in lists], 2 * connections)
    upper, upper_counts = _padded([own for each in lists for own in each[1:]], connections)
    assert len(upper) == width, "each level above the first has a list"
    return assemble(entry, tops, base, base_counts, upper, upper_counts)


def search_graph(
    graph: Graph,
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    query: npt.NDArray[Any],
    candidates: int,
    allowed: npt.NDArray[np.bool_] | None = None,
) -> tuple[UInt32s, npt.NDArray[np.float32]]:
    """Return the rows nearest to a query, best first, and their distances.

    The graph must be valid for `vectors`. `allowed` restricts the results.
    """
    measure = _measure(vectors, comparison, query)
    near = (measure([graph.entry])[0], graph.entry)
    for level in range(len(graph.level_offsets) - 2, 0, -1):
        near = _descend(measure, near, lambda each, at=level: _links(graph, each, at))  # type: ignore[misc]  # a default binds the level
    found = _widen(measure, near, candidates, lambda each: _links(graph, each, 0), allowed)
    return (
        np.array([row for _, row in found], np.uint32),
        np.array([distance for distance, _ in found], np.float32),
    )


def edge_distances(
    graph: Graph, vectors: npt.NDArray[Any], comparison: Comparison
) -> npt.NDArray[np.float32]:
    """Return the distance of each neighbor from the vector that owns the list."""
    found = [
        _measure(vectors, comparison, vectors[node])(graph.neighbors[first:stop].tolist())
        for node, first, stop in zip(
            graph.nodes, graph.offsets[:-1], graph.offsets[1:], strict=True
        )
    ]
    return np.array([distance for own in found for distance in own], np.float32)


def _measure(
    vectors: npt.NDArray[Any], comparison: Comparison, query: npt.NDArray[Any]
) -> _Measure:
    def measured(rows: Sequence[int]) -> list[float]:
        chosen = vectors[list(rows)]
        if comparison is Comparison.TABLE:
            entries = query.reshape(-1, 256)
            found = entries[np.arange(len(entries)), chosen].sum(axis=1)
        elif comparison in {Comparison.FLOAT_DOT, Comparison.BYTE_DOT}:
            found = -(chosen.astype(np.float32) @ query)
        else:
            difference = chosen.astype(np.float32) - query
            found = (difference * difference).sum(axis=1)
        return [float(each) for each in found.astype(np.float32)]

    return measured


def _descend(measure: _Measure, near: _Near, links: _Links) -> _Near:
    while True:
        rows = links(near[1])
        best = min(zip(measure(rows), rows, strict=True), key=lambda each: each[0], default=near)
        if best[0] >= near[0]:
            return near
        near = best


def _widen(
    measure: _Measure,
    start: _Near,
    candidates: int,
    links: _Links,
    allowed: npt.NDArray[np.bool_] | None,
) -> list[_Near]:
    """Return the best candidates in order; `best` is a heap with the farthest on top."""
    seen = {start[1]}
    queue = [start]
    best: list[_Near] = []
    if allowed is None or allowed[start[1]]:
        best.append((-start[0], -start[1]))
    while queue:
        distance, row = heapq.heappop(queue)
        if len(best) >= candidates and distance > -best[0][0]:
            break
        fresh = [each for each in links(row) if each not in seen]
        seen.update(fresh)
        for other_distance, other in zip(measure(fresh), fresh, strict=True):
            if len(best) < candidates or other_distance < -best[0][0]:
                heapq.heappush(queue, (other_distance, other))
                if allowed is None or allowed[other]:
                    heapq.heappush(best, (-other_distance, -other))
                    if len(best) > candidates:
                        heapq.heappop(best)
    return sorted((-distance, -row) for distance, row in best)


def _diverse(
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    ordered: Sequence[_Near],
    least: int,
    max_count: int,
) -> list[int]:
    selected: list[int] = []
    for distance, row in ordered:
        if len(selected) == max_count:
            break
        if all(each > distance for each in _measure(vectors, comparison, vectors[row])(selected)):
            selected.append(row)
    for _, row in ordered:
        if len(selected) < least and row not in selected:
            selected.append(row)
    return selected


def _link_back(
    vectors: npt.NDArray[Any],
    comparison: Comparison,
    own: list[int],
    row: int,
    other: int,
    room: int,
) -> None:
    own.append(other)
    if len(own) <= room:
        return
    ordered = sorted(zip(_measure(vectors, comparison, vectors[row])(own), own, strict=True))
    own[:] = _diverse(vectors, comparison, ordered, 0, room)


def _padded(lists: Sequence[Sequence[int]], width: int) -> tuple[UInt32s, UInt32s]:
    rows = np.zeros((len(lists), width), np.uint32)
    for row, own in zip(rows, lists, strict=True):
        row[: len(own)] = own
    return rows, np.array([len(own) for own in lists], np.uint32)


def _links(graph: Graph, row: int, level: int) -> list[int]:
    first, stop = graph.level_offsets[level : level + 2]
    at = first + np.searchsorted(graph.nodes[first:stop], row)
    if at == stop or graph.nodes[at] != row:
        return []
    return graph.neighbors[graph.offsets[at] : graph.offsets[at + 1]].tolist()  # type: ignore[no-any-return]  # numpy does not say
