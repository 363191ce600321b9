"""Nearest neighbor search over a vector column.

  nearest={"column": "v", "q": [0.1, 0.2], "k": 10, "metric": "cosine"}

The search uses a vector index with a matching metric and compares the remaining rows exactly. Exact
distances of single rows are computed on the stored bytes where vectors are stored uncompressed:

  rows 7 3 9    fragment 0: 3 7 9    bytes 1536..2048, 3584..4096, 4608..5120 of its file

This copies nothing and creates no arrays. Checksums are still verified block by block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, InvalidInputError, ObjectNotFoundError
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.index.kernels import Metric, slice_distances
from lancelet.index.kernels.vectors import Floats
from lancelet.index.vector.details import IvfDetails
from lancelet.index.vector.kind import IVF
from lancelet.index.vector.layout import METRIC_NAMES
from lancelet.index.vector.model import IvfModel
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s, fragments_of, offsets_of
from lancelet.scan.found_columns import QUERY_INDEX
from lancelet.scan.fragment_reader import FragmentReader
from lancelet.scan.indexing.column_indices import vector_indices
from lancelet.scan.indexing.segments import TableSegment, kind_of, warn_unusable
from lancelet.scan.node_meter import REFINE, plan_meter
from lancelet.scan.nodes.source import FragmentSource, sources
from lancelet.scan.plan import ScanPlan, projection_of
from lancelet.scan.projection import Projection
from lancelet.scan.take import take_addresses
from lancelet.search.exact import ExactQuery, distances_to, exact_search
from lancelet.search.hits import NO_HITS, Hits
from lancelet.search.indexed import IndexQuery, estimate_reads, opened_vectors, search_segments
from lancelet.search.vector_arguments import (
    distance_bounds,
    metric_named,
    probes_between,
    queries_of,
    vector_field,
    vectors_of,
)
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

COUNT: Final = 10
_TITLES: Final = {"l2": "L2", "cosine": "Cosine", "dot": "Dot", "hamming": "Hamming"}
_LIST_FACTOR: Final = 10
"""Minimum number of vector candidates per requested row if rows are lists of vectors."""
_WIDER: Final = 4
"""Growth of the number of candidates if they yield too few rows or too few are within the bounds.
"""
_ROWS_BEYOND: Final = 4000
"""With at least this many candidates, a search stops if four times as many candidates contained no
more rows below the upper bound.
"""


@dataclass(frozen=True, slots=True, eq=False)
class VectorSearch:
    """A nearest neighbor search. The index chooses values for parameters that are None."""

    field: Field
    queries: tuple[npt.NDArray[Any], ...]
    is_batch: bool
    count: int = COUNT
    metric: Metric | None = None
    probes: int | None = None
    probes_min: int | None = None
    probes_max: int | None = None
    refine_factor: int | None = None
    ef: int | None = None
    lower: float | None = None
    upper: float | None = None
    use_index: bool = True
    has_count: bool = True
    """Whether the caller passed `k`. Otherwise, the limit of the scan applies if it has one."""

    element_field = None

    @property
    def score_field(self) -> pa.Field:
        """The column of distances."""
        return pa.field("_distance", pa.float32())

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the nearest rows, through an index of the same metric if one exists."""
        self.check(plan)
        limit = plan.options.limit
        if not self.has_count and limit:
            counted = replace(self, count=limit + plan.options.offset, has_count=True)
            return counted.find(plan, rows)
        snapshot, fragments = plan.snapshot, plan.options.fragments
        if fragments is not None and rows is None:
            rows = {
                int(each.fragment.id): each.without_hidden(np.arange(each.num_rows))
                for each in sources(snapshot, fragments)
            }
        segments = self._segments_for(plan)
        if plan.options.segments is not None:
            fragments = tuple(sorted(_covered(segments)))
        if not segments:
            is_found = not plan.options.indexed_only
            return self._exact(snapshot, fragments, rows) if is_found else NO_HITS
        try:
            covered = _covered(segments)
            fragment_ids = snapshot.fragments.ids.tolist() if fragments is None else fragments
            missing = [each for each in fragment_ids if each not in covered]
            has_rest = bool(missing) and not plan.options.indexed_only
            found = self._through_index(
                snapshot, segments, rows, is_exact=has_rest and self._is_bounded
            )
        except (ObjectNotFoundError, CorruptDataError) as error:
            # If the rows are damaged rather than the index, the exact search raises.
            warn_unusable(snapshot, error.with_facts(index=segments[0].metadata.name))
            return self._exact(snapshot, fragments, rows)
        if not has_rest:
            return found
        # Index distances may be estimates. Refine them before they are merged with exact distances
        # of the rows that are not indexed.
        unindexed = self._exact(snapshot, missing, rows)
        refined = self._refined(snapshot, found, segments)
        return self._within(Hits.join([refined, unindexed])).top_k(self.count)

    def check(self, plan: ScanPlan) -> None:
        """Raise if the scan options cannot be combined with a search."""
        if plan.options.with_deleted:
            raise InvalidInputError("Cannot include deleted rows in a nearest neighbor search")
        if self.is_batch and QUERY_INDEX.name in plan.snapshot.schema.names:
            raise InvalidInputError(
                "batch nearest neighbor search cannot be used on datasets with column "
                f"'{QUERY_INDEX.name}'"
            )
        if plan.options.fragments is not None and not plan.options.prefilter:
            raise InvalidInputError(
                "This operation is not supported for fragment scan; with prefilter=True it is"
            )

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return the plan lines of the search, the last step first."""
        self.check(plan)
        snapshot = plan.snapshot
        segments = self.segments_in(snapshot)
        name = METRIC_NAMES[self._metric_of(snapshot, segments)]
        exact = f"KNNVectorDistance: metric={name}"
        if not segments:
            return [exact]
        least = self.probes or self.probes_min or 1
        most = self.probes or self.probes_max
        bound = "None" if most is None else f"Some({most})"
        metadata, count = segments[0].metadata, self.count * (self.refine_factor or 1)
        below = (
            f"ANNSubIndex: name={metadata.name}, k={count}, deltas={len(segments)}, "
            f"metric={_TITLES[name]}"
        )
        lowest = (
            f"ANNIvfPartition: uuid={metadata.uuid}, minimum_nprobes={least}, "
            f"maximum_nprobes={bound}, deltas={len(segments)}"
        )
        covered = _covered(segments)
        is_whole = covered.issuperset(snapshot.fragments.ids.tolist())
        has_rest = not is_whole and not plan.options.indexed_only
        through = [below, lowest]
        return [exact, *through] if has_rest or self.refine_factor else through

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Estimate the index reads of the search."""
        found = IoCounts()
        segments = self._segments_for(plan)
        factor = _LIST_FACTOR if vectors_of(self.field).in_lists else 1
        count = self.count * max(self.refine_factor or 1, factor)
        bounds = (None, None) if self.refine_factor else (self.lower, self.upper)
        for index_query in self._index_queries(count, bounds) if segments else ():
            for segment in segments:
                found += estimate_reads(opened_vectors(segment), index_query)
        return found

    def expected_rows(self, plan: ScanPlan) -> int:  # noqa: ARG002
        """Return the number of requested rows."""
        return self.count * (len(self.queries) if self.is_batch else 1)

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the vector field and the fragments not covered by any segment."""
        segments, options = self._segments_for(plan), plan.options
        if options.indexed_only or (segments and options.segments is not None):
            return ()
        fragment_ids = options.fragments or plan.snapshot.fragments.ids.tolist()
        missing = frozenset(fragment_ids) - _covered(segments)
        return [(self.field, missing)] if missing else []

    def _segments_for(self, plan: ScanPlan) -> tuple[TableSegment, ...]:
        segments, chosen = self.segments_in(plan.snapshot), plan.options.segments
        return segments if chosen is None else _chosen(segments, chosen)

    def segments_in(self, snapshot: Snapshot) -> tuple[TableSegment, ...]:
        """Return the segments of an index with a matching metric, or an empty tuple."""
        if not self.use_index:
            return ()
        for indices in vector_indices(snapshot).values():
            for index in indices:
                if index.segments[0].metadata.fields[0] != self.field.id:
                    continue
                metrics = {model_of(segment).metric for segment in index.segments}
                if len(metrics) == 1 and (self.metric is None or self.metric in metrics):
                    return index.segments
        return ()

    def _exact(
        self, snapshot: Snapshot, fragments: Sequence[int] | None, rows: Mapping[int, Int64s] | None
    ) -> Hits:
        query = self._exact_query(snapshot, self.metric_in(snapshot))
        return exact_search(snapshot, query, fragments, rows)

    def _exact_query(self, snapshot: Snapshot, metric: Metric) -> ExactQuery:
        projection = projection_of(snapshot, (snapshot.schema.path_of(self.field.id),))
        return ExactQuery(projection, self.queries, metric, self.count, self.lower, self.upper)

    def _metric_of(self, snapshot: Snapshot, segments: Sequence[TableSegment]) -> Metric:
        if self.metric is not None:
            return self.metric
        if segments:
            return model_of(segments[0]).metric
        stated = _stated_metric(snapshot, self.field) if self.use_index else None
        if stated is not None:
            return stated
        return Metric.HAMMING if vectors_of(self.field).are_bits else Metric.L2

    def _through_index(
        self,
        snapshot: Snapshot,
        segments: Sequence[TableSegment],
        rows: Mapping[int, Int64s] | None,
        *,
        is_exact: bool,
    ) -> Hits:
        """Return the nearest rows of segments, with exact distances if required.

        Bounds apply to the returned distances. Exact distances are computed for candidates only, so
        the number of candidates grows until enough of them are within the bounds.
        """
        in_lists = vectors_of(self.field).in_lists
        if not (is_exact or in_lists or self.refine_factor is not None):
            return search_segments(
                snapshot, segments, self._index_queries(self.count, (self.lower, self.upper)), rows
            )
        factor = max(self.refine_factor or 1, _LIST_FACTOR if in_lists else 1)
        count, num_near = self.count * factor, -1
        upper = np.inf if self.upper is None else self.upper
        while True:
            found = search_segments(
                snapshot, segments, self._index_queries(count, (None, None)), rows
            )
            has_all = np.bincount(found.queries, minlength=len(self.queries)) < count
            if in_lists:
                # Each vector of a multivector query has its own hits. Merge them into one query.
                has_all = np.array([has_all.all()])
                indices = np.unique(found.addresses, return_index=True)[1]
                found = Hits.of_query(found.addresses, found.scores).take(indices)
            refined = self._refined(snapshot, found, segments)
            within = self._within(refined)
            has_enough = np.bincount(within.queries, minlength=len(has_all)) >= self.count
            # An upper bound that few rows satisfy must not cause a search of all rows.
            num_before, num_near = num_near, int((refined.scores < upper).sum())
            has_passed = count >= _ROWS_BEYOND and num_near == num_before
            is_widened = in_lists or self._is_bounded
            if not is_widened or (has_enough | has_all).all() or has_passed:
                return within.top_k(self.count)
            count *= _WIDER

    @property
    def _is_bounded(self) -> bool:
        return self.lower is not None or self.upper is not None

    def _index_queries(
        self, count: int, bounds: tuple[float | None, float | None]
    ) -> list[IndexQuery]:
        """Return one index query per query vector."""
        return [
            IndexQuery(one, count, self.probes, self.probes_min, self.probes_max, self.ef, *bounds)
            for query in self.queries
            for one in query.reshape(-1, query.shape[-1])
        ]

    def _refined(self, snapshot: Snapshot, found: Hits, segments: Sequence[TableSegment]) -> Hits:
        """Replace the index distances of rows by exact distances."""
        scores = distances_of(snapshot, found, self, self._metric_of(snapshot, segments))
        return Hits(found.addresses, scores, found.queries)

    def metric_in(self, snapshot: Snapshot) -> Metric:
        """Return the requested metric, or the metric of the index of a version."""
        return self._metric_of(snapshot, self.segments_in(snapshot))

    def _within(self, found: Hits) -> Hits:
        """Return the hits within the distance bounds, without NaN."""
        mask = ~np.isnan(found.scores)
        if self.lower is not None:
            mask &= found.scores >= self.lower
        if self.upper is not None:
            mask &= found.scores < self.upper
        return found.take(np.flatnonzero(mask))


def distances_of(
    snapshot: Snapshot, found: Hits, search: VectorSearch, metric: Metric | None = None
) -> npt.NDArray[np.float32]:
    """Return the exact distance between each hit and its query."""
    metric = search.metric_in(snapshot) if metric is None else metric
    column = StoredVectors.of(snapshot, search.field)
    with plan_meter(snapshot).within(REFINE):
        if len(search.queries) == 1:
            return column.distances(snapshot, found.addresses, search.queries[0], metric)
        scores = np.empty(len(found), np.float32)
        for index, query in enumerate(search.queries):
            indices = np.flatnonzero(found.queries == index)
            if len(indices):
                scores[indices] = column.distances(
                    snapshot, found.addresses[indices], query, metric
                )
        return scores


def _stated_metric(snapshot: Snapshot, field: Field) -> Metric | None:
    """Return the metric of the index details in the manifest, without reading index files."""
    for index in snapshot.indices.indices:
        details = index.details
        is_own = index.fields == (int(field.id),) and bool(index.fragment_bitmap)
        if is_own and details is not None and kind_of(details) is IVF and details.value:
            return IvfDetails.parse(details.value).metric
    return None


def _covered(segments: Sequence[TableSegment]) -> frozenset[int]:
    return frozenset().union(*(segment.covered for segment in segments))


def _chosen(segments: Sequence[TableSegment], ids: frozenset[UUID]) -> tuple[TableSegment, ...]:
    """Return the segments with the given ids. Raise if an id is unknown."""
    unknown = ids - {segment.metadata.uuid for segment in segments}
    if unknown:
        listed = sorted(str(each) for each in unknown)
        raise InvalidInputError(f"with_index_segments referenced unknown index segments: {listed}")
    return tuple(segment for segment in segments if segment.metadata.uuid in ids)


def model_of(segment: TableSegment) -> IvfModel:
    """Return the IVF model of a vector index segment."""
    return opened_vectors(segment).model


def read_vector_search(schema: Schema, arguments: Mapping[str, Any]) -> VectorSearch:
    """Return the search for the arguments of `nearest`, named as in pylance."""
    field = vector_field(schema, arguments["column"])
    queries, is_batch = queries_of(arguments["q"], field)
    count = COUNT if arguments.get("k") is None else int(arguments["k"])
    if count < 1:
        raise InvalidInputError(f"Nearest-K must be > 0 but got {count}")
    least, most = probes_between(arguments)
    probes = arguments.get("nprobes")
    lower, upper = distance_bounds(arguments.get("distance_range"))
    refine = arguments.get("refine_factor")
    if refine is not None and int(refine) < 1:
        raise InvalidInputError(f"Refine factor must be 1 or greater but got {refine}")
    return VectorSearch(
        field,
        queries,
        is_batch,
        count,
        metric_named(arguments.get("metric"), field),
        None if probes is None else int(probes),
        least,
        most,
        None if refine is None else int(refine),
        arguments.get("ef"),
        lower,
        upper,
        use_index=arguments.get("use_index", True) is not False,
        has_count=arguments.get("k") is not None,
    )


class StoredVectors:
    """The vectors of a column in a table version."""

    def __init__(self, projection: Projection, field: Field) -> None:
        """Create a reader for a projection of one column."""
        self._projection = projection
        self._field = field
        self._readers: dict[int, FragmentReader] = {}
        stored = field.storage_type
        self._dtype: np.dtype[Any] | None = None
        if projection.fields == (field,) and pa.types.is_fixed_size_list(stored):
            self._dtype = np.dtype(stored.value_type.to_pandas_dtype())

    @staticmethod
    def of(snapshot: Snapshot, field: Field) -> StoredVectors:
        """Return the vectors of a column, cached with the version."""

        def make() -> StoredVectors:
            path = snapshot.schema.path_of(field.id)
            return StoredVectors(projection_of(snapshot, (path,)), field)

        return snapshot.version_cache.get_or_make(("stored vectors", field.id), make)

    def distances(
        self, snapshot: Snapshot, addresses: UInt64s, query: npt.NDArray[Any], metric: Metric
    ) -> Floats:
        """Return the distances of rows in any order, NaN for rows without a vector."""
        # Reads in table order need fewer requests.
        order = addresses.argsort()
        ordered = addresses[order]
        found = self._slice_distances(snapshot, ordered, query, metric)
        if found is None:
            rows = take_addresses(snapshot, ordered, self._projection)
            found = distances_to(rows.column(0).combine_chunks(), query, metric)
        scores = np.empty(len(addresses), np.float32)
        scores[order] = found
        return scores

    def _slice_distances(
        self, snapshot: Snapshot, ordered: UInt64s, query: npt.NDArray[Any], metric: Metric
    ) -> Floats | None:
        if self._dtype is None or not len(ordered):
            return None
        fragments, offsets = fragments_of(ordered), offsets_of(ordered)
        if (offsets[1:] == offsets[:-1]).any():
            return None
        edges = [0, *(np.flatnonzero(fragments[1:] != fragments[:-1]) + 1).tolist(), len(ordered)]
        found: list[Floats] = []
        for first, stop in pairwise(edges):
            reader = self._reader(snapshot, int(fragments[first]))
            slices = reader.read_value_slices(self._field, offsets[first:stop])
            if slices is None:
                self._dtype = None
                return None
            found.append(slice_distances(slices, self._dtype, len(query), query, metric))
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _reader(self, snapshot: Snapshot, fragment_id: int) -> FragmentReader:
        reader = self._readers.get(fragment_id)
        if reader is None:
            fragment = snapshot.fragments.by_id(fragment_id)
            reader = FragmentSource(snapshot, fragment, with_deleted=False).reader
            self._readers[fragment_id] = reader
        return reader
