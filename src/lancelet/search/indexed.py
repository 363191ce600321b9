"""Search of a vector index: probe the nearest partitions until enough rows are found.

  query        nearest centroids 7 2 9 4 ...     the budget below sets the first probes
  partition 7  distances of the live rows that pass the filter
  3 of 10 rows found                           probe further partitions until complete or exhausted

The number of initial probes depends on the distances of the centroids relative to the nearest one,
within bounds that grow with the number of requested rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.file.pool import map_ordered
from lancelet.index.kernels import (
    CodeKind,
    CodeQuery,
    Metric,
    Probes,
    scan_partitions,
    search_graph,
)
from lancelet.index.kernels.partitions import NO_FLOATS
from lancelet.index.kernels.vectors import Floats
from lancelet.index.vector.quantizers.base import Quantizer
from lancelet.index.vector.segment import IvfSegment, LoadedRows
from lancelet.index.vector.vectors import prepare_query
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.scan.indexing.segments import TableSegment
from lancelet.search.admitted import AdmittedRows, CachedFilterRows, live_masks, masks_of_offsets
from lancelet.search.hits import NO_HITS, Hits
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass

_COUNTS: Final = (1, 10, 100, 200, 500, 1000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class _Budget:
    """Relative distance margin, minimum and maximum number of probes for each of `_COUNTS`."""

    margins: tuple[float, ...]
    least: tuple[int, ...]
    most: tuple[int, ...]


_BUDGETS: Final = {
    Metric.L2: _Budget(
        (0.2175, 0.265, 0.33, 0.375, 0.3725, 0.4175, 0.57, 0.75),
        (5, 6, 11, 15, 22, 29, 98, 463),
        (19, 24, 38, 56, 81, 93, 238, 704),
    ),
    Metric.COSINE: _Budget(
        (0.235, 0.2875, 0.38, 0.415, 0.45, 0.47, 0.6475, 0.58),
        (3, 8, 7, 18, 28, 34, 104, 738),
        (50, 77, 106, 156, 192, 248, 447, 958),
    ),
    Metric.DOT: _Budget(
        (0.14, 0.055, 0.0625, 0.0675, 0.07, 0.0725, 0.0825, 0.21),
        (56, 144, 200, 211, 244, 279, 517, 1009),
        (112, 432, 768, 833, 971, 1092, 1824, 2528),
    ),
}


@dataclass(frozen=True, slots=True, eq=False)
class IndexQuery:
    """A query of an index. The index chooses values for parameters that are None.

    `probes` partitions are always searched, and more only if they yield too few rows.
    """

    query: npt.NDArray[Any]
    count: int
    probes: int | None = None
    probes_min: int | None = None
    probes_max: int | None = None
    ef: int | None = None
    lower: float | None = None
    upper: float | None = None


class LiveRows:
    """Current addresses of the rows of a segment, cached with the version."""

    def __init__(self, snapshot: Snapshot, segment: TableSegment) -> None:
        """Create the lookup for a segment."""
        self._snapshot = snapshot
        self._segment = segment
        self._moves = segment.is_by_id or bool(fragment_reuse_of(snapshot).versions)
        self._lock = threading.Lock()
        self._source: UInt64s | None = None
        self._addresses = np.empty(0, np.uint64)
        self._is_there: set[int] = set()

    @property
    def memory_bytes(self) -> int:
        """The size in bytes, including the row numbers that are translated."""
        own = 0 if self._source is None else 2 * self._addresses.nbytes
        admitted = vars(self).get("admitted")
        return own + (0 if admitted is None else admitted.memory_bytes)

    @cached_property
    def admitted(self) -> AdmittedRows:
        """The rows of covered fragments that are not deleted."""
        masks = live_masks(self._snapshot, self._segment.covered)
        return AdmittedRows(masks, opened_vectors(self._segment))

    def addresses(self, opened: IvfSegment, loaded: LoadedRows, partitions: Int64s) -> UInt64s:
        """Return the addresses of all loaded rows, valid for the given partitions."""
        if not self._moves:
            return loaded.numbers
        with self._lock:
            if self._source is not loaded.numbers:
                self._source = loaded.numbers
                self._addresses = np.empty(len(loaded.numbers), np.uint64)
                self._is_there.clear()
            for number in partitions.tolist():
                if number not in self._is_there:
                    rows = opened.rows_of(number)
                    self._addresses[rows] = self._to_addresses(loaded.numbers[rows])
                    self._is_there.add(number)
            return self._addresses

    def _to_addresses(self, numbers: UInt64s) -> UInt64s:
        if self._segment.is_by_id:
            return row_id_index_of(self._snapshot).addresses(numbers)
        return self._segment.moved(numbers)


def opened_vectors(segment: TableSegment) -> IvfSegment:
    """Return the open segment of a vector index."""
    opened = segment.open()
    assert isinstance(opened, IvfSegment), "vector search requires vector index segments"
    return opened


def live_rows_of(snapshot: Snapshot, segment: TableSegment) -> LiveRows:
    """Return the cached row addresses of a segment in a version."""
    key = ("live rows", segment.metadata.uuid)
    return snapshot.version_cache.get_or_make(key, lambda: LiveRows(snapshot, segment))


class SegmentSearch:
    """A search in one segment over live rows that pass the filter, if any."""

    def __init__(self, segment: IvfSegment, live: LiveRows, admitted: AdmittedRows | None) -> None:
        """Search an open segment, by default over all live rows."""
        self._segment = segment
        self._live = live
        self._admitted = live.admitted if admitted is None else admitted

    def find(self, index_query: IndexQuery) -> Hits:
        """Return the nearest `count` rows, or all rows if there are fewer."""
        index_query = _within(index_query, self._segment)
        query = prepare_query(index_query.query, self._segment.model.metric)
        if query is None:
            return NO_HITS
        distances, order, first, most = _probed(self._segment, index_query, query)
        prepared = _PreparedQuery(index_query, query, distances, self._segment.quantizer)
        found = NO_HITS
        done = 0
        while done < most and (done < first or len(found) < index_query.count):
            chosen = order[done : first if done < first else min(2 * done, most)]
            hits = self._find_in(chosen, prepared)
            found = Hits.join([found, hits]).top_k(index_query.count) if len(found) else hits
            done += len(chosen)
        return found

    def _find_in(self, chosen: Int64s, prepared: _PreparedQuery) -> Hits:
        """Return the nearest rows of partitions."""
        loaded = self._segment.load(chosen)
        addresses = self._live.addresses(self._segment, loaded, chosen)
        if self._segment.graphs is None:
            return self._scan(chosen, loaded, addresses, prepared)
        walked: list[Hits] = []
        scanned: list[int] = []
        for number in chosen.tolist():
            hits = self._search_graph(number, addresses, prepared)
            if hits is None:
                scanned.append(number)
            else:
                walked.append(hits)
        if scanned:
            walked.append(self._scan(np.array(scanned), loaded, addresses, prepared))
        return Hits.join(walked).top_k(prepared.index_query.count)

    def _scan(
        self, chosen: Int64s, loaded: LoadedRows, addresses: UInt64s, prepared: _PreparedQuery
    ) -> Hits:
        segment, index_query = self._segment, prepared.index_query
        centers = bases = NO_FLOATS
        if prepared.code.kind is CodeKind.CODEBOOK or len(loaded.codes.numbers):
            centers = segment.centers[chosen].reshape(-1)
        elif prepared.code.kind in {CodeKind.ROTATED, CodeKind.ROTATED_WIDE}:
            shift = np.float32(1 if segment.model.metric is Metric.DOT else 0)
            bases = prepared.centroid_distances[chosen] - shift
        found, scores = scan_partitions(
            prepared.code,
            loaded.codes,
            Probes(segment.starts[chosen], segment.lengths[chosen], centers, bases),
            addresses,
            self._admitted.among(chosen, addresses),
            index_query.count,
            (
                -np.inf if index_query.lower is None else index_query.lower,
                np.inf if index_query.upper is None else index_query.upper,
            ),
        )
        return Hits.of_query(found, scores)

    def _search_graph(
        self, number: int, addresses: UInt64s, prepared: _PreparedQuery
    ) -> Hits | None:
        """Search the graph of a partition; return None if the partition must be scanned.

        If few rows pass the filter, a scan is cheaper than traversing filtered rows. Distance
        bounds cannot limit the traversal, so partitions are scanned in that case too.
        """
        index_query, rows_of = prepared.index_query, self._segment.rows_of(number)
        count, beam = int(self._segment.lengths[number]), _beam_of(index_query)
        if count <= _rows_to_walk(index_query):
            return None
        admitted = self._admitted.among(np.array([number]), addresses)[rows_of]
        allowed = self._admitted.count(number)
        if not allowed:
            return NO_HITS
        if allowed <= _rows_to_walk(index_query) or allowed * 10 < count:
            return None
        found = self._segment.graph(number)
        if found is None:
            return None
        graph, codes = found
        centroid = self._segment.model.centroids[number]
        graph_query = self._segment.quantizer.graph_query(prepared.query, centroid)
        rows, compared = search_graph(
            graph,
            codes,
            graph_query.comparison,
            graph_query.query,
            min(beam, count),
            None if allowed == count else admitted,
        )
        if len(rows) < min(index_query.count, allowed):
            return None
        return Hits.of_query(addresses[rows_of][rows], graph_query.rescale(compared))


@dataclass(frozen=True, eq=False)
class _PreparedQuery:
    """A query prepared for a segment."""

    index_query: IndexQuery
    query: npt.NDArray[Any]
    centroid_distances: Floats
    """Distance of each centroid."""
    quantizer: Quantizer

    @cached_property
    def code(self) -> CodeQuery:
        """The query as used by the quantizer; graph searches do not need it."""
        return self.quantizer.code_query(self.query)


_FEW_ROWS: Final = 1000


def estimate_reads(segment: IvfSegment, index_query: IndexQuery) -> IoCounts:
    """Estimate the reads of a search in a segment, assuming that the initial probes suffice."""
    index_query = _within(index_query, segment)
    query = prepare_query(index_query.query, segment.model.metric)
    if query is None:
        return IoCounts()
    _, order, first, _ = _probed(segment, index_query, query)
    chosen = order[:first]
    walked = chosen[segment.lengths[chosen] > _rows_to_walk(index_query)]
    return segment.estimate_reads(chosen, by_graph=walked)


def _within(index_query: IndexQuery, segment: IvfSegment) -> IndexQuery:
    """Limit `count` to the number of rows of the segment, as it determines the memory use."""
    if index_query.count <= segment.num_rows:
        return index_query
    return replace(index_query, count=max(1, segment.num_rows))


def _probed(
    segment: IvfSegment, index_query: IndexQuery, query: npt.NDArray[Any]
) -> tuple[Floats, Int64s, int, int]:
    """Return centroid distances, ordered partitions, and initial and maximum probe counts."""
    distances = segment.model.distances(query)
    order = np.argsort(distances, kind="stable")
    order = order[segment.lengths[order] > 0]
    return distances, order, *probes_of(index_query, segment.model.metric, distances[order])


def _beam_of(index_query: IndexQuery) -> int:
    return max(index_query.ef or index_query.count + index_query.count // 2, index_query.count)


def _rows_to_walk(index_query: IndexQuery) -> float:
    """Return the largest number of rows that is scanned instead of searching a graph."""
    if index_query.lower is not None or index_query.upper is not None:
        return np.inf
    return _FEW_ROWS + 20 * _beam_of(index_query)


def probes_of(index_query: IndexQuery, metric: Metric, distances: Floats) -> tuple[int, int]:
    """Return the initial and the maximum number of probes for ascending centroid distances."""
    most = (
        len(distances)
        if index_query.probes_max is None
        else min(index_query.probes_max, len(distances))
    )
    if index_query.probes is not None:
        return min(index_query.probes, len(distances)), most
    least = 1 if index_query.probes_min is None else index_query.probes_min
    budget = _BUDGETS.get(metric, _BUDGETS[Metric.L2])
    if not len(distances):
        return 0, 0
    budget_index = min(int(np.searchsorted(_COUNTS, index_query.count)), len(_COUNTS) - 1)
    distance_min = float(distances[0])
    scale = abs(1 - distance_min) if metric is Metric.DOT else distance_min
    near = int(
        np.searchsorted(
            distances - distance_min, budget.margins[budget_index] * scale, side="right"
        )
    )
    first = min(max(near, budget.least[budget_index]), budget.most[budget_index])
    return min(max(first, least), most), most


def search_segments(
    snapshot: Snapshot,
    segments: Sequence[TableSegment],
    queries: Sequence[IndexQuery],
    rows: Mapping[int, Int64s] | None,
) -> Hits:
    """Return the nearest rows of segments for several queries, which run concurrently.

    Hits are sorted by query, then by distance, with up to `count` rows per query.
    """
    found: list[Hits] = []
    for segment in segments:
        opened = opened_vectors(segment)
        admitted = None if rows is None else _admitted(snapshot, segment, rows)
        search = SegmentSearch(opened, live_rows_of(snapshot, segment), admitted)
        parts = (
            [search.find(queries[0])] if len(queries) == 1 else map_ordered(search.find, queries)
        )
        for index, hits in enumerate(parts):
            found.append(hits if index == 0 else hits.as_query(index))
    if len(segments) == 1:
        return found[0] if len(found) == 1 else Hits.join(found)
    return Hits.join(found).top_k(max(query.count for query in queries))


def _admitted(
    snapshot: Snapshot, segment: TableSegment, rows: Mapping[int, Int64s]
) -> AdmittedRows:
    def make() -> AdmittedRows:
        masks = masks_of_offsets(rows, segment.covered)
        return AdmittedRows(masks, opened_vectors(segment))

    if not isinstance(rows, CachedFilterRows):
        return make()
    return snapshot.version_cache.get_or_make(
        ("rows admitted", rows.text, segment.metadata.uuid), make
    )
