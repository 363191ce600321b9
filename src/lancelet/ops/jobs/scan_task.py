"""Reading rows of a version in a task: a plain value, and the function that runs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lancelet.ops.jobs.split import Split
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions

_BATCH_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ScanTask:
    """Rows of a version that one task reads, and the columns of them."""

    table: TableRef
    columns: tuple[str, ...]
    split: Split
    filter: str | None = None
    limit: int | None = None


def scan(task: ScanTask) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task in batches of limited size."""
    split = task.split
    limits = [each for each in (task.limit, split.num_rows) if each is not None]
    options = ScanOptions(
        columns=task.columns,
        filter=task.filter,
        limit=min(limits, default=None),
        offset=split.first_row,
        fragments=split.fragments,
        batch_bytes=_BATCH_BYTES,
    )
    return execute(plan_scan(task.table.open(), options))
