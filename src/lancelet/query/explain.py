"""What a scan does and what it costs: predicted from the manifest and files, and measured.

Limit: offset=0 limit=10
  Filter: age > 30
    LanceRead: uri=t.lance, projection=[age], num_fragments=3, rows=3000, requests=6, bytes=24120
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.index.folder import IndexLoads
from lancelet.io.metered import PROCESS_METER, IoMeter, metered
from lancelet.query import search as searches
from lancelet.query.execute import count_rows, execute
from lancelet.query.indexing.choose import choose_parts
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.indexing.render import render_part
from lancelet.query.indexing.search import find_candidates
from lancelet.query.indexing.segments import column_indices, index_loads, vector_indices
from lancelet.query.nodes.source import sources
from lancelet.query.plan import ScanPlan
from lancelet.query.zone_pruning import candidate_ranges
from lancelet.table.kept import Kept

_READ: Final = "LanceRead:"
_ASKED: Final = "ScalarIndexQuery:"


@dataclass(frozen=True, slots=True)
class ScanMetrics:
    """What a scan took; the names are those of pylance's scan statistics."""

    iops: int = 0
    requests: int = 0
    bytes_read: int = 0
    indices_loaded: int = 0
    parts_loaded: int = 0
    index_comparisons: int = 0
    index_cache_hits: int = 0
    index_cache_misses: int = 0
    all_counts: dict[str, int] = field(default_factory=dict)
    all_times: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a scan is expected to read."""

    fragments: int
    rows: int
    requests: int
    bytes: int


def explain_plan(plan: ScanPlan, *, verbose: bool = False) -> str:
    """Return the steps of a scan, the last first, each with what it will take."""
    return "\n".join(_lines(plan, predict(plan), verbose=verbose))


def analyze_plan(plan: ScanPlan, *, count_only: bool = False) -> str:
    """Run a scan with nothing kept from before, and return its steps with what they took."""
    cold, meter = _measured(plan)
    loads, before = index_loads(plan.snapshot), replace(index_loads(plan.snapshot))
    started = time.perf_counter()
    rows = count_rows(cold) if count_only else sum(batch.num_rows for batch in execute(cold))
    elapsed_ms = (time.perf_counter() - started) * 1000
    counts, looked = meter.counts, _metrics_of(loads, before)
    predicted = predict(plan)
    scanned = min([predicted.rows, *(part.estimate for part in choose_parts(plan))])
    # A search looks at all rows that are read, and passes the nearest on.
    read = scanned if isinstance(plan.options.search, searches.hits.Explained) else rows
    metrics = (
        f", metrics=[output_rows={read}, elapsed_ms={elapsed_ms:.2f}, "
        f"bytes_read={counts.read_bytes}, iops={counts.read_iops}, "
        f"requests={counts.read_iops}, rows_scanned={scanned}]"
    )
    of_index = ", ".join(f"{name}={value}" for name, value in looked.items())
    lines = [
        line + metrics
        if line.lstrip().startswith(_READ)
        else f"{line}, metrics=[{of_index}]"
        if line.lstrip().startswith(_ASKED)
        else line
        for line in _lines(plan, predicted, verbose=True, counts=count_only)
    ]
    lines.append(
        f"measured: rows={rows} requests={counts.read_iops} bytes={counts.read_bytes} "
        f"elapsed_ms={elapsed_ms:.2f}"
    )
    return "\n".join(lines)


def measure_scan(
    plan: ScanPlan, callback: Callable[[ScanMetrics], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan, and at its end say what was read."""
    cold, meter = _measured(plan)
    loads = index_loads(plan.snapshot)
    before = replace(loads)
    yield from execute(cold)
    counts, looked = meter.counts, _metrics_of(loads, before)
    callback(
        ScanMetrics(
            counts.read_iops,
            counts.read_iops,
            counts.read_bytes,
            looked["indices_loaded"],
            looked["parts_loaded"],
            looked["index_comparisons"],
            looked["index_cache_hits"],
            looked["index_cache_misses"],
            {name: looked[name] for name in ("index_cache_hits", "index_cache_misses")},
        )
    )


def _metrics_of(loads: IndexLoads, before: IndexLoads) -> dict[str, int]:
    """Return what was asked of indices since something, by pylance's names."""
    return {
        "indices_loaded": loads.segments - before.segments,
        "parts_loaded": loads.parts - before.parts,
        "index_comparisons": loads.comparisons - before.comparisons,
        "index_cache_hits": loads.found - before.found,
        "index_cache_misses": loads.parts - before.parts,
    }


