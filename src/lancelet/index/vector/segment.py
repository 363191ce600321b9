"""An open segment of a vector index. Models are in memory, partitions are loaded on demand.

    model       centroids of 3 partitions       rows 0:328 | 328:667 | 667:1000
    partition   row numbers and codes           cached in an arena

The arena has one array for the codes of all partitions, which is filled on demand:

    partition    0          1        2
    rows         0..328     328..667 667..1000
    codes        loaded     -        loaded       unused pages consume no physical memory

Kernels receive the whole arrays and the row ranges of the partitions to search. If the cache
exceeds its limit, the whole arena is dropped.
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
from lancelet.index.kernels import Graph, Metric, PackedCodes
from lancelet.index.query import ScalarQuery
from lancelet.index.vector import layout
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.graph import StoredGraphs
from lancelet.index.vector.legacy_file import LegacyFile, Origin, is_legacy_file
from lancelet.index.vector.model import IvfModel
from lancelet.index.vector.quantizers.base import Codes, Quantizer, StorageMetadata
from lancelet.index.vector.quantizers.registry import GRAPH, parse_quantizer, quantizer_name
from lancelet.index.vector.vectors import values_of
from lancelet.io.cache import estimate_bytes
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.values import cached_property, dataclass

_HIDDEN_METADATA: Final = frozenset({"codebook_position", "codebook_tensor"})
"""Metadata entries omitted from statistics."""


_ARENA: Final = "partitions"

ReadPartition = Callable[[int], tuple[UInt64s, PackedCodes]]
"""Returns the row numbers of a partition and its codes in the layout of the kernels."""


@dataclass(frozen=True, slots=True, eq=False)
class _Models:
    """The models of a segment, shared by all handles of a table."""

    model: IvfModel
    quantizer: Quantizer

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes, including the centroids in single precision."""
        return 2 * self.model.centroids.nbytes + estimate_bytes(self.quantizer)


@dataclass(frozen=True, slots=True, eq=False)
class _CachedGraph:
    """A cached graph of a partition and its rows."""

    graph: Graph
    codes: npt.NDArray[Any]

    @property
    def memory_bytes(self) -> int:
        """Memory in bytes."""
        graph = self.graph
        return sum(
            each.nbytes
            for each in (
                graph.nodes,
                graph.offsets,
                graph.neighbors,
                graph.level_offsets,
                self.codes,
            )
        )


