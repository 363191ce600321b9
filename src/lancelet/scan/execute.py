"""Execute a plan and yield batches or tables of the requested sizes.

Execution is driven by the consumer: a few tasks run ahead, and closing the iterator cancels them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from lancelet import search as searches
from lancelet.file.batches import rebatch
from lancelet.scan.nodes.read import windows
from lancelet.scan.operators import CountRows, operator_of
from lancelet.scan.plan import ScanPlan
from lancelet.scan.projection import without_columns


def execute(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan as batches within the requested row and byte limits."""
    options = plan.options
    with plan.snapshot.translating_missing_files():
        operator = operator_of(plan)
        if options.search is not None:
            yield from operator.run()
            return
        if plan.is_empty:
            return
        batches: Iterator[pa.RecordBatch] = (each for each in operator.run() if each.num_rows)
        if options.batch_bytes is not None:
            batches = _split_by_bytes(batches, options.batch_bytes)
        if options.is_strict and options.batch_size is not None:
            batches = rebatch(batches, options.batch_size)
        yield from batches


def execute_to_table(plan: ScanPlan) -> pa.Table:
    """Execute a scan and return a table."""
    if plan.options.search is not None:
        return searches.scored.ScoredScan(plan).table()
    batches = list(execute(plan))
    if not plan.schema.names:
        rows = sum(batch.num_rows for batch in batches)
        return pa.Table.from_batches([without_columns(rows)])
    return pa.Table.from_batches(batches, plan.schema)


def count_rows(plan: ScanPlan) -> int:
    """Return the number of rows of a scan, from the manifest if there is no filter."""
    options = plan.options
    if options.search is not None:
        return int(searches.scored.ScoredScan(plan).table().num_rows)
    if plan.is_empty:
        return 0
    if plan.is_filtered:
        with plan.snapshot.translating_missing_files():
            total = CountRows(plan).count()
    elif options.fragments is None and not options.with_deleted:
        total = plan.snapshot.num_rows
    else:
        return sum(window.num_visible for window in windows(plan))
    total = max(0, total - options.offset)
    return total if options.limit is None else min(total, options.limit)


def _split_by_bytes(batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        parts = max(1, -(-batch.nbytes // bytes_max))
        step = max(1, -(-batch.num_rows // parts))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)