def predict(plan: ScanPlan) -> Prediction:
    """Return what a scan is expected to read if every row that may match does."""
    fragments = rows = requests = size = 0
    first = tuple(plan.steps[0].fields) if plan.steps else ()
    late = tuple(each for each in plan.projection.fields if each not in first)
    if plan.is_empty:
        return Prediction(0, 0, 0, 0)
    for source in sources(plan.snapshot, plan.options.fragments):
        ranges = [RowRange(0, source.num_rows)]
        if plan.is_filtered and plan.options.use_statistics:
            ranges = candidate_ranges(source.reader, plan.steps, plan.snapshot)
        if not ranges:
            continue
        fragments += 1
        for part in ranges:
            rows += len(part)
            size += source.reader.encoded_bytes([*first, *late], part)
        requests += source.reader.num_files([*first, *late]) * (1 + len(ranges))
    return Prediction(fragments, rows, requests, size)


def _measured(plan: ScanPlan) -> tuple[ScanPlan, IoMeter]:
    """Return the plan over a store that is counted on its own, with nothing kept but indices."""
    meter = PROCESS_METER.scope()
    location = plan.snapshot.location
    apart = replace(location, store=metered(location.store, meter), kept=Kept())
    snapshot = replace(plan.snapshot, location=apart)
    column_indices(snapshot, of=plan.snapshot)
    searches.text_indices.text_indices(snapshot, of=plan.snapshot)
    vector_indices(snapshot, of=plan.snapshot)
    return replace(plan, snapshot=snapshot), meter


def _lines(
    plan: ScanPlan, predicted: Prediction, *, verbose: bool, counts: bool = False
) -> list[str]:
    options = plan.options
    mask = find_candidates(plan, counts=True) if counts and plan.is_filtered else None
    if mask is not None and not mask.steps:
        steps = _steps_of_count(plan, mask.covered, predicted)
        return ["  " * depth + step for depth, step in enumerate(steps)]
    steps = [f"Project: {', '.join(plan.schema.names)}"]
    if options.limit is not None or options.offset:
        steps.append(f"Limit: offset={options.offset} limit={options.limit}")
    if options.order_by:
        keys = ", ".join(
            f"{each.column} {'asc' if each.ascending else 'desc'}" for each in options.order_by
        )
        steps.append(f"Sort: {keys}")
        bound = bound_of_first_rows(plan)
        steps += [] if bound is None else [f"{_ASKED} first rows, {bound}"]
    early = [each.name for step in plan.steps for each in step.fields]
    late = [each.name for each in plan.projection.fields if each.name not in early]
    searched = (
        options.search.steps(plan) if isinstance(options.search, searches.hits.Explained) else []
    )
    is_found_first = bool(searched) and not options.prefilter
    if is_found_first:
        steps += [f"Filter: {step.expression}" for step in reversed(plan.steps)]
    steps += searched
    if plan.is_filtered and not is_found_first:
        if late:
            steps.append(f"Take: projection=[{', '.join(late)}], source=stream of rows that match")
        steps += [f"Filter: {step.expression}" for step in reversed(plan.steps)]
        steps += _index_steps(plan)
    steps.append(_read_step(plan, early if plan.is_filtered else late, predicted))
    if verbose:
        steps.append(f"Version: {plan.snapshot.version} of {plan.snapshot.num_rows} rows")
    return ["  " * depth + step for depth, step in enumerate(steps)]


def _steps_of_count(plan: ScanPlan, covered: frozenset[int], predicted: Prediction) -> list[str]:
    """Return the steps of a count that indices answer for the fragments they cover."""
    steps = [f"CountFromMask: num_fragments={len(covered)}", *_index_steps(plan)]
    if not covered.issuperset(plan.snapshot.fragments.ids.tolist()):
        names = [each.name for step in plan.steps for each in step.fields]
        steps.append(_read_step(plan, names, predicted))
    return steps


def _index_steps(plan: ScanPlan) -> list[str]:
    return [
        f"{_ASKED} query={render_part(part.part)}, estimated_rows={part.estimate}"
        for part in choose_parts(plan)
    ]


def _read_step(plan: ScanPlan, names: list[str], predicted: Prediction) -> str:
    return (
        f"{_READ} uri={plan.snapshot.location.uri}, "
        f"projection=[{', '.join(dict.fromkeys(names))}], num_fragments={predicted.fragments}, "
        f"rows={predicted.rows}, requests={predicted.requests}, bytes={predicted.bytes}"
    )
