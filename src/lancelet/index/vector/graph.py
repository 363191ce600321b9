"""The graphs of kinds with HNSW: what they were built with, and their rows in `index.idx`.

level 0   0: [2 1]   1: [0 2]   2: [0 1]      every vector of a partition, 0 .. n-1
level 1   2: []                               some of them
notes     entry_point 2, level_offsets [0 3 4 4 ...]
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
from lancelet.file.pool import FEW_LONG_TASKS, map_ordered
from lancelet.index.folder import StoredFile
from lancelet.index.vector import layout
from lancelet.index.vector.quantizers.base import Codes, GraphView, Quantizer
from lancelet.io.metered import IoCounts
from lancelet.kernels import Graph, build_graph, edge_distances
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
    """How many connections a vector has, and how many candidates they are chosen from."""

    m: int = 20
    ef_construction: int = 150
    max_level: int = 7


class GraphWriter:
    """Builds the graph of each partition, by all threads; `lengths` and `notes` are of all."""

    def __init__(self, settings: GraphSettings, quantizer: Quantizer) -> None:
        """Build graphs with the distances of what is stored."""
        self._settings = settings
        self._quantizer = quantizer
        self._random = np.random.default_rng(_SEED)
        self.lengths: list[int] = []
        self.notes: list[str] = []

    @property
    def schema(self) -> pa.Schema:
        """The columns of a graph."""
        return _SCHEMA

    def add(self, codes: Codes, count: int) -> pa.RecordBatch:
        """Return the rows of the graph of the next partition."""
        settings = self._settings
        view = self._quantizer.graph_view(codes)
        # The share of vectors that reach each level falls by the number of connections.
        drawn = -np.log(1 - self._random.random(count)) / np.log(max(settings.m, 2))
        tops = np.minimum(drawn, settings.max_level - 1).astype(np.uint8)
        built = build_graph(
            view.vectors,
            view.comparison,
            tops,
            settings.m,
            settings.ef_construction,
            partial(map_ordered, few=FEW_LONG_TASKS),
            CPU_THREADS,
        )
        distances = view.rescale(edge_distances(built, view.vectors, view.comparison))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(built.nodes, pa.uint32()),
                _lists(built.offsets, pa.array(built.neighbors, pa.uint32())),
                _lists(built.offsets, pa.array(distances, pa.float32())),
            ],
            schema=_SCHEMA,
        )
        self.lengths.append(len(batch))
        levels = built.level_offsets.tolist()
        levels += levels[-1:] * (settings.max_level + 1 - len(levels))
        note = {
            "entry_point": built.entry,
            "params": {
                "max_level": settings.max_level,
                "m": settings.m,
                "ef_construction": settings.ef_construction,
                "prefetch_distance": 2,
            },
            "level_offsets": levels,
        }
        self.notes.append(json.dumps(note, separators=(",", ":")))
        return batch


class StoredGraphs:
    """The graphs of a segment, read one by one."""

    def __init__(self, file: StoredFile) -> None:
        """Read where each graph is."""
        self._file = file
        self._places = layout.read_partitions(file)
        notes = layout.parse_json(file, layout.GRAPH_KEY)
        if not isinstance(notes, list) or len(notes) != len(self._places.lengths):
            raise CorruptDataError("an index has not as many graphs as partitions")
        self._notes = [_parse_note(note) for note in notes]

    @property
    def settings(self) -> GraphSettings:
        """What the graphs were built with."""
        for _, _, params in self._notes:
            known = ("m", "ef_construction", "max_level")
            return GraphSettings(**{key: int(params[key]) for key in known if key in params})
        return GraphSettings()

    def statistics(self) -> dict[str, Any]:
        """Return what there is to say of the first graph, under pylance's names."""
        for entry, levels, params in self._notes:
            return {"entry_point": entry, "params": params, "level_offsets": levels.tolist()}
        return {}

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Return about what reading the graphs of partitions asks of storage."""
        starts, ends = self._places.starts, self._places.starts + self._places.lengths
        rows = [RowRange(int(starts[number]), int(ends[number])) for number in numbers]
        return self._file.estimate_reads(_COLUMNS, *rows) if rows else IoCounts()

    def read(self, number: int, count: int) -> Graph | None:
        """Return the graph of a partition with so many rows, or None if it has none."""
        start, length = int(self._places.starts[number]), int(self._places.lengths[number])
        if not length or not count:
            return None
        columns = self._file.read(_COLUMNS, RowRange(start, start + length))
        lists = columns[1]
        offsets = lists.offsets.to_numpy().astype(np.int64)
        neighbors = lists.values.to_numpy(zero_copy_only=False)[offsets[0] : offsets[-1]]
        entry, levels, _ = self._notes[number]
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
        """Return whether the distances that are stored with the first nodes are those of a view."""
        count = min(len(graph.nodes), _NODES_CHECKED)
        start = int(self._places.starts[number])
        (lists,) = self._file.read([_DISTANCE], RowRange(start, start + count))
        stored = lists.flatten().to_numpy(zero_copy_only=False)
        first = Graph(
            graph.entry,
            graph.nodes[:count],
            graph.offsets[: count + 1],
            graph.neighbors[: graph.offsets[count]],
            graph.level_offsets,
        )
        own = view.rescale(edge_distances(first, view.vectors, view.comparison))
        return len(stored) == len(own) and np.allclose(stored, own)


def _parse_note(text: Any) -> tuple[int, Int64s, dict[str, Any]]:
    try:
        note = json.loads(text)
        levels = np.array(note["level_offsets"], np.int64)
        return int(note["entry_point"]), levels, dict(note.get("params") or {})
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise CorruptDataError("the notes on a graph are malformed") from error


def _without_empty_levels(levels: Int64s) -> Int64s:
    last = int(np.searchsorted(levels, levels[-1])) if levels.ndim == 1 and len(levels) else 0
    return levels[: last + 1]


def _check(graph: Graph, count: int) -> None:
    """Raise unless lists have only rows of the partition and levels are in order."""
    levels, nodes = graph.level_offsets, graph.nodes
    is_sound = (
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
    if not is_sound:
        raise CorruptDataError(
            "a graph does not fit the rows of its partition",
            rows=count,
            nodes=len(nodes),
            levels=levels.tolist(),
            entry=graph.entry,
        )


def _lists(offsets: Int64s, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values)
