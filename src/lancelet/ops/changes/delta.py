"""Rows by the versions that they record, which is how pylance tells what changed.

    after 3, up to 7      inserted   created in 4 to 7
                          updated    created in 3 or before, last changed in 4 to 7
                          deleted    ids of version 3 that version 7 does not have

It needs no look at the earlier version except for the deleted rows. A table without stable row
ids records no versions of rows: there it would find nothing, so it is an error to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lancelet.format.transaction import Transaction
from lancelet.ops.changes.between import (
    RowsNotTrackedError,
    check_order,
    commits_between,
)
from lancelet.ops.changes.rows import rows_deleted
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.row_columns import ROW_FIELDS, RowColumn
from lancelet.query.scan_options import ScanOptions
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot

_ID: Final = RowColumn.ID.value
_CREATED: Final = RowColumn.CREATED.value
_UPDATED: Final = RowColumn.UPDATED.value


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """What changed after one version, up to another."""

    location: TableLocation
    begin_version: int
    end_version: int
    opened: Snapshot | None = None
    """A version that is open already, and of which much is known therefore."""

    def transactions(self) -> Iterator[Transaction]:
        """Yield what was committed, oldest first; what a version does not say is left out."""
        for commit in commits_between(self.location, self.begin_version, self.end_version):
            if commit.transaction is not None:
                yield commit.transaction

    def inserted_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were created, as they are in the last version."""
        return self._rows(f"{_CREATED} > {self.begin_version} AND {_CREATED} <= {self.end_version}")

    def updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were changed and not created, as they are in the last version."""
        return self._rows(
            f"{_CREATED} <= {self.begin_version} AND {_UPDATED} > {self.begin_version} "
            f"AND {_UPDATED} <= {self.end_version}"
        )

    def deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the rows that are gone."""
        schema = pa.schema([ROW_FIELDS[_ID]])
        end = self._end()
        if self.begin_version == 0:
            return pa.RecordBatchReader.from_batches(schema, [])
        begin = self._open(self.begin_version)
        batches = (
            pa.record_batch([pa.array(rows.ids)], schema=schema)
            for rows in rows_deleted(begin, end)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def _rows(self, condition: str) -> pa.RecordBatchReader:
        snapshot = self._end()
        columns = (*snapshot.schema.names, _ID, _CREATED, _UPDATED)
        plan = plan_scan(snapshot, ScanOptions(columns=columns, filter=condition))
        return pa.RecordBatchReader.from_batches(plan.schema, execute(plan))

    def _end(self) -> Snapshot:
        """Open the last version, and see that rows have recorded their versions since the first."""
        end = self._open(self.end_version)
        known = [end]
        if self.begin_version:
            known.append(self._open(self.begin_version))
        for snapshot in known:
            if not snapshot.manifest.uses_stable_row_ids:
                raise RowsNotTrackedError(
                    "rows of a table without stable row ids do not record when they changed; "
                    "`changes` can compare two versions by key columns",
                    uri=self.location.uri,
                    version=snapshot.version,
                )
        return end

    def _open(self, version: int) -> Snapshot:
        if self.opened is not None and self.opened.version == version:
            return self.opened
        return open_snapshot(self.location, version)


def open_delta(opened: Snapshot, begin_version: int, end_version: int) -> Delta:
    """Return what changed after a version of a table, up to another; 0 is before the first.

    `opened` is any version of the table.
    """
    check_order(begin_version, end_version)
    return Delta(opened.location, begin_version, end_version, opened)
