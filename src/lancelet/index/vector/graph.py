"""HNSW graphs of vector indices: build settings, and graph rows in `index.idx`.

For example:

    level 0     0: [2 1]   1: [0 2]   2: [0 1]      all vectors of a partition, 0 .. n-1
    level 1     2: []                               a subset
    metadata    entry_point 2, level_offsets [0 3 4 4 ...]
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.config import CPU_THREADS
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.pool import PARALLEL_LONG_TASKS_MIN, map_ordered
from lancelet.index.folder import StoredFile
from lancelet.index.kernels import Graph, build_graph, edge_distances
from lancelet.index.vector import layout
from lancelet.index.vector.quantizers.base import Codes, GraphView, Quantizer
from lancelet.io.metered import IoCounts
from lancelet.values import dataclass

_SCHEMA: Final = pa.schema(
    [
        pa.field("__vector_id", pa.uint32()),
        pa.field("__neighbors", pa.list_(pa.uint32())),
        pa.field("_distance", pa.list_(pa.float32())),
    ]
)
_COLUMNS: Final = ("__vector_id", "__neighbors")
_DISTANCE: Final = "_distance"
_NODES_CHECKED: Final = 64
_SEED: Final = 42


@dataclass(frozen=True, slots=True)
class GraphSettings:
    """The number of connections per vector, the number of candidates during build, and levels."""

    m: int = 20
    ef_construction: int = 150
    max_level: int = 7


class GraphWriter:
    """Builds the graph of each partition in parallel.

    `lengths` and `metadata` have an entry per partition.
    """

    def __init__(self, settings: GraphSettings, quantizer: Quantizer) -> None:
        """Create a writer that uses the distances of the stored codes."""
        self._settings = settings
        self._quantizer = quantizer
        self._random = np.random.default_rng(_SEED)
        self.lengths: list[int] = []
        self.metadata: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        """Columns of a graph."""
        return _SCHEMA

    def add(self, codes: Codes, count: int) -> pa.RecordBatch:
        """Build the graph of the next partition and return its rows."""
        settings = self._settings
        view = self._quantizer.graph_view(codes)
        # The level of each vector is drawn from a distribution that decays with the number of
        # connections.
        random_levels = -np.log(1 - self._random.random(count)) / np.log(max(settings.m, 2))
        top_levels = np.minimum(random_levels, settings.max_level - 1).astype(np.uint8)
        graph = build_graph(
            view.vectors,
            view.comparison,
            top_levels,
            settings.m,
            settings.ef_construction,
            partial(map_ordered, few=PARALLEL_LONG_TASKS_MIN),
            CPU_THREADS,
        )
        distances = view.rescale(edge_distances(graph, view.vectors, view.comparison))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(graph.nodes, pa.uint32()),
                _lists(graph.offsets, pa.array(graph.neighbors, pa.uint32())),
                _lists(graph.offsets, pa.array(distances, pa.float32())),
            ],
            schema=_SCHEMA,
        )
        self.lengths.append(len(batch))
        levels = graph.level_offsets.tolist()
        levels += levels[-1:] * (settings.max_level + 1 - len(levels))
        entry = {
            "entry_point": graph.entry,
            "params": {
                "max_level": settings.max_level,
                "m": settings.m,
                "ef_construction": settings.ef_construction,
                "prefetch_distance": 2,
            },
            "level_offsets": levels,
        }
        self.metadata.append(json.dumps(entry, separators=(",", ":")))
        return batch


class StoredGraphs:
    """The graphs of a segment, read on demand."""

    def __init__(self, file: StoredFile) -> None:
        """Read the positions and metadata of the graphs."""
        self._file = file
        self._partitions = layout.read_partitions(file)
        metadata = layout.parse_json(file, layout.GRAPH_KEY)
        if not isinstance(metadata, list) or len(metadata) != len(self._partitions.lengths):
            raise CorruptDataError("the number of graphs differs from the number of partitions")
        self._metadata = [_parse_metadata(entry) for entry in metadata]

    @property
    def settings(self) -> GraphSettings:
        """Build settings of the graphs."""
        for _, _, params in self._metadata:
            names = ("m", "ef_construction", "max_level")
            return GraphSettings(**{key: int(params[key]) for key in names if key in params})
        return GraphSettings()

    def statistics(self) -> dict[str, Any]:
        """Return the metadata of the first graph under the names used by pylance."""
        for entry, levels, params in self._metadata:
            return {"entry_point": entry, "params": params, "level_offsets": levels.tolist()}
        return {}

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Estimate the reads of the graphs of some partitions."""
        starts, ends = self._partitions.starts, self._partitions.starts + self._partitions.lengths
        rows = [RowRange(int(starts[number]), int(ends[number])) for number in numbers]
        return self._file.estimate_reads(_COLUMNS, *rows) if rows else IoCounts()

    def read(self, number: int, count: int) -> Graph | None:
        """Read the graph of a partition with `count` rows, or None if it has no graph."""
        start, length = int(self._partitions.starts[number]), int(self._partitions.lengths[number])
        if not length or not count:
            return None
        columns = self._file.read(_COLUMNS, RowRange(start, start + length))
        lists = columns[1]
        offsets = lists.offsets.to_numpy().astype(np.int64)
        neighbors = lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
        entry, levels, _ = self._metadata[number]
        graph = Graph(
            entry,
            columns[0].to_numpy(zero_copy_only=False).astype(np.uint32),
            offsets - offsets[0],
            neighbors.astype(np.uint32),
            _without_empty_levels(levels),
        )
        _check(graph, count)
        return graph

    def has_distances_of(self, graph: Graph, number: int, view: GraphView) -> bool:
        """Return whether the stored distances of the first nodes equal those of a view."""
        count = min(len(graph.nodes), _NODES_CHECKED)
        start = int(self._partitions.starts[number])
        (lists,) = self._file.read([_DISTANCE], RowRange(start, start + count))
        stored = lists.flatten().to_numpy(zero_copy_only=False)
        first = Graph(
            graph.entry,
            graph.nodes[:count],
            graph.offsets[: count + 1],
            graph.neighbors[: graph.offsets[count]],
            graph.level_offsets,
        )
        computed = view.rescale(edge_distances(first, view.vectors, view.comparison))
        return len(stored) == len(computed) and np.allclose(stored, computed)


