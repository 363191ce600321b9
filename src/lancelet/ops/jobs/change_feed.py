"""What one version changed, as a value that names it, counts it and reads a part of it anywhere.

    version 1, or a snapshot   all rows, each as an insert
    version 7                  what differs from version 6: inserts and updates, then deletes
    a compaction, an index     nothing, wherever rows went

Changes of a version have an order that never changes, so they can be read part by part, by tasks
or by batches of a stream. Columns that a version did not have yet are left out of its images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from lancelet.format import operation as ops
from lancelet.ops.changes import ChangeFeed, ChangeKind, changes
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_CHANGE_NO_ROWS: Final = (
    ops.Rewrite,
    ops.CreateIndex,
    ops.Merge,
    ops.Project,
    ops.UpdateConfig,
    ops.ReserveFragments,
    ops.UpdateBases,
    ops.UpdateMemWalState,
)
_ID: Final = RowColumn.ID.value
_BATCH_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class VersionFeed:
    """The changes of the version that `table` names, or all its rows if it `is_snapshot`.

    `columns` are those of the images, and `on` the columns by which rows are the same row where
    the table does not record it.
    """

    table: TableRef
    columns: tuple[str, ...]
    on: tuple[str, ...] = ()
    is_snapshot: bool = False

    def count(self) -> int:
        """Return how many changes there are."""
        end = self.table.open()
        if self._is_start(end):
            return end.num_rows
        return 0 if _is_quiet(end) else self._feed(end).count()

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes from one number to before another; see `ChangeFeed.schema`."""
        end = self.table.open()
        if self._is_start(end):
            yield from _as_inserts(end, self._known(end), first, stop)
        elif not _is_quiet(end):
            yield from self._feed(end).batches(first=first, stop=stop)

    def _is_start(self, end: Snapshot) -> bool:
        return self.is_snapshot or end.version == 1

    def _feed(self, end: Snapshot) -> ChangeFeed:
        begin = self.table.at(end.version - 1).open()
        return changes(begin, end, columns=self._known(begin, end), on=self.on or None)

    def _known(self, *snapshots: Snapshot) -> tuple[str, ...]:
        known = {name for snapshot in snapshots for name in snapshot.schema.names}
        return tuple(name for name in self.columns if name in known)


def _is_quiet(snapshot: Snapshot) -> bool:
    transaction = snapshot.transaction
    return transaction is not None and isinstance(transaction.operation, _CHANGE_NO_ROWS)


def _as_inserts(
    snapshot: Snapshot, columns: tuple[str, ...], first: int, stop: int
) -> Iterator[pa.RecordBatch]:
    options = ScanOptions(
        columns=(*columns, _ID), offset=first, limit=stop - first, batch_bytes=_BATCH_BYTES
    )
    for batch in execute(plan_scan(snapshot, options)):
        image = pa.struct([batch.schema.field(name) for name in columns])
        after = (
            pa.StructArray.from_arrays([batch.column(name) for name in columns], fields=list(image))
            if columns
            else pa.Array.from_buffers(image, batch.num_rows, [None])
        )
        yield pa.RecordBatch.from_pydict(
            {
                "kind": pa.repeat(pa.scalar(ChangeKind.INSERT.value), batch.num_rows),
                _ID: batch.column(_ID),
                "before": pa.nulls(batch.num_rows, image),
                "after": after,
            }
        )
