"""Rows by the versions that they record, which is how pylance tells what changed.

    after 3, up to 7      inserted   created in 4 to 7
                          updated    created in 3 or before, last changed in 4 to 7
                          deleted    ids of version 3 that version 7 does not have

Only fragments that the earlier version did not have just so can hold such rows. Of these, most
record one version for all of their rows, which then are all wanted or all not:

    fragment   version 3     version 7         rows inserted after 3
    0          file a        file a            none: it is the same
    1          -             file b, made 5    all
    2          -             file c, made 2    none: rows that moved
    3          -             file d, 2 and 6   those that a filter finds

A table without stable row ids records no versions of rows: there nothing would be found, so it
is an error to ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import pyarrow as pa

from lancelet.format.fragment import Fragment
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
from lancelet.table.lineage import created_versions_of, updated_versions_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

_ID: Final = RowColumn.ID.value
_CREATED: Final = RowColumn.CREATED.value
_UPDATED: Final = RowColumn.UPDATED.value
_RECORDS: Final = {_CREATED: created_versions_of, _UPDATED: updated_versions_of}


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
        return self._rows({_CREATED: self._versions})

    def updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were changed and not created, as they are in the last version."""
        before = range(self.begin_version + 1)
        return self._rows({_CREATED: before, _UPDATED: self._versions})

    def deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the rows that are gone."""
        schema = pa.schema([ROW_FIELDS[_ID]])
        begin, end = self._ends()
        if begin is None:
            return pa.RecordBatchReader.from_batches(schema, [])
        batches = (
            pa.record_batch([pa.array(rows.ids)], schema=schema)
            for rows in rows_deleted(begin, end)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    @property
    def _versions(self) -> range:
        return range(self.begin_version + 1, self.end_version + 1)

    def _rows(self, wanted: Mapping[str, range]) -> pa.RecordBatchReader:
        """Return the rows whose versions are all within the ranges."""
        begin, end = self._ends()
        shares = {
            fragment.id: _share(end, fragment, wanted) for fragment in _new_fragments(begin, end)
        }
        has_others = _Share.SOME in shares.values()
        options = ScanOptions(
            columns=(*end.schema.names, _ID, _CREATED, _UPDATED),
            fragments=tuple(each for each, share in shares.items() if share is not _Share.NONE),
            filter=_condition(wanted) if has_others else None,
        )
        plan = plan_scan(end, options)
        return pa.RecordBatchReader.from_batches(plan.schema, execute(plan))

    def _ends(self) -> tuple[Snapshot | None, Snapshot]:
        """Open both versions, and see that rows have recorded their versions since the first."""
        end = self._open(self.end_version)
        begin = self._open(self.begin_version) if self.begin_version else None
        for snapshot in (end, begin):
            if snapshot is not None and not snapshot.manifest.uses_stable_row_ids:
                raise RowsNotTrackedError(
                    "rows of a table without stable row ids do not record when they changed; "
                    "`changes` can compare two versions by key columns",
                    uri=self.location.uri,
                    version=snapshot.version,
                )
        return begin, end

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


class _Share(Enum):
    """How many of the rows of a fragment are wanted."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def _new_fragments(begin: Snapshot | None, end: Snapshot) -> Iterator[Fragment]:
    """Yield the fragments that are not the same in the earlier version, if there is one."""
    fragments = end.fragments
    known = frozenset[bytes]() if begin is None else frozenset(begin.fragments.messages())
    for place, message in enumerate(fragments.messages()):
        if message not in known:
            yield fragments[place]


def _share(snapshot: Snapshot, fragment: Fragment, wanted: Mapping[str, range]) -> _Share:
    """Return how many rows of a fragment have versions within the ranges, as far as runs tell."""
    share = _Share.ALL
    for column, versions in wanted.items():
        recorded = _RECORDS[column](snapshot, fragment).versions
        is_wanted = (recorded >= versions.start) & (recorded < versions.stop)
        if not is_wanted.any():
            return _Share.NONE
        if not is_wanted.all():
            share = _Share.SOME
    return share


def _condition(wanted: Mapping[str, range]) -> str:
    return " AND ".join(
        f"{column} >= {versions.start} AND {column} < {versions.stop}"
        for column, versions in wanted.items()
    )