def _parse_metadata(text: Any) -> tuple[int, Int64s, dict[str, Any]]:
    try:
        metadata = json.loads(text)
        levels = np.array(metadata["level_offsets"], np.int64)
        return int(metadata["entry_point"]), levels, dict(metadata.get("params") or {})
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorruptDataError("invalid metadata of an HNSW graph") from error


def _without_empty_levels(levels: Int64s) -> Int64s:
    last = int(np.searchsorted(levels, levels[-1])) if levels.ndim == 1 and len(levels) else 0
    return levels[: last + 1]


def _check(graph: Graph, count: int) -> None:
    """Raise if a graph refers to rows outside of the partition or has invalid levels."""
    levels, nodes = graph.level_offsets, graph.nodes
    is_valid = (
        len(levels) > 1
        and levels[0] == 0
        and levels[1] == count
        and levels[-1] == len(nodes)
        and bool((np.diff(levels) > 0).all())
        and bool((nodes[:count] == np.arange(count)).all())
        and 0 <= graph.entry < count
        and int(nodes.max()) < count
        and int(graph.neighbors.max(initial=0)) < count
        and bool((np.diff(graph.offsets) >= 0).all())
    )
    if not is_valid:
        raise CorruptDataError(
            "the HNSW graph does not match the rows of its partition",
            rows=count,
            nodes=len(nodes),
            levels=levels.tolist(),
            entry=graph.entry,
        )


def _lists(offsets: Int64s, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
