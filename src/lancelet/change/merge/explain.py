"""Explain the steps of a merge, with metrics if it was executed.

MergeInsert: on=[id], when_matched=UpdateAll, when_not_matched=InsertAll, ...
  HashJoin: on=[id], build=source, probe=table
    LanceRead: uri=t.lance, projection=[id], num_fragments=3, rows=3000, requests=6, bytes=24120
    Source: columns=[id, v]
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import fields

import pyarrow as pa

from lancelet.change.dry_run import DryRun
from lancelet.change.fit import fit_to_table
from lancelet.change.lossless import fit_rows
from lancelet.change.merge.decide import compile_condition
from lancelet.change.merge.execute import prepare_merge
from lancelet.change.merge.join import plan_keys
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.prepared_source import prepared
from lancelet.change.merge.spec import Matched, MergeSpec, MergeStatistics
from lancelet.change.rows import RowStream
from lancelet.errors import UnsupportedError
from lancelet.scan.explain import estimate_reads
from lancelet.scan.indexing.column_indices import column_indices
from lancelet.scan.plan import FilterStep
from lancelet.table.snapshot import Snapshot


class UnplannedMergeError(UnsupportedError, OSError):
    """The steps of a merge depend on the keys of its rows."""


def explain_merge(snapshot: Snapshot, schema: pa.Schema | None, spec: MergeSpec) -> str:
    """Return the steps of a merge with a source schema, by default the schema of the table.

    Raises:
        UnplannedMergeError: The key has an index, whose use depends on the rows.
    """
    spec.check()
    paths = [tuple(part.name for part in snapshot.schema.fields_on_path(on)) for on in spec.on]
    if spec.uses_index and any(path in column_indices(snapshot) for path in paths):
        raise UnplannedMergeError(
            "a merge insert whose keys are in an index does not support explain_plan, because "
            "index use depends on the rows; use analyze_plan or use_index(False)",
            on=list(spec.on),
        )
    schema = schema or snapshot.schema.to_arrow()
    schema = fit_rows(RowStream(schema, iter(())), snapshot.schema).schema
    fit_to_table(snapshot.schema, schema, may_lack_required=not spec.inserts)
    if spec.update_condition is not None:
        compile_condition(snapshot, schema, spec.update_condition)
    return "\n".join(_lines(snapshot, schema, spec, (), ""))


def analyze_merge(snapshot: Snapshot, stream: RowStream, spec: MergeSpec) -> str:
    """Execute a merge without writing and committing, and return its steps with metrics."""
    spec.check()
    dry_run = DryRun.of(snapshot)
    started = time.perf_counter()
    with prepared(snapshot.schema, stream, spec) as source:
        did = prepare_merge(dry_run.snapshot, source, spec).statistics
        elapsed_ms = (time.perf_counter() - started) * 1000
        metrics = f", metrics=[elapsed_ms={elapsed_ms:.2f}, {_metrics(did)}]"
        return "\n".join(_lines(snapshot, stream.schema, spec, source.steps, metrics))


def _lines(
    snapshot: Snapshot,
    schema: pa.Schema,
    spec: MergeSpec,
    steps: Sequence[FilterStep],
    metrics: str,
) -> Iterator[str]:
    key = KeyColumns.of(snapshot.schema, spec.on)
    names = ", ".join(key.names)
    unmatched = "Keep"
    if spec.deletes_unmatched:
        unmatched = (
            "Delete" if spec.delete_condition is None else f"DeleteIf({spec.delete_condition})"
        )
    matched = spec.matched.value
    if spec.matched is Matched.UPDATE and spec.update_condition is not None:
        matched = f"UpdateIf({spec.update_condition})"
    yield (
        f"MergeInsert: on=[{names}], when_matched={matched}, "
        f"when_not_matched={'InsertAll' if spec.inserts else 'DoNothing'}, "
        f"when_not_matched_by_source={unmatched}{metrics}"
    )
    plan = plan_keys(snapshot, key, steps)
    expected = estimate_reads(plan)
    yield f"  HashJoin: on=[{names}], build=source, probe=table"
    yield (
        f"    LanceRead: uri={snapshot.location.uri}, projection=[{names}], "
        f"num_fragments={expected.fragments}, {expected}"
    )
    yield f"    Source: columns=[{', '.join(schema.names)}]"


def _metrics(did: MergeStatistics) -> str:
    return ", ".join(f"{each.name}={getattr(did, each.name)}" for each in fields(did))
