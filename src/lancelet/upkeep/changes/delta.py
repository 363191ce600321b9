"""Row changes according to recorded row versions, as in pylance.

    after 3, up to 7      inserted   created in 4 to 7
                          updated    created in 3 or before, last changed in 4 to 7
                          deleted    ids of version 3 that version 7 does not have

Only fragments that differ from those of the earlier version can contain such rows. Most of these
record a single version for all rows, so that all or none of the rows match:

    fragment   version 3     version 7         rows inserted after 3
    0          file a        file a            none: it is the same
    1          -             file b, made 5    all
    2          -             file c, made 2    none: rows that moved
    3          -             file d, 2 and 6   selected by a filter

Tables without stable row ids record no row versions, which raises an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

import pyarrow as pa

from lancelet.format.fragment import Fragment
from lancelet.format.transaction import Transaction
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.row_columns import ROW_FIELDS, RowColumn
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.lineage import created_versions_of, updated_versions_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.changes.between import RowsNotTrackedError, check_order, commits_between
from lancelet.upkeep.changes.rows import rows_deleted
from lancelet.values import dataclass

_ID: Final = RowColumn.ID.value
_CREATED: Final = RowColumn.CREATED.value
_UPDATED: Final = RowColumn.UPDATED.value
_RECORDS: Final = {_CREATED: created_versions_of, _UPDATED: updated_versions_of}


@dataclass(frozen=True, slots=True, eq=False)
class Delta:
    """The changes after one version, up to another."""

    location: TableLocation
    begin_version: int
    end_version: int
    opened: Snapshot | None = None
    """An open version of the table, which is reused."""

    def transactions(self) -> Iterator[Transaction]:
        """Yield the available transactions, oldest first."""
        for commit in commits_between(self.location, self.begin_version, self.end_version):
            if commit.transaction is not None:
                yield commit.transaction

    def inserted_rows(self) -> pa.RecordBatchReader:
        """Return the inserted rows, with the values of the last version."""
        return self._rows({_CREATED: self._versions})

    def updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were only updated, with the values of the last version."""
        before = range(self.begin_version + 1)
        return self._rows({_CREATED: before, _UPDATED: self._versions})

    def deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the deleted rows."""
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

    def _rows(self, ranges: Mapping[str, range]) -> pa.RecordBatchReader:
        """Return the rows whose recorded versions are within the ranges."""
        begin, end = self._ends()
        shares = {
            fragment.id: _share(end, fragment, ranges) for fragment in _new_fragments(begin, end)
        }
        has_others = _Share.SOME in shares.values()
        options = ScanOptions(
            columns=(*end.schema.names, _ID, _CREATED, _UPDATED),
            fragments=tuple(
                fragment_id for fragment_id, share in shares.items() if share is not _Share.NONE
            ),
            filter=_condition(ranges) if has_others else None,
        )
        plan = plan_scan(end, options)
        return pa.RecordBatchReader.from_batches(plan.schema, execute(plan))

    def _ends(self) -> tuple[Snapshot | None, Snapshot]:
        """Open both versions, and raise if row versions were not recorded."""
        end = self._open(self.end_version)
        begin = self._open(self.begin_version) if self.begin_version else None
        for snapshot in (end, begin):
            if snapshot is not None and not snapshot.manifest.uses_stable_row_ids:
                raise RowsNotTrackedError(
                    "a table without stable row ids does not record row versions; use `changes` "
                    "to compare versions by key columns",
                    uri=self.location.uri,
                    version=snapshot.version,
                )
        return begin, end

    def _open(self, version: int) -> Snapshot:
        if self.opened is not None and self.opened.version == version:
            return self.opened
        return open_snapshot(self.location, version)


def open_delta(opened: Snapshot, begin_version: int, end_version: int) -> Delta:
    """Return the changes after a version of a table, up to another; 0 selects all rows.

    `opened` is any version of the table.
    """
    check_order(begin_version, end_version)
    return Delta(opened.location, begin_version, end_version, opened)


class _Share(Enum):
    """The share of matching rows in a fragment."""

    NONE = "none"
    SOME = "some"
    ALL = "all"


def _new_fragments(begin: Snapshot | None, end: Snapshot) -> Iterator[Fragment]:
    """Yield the fragments that the earlier version does not contain unchanged."""
    fragments = end.fragments
    unchanged = frozenset[bytes]() if begin is None else frozenset(begin.fragments.messages())
    for position, message in enumerate(fragments.messages()):
        if message not in unchanged:
            yield fragments[position]


def _share(snapshot: Snapshot, fragment: Fragment, ranges: Mapping[str, range]) -> _Share:
    """Return the share of rows whose recorded versions are within the ranges."""
    share = _Share.ALL
    for column, versions in ranges.items():
        recorded = _RECORDS[column](snapshot, fragment).versions
        is_match = (recorded >= versions.start) & (recorded < versions.stop)
        if not is_match.any():
            return _Share.NONE
        if not is_match.all():
            share = _Share.SOME
    return share


def _condition(ranges: Mapping[str, range]) -> str:
    return " AND ".join(
        f"{column} >= {versions.start} AND {column} < {versions.stop}"
        for column, versions in ranges.items()
    )