class IvfSegment:
    """An open segment of a vector index. Thread-safe."""

    def __init__(self, folder: SegmentFolder, details: bytes) -> None:
        """Read the models."""
        self.details = IvfDetails.parse(details)
        self._stored = _open(folder)
        self._loads, self._cache = folder.loads, folder.cache_scope
        loaded = _Models(self._stored.model, self._stored.quantizer)
        models = self._cache.get_or_make("models", lambda: loaded)
        self.name, self.model, self.quantizer = self._stored.name, models.model, models.quantizer
        self._stored.quantizer = models.quantizer
        self.starts, self.lengths = self._stored.starts, self._stored.lengths

    @property
    def storage_metadata(self) -> Mapping[str, Any]:
        """Storage metadata of the codes."""
        return self._stored.storage_metadata

    @property
    def origin(self) -> Origin | None:
        """Index that a legacy file belongs to; None for other layouts."""
        return self._stored.origin if isinstance(self._stored, LegacyFile) else None

    def estimate(self, query: ScalarQuery) -> None:
        """Return None; vector indices do not support filters."""

    def search(self, query: ScalarQuery) -> SearchResult:
        """Raise; vector indices do not support filters."""
        raise InternalError("vector indices do not support filters", question=str(query))

    def nulls(self) -> RowSet | None:
        """Return None; rows without a vector are not recorded."""
        return None

    def statistics(self) -> dict[str, Any]:
        """Return statistics of the segment under the names used by pylance."""
        result = {
            "index_type": self.name,
            "metric_type": layout.METRIC_NAMES[self.model.metric],
            "num_partitions": self.model.partitions,
            "sub_index": self._inner_statistics(),
            "partitions": [{"size": size} for size in self.lengths.tolist()],
            "centroids": self.model.centroids.tolist(),
            "loss": self.model.loss,
            "index_file_version": self._stored.version_name,
        }
        # Omitted if 0, because callers compare the result with pylance.
        return {**result, "num_rows_left_out": self.num_skipped} if self.num_skipped else result

    def _inner_statistics(self) -> dict[str, Any]:
        result = {
            key: value
            for key, value in self.storage_metadata.items()
            if key not in _HIDDEN_METADATA
        }
        result["metric_type"] = layout.METRIC_NAMES[self.model.metric]
        is_prepared = self.name.endswith("PQ") and self.origin is None
        if is_prepared and self.model.metric is Metric.COSINE:
            result["metric_type"] = layout.METRIC_NAMES[Metric.L2]  # vectors are normalized
        if self.graphs is None:
            return {**result, "index_type": quantizer_name(self.name)}
        return {**self.graphs.statistics(), **result, "index_type": "HNSW"}

    @cached_property
    def num_rows(self) -> int:
        """Number of vectors."""
        return int(self.lengths.sum())

    @cached_property
    def num_row_slots(self) -> int:
        """Number of row slots in the file, including gaps between partitions."""
        return int((self.starts + self.lengths).max(initial=0))

    @cached_property
    def num_skipped(self) -> int | None:
        """Number of rows without a valid vector, or None if it was not recorded."""
        return self._stored.num_skipped

    def load(self, partitions: Int64s) -> LoadedRows:
        """Load and cache non-empty partitions, and return the arrays that contain them."""
        parts_before = self._loads.parts
        loaded = self._arena.load(partitions, self._read, self._loads)
        if self._loads.parts != parts_before:
            self._cache.update_size(_ARENA)
        return loaded

    @property
    def _arena(self) -> Arena:
        return self._cache.get_or_make(_ARENA, lambda: Arena(self.starts, self.lengths))

    def rows_of(self, number: int) -> slice:
        """Return the row range of a partition in the loaded arrays."""
        return slice(int(self.starts[number]), int(self.starts[number] + self.lengths[number]))

    @cached_property
    def centers(self) -> npt.NDArray[np.float32]:
        """Centroids in single precision."""
        return self.model.centroids.astype(np.float32, copy=False)

    def _read(self, number: int) -> tuple[UInt64s, PackedCodes]:
        numbers, codes = self.codes(number)
        return numbers, self.quantizer.pack_codes(codes, self.centers[number])

    def estimate_reads(self, partitions: Int64s, *, by_graph: Int64s) -> IoCounts:
        """Estimate the reads of partitions, and of the graphs of some of them."""
        loaded = self._arena.missing(partitions).tolist()
        total = IoCounts()
        if self.graphs is not None:
            graph_partitions = [each for each in by_graph.tolist() if each not in self._cache]
            total += self.graphs.estimate_reads(graph_partitions)
            loaded += graph_partitions
        return total + self._stored.estimate_reads(loaded) if loaded else total

    def codes(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the row numbers and codes of a partition."""
        return self._stored.read(number)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """Graphs of the partitions, or None for kinds without graphs."""
        return self._stored.graphs

    def graph(self, number: int) -> tuple[Graph, npt.NDArray[Any]] | None:
        """Return the graph and rows of a partition, or None if it has no usable graph; cached."""
        if self.graphs is None:
            return None
        cached = self._cache.get_or_make(number, lambda: self._read_graph(number))
        return None if cached is None else (cached.graph, cached.codes)

    def _read_graph(self, number: int) -> _CachedGraph | None:
        assert self.graphs is not None, "the segment has graphs"
        graph = self.graphs.read(number, int(self.lengths[number]))
        if graph is None:
            return None
        codes = self.codes(number)[1]
        if self.model.metric is Metric.HAMMING:
            # Earlier builds used dot products of bytes, and their graphs do not connect neighbors
            # by Hamming distance. Without a graph, the search compares all rows of the partition.
            view = self.quantizer.graph_view(codes)
            if not self.graphs.has_distances_of(graph, number, view):
                return None
        return _CachedGraph(graph, self.quantizer.graph_codes(codes))


def _open(folder: SegmentFolder) -> SegmentFiles | LegacyFile:
    try:
        return SegmentFiles(folder)
    except ObjectNotFoundError:
        if not is_legacy_file(folder):
            raise
        return LegacyFile(folder)


class SegmentFiles:
    """Open files of the current layout. Models are in memory, partitions are read on demand."""

    version_name = "V3"

    def __init__(self, folder: SegmentFolder) -> None:
        """Read the models."""
        self._storage: StoredFile = folder.open(layout.STORAGE_FILE)
        self._index: StoredFile = folder.open(layout.INDEX_FILE)
        self.name, metric = layout.read_kind(self._index)
        partitions = layout.read_partitions(self._index)
        rows = layout.read_partitions(self._storage)
        if partitions.centroids is None or partitions.centroids.ndim != 2:
            raise CorruptDataError("missing centroids in a vector index", path=folder.path)
        if len(partitions.centroids) != len(rows.lengths):
            raise CorruptDataError(
                "the number of partitions differs from the number of centroids",
                path=folder.path,
                partitions=len(rows.lengths),
                centroids=len(partitions.centroids),
            )
        self.model = IvfModel(metric, partitions.centroids, partitions.loss)
        self.starts, self.lengths = rows.starts, rows.lengths
        storage = StorageMetadata(
            layout.read_storage_metadata(self._storage),
            lambda number: self._storage.global_buffer(str(number)),
        )
        self.storage_metadata: Mapping[str, Any] = storage.values
        columns = [field for field in self._storage.schema if field.name != "_rowid"]
        self.quantizer: Quantizer = parse_quantizer(self.name, storage, metric, columns)

    @cached_property
    def num_skipped(self) -> int | None:
        """Number of rows without a valid vector, or None if it was not recorded."""
        return layout.read_num_skipped(self._storage)

    @cached_property
    def graphs(self) -> StoredGraphs | None:
        """Graphs of the partitions, or None for kinds without graphs."""
        return StoredGraphs(self._index) if self.name.startswith(GRAPH) else None

    def read(self, number: int) -> tuple[UInt64s, Codes]:
        """Return the row numbers and codes of a partition."""
        ids, *columns = self._storage.read(self._columns, self._rows(number))
        arrays = [_array_of(column) for column in columns]
        return ids.to_numpy(zero_copy_only=False).astype(np.uint64), self.quantizer.load(arrays)

    def estimate_reads(self, numbers: Sequence[int]) -> IoCounts:
        """Estimate the reads of partitions."""
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
class LoadedRows:
    """Arrays with a slot for every row; only slots of loaded partitions are filled."""

    numbers: UInt64s
    codes: PackedCodes


class Arena:
    """The cached partitions of a segment. Thread-safe."""

    def __init__(self, starts: Int64s, lengths: Int64s) -> None:
        """Create an empty arena."""
        self._starts = starts
        self._lengths = lengths
        self._lock = threading.Lock()
        self._is_loaded = np.zeros(len(starts), np.bool_)
        self._loaded: LoadedRows | None = None
        self.memory_bytes = 0

    def load(
        self, partitions: Int64s, read: ReadPartition, loads: IndexLoads | None = None
    ) -> LoadedRows:
        """Load the missing non-empty partitions and return the arrays that contain them.

        `loads` counts partitions read and cache hits.
        """
        loads = IndexLoads() if loads is None else loads
        with self._lock:
            loaded = self._loaded
            if loaded is not None and self._is_loaded[partitions].all():
                loads.count(cache_hits=len(partitions))
                return loaded
            missing = partitions[~self._is_loaded[partitions]].tolist()
            loads.count(parts=len(missing))
            loads.count(cache_hits=len(partitions) - len(missing))
            return self._fill(missing, read)

    def missing(self, partitions: Int64s) -> Int64s:
        """Return the partitions that are not loaded."""
        with self._lock:
            return partitions[~self._is_loaded[partitions]]

    def _fill(self, missing: Iterable[int], read: ReadPartition) -> LoadedRows:
        for number in missing:
            numbers, codes = read(number)
            loaded = self._loaded
            if loaded is None:
                loaded = self._loaded = self._empty(codes, len(numbers))
            start, length = int(self._starts[number]), int(self._lengths[number])
            loaded.numbers[start : start + length] = numbers
            self.memory_bytes += 8 * length
            for arrays, values in zip(_arrays(loaded.codes), _arrays(codes), strict=True):
                per_row = len(values) // max(length, 1)
                arrays[start * per_row : (start + length) * per_row] = values
                self.memory_bytes += values.nbytes
            self._is_loaded[number] = True
        assert self._loaded is not None, "a partition was loaded"
        return self._loaded

    def _empty(self, codes: PackedCodes, count: int) -> LoadedRows:
        rows = int((self._starts + self._lengths).max(initial=0))
        values, *others = (
            np.empty(rows * (len(each) // max(count, 1)), each.dtype) for each in _arrays(codes)
        )
        return LoadedRows(np.empty(rows, np.uint64), PackedCodes(values, codes.row_bytes, *others))


def _arrays(codes: PackedCodes) -> tuple[npt.NDArray[Any], ...]:
    return codes.values, codes.add, codes.scale, codes.numbers
