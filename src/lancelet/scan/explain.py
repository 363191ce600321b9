"""Explain scans with estimated costs, and analyze them with measured ones.

  Limit: offset=0 limit=10
    Take: projection=[name], source=stream of rows that match, rows=10, requests=3, bytes=240
      Filter: age > 30
        LanceRead: uri=t.lance, projection=[age], num_fragments=3, rows=3000, requests=6, bytes=9120

In an analyzed plan each step lists its measurements in `metrics=[..]`; they sum to the requests to
storage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

import pyarrow as pa

from lancelet import search as searches
from lancelet.index.folder import IndexLoads
from lancelet.io.metered import metered
from lancelet.scan.estimate import Estimate
from lancelet.scan.execute import count_rows, execute
from lancelet.scan.indexing.column_indices import column_indices, vector_indices
from lancelet.scan.indexing.segments import index_loads
from lancelet.scan.node_meter import READ, SORT, Measured, NodeMeter, new_meter
from lancelet.scan.operators import INDEX_QUERY, CountRows, Step, operator_of
from lancelet.scan.plan import ScanPlan
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class ScanMetrics:
    """Metrics of a scan, with the field names of pylance's scan statistics."""

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


def explain_plan(plan: ScanPlan, *, verbose: bool = False) -> str:
    """Return the steps of a scan, last step first, each with its estimated cost."""
    operator = operator_of(replace(plan, meter=new_meter(plan.snapshot)))
    return _join_lines([step.text for step in operator.steps(verbose=verbose)])


def estimate_reads(plan: ScanPlan) -> Estimate:
    """Return the estimated reads before late materialization."""
    return operator_of(replace(plan, meter=new_meter(plan.snapshot))).read


def analyze_plan(plan: ScanPlan, *, count_only: bool = False) -> str:
    """Run a scan without cached metadata, and return its steps with their metrics."""
    loads, before = index_loads(plan.snapshot), replace(index_loads(plan.snapshot))
    started = time.perf_counter()
    meter = new_meter(plan.snapshot)
    metered_plan = replace(plan, meter=meter)
    is_count = count_only and plan.is_filtered and plan.options.search is None
    operator = (CountRows if is_count else operator_of)(metered_plan, is_cold=True)
    steps = operator.steps(verbose=True)
    # Lookups of the estimation that repeat during execution are counted once.
    before.comparisons, before.cache_hits = loads.comparisons, loads.cache_hits
    cold = _cold(plan, meter)
    rows = count_rows(cold) if count_only else sum(batch.num_rows for batch in execute(cold))
    elapsed_ms = (time.perf_counter() - started) * 1000
    meter.end()
    counts, index_metrics = meter.counts + meter.of_indices, _index_metrics(loads, before)
    lines = _with_metrics(plan, steps, dict(meter.nodes), rows, index_metrics)
    lines.append(
        f"measured: rows={rows} requests={counts.read_iops} bytes={counts.read_bytes} "
        f"elapsed_ms={elapsed_ms:.2f}"
    )
    return "\n".join(lines)


def _with_metrics(
    plan: ScanPlan,
    steps: Sequence[Step],
    nodes: dict[str, Measured],
    rows: int,
    index_metrics: Mapping[str, int],
) -> list[str]:
    """Return the lines of steps with their metrics; unassigned metrics go to the last step."""
    step_metrics: list[Measured | None] = []
    nodes_run = frozenset(nodes)
    for step in steps:
        measured = [nodes.pop(name) for name in step.nodes if name in nodes]
        metrics = reduce(Measured.plus, measured) if measured else Measured()
        step_metrics.append(metrics if step.nodes else None)
    for depth in reversed(range(len(steps) - 1)):
        if steps[depth].text.startswith("Filter:") and not steps[depth].was_run(nodes_run):
            # An index decided the filter, so all rows of the input pass.
            step_metrics[depth] = Measured(rows=(step_metrics[depth + 1] or Measured()).rows)
    last = max((depth for depth, step in enumerate(steps) if step.reads), default=None)
    if last is not None:
        step_metrics[last] = reduce(Measured.plus, nodes.values(), step_metrics[last] or Measured())
    return [
        _indented(depth, step.text) + _metrics(plan, step, metrics, rows, index_metrics)
        for depth, (step, metrics) in enumerate(zip(steps, step_metrics, strict=True))
    ]


def _metrics(
    plan: ScanPlan,
    step: Step,
    measured: Measured | None,
    rows: int,
    index_metrics: Mapping[str, int],
) -> str:
    if step.has_result_rows:
        return f", metrics=[output_rows={rows}]"
    if measured is None:
        return ""
    output_rows = measured.rows
    if step.text.startswith(f"{READ}:") and plan.options.search is None:
        output_rows = rows  # like the reference, where the filter is part of this step
    if step.nodes[0] == SORT:
        output_rows = rows
    texts = [f"output_rows={output_rows}", f"elapsed_ms={measured.seconds * 1000:.2f}"]
    if step.reads:
        texts += [f"bytes_read={measured.bytes}", f"iops={measured.requests}"]
        texts.append(f"requests={measured.requests}")
    if step.text.startswith(f"{READ}:"):
        texts.append(f"rows_scanned={measured.rows}")
    if step.text.startswith(INDEX_QUERY):
        texts += [f"{name}={value}" for name, value in index_metrics.items()]
    return f", metrics=[{', '.join(texts)}]"


def _join_lines(lines: Sequence[str]) -> str:
    return "\n".join(_indented(depth, line) for depth, line in enumerate(lines))


def _indented(depth: int, line: str) -> str:
    """Indent a step; line breaks in names and literals are escaped."""
    return "  " * depth + line.replace("\n", r"\n").replace("\r", r"\r")


def measure_scan(
    plan: ScanPlan, callback: Callable[[ScanMetrics], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan, then report its metrics."""
    meter = new_meter(plan.snapshot)
    cold = _cold(plan, meter)
    loads = index_loads(plan.snapshot)
    before = replace(loads)
    yield from execute(cold)
    counts, index_metrics = meter.counts, _index_metrics(loads, before)
    callback(
        ScanMetrics(
            counts.read_iops,
            counts.read_iops,
            counts.read_bytes,
            index_metrics["indices_loaded"],
            index_metrics["parts_loaded"],
            index_metrics["index_comparisons"],
            index_metrics["index_cache_hits"],
            index_metrics["index_cache_misses"],
            {name: index_metrics[name] for name in ("index_cache_hits", "index_cache_misses")},
        )
    )


def _index_metrics(loads: IndexLoads, before: IndexLoads) -> dict[str, int]:
    """Return the difference of two index counters, by pylance's metric names."""
    return {
        "indices_loaded": loads.segments - before.segments,
        "parts_loaded": loads.parts - before.parts,
        "index_comparisons": loads.comparisons - before.comparisons,
        "index_cache_hits": loads.cache_hits - before.cache_hits,
        "index_cache_misses": loads.parts - before.parts,
    }


def _cold(plan: ScanPlan, meter: NodeMeter) -> ScanPlan:
    """Return the plan over a metered store without caches, except for open indices."""
    snapshot = plan.snapshot.with_store(metered(plan.snapshot.location.store, meter))
    column_indices(snapshot, of=plan.snapshot)
    searches.text_indices.text_indices(snapshot, of=plan.snapshot)
    vector_indices(snapshot, of=plan.snapshot)
    return replace(plan, snapshot=snapshot, meter=meter)
