"""Searching an index of vectors: partitions near the query, until as many rows are found as wanted.

    query        nearest centroids 7 2 9 4 ...     first some of them, by the budget below
    partition 7  rows that may be found, their distances; rows that are gone never are
    found 3 of 10 wanted                           the next partitions, until found or exhausted

How many partitions are looked at first depends on how much farther each centroid is than the
nearest, within bounds; the more rows are wanted the more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.index.vector.quantizers.base import Distances
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.vectors import prepare
from lancelet.kernels import Metric, search_graph
from lancelet.kernels.metric import Floats
from lancelet.query.indexing.segments import TableSegment
from lancelet.query.search.hits import Hits, smallest
from lancelet.rowids.address import NO_ADDRESS, UInt64s, fragments_of, offsets_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot

_COUNTS: Final = (1, 10, 100, 200, 500, 1000, 10_000, 100_000)


@dataclass(frozen=True, slots=True)
class _Budget:
    """For each of `_COUNTS`: how much farther than the nearest, and how many at least and most."""

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
    """What is looked for in an index; what is None is for the index to choose.

    So many `probes` are looked at whatever is found, and more only where rows are missing.
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
    """Where the rows of a segment are in a version; it is kept with the version."""

    def __init__(self, snapshot: Snapshot, segment: TableSegment) -> None:
        """Look up rows of a segment."""
        self._snapshot = snapshot
        self._segment = segment
        self._found: dict[int, tuple[UInt64s, Int64s | None]] = {}

    def of(self, number: int, numbers: UInt64s) -> tuple[UInt64s, Int64s | None]:
        """Return the addresses of the rows of a partition, and which are live if not all are."""
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = self._look_up(numbers)
        return found

    def _look_up(self, numbers: UInt64s) -> tuple[UInt64s, Int64s | None]:
        segment = self._segment
        if segment.is_by_id:
            addresses = row_id_index_of(self._snapshot).addresses(numbers)
        else:
            addresses = segment.moved(numbers)
        admitted = self._covered.admits(addresses)
        live = None if admitted.all() else np.flatnonzero(admitted)
        return addresses, live

    @cached_property
    def _covered(self) -> AdmittedRows:
        snapshot = self._snapshot
        return AdmittedRows(
            {
                each: snapshot.deletions(fragment).live_mask(snapshot.physical_rows(fragment))
                for each in self._segment.covered
                for fragment in [snapshot.fragments.by_id(each)]
            }
        )


