"""What a scan does and what it costs: predicted from the manifest and files, and measured.

Limit: offset=0 limit=10
  Take: projection=[name], source=stream of rows that match, rows=10, requests=3, bytes=240
    Filter: age > 30
      LanceRead: uri=t.lance, projection=[age], num_fragments=3, rows=3000, requests=6, bytes=24120

Measured, a step says in `metrics=[..]` what it did, of which the sum is what storage was asked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce

import pyarrow as pa

from lancelet.index.folder import IndexLoads
from lancelet.io.metered import metered
from lancelet.query import search as searches
from lancelet.query.estimate import Estimate
from lancelet.query.execute import count_rows, execute
from lancelet.query.indexing.column_indices import column_indices, vector_indices
from lancelet.query.indexing.segments import index_loads
from lancelet.query.node_meter import READ, SORT, Measured, NodeMeter, meter_for
from lancelet.query.operators import ASKED, Step, operator_of
from lancelet.query.plan import ScanPlan
from lancelet.values import dataclass


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


def explain_plan(plan: ScanPlan, *, verbose: bool = False) -> str:
    """Return the steps of a scan, the last first, each with what it will take."""
    operator = operator_of(replace(plan, meter=meter_for(plan.snapshot)))
    return _listed([step.text for step in operator.steps(verbose=verbose)])


def expected_reads(plan: ScanPlan) -> Estimate:
    """Return what is expected to be read before rows are chosen, late columns not among it."""
    return operator_of(replace(plan, meter=meter_for(plan.snapshot))).read


def analyze_plan(plan: ScanPlan, *, count_only: bool = False) -> str:
    """Run a scan with nothing kept from before, and return its steps with what each took."""
    loads, before = index_loads(plan.snapshot), replace(index_loads(plan.snapshot))
    started = time.perf_counter()
    meter = meter_for(plan.snapshot)
    operator = operator_of(replace(plan, meter=meter), is_anew=True)
    steps = operator.steps_of_count() if count_only else operator.steps(verbose=True)
    # What was only asked to foresee what will be asked is told once.
    before.comparisons, before.found = loads.comparisons, loads.found
    cold = _cold(plan, meter)
    rows = count_rows(cold) if count_only else sum(batch.num_rows for batch in execute(cold))
    elapsed_ms = (time.perf_counter() - started) * 1000
    meter.end()
    counts, looked = meter.counts + meter.of_indices, _metrics_of(loads, before)
    lines = _with_metrics(plan, steps, dict(meter.nodes), rows, looked)
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
    looked: Mapping[str, int],
) -> list[str]:
    """Return the lines of steps with what their nodes did; what none did is the last one's."""
    own: list[Measured | None] = []
    nodes_run = frozenset(nodes)
    for step in steps:
        known = [nodes.pop(name) for name in step.nodes if name in nodes]
        found = reduce(Measured.plus, known) if known else Measured()
        own.append(found if step.nodes else None)
    for place in reversed(range(len(steps) - 1)):
        if steps[place].text.startswith("Filter:") and not steps[place].was_run(nodes_run):
            # An index has decided it, so all rows pass that come from there.
            own[place] = Measured(rows=(own[place + 1] or Measured()).rows)
    last = max((place for place, step in enumerate(steps) if step.reads), default=None)
    if last is not None:
        own[last] = reduce(Measured.plus, nodes.values(), own[last] or Measured())
    return [
        _indented(place, step.text) + _metrics(plan, step, found, rows, looked)
        for place, (step, found) in enumerate(zip(steps, own, strict=True))
    ]


def _metrics(
    plan: ScanPlan, step: Step, found: Measured | None, rows: int, looked: Mapping[str, int]
) -> str:
    if step.has_result_rows:
        return f", metrics=[output_rows={rows}]"
    if found is None:
        return ""
    read = found.rows
    if step.text.startswith(f"{READ}:") and plan.options.search is None:
        read = rows  # as the reference counts them, whose filter is a part of this step
    if step.nodes[0] == SORT:
        read = rows
    told = [f"output_rows={read}", f"elapsed_ms={found.seconds * 1000:.2f}"]
    if step.reads:
        told += [f"bytes_read={found.bytes}", f"iops={found.requests}"]
        told.append(f"requests={found.requests}")
    if step.text.startswith(f"{READ}:"):
        told.append(f"rows_scanned={found.rows}")
    if step.text.startswith(ASKED):
        told += [f"{name}={value}" for name, value in looked.items()]
    return f", metrics=[{', '.join(told)}]"


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(_indented(place, line) for place, line in enumerate(lines))


def _indented(depth: int, line: str) -> str:
    return "  " * depth + line


def measure_scan(
    plan: ScanPlan, callback: Callable[[ScanMetrics], None]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan, and at its end say what was read."""
    meter = meter_for(plan.snapshot)
    cold = _cold(plan, meter)
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


def _cold(plan: ScanPlan, meter: NodeMeter) -> ScanPlan:
    """Return the plan over a store that is counted, with nothing kept but open indices."""
    snapshot = plan.snapshot.apart(metered(plan.snapshot.location.store, meter))
    column_indices(snapshot, of=plan.snapshot)
    searches.text_indices.text_indices(snapshot, of=plan.snapshot)
    vector_indices(snapshot, of=plan.snapshot)
    return replace(plan, snapshot=snapshot, meter=meter)
