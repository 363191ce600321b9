"""How much of what is nearest a vector index finds, measured against exact search.

    100 rows of the table are looked for, the 10 nearest of each
    exact     distances 0.0 0.3 ... 1.2     the tenth is 1.2 away
    found     9 rows that are not farther   recall 0.9

What is measured is kept in the table's metadata, by the name of the index. When it has fallen
since, somebody is told. Tuning looks for the least work that finds enough.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError
from lancelet.index.vector.segment import IvfSegment
from lancelet.index.vector.vectors import values_of, vector_type_of
from lancelet.ops.indexing.vector_models import name_of_index_on, segments_of_index
from lancelet.ops.settings import update_table_metadata
from lancelet.query.plan import plan_scan, projection_of
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.hits import Hits
from lancelet.query.search.vector import VectorSearch, distances_of, read_vector_search
from lancelet.query.take import addresses_at, take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

METADATA_PREFIX: Final = "lancelet.recall."
_DRIFT: Final = 0.05
_REFINES: Final = (None, 2, 4, 8, 16, 32)
_BEAMS: Final = (None, 2, 4, 8, 16)
"""How many times the rows wanted a graph keeps in view."""


class RecallDriftWarning(UserWarning):
    """An index finds less than it did when its recall was measured before."""


class NoIndexToMeasureError(InvalidInputError, KeyError):
    """The column has no vector index."""


@dataclass(frozen=True, slots=True)
class RecallReport:
    """What an index finds of what is nearest.

    Attributes:
        index: The name of the index.
        version: The version of the table.
        k: How many rows were looked for each time.
        sample: How many vectors were looked for.
        recall: The part of the nearest rows that was found, on average.
        worst: The same for the vector for which it was least.
        milliseconds: How long a search took.
        exact_milliseconds: How long an exact search took.
        unindexed_rows: How many rows the index lacks.
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


