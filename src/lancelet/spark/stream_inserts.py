"""A stream of the rows inserted by each version, in the order of the version."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from lancelet.jobs.inserts import Inserts, OnChange, find_inserts
from lancelet.jobs.scan_task import ScanTask
from lancelet.jobs.split import Split
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import count_rows
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.scan.scan_options import ScanOptions
from lancelet.spark.reader import run_scan
from lancelet.spark.stream_offset import Offset, open_version
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_ROWS_PER_TASK: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class InsertedRows:
    """The rows inserted by versions of a table, with the columns of a schema."""

    table: TableRef
    on_change: OnChange
    schema: pa.Schema

    def count(self, at: Offset) -> int:
        """Return the number of rows inserted by the version of an offset."""
        snapshot, inserts = self._find(at)
        scanning = ScanOptions(columns=(), filter=inserts.filter, fragments=inserts.fragments)
        return count_rows(plan_scan(snapshot, scanning))

    def row_bytes(self, at: Offset) -> float:
        """Return the average number of bytes per row, from file sizes."""
        snapshot, inserts = self._find(at)
        fragments = [snapshot.fragments.by_id(number) for number in inserts.fragments]
        size = sum(fragment.data_bytes for fragment in fragments)
        return max(1.0, size / max(1, sum(fragment.physical_rows for fragment in fragments)))

    def tasks(self, at: Offset, stop: int) -> Iterator[ScanTask]:
        """Yield tasks for the rows from an offset up to, not including, a number."""
        snapshot, inserts = self._find(at)
        table = self.table.pinned(snapshot)
        names_of_table = set(snapshot.schema.names)
        names = tuple(
            name for name in self.schema.names if name in names_of_table | ROW_FIELDS.keys()
        )
        if inserts.filter is not None:
            everything = Split(inserts.fragments)
            yield ScanTask(table, names, everything, inserts.filter, stop - at.row, at.row)
            return
        for start in range(at.row, stop, _ROWS_PER_TASK):
            rows = min(_ROWS_PER_TASK, stop - start)
            yield ScanTask(table, names, Split(inserts.fragments, start, rows))

    def read(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task."""
        return run_scan(task, self.schema)

    def _find(self, at: Offset) -> tuple[Snapshot, Inserts]:
        snapshot = open_version(self.table, at.version)
        if at.is_snapshot:
            return snapshot, Inserts(tuple(snapshot.fragments.ids.tolist()))
        return snapshot, find_inserts(snapshot, self.on_change)
