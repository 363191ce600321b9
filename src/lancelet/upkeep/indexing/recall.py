"""Measure the recall of vector indices against exact search, and tune search parameters.

    100 sampled queries, the 10 nearest rows of each
    exact     distances 0.0 0.3 ... 1.2     the tenth distance is 1.2
    index     9 rows within 1.2             recall 0.9

Reports are stored in the table metadata under the index name. A decrease of recall raises a
warning. Tuning selects the cheapest parameters that reach a target recall.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from html import escape
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.change.settings import update_table_metadata
from lancelet.errors import InvalidInputError
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.vectors import values_of, vector_type_of
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.scan_options import ScanOptions
from lancelet.scan.take import addresses_at, take_addresses
from lancelet.search.hits import Hits
from lancelet.search.vector import VectorSearch, distances_of, read_vector_search
from lancelet.table.fragment_reuse import remapped_indices
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.describe import compute_coverage
from lancelet.upkeep.indexing.vector_models import find_index_name, open_ivf_segments
from lancelet.values import dataclass

METADATA_PREFIX: Final = "lancelet.recall."
_DRIFT: Final = 0.05
_REFINES: Final = (None, 2, 4, 8, 16, 32)
_BEAMS: Final = (None, 2, 4, 8, 16)
"""Candidate list sizes of graph searches, as multiples of the requested rows."""


class RecallDriftWarning(UserWarning):
    """The recall of an index has decreased since its last measurement."""


class VectorIndexNotFoundError(InvalidInputError, KeyError):
    """The column has no vector index."""


@dataclass(frozen=True, slots=True)
class RecallReport:
    """The recall of a vector index.

    Attributes:
        index: The name of the index.
        version: The version of the table.
        k: The number of rows per search.
        sample: The number of searches.
        recall: The mean fraction of the nearest rows that a search returns.
        worst: The lowest recall of a single search.
        milliseconds: The mean time of a search.
        exact_milliseconds: The mean time of an exact search.
        unindexed_rows: The number of rows that the index does not cover.
    """

    index: str
    version: int
    k: int
    sample: int
    recall: float
    worst: float
    milliseconds: float
    exact_milliseconds: float
    unindexed_rows: int

    def __repr__(self) -> str:
        """Show one line per measurement."""
        speed = self.exact_milliseconds / max(self.milliseconds, 1e-9)
        return "\n".join(
            (
                f"index           {self.index}, version {self.version}",
                f"recall at {self.k:<5} {self.recall:.3f} (lowest {self.worst:.3f})",
                f"searches        {self.sample:,}",
                f"time            {self.milliseconds:.2f} ms",
                f"exact search    {self.exact_milliseconds:.2f} ms ({speed:.1f} times the time)",
                f"unindexed rows  {self.unindexed_rows:,}",
            )
        )

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


@dataclass(frozen=True, slots=True)
class TunedSearch:
    """Search parameters selected by tuning; pass `options` as part of `nearest`.

    Attributes:
        nprobes: The number of partitions to probe.
        refine_factor: The number of candidates per row whose exact distance is computed, if any.
        ef: The candidate list size of graph searches, if larger than the default.
        recall: The measured recall.
        is_reached: Whether the recall reaches the target.
    """

    nprobes: int
    refine_factor: int | None
    ef: int | None
    recall: float
    is_reached: bool

    @property
    def options(self) -> dict[str, int]:
        """The search arguments."""
        parameters = {"nprobes": self.nprobes, "refine_factor": self.refine_factor, "ef": self.ef}
        return {key: value for key, value in parameters.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """Sampled queries, with the exact distance of the k-th nearest row of each."""

    snapshot: Snapshot
    search: VectorSearch
    limits: npt.NDArray[np.float32]
    seconds: float

    def recall(self, options: dict[str, Any]) -> tuple[npt.NDArray[np.float64], float]:
        """Return the recall of each query, and the total time in seconds."""
        search = replace(self.search, use_index=True, **options)
        started = time.perf_counter()
        hits = _search(self.snapshot, search)
        elapsed = time.perf_counter() - started
        exact = distances_of(self.snapshot, hits, self.search)
        slack = np.abs(self.limits[hits.queries]) * 1e-5 + 1e-6
        near = exact <= self.limits[hits.queries] + slack
        num_hits = np.bincount(hits.queries[near], minlength=len(self.limits))
        expected_rows = min(self.search.count, self.snapshot.num_rows)
        return np.minimum(num_hits / max(expected_rows, 1), 1.0), elapsed


def measure_recall(
    snapshot: Snapshot, column: str, *, k: int, sample: int, seed: int, options: dict[str, Any]
) -> RecallReport:
    """Measure the recall of an index for vectors sampled from the table."""
    name = _find_index(snapshot, column)
    trial = _create_trial(snapshot, column, k, sample, seed)
    recalls, elapsed = trial.recall(options)
    count = len(trial.limits)
    segments = [index for index in remapped_indices(snapshot) if index.name == name]
    return RecallReport(
        name,
        snapshot.version,
        k,
        count,
        float(recalls.mean()),
        float(recalls.min()),
        elapsed / count * 1000,
        trial.seconds / count * 1000,
        compute_coverage(snapshot, segments).unindexed_rows,
    )


def load_report(snapshot: Snapshot, index: str) -> RecallReport | None:
    """Return the stored report of an index, or None."""
    text = snapshot.manifest.table_metadata.get(METADATA_PREFIX + index)
    try:
        return None if text is None else RecallReport(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None  # The value was not written by lancelet.


def store_report(snapshot: Snapshot, report: RecallReport) -> Snapshot:
    """Store a report in the table metadata; warn if the recall has decreased."""
    before = load_report(snapshot, report.index)
    if before is not None and before.k == report.k and before.recall - report.recall > _DRIFT:
        warnings.warn(
            f"recall of {report.index} fell from {before.recall:.3f} in version {before.version} "
            f"to {report.recall:.3f}; optimize or retrain the index",
            RecallDriftWarning,
            stacklevel=3,
        )
    text = json.dumps(asdict(report))
    return update_table_metadata(snapshot, {METADATA_PREFIX + report.index: text})


def tune_search(
    snapshot: Snapshot, column: str, *, k: int, target_recall: float, sample: int, seed: int
) -> TunedSearch:
    """Return the cheapest search parameters that reach a target recall on a sample."""
    if not 0 < target_recall <= 1:
        raise InvalidInputError(
            "the target recall must be above 0 and at most 1", found=target_recall
        )
    opened = open_ivf_segments(snapshot, _find_index(snapshot, column))
    partitions_max = max(segment.model.partitions for segment in opened)
    trial = _create_trial(snapshot, column, k, sample, seed)
    best: TunedSearch | None = None
    for options in _search_options(opened, k):
        result = _measure(trial, options, partitions_max, target_recall)
        if best is None or result.recall > best.recall:
            best = result
        if result.is_reached:
            return _fewest_probes(trial, options, partitions_max, target_recall)
    if best is None:
        raise InvalidInputError("no search parameters to try", column=column)
    return best


def _search_options(opened: Iterable[IvfSegment], k: int) -> Iterator[dict[str, Any]]:
    has_graphs = any(segment.graphs is not None for segment in opened)
    beams = _BEAMS if has_graphs else _BEAMS[:1]
    for refine in _REFINES:
        for beam in beams:
            candidates = k * (refine or 1)
            yield {"refine_factor": refine, "ef": None if beam is None else beam * candidates}


def _fewest_probes(
    trial: _Trial, options: dict[str, Any], partitions_max: int, target: float
) -> TunedSearch:
    """Return the search with the fewest probes that reaches the target, by binary search."""
    low, high = 0, partitions_max
    best = _measure(trial, options, partitions_max, target)
    while high - low > 1:
        middle = (low + high) // 2
        result = _measure(trial, options, middle, target)
        if result.is_reached:
            high, best = middle, result
        else:
            low = middle
    return best


def _measure(trial: _Trial, options: dict[str, Any], probes: int, target: float) -> TunedSearch:
    recalls, _ = trial.recall({**options, "probes": probes, "probes_max": probes})
    recall = float(recalls.mean())
    return TunedSearch(probes, options["refine_factor"], options["ef"], recall, recall >= target)


def _find_index(snapshot: Snapshot, column: str) -> str:
    name = find_index_name(snapshot, column)
    if name is None:
        raise VectorIndexNotFoundError(f"No IVF index for column '{column}'", column=column)
    return name


def _create_trial(snapshot: Snapshot, column: str, k: int, sample: int, seed: int) -> _Trial:
    random = np.random.default_rng(seed)
    count = min(sample, snapshot.num_rows)
    positions = np.sort(random.choice(snapshot.num_rows, count, replace=False)).astype(np.int64)
    rows = take_addresses(
        snapshot, addresses_at(snapshot, positions), projection_of(snapshot, (column,))
    )
    vectors = rows.column(0).combine_chunks().drop_null()
    if vector_type_of(vectors.type) != vectors.type:
        raise InvalidInputError("recall requires a column with one vector per row", column=column)
    matrix = values_of(vectors).reshape(len(vectors), vectors.type.list_size)
    if matrix.dtype.kind == "f":
        matrix = matrix[np.isfinite(matrix.astype(np.float64)).all(axis=1)]
    if not len(matrix):
        raise InvalidInputError("the column has no vectors to sample", column=column)
    arguments = {"column": column, "q": matrix, "k": k}
    search = read_vector_search(snapshot.schema, arguments)
    started = time.perf_counter()
    exact = _search(snapshot, replace(search, use_index=False, metric=search.metric_in(snapshot)))
    seconds = time.perf_counter() - started
    limits = np.full(len(matrix), -np.inf, np.float32)
    np.maximum.at(limits, exact.queries, exact.scores)
    return _Trial(snapshot, search, limits, seconds)


def _search(snapshot: Snapshot, search: VectorSearch) -> Hits:
    return search.find(plan_scan(snapshot, ScanOptions(columns=(), search=search)), None)