@dataclass(frozen=True, slots=True)
class TunedSearch:
    """The least work that finds enough; `options` go into `nearest` with the rest.

    Attributes:
        nprobes: How many partitions are looked at.
        refine_factor: How many candidates are compared exactly for each row wanted, if any.
        ef: How many candidates graphs keep in view, if it is more than they do by themselves.
        recall: The part of the nearest rows that was found.
        is_reached: Whether that is as much as was asked for.
    """

    nprobes: int
    refine_factor: int | None
    ef: int | None
    recall: float
    is_reached: bool

    @property
    def options(self) -> dict[str, int]:
        """The arguments of a search."""
        found = {"nprobes": self.nprobes, "refine_factor": self.refine_factor, "ef": self.ef}
        return {key: value for key, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class _Trial:
    """Vectors to look for, and how far the farthest row is that should be found."""

    snapshot: Snapshot
    search: VectorSearch
    limits: npt.NDArray[np.float32]
    seconds: float

    def recall(self, options: dict[str, Any]) -> tuple[npt.NDArray[np.float64], float]:
        """Return the part that each search finds with some options, and how long it took."""
        asked = replace(self.search, use_index=True, **options)
        started = time.perf_counter()
        found = _found(self.snapshot, asked)
        elapsed = time.perf_counter() - started
        exact = distances_of(self.snapshot, found, self.search)
        slack = np.abs(self.limits[found.queries]) * 1e-5 + 1e-6
        near = exact <= self.limits[found.queries] + slack
        hits = np.bincount(found.queries[near], minlength=len(self.limits))
        wanted = min(self.search.count, self.snapshot.num_rows)
        return np.minimum(hits / max(wanted, 1), 1.0), elapsed


def measure_recall(
    snapshot: Snapshot, column: str, *, k: int, sample: int, seed: int, options: dict[str, Any]
) -> RecallReport:
    """Compare searches for vectors of a table through an index with exact ones."""
    name = _index_on(snapshot, column)
    trial = _trial(snapshot, column, k, sample, seed)
    recalls, elapsed = trial.recall(options)
    count = len(trial.limits)
    indexed = sum(segment.num_rows for segment in segments_of_index(snapshot, name))
    return RecallReport(
        name,
        snapshot.version,
        k,
        count,
        float(recalls.mean()),
        float(recalls.min()),
        elapsed / count * 1000,
        trial.seconds / count * 1000,
        max(0, snapshot.num_rows - indexed),
    )


def previous_report(snapshot: Snapshot, index: str) -> RecallReport | None:
    """Return what was measured and kept before, if anything."""
    text = snapshot.manifest.table_metadata.get(METADATA_PREFIX + index)
    try:
        return None if text is None else RecallReport(**json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return None  # written by something else under our key


def keep_report(snapshot: Snapshot, report: RecallReport) -> Snapshot:
    """Keep a report in the table's metadata; warn if the index found more before."""
    before = previous_report(snapshot, report.index)
    if before is not None and before.k == report.k and before.recall - report.recall > _DRIFT:
        warnings.warn(
            f"recall of {report.index} fell from {before.recall:.3f} in version {before.version} "
            f"to {report.recall:.3f}; optimise the index or train it anew",
            RecallDriftWarning,
            stacklevel=3,
        )
    text = json.dumps(asdict(report))
    return update_table_metadata(snapshot, {METADATA_PREFIX + report.index: text})


def tune_search(
    snapshot: Snapshot, column: str, *, k: int, target_recall: float, sample: int, seed: int
) -> TunedSearch:
    """Return the fewest partitions and candidates that find enough of a sample."""
    if not 0 < target_recall <= 1:
        raise InvalidInputError("a recall is above 0 and at most 1", found=target_recall)
    opened = segments_of_index(snapshot, _index_on(snapshot, column))
    most = max(segment.model.partitions for segment in opened)
    trial = _trial(snapshot, column, k, sample, seed)
    best: TunedSearch | None = None
    for options in _ways(opened, k):
        found = _measured(trial, options, most, target_recall)
        if best is None or found.recall > best.recall:
            best = found
        if found.is_reached:
            return _fewest_probes(trial, options, most, target_recall)
    if best is None:
        raise InvalidInputError("there are no settings to try", column=column)
    return best


def _ways(opened: Iterable[IvfSegment], k: int) -> Iterator[dict[str, Any]]:
    has_graphs = any(segment.graphs is not None for segment in opened)
    beams = _BEAMS if has_graphs else _BEAMS[:1]
    for refine in _REFINES:
        for beam in beams:
            candidates = k * (refine or 1)
            yield {"refine_factor": refine, "ef": None if beam is None else beam * candidates}


def _fewest_probes(trial: _Trial, options: dict[str, Any], most: int, target: float) -> TunedSearch:
    """Return the search with the fewest partitions, which lie between two that were tried."""
    low, high = 0, most
    best = _measured(trial, options, most, target)
    while high - low > 1:
        middle = (low + high) // 2
        found = _measured(trial, options, middle, target)
        if found.is_reached:
            high, best = middle, found
        else:
            low = middle
    return best


def _measured(trial: _Trial, options: dict[str, Any], probes: int, target: float) -> TunedSearch:
    recalls, _ = trial.recall({**options, "probes": probes, "probes_max": probes})
    recall = float(recalls.mean())
    return TunedSearch(probes, options["refine_factor"], options["ef"], recall, recall >= target)


def _index_on(snapshot: Snapshot, column: str) -> str:
    name = name_of_index_on(snapshot, column)
    if name is None:
        raise NoIndexToMeasureError(f"No IVF index for column '{column}'", column=column)
    return name


def _trial(snapshot: Snapshot, column: str, k: int, sample: int, seed: int) -> _Trial:
    random = np.random.default_rng(seed)
    count = min(sample, snapshot.num_rows)
    positions = np.sort(random.choice(snapshot.num_rows, count, replace=False)).astype(np.int64)
    rows = take_addresses(
        snapshot, addresses_at(snapshot, positions), projection_of(snapshot, (column,))
    )
    vectors = rows.column(0).combine_chunks().drop_null()
    if vector_type_of(vectors.type) != vectors.type:
        raise InvalidInputError("recall is measured for columns of single vectors", column=column)
    matrix = values_of(vectors).reshape(len(vectors), vectors.type.list_size)
    if matrix.dtype.kind == "f":
        matrix = matrix[np.isfinite(matrix.astype(np.float64)).all(axis=1)]
    if not len(matrix):
        raise InvalidInputError("there are no vectors to look for", column=column)
    asked = {"column": column, "q": matrix, "k": k}
    search = read_vector_search(snapshot.schema, asked)
    started = time.perf_counter()
    exact = _found(snapshot, replace(search, use_index=False, metric=search.metric_in(snapshot)))
    seconds = time.perf_counter() - started
    limits = np.full(len(matrix), -np.inf, np.float32)
    np.maximum.at(limits, exact.queries, exact.scores)
    return _Trial(snapshot, search, limits, seconds)


def _found(snapshot: Snapshot, search: VectorSearch) -> Hits:
    return search.find(plan_scan(snapshot, ScanOptions(columns=(), search=search)), None)
