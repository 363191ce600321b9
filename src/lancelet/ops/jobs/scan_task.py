"""Reading rows of a version in a task: a plain value, and the function that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet.ops.jobs.split import Split
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute
from lancelet.query.nodes.source import sources
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BATCH_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Rows of a version that one task reads, and the columns of them.

    Of the rows of the split those are read for which the filter is true, but for the first
    `offset` of them, and `limit` at most.
    """

    table: TableRef
    columns: tuple[str, ...]
    split: Split
    filter: str | None = None
    limit: int | None = None
    offset: int = 0

    def plan(self) -> ScanPlan:
        """Return the plan of the read."""
        snapshot = self.table.open()
        options = ScanOptions(
            columns=self.columns,
            filter=self.filter,
            limit=self.limit,
            offset=self.offset,
            fragments=self.split.fragments,
            batch_bytes=_BATCH_BYTES,
        )
        split = self.split
        if split.num_rows is None:
            return plan_scan(snapshot, options)
        if self.filter is not None:
            # The addresses come first: where no row is within, nothing is read.
            within = f"({_rows_of(snapshot, split)}) AND ({self.filter})"
            return plan_scan(snapshot, replace(options, filter=within))
        rows = max(0, split.num_rows - self.offset)
        most = rows if self.limit is None else min(rows, self.limit)
        start = split.first_row + self.offset
        return plan_scan(snapshot, replace(options, offset=start, limit=most))


def scan(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of limited size."""
    return execute(task.plan())


def _rows_of(snapshot: Snapshot, split: Split) -> str:
    """Return the condition that a row is within a part of a fragment, by its address."""
    (source,) = sources(snapshot, split.fragments, with_deleted=False)
    assert split.num_rows is not None
    stop = min(source.num_visible, split.first_row + split.num_rows)
    rows = source.window(split.first_row, stop)
    first = int(source.fragment.id) << 32
    return f"_rowaddr >= {first + rows.start} AND _rowaddr < {first + rows.stop}"
