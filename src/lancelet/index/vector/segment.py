"""An open segment of a vector index: its model in memory, its partitions read as needed.

model       centroids of 3 partitions       rows 0:328 | 328:667 | 667:1000
partition   numbers of rows, their codes    kept in an arena

The rows of a segment in memory: one array for the codes of all partitions, filled as needed.

    partition    0          1        2
    rows         0..328     328..667 667..1000
    codes        loaded     -        loaded       nothing is held for what was not asked for

A kernel is given the whole arrays and the places of the partitions to look at. Memory that was
never written takes no room. When the cache has no room for the whole of it, it is dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError, InternalError, ObjectNotFoundError
from lancelet.index.base import SearchResult
from lancelet.index.folder import IndexLoads, SegmentFolder, StoredFile
from lancelet.index.query import ScalarQuery
from lancelet.index.vector import layout
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.graph import StoredGraphs
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.one_file import OneFile, Origin, is_one_file
from lancelet.index.vector.quantizers.base import Codes, Quantizer, StorageNotes
from lancelet.index.vector.quantizers.registry import GRAPH, parse_quantizer, quantizer_name
from lancelet.index.vector.vectors import values_of
from lancelet.io.cache import estimate_bytes
from lancelet.io.metered import IoCounts
from lancelet.kernels import Graph, Metric, PackedCodes
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property, dataclass

_INNER_NOTES: Final = frozenset({"codebook_position", "codebook_tensor"})
"""What a file notes for readers alone."""


_ARENA: Final = "partitions"

ReadPartition = Callable[[int], tuple[UInt64s, PackedCodes]]
"""Returns the numbers of the rows of a partition and its codes as kernels want them."""


@dataclass(frozen=True, slots=True, eq=False)
class _Models:
    """The models of a segment, which handles of one table share."""

    model: IvfModel
    quantizer: Quantizer

    @property
    def memory_bytes(self) -> int:
        """How much memory they take, with the centroids in single precision."""
        return 2 * self.model.centroids.nbytes + estimate_bytes(self.quantizer)


@dataclass(frozen=True, slots=True, eq=False)
class _KeptGraph:
    """The graph of a partition in memory, with its rows."""

    graph: Graph
    codes: npt.NDArray[Any]

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes."""
        own = self.graph
        return sum(
            each.nbytes
            for each in (own.nodes, own.offsets, own.neighbors, own.level_offsets, self.codes)
        )


