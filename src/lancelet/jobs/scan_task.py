"""Scan tasks: read some rows of a version in a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet.jobs.split import Split
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import execute
from lancelet.scan.nodes.source import sources
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_BATCH_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScanTask:
    """The rows and columns of a version that one task reads.

    The filter applies to the rows of the split; `offset` and `limit` apply to the filtered rows.
    """

    table: TableRef
    columns: tuple[str, ...]
    split: Split
    filter: str | None = None
    limit: int | None = None
    offset: int = 0

    def plan(self) -> ScanPlan:
        """Return the scan plan."""
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
            # The address range comes first, so that nothing is read for rows outside of it.
            combined = f"({_address_filter(snapshot, split)}) AND ({self.filter})"
            return plan_scan(snapshot, replace(options, filter=combined))
        rows = max(0, split.num_rows - self.offset)
        limit = rows if self.limit is None else min(rows, self.limit)
        start = split.first_row + self.offset
        return plan_scan(snapshot, replace(options, offset=start, limit=limit))


def scan(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of limited size."""
    return execute(task.plan())


def _address_filter(snapshot: Snapshot, split: Split) -> str:
    """Return a filter for the rows of a split, by row address."""
    (source,) = sources(snapshot, split.fragments, with_deleted=False)
    assert split.num_rows is not None
    stop = min(source.num_visible, split.first_row + split.num_rows)
    rows = source.window(split.first_row, stop)
    first = int(source.fragment.id) << 32
    return f"_rowaddr >= {first + rows.start} AND _rowaddr < {first + rows.stop}"