class AdmittedRows:
    """Rows that may be found, as a mask for each fragment; the masks lie one behind the other."""

    def __init__(self, masks: Mapping[int, npt.NDArray[np.bool_]]) -> None:
        """Admit the rows that masks have."""
        self._fragments = np.array(sorted(masks), np.int64)
        ordered = [masks[each] for each in self._fragments.tolist()]
        self._starts = np.concatenate([[0], np.cumsum([len(mask) for mask in ordered])]).astype(
            np.int64
        )
        # The last row stands for every address that is of no fragment here.
        self._mask = np.concatenate([*ordered, np.zeros(1, np.bool_)])

    @staticmethod
    def of_offsets(snapshot: Snapshot, rows: Mapping[int, Int64s]) -> AdmittedRows:
        """Admit rows by their offsets in each fragment."""
        masks = {}
        for fragment_id, offsets in rows.items():
            physical = snapshot.physical_rows(snapshot.fragments.by_id(fragment_id))
            masks[fragment_id] = np.zeros(physical, np.bool_)
            masks[fragment_id][offsets] = True
        return AdmittedRows(masks)

    def admits(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return for each address whether its row is admitted."""
        if not len(self._fragments):
            return np.zeros(len(addresses), np.bool_)
        fragments, offsets = fragments_of(addresses), offsets_of(addresses)
        at = np.searchsorted(self._fragments, fragments)
        at = np.minimum(at, len(self._fragments) - 1)
        places = self._starts[at] + offsets
        is_known = (self._fragments[at] == fragments) & (places < self._starts[at + 1])
        is_known &= addresses != NO_ADDRESS
        found: npt.NDArray[np.bool_] = self._mask[np.where(is_known, places, -1)]
        return found


def live_rows_of(snapshot: Snapshot, segment: TableSegment) -> LiveRows:
    """Return where the rows of a segment are in a version."""
    key = ("live rows", segment.metadata.uuid)
    return snapshot.kept.get_or_make(key, lambda: LiveRows(snapshot, segment))


class SegmentSearch:
    """A search in one segment, of rows that are live and, if there is a filter, pass it."""

    def __init__(self, segment: IvfSegment, live: LiveRows, admitted: AdmittedRows | None) -> None:
        """Search a segment that is open."""
        self._segment = segment
        self._live = live
        self._admitted = admitted

    def find(self, wanted: IndexQuery) -> Hits:
        """Return at least as many rows as are wanted, of what there are."""
        model = self._segment.model
        metric = model.metric
        query = wanted.query
        if metric is not Metric.HAMMING:
            matrix, can_be_compared = prepare(query[None, :], metric)
            if not can_be_compared[0]:
                return Hits.join([])
            query = matrix[0]
        apart = model.distances(query)
        order = np.argsort(apart, kind="stable")
        order = order[self._segment.lengths[order] > 0]
        first, most = probes_of(wanted, metric, apart[order])
        distances = self._segment.quantizer.ask(query)
        found: list[Hits] = []
        size, done = 0, 0
        limit = np.float32(np.inf)
        while done < most and (done < first or size < wanted.count):
            chosen = order[done : first if done < first else min(2 * done, most)]
            for number in chosen.tolist():
                hits = self._find_in(number, query, distances, wanted, limit)
                size += len(hits)
                if len(hits):
                    found.append(hits)
                if size >= wanted.count and len(hits):
                    found = [Hits.join(found).nearest(wanted.count)]
                    limit = found[0].scores[-1]
            done += len(chosen)
        return Hits.join(found).nearest(wanted.count)

    def _find_in(
        self,
        number: int,
        query: npt.NDArray[Any],
        distances: Distances,
        wanted: IndexQuery,
        limit: np.float32,
    ) -> Hits:
        segment = self._segment
        partition = segment.partition(number)
        addresses, rows = self._live.of(number, partition.numbers)
        if self._admitted is not None:
            own = addresses if rows is None else addresses[rows]
            kept = np.flatnonzero(self._admitted.admits(own))
            rows = kept if rows is None else rows[kept]
        if rows is not None and not len(rows):
            return Hits.join([])
        centroid = segment.model.centroids[number]
        rows = self._through_graph(number, query, centroid, rows, wanted)
        scores = distances(partition.codes, centroid, rows)
        if wanted.lower is not None:
            scores[scores < wanted.lower] = np.nan
        if wanted.upper is not None:
            scores[scores >= wanted.upper] = np.nan
        # What is farther than all that was found is left out before anything is sorted.
        near = np.flatnonzero(scores <= limit)
        places = near[smallest(scores[near], wanted.count)]
        chosen = places if rows is None else rows[places]
        return Hits.of_query(addresses[chosen], scores[places])

    def _through_graph(
        self,
        number: int,
        query: npt.NDArray[Any],
        centroid: npt.NDArray[Any],
        rows: Int64s | None,
        wanted: IndexQuery,
    ) -> Int64s | None:
        """Return the rows that the graph of a partition leads to; all where there is none.

        Where few rows may be found, looking at all of them is less work than walking past the
        others. A bound on distances is no part of the walk, so then too all are looked at.
        """
        count = int(self._segment.lengths[number])
        beam = max(wanted.ef or wanted.count + wanted.count // 2, wanted.count)
        allowed = count if rows is None else len(rows)
        has_bounds = wanted.lower is not None or wanted.upper is not None
        if allowed <= _FEW_ROWS + 20 * beam or allowed * 10 < count or has_bounds:
            return rows
        found = self._segment.graph(number)
        if found is None:
            return rows
        graph, codes = found
        comparison, asked = self._segment.quantizer.graph_query(query, centroid)
        admitted = None
        if rows is not None:
            admitted = np.zeros(count, np.bool_)
            admitted[rows] = True
        reached, _ = search_graph(graph, codes, comparison, asked, min(beam, count), admitted)
        if len(reached) < min(wanted.count, allowed):
            return rows
        return reached.astype(np.int64)


_FEW_ROWS: Final = 1000


def probes_of(wanted: IndexQuery, metric: Metric, apart: Floats) -> tuple[int, int]:
    """Return how many partitions are looked at first, and how many at most.

    `apart` says how far the centroids are, in order.
    """
    most = len(apart) if wanted.probes_max is None else min(wanted.probes_max, len(apart))
    if wanted.probes is not None:
        return min(wanted.probes, len(apart)), most
    least = 1 if wanted.probes_min is None else wanted.probes_min
    budget = _BUDGETS.get(metric, _BUDGETS[Metric.L2])
    if not len(apart):
        return 0, 0
    place = min(int(np.searchsorted(_COUNTS, wanted.count)), len(_COUNTS) - 1)
    nearest = float(apart[0])
    scale = abs(1 - nearest) if metric is Metric.DOT else nearest
    near = int(np.searchsorted(apart - nearest, budget.margins[place] * scale, side="right"))
    first = min(max(near, budget.least[place]), budget.most[place])
    return min(max(first, least), most), most


def search_segments(
    snapshot: Snapshot,
    segments: Sequence[TableSegment],
    wanted: Sequence[IndexQuery],
    rows: Mapping[int, Int64s] | None,
) -> Hits:
    """Return what segments find for each of several queries."""
    admitted = None if rows is None else AdmittedRows.of_offsets(snapshot, rows)
    found: list[Hits] = []
    for segment in segments:
        opened = segment.open()
        assert isinstance(opened, IvfSegment), "segments of vectors were chosen"
        search = SegmentSearch(opened, live_rows_of(snapshot, segment), admitted)
        for index, each in enumerate(wanted):
            hits = search.find(each)
            found.append(Hits.of_query(hits.addresses, hits.scores, index))
    return Hits.join(found)