class IvfSegment:
    """A segment that was opened, for any number of threads."""

    def __init__(self, folder: SegmentFolder, details: bytes) -> None:
        """Read the model."""
        self.details = IvfDetails.parse(details)
        self._stored = _open(folder)
        self._loads, self._kept = folder.loads, folder.kept
        own = _Models(self._stored.model, self._stored.quantizer)
        models = self._kept.get_or_make("models", lambda: own)
        self.name, self.model, self.quantizer = self._stored.name, models.model, models.quantizer
        self._stored.quantizer = models.quantizer
        self.starts, self.lengths = self._stored.starts, self._stored.lengths

    @property
    def notes(self) -> Mapping[str, Any]:
        """What the files say of the codes."""
        return self._stored.notes

    @property
    def origin(self) -> Origin | None:
        """What index the segment says it is of, if it is one file; others do not say."""
        return self._stored.origin if isinstance(self._stored, OneFile) else None

    def estimate(self, query: ScalarQuery) -> None:
        """Return None: a vector index answers no filter."""

    def search(self, query: ScalarQuery) -> SearchResult:
        """Refuse: no filter asks this."""
        raise InternalError("a vector index answers no filter", question=str(query))

    def nulls(self) -> RowSet | None:
        """Return None: rows without a vector are not in the index."""
        return None

    def statistics(self) -> dict[str, Any]:
        """Return what there is to say of the segment, by pylance's names."""
        found = {
            "index_type": self.name,
            "metric_type": layout.METRIC_NAMES[self.model.metric],
            "num_partitions": self.model.partitions,
            "sub_index": self._inner_statistics(),
            "partitions": [{"size": size} for size in self.lengths.tolist()],
            "centroids": self.model.centroids.tolist(),
            "loss": self.model.loss,
            "index_file_version": self._stored.version_name,
        }
        # Said only where there are some: programs compare these with what pylance returns.
        return {**found, "num_rows_left_out": self.left_out} if self.left_out else found

    def _inner_statistics(self) -> dict[str, Any]:
        found = {key: own for key, own in self.notes.items() if key not in _INNER_NOTES}
        found["metric_type"] = layout.METRIC_NAMES[self.model.metric]
        is_prepared = self.name.endswith("PQ") and self.origin is None
        if is_prepared and self.model.metric is Metric.COSINE:
            found["metric_type"] = layout.METRIC_NAMES[Metric.L2]  # of vectors of length one
        if self.graphs is None:
            return {**found, "index_type": quantizer_name(self.name)}
        return {**self.graphs.statistics(), **found, "index_type": "HNSW"}

    @cached_property
    def num_rows(self) -> int:
        """How many vectors there are."""
        return int(self.lengths.sum())

    @cached_property
    def num_places(self) -> int:
        """How many places there are for rows, which partitions lie among."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def left_out(self) -> int | None:
        """How many rows had no vector that can be compared, None if nobody counted."""
        return self._stored.left_out

    def load(self, partitions: Int64s) -> Loaded:
        """Return the rows of partitions that have any, among others; they are kept."""
        read = self._loads.parts
        loaded = self._arena.load(partitions, self._read, self._loads)
        if self._loads.parts != read:
            self._kept.update_size(_ARENA)
        return loaded

    @property
    def _arena(self) -> Arena:
        return self._kept.get_or_make(_ARENA, lambda: Arena(self.starts, self.lengths))

    def rows_of(self, number: int) -> slice:
        """Return the places of a partition among what was loaded."""
        return slice(int(self.starts[number]), int(self.starts[number] + self.lengths[number]))

    @cached_property
    def centers(self) -> npt.NDArray[np.float32]:
        """The centroids in single precision."""
        return self.model.centroids.astype(np.float32, copy=False)

    def _read(self, number: int) -> tuple[UInt64s, PackedCodes]:
        numbers, codes = self.codes(number)
        return numbers, self.quantizer.searchable(codes, self.centers[number])

    def estimate_reads(self, partitions: Int64s, *, by_graph: Int64s) -> IoCounts:
        """Return about what loading partitions will read, and the graphs of some of them."""
        loaded = self._arena.missing(partitions).tolist()
        found = IoCounts()
        if self.graphs is not None:
            walked = [each for each in by_graph.tolist() if each not in self._kept]
            found += self.graphs.estimate_reads(walked)
            loaded += walked
        return found + self._stored.estimate_reads(loaded) if loaded else found

    def codes(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        return self._stored.read(number)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """The graphs of kinds that have them."""
        return self._stored.graphs

    def graph(self, number: int) -> tuple[Graph, npt.NDArray[Any]] | None:
        """Return the graph of a partition and its rows, or None without a usable one; cached."""
        if self.graphs is None:
            return None
        found = self._kept.get_or_make(number, lambda: self._read_graph(number))
        return None if found is None else (found.graph, found.codes)

    def _read_graph(self, number: int) -> _KeptGraph | None:
        assert self.graphs is not None, "it has graphs"
        graph = self.graphs.read(number, int(self.lengths[number]))
        if graph is None:
            return None
        codes = self.codes(number)[1]
        if self.model.metric is Metric.HAMMING:
            # Earlier builds compared bytes by dot product, and such a graph does not lead to the
            # rows that are near by bits. Without a graph, all rows of the partition are compared.
            view = self.quantizer.graph_view(codes)
            if not self.graphs.has_distances_of(graph, number, view):
                return None
        return _KeptGraph(graph, self.quantizer.graph_codes(codes))


def _open(folder: SegmentFolder) -> TwoFiles | OneFile:
    try:
        return TwoFiles(folder)
    except ObjectNotFoundError:
        if not is_one_file(folder):
            raise
        return OneFile(folder)


class TwoFiles:
    """Open files of this layout: models in memory, partitions read as they are asked for."""

    version_name = "V3"

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the model."""
        self._storage: StoredFile = folder.open(layout.STORAGE_FILE)
        self._index: StoredFile = folder.open(layout.INDEX_FILE)
        self.name, metric = layout.read_kind(self._index)
        own = layout.read_partitions(self._index)
        rows = layout.read_partitions(self._storage)
        if own.centroids is None or own.centroids.ndim != 2:
            raise CorruptDataError("a vector index has no centroids", path=folder.path)
        if len(own.centroids) != len(rows.lengths):
            raise CorruptDataError(
                "an index has not as many partitions as centroids",
                path=folder.path,
                partitions=len(rows.lengths),
                centroids=len(own.centroids),
            )
        self.model = IvfModel(metric, own.centroids, own.loss)
        self.starts, self.lengths = rows.starts, rows.lengths
        notes = StorageNotes(
            layout.read_notes(self._storage),
            lambda number: self._storage.global_buffer(str(number)),
        )
        self.notes: Mapping[str, Any] = notes.values
        columns = [field for field in self._storage.schema if field.name != "_rowid"]
        self.quantizer: Quantizer = parse_quantizer(self.name, notes, metric, columns)

    @cached_property
    def left_out(self) -> int | None:
        """How many rows had no vector that can be compared, None if nobody counted."""
        return layout.read_left_out(self._storage)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """The graphs of kinds that have them."""
        return StoredGraphs(self._index) if self.name.startswith(GRAPH) else None

    def read(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the numbers of the rows of a partition, and their codes row by row."""
        ids, *columns = self._storage.read(self._columns, self._rows(number))
        arrays = [_array_of(column) for column in columns]
        return ids.to_numpy(zero_copy_only=False).astype(np.uint64), self.quantizer.load(arrays)

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Return about what reading partitions asks of storage."""
        return self._storage.estimate_reads(self._columns, *map(self._rows, numbers))

    @property
    def _columns(self) -> list[str]:
        return ["_rowid", *(field.name for field in self.quantizer.fields)]

    def _rows(self, number: int) -> RowRange:
        start, count = int(self.starts[number]), int(self.lengths[number])
        return RowRange(start, start + count)


def _array_of(column: pa.Array) -> npt.NDArray[Any]:
    if pa.types.is_fixed_size_list(column.type):
        return values_of(column).reshape(len(column), column.type.list_size)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.reshape(len(column), 1)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """Arrays with places for all rows; rows of partitions that were loaded are in theirs."""

    numbers: UInt64s
    codes: PackedCodes


class Arena:
    """The partitions of a segment, read when they are first asked for; for any thread."""

    def __init__(self, starts: Int64s, lengths: Int64s) -> None:
        """Hold nothing yet."""
        self._starts = starts
        self._lengths = lengths
        self._lock = threading.Lock()
        self._is_there = np.zeros(len(starts), np.bool_)
        self._loaded: Loaded | None = None
        self.memory_bytes = 0

    def load(
        self, partitions: Int64s, read: ReadPartition, loads: IndexLoads | None = None
    ) -> Loaded:
        """Return arrays in which these partitions are, each of which has rows.

        Those that are missing are read; `loads` counts them, and those that were there.
        """
        loads = IndexLoads() if loads is None else loads
        with self._lock:
            loaded = self._loaded
            if loaded is not None and self._is_there[partitions].all():
                loads.count(found=len(partitions))
                return loaded
            missing = partitions[~self._is_there[partitions]].tolist()
            loads.count(parts=len(missing))
            loads.count(found=len(partitions) - len(missing))
            return self._fill(missing, read)

    def missing(self, partitions: Int64s) -> Int64s:
        """Return which of some partitions would be read."""
        with self._lock:
            return partitions[~self._is_there[partitions]]

    def _fill(self, missing: Iterable[int], read: ReadPartition) -> Loaded:
        for number in missing:
            numbers, codes = read(number)
            loaded = self._loaded
            if loaded is None:
                loaded = self._loaded = self._empty(codes, len(numbers))
            start, length = int(self._starts[number]), int(self._lengths[number])
            loaded.numbers[start : start + length] = numbers
            self.memory_bytes += 8 * length
            for kept, own in zip(_arrays(loaded.codes), _arrays(codes), strict=True):
                per_row = len(own) // max(length, 1)
                kept[start * per_row : (start + length) * per_row] = own
                self.memory_bytes += own.nbytes
            self._is_there[number] = True
        assert self._loaded is not None, "a partition was loaded"
        return self._loaded

    def _empty(self, codes: PackedCodes, count: int) -> Loaded:
        rows = int((self._starts + self._lengths).max(initial=0))
        values, *others = (
            np.empty(rows * (len(each) // max(count, 1)), each.dtype) for each in _arrays(codes)
        )
        return Loaded(np.empty(rows, np.uint64), PackedCodes(values, codes.row_bytes, *others))


def _arrays(codes: PackedCodes) -> tuple[npt.NDArray[Any], ...]:
    return codes.values, codes.add, codes.scale, codes.numbers
