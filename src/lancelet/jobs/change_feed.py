"""The changes of one version, as a value that tasks can count and read in part.

    version 1, or a snapshot   all rows as inserts
    version 7                  changes since version 6: inserts and updates, then deletes
    a compaction, an index     nothing, even if rows moved

The changes of a version have a stable order, so that tasks or micro-batches can read them in parts.
Columns missing in a version are omitted from its row images.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from lancelet.format import operation as ops
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.changes import ChangeFeed, ChangeKind, changes
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
    """The changes of a table version, or all its rows if `is_snapshot` is set.

    `columns` are the columns of the row images. `on` are the key columns that identify rows if the
    table does not track rows.
    """

    table: TableRef
    columns: tuple[str, ...]
    on: tuple[str, ...] = ()
    is_snapshot: bool = False

    def count(self) -> int:
        """Return the number of changes."""
        end = self.table.open()
        if self._is_start(end):
            return end.num_rows
        return 0 if _changes_no_rows(end) else self._feed(end).count()

    def batches(self, first: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield the changes numbered from `first` to `stop`, exclusive; see `ChangeFeed.schema`."""
        end = self.table.open()
        if self._is_start(end):
            yield from _as_inserts(end, self._existing_columns(end), first, stop)
        elif not _changes_no_rows(end):
            yield from self._feed(end).batches(first=first, stop=stop)

    def _is_start(self, end: Snapshot) -> bool:
        return self.is_snapshot or end.version == 1

    def _feed(self, end: Snapshot) -> ChangeFeed:
        begin = self.table.at(end.version - 1).open()
        return changes(begin, end, columns=self._existing_columns(begin, end), on=self.on or None)

    def _existing_columns(self, *snapshots: Snapshot) -> tuple[str, ...]:
        existing = {name for snapshot in snapshots for name in snapshot.schema.names}
        return tuple(name for name in self.columns if name in existing)


def _changes_no_rows(snapshot: Snapshot) -> bool:
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
