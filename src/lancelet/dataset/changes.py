"""The methods of a dataset that tell what changed between versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.committing import Transaction, transaction_to_user
from lancelet.dataset.handle import Handle, NegativeVersionError, open_reference
from lancelet.errors import InvalidInputError
from lancelet.table.refs import open_as_of
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.handle import VersionLike
    from lancelet.ops.changes import ChangeKind, Delta
    from lancelet.ops.diff import TableDifference

Moment: TypeAlias = "VersionLike | datetime"
"""A version by number, tag or branch, or the one that was the latest at a time."""

Kind: TypeAlias = Literal["insert", "update", "delete"]


class DatasetDelta:
    """What changed after one version, up to another; made by `LanceDataset.delta`."""

    def __init__(self, delta: Delta) -> None:
        """Look at the difference of two versions."""
        self._delta = delta

    def list_transactions(self) -> list[Transaction]:
        """Return what was committed, oldest first."""
        return [transaction_to_user(each) for each in self._delta.transactions()]

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were created, with their row id and versions behind."""
        return self._delta.inserted_rows()

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were changed and not created, with their row id and versions."""
        return self._delta.updated_rows()

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the rows that are gone, as a column `_rowid`."""
        return self._delta.deleted_row_ids()


class ChangeMethods:
    """Compares versions of a table."""

    _handle: Handle

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """Return what changed after one version, up to another.

        It needs a table with stable row ids; for another see `changes`.

        Args:
            compared_against: The version after which changes count, up to the one looked at.
            begin_version: The same, with `end_version`; 0 is before the first version.
            end_version: The last version that counts.
        """
        begin, end = begin_version, end_version
        if compared_against is not None:
            begin, end = compared_against, self._handle.snapshot.version
        if begin is None and end is None:
            raise InvalidInputError(
                "Must specify either compared_against, or both begin_version and end_version"
            )
        if begin is None or end is None:
            raise InvalidInputError(
                "Invalid user input: Must specify both with_begin_version and with_end_version",
                begin_version=begin,
                end_version=end,
            )
        if min(begin, end) < 0:
            raise NegativeVersionError("versions are counted from 1", version=min(begin, end))
        return DatasetDelta(ops.changes.open_delta(self._handle.snapshot, begin, end))

    def changes(
        self,
        begin: Moment,
        end: Moment = None,
        *,
        columns: Sequence[str] | None = None,
        kinds: Sequence[Kind] | None = None,
        on: str | Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """Return which rows differ between two versions, with their values before and after.

        The columns are `kind` (insert, update or delete), `_rowid`, and the structs `before` and
        `after`, null where there was no row. See `lancelet.ops.changes.feed`.

        Args:
            begin: The version to compare with, or a time.
            end: The version whose changes are told; by default the one that is looked at.
            columns: The columns of `before` and `after`.
            kinds: What to return.
            on: Columns by whose values rows are the same row; for tables without stable row ids.
        """
        wanted = ops.changes.CHANGE_KINDS if kinds is None else tuple(map(_kind, kinds))
        keys = (on,) if isinstance(on, str) else on
        first, last = self._at(begin), self._at(end)
        return ops.changes.changes(first, last, columns=columns, kinds=wanted, on=keys).reader()

    def diff(self, begin: Moment, end: Moment = None) -> TableDifference:
        """Return how two versions differ: in schema, settings, files, indices and rows.

        Args:
            begin: A version to compare with, or a time; it may be the newer one.
            end: The other version; by default the one that is looked at.
        """
        return ops.diff.diff(self._at(begin), self._at(end))

    def _at(self, moment: Moment) -> Snapshot:
        if isinstance(moment, datetime):
            return open_as_of(self._handle.location, moment.astimezone())
        return open_reference(self._handle, moment)


def _kind(name: str) -> ChangeKind:
    try:
        return ops.changes.ChangeKind(name)
    except ValueError as error:
        known = [kind.value for kind in ops.changes.CHANGE_KINDS]
        raise InvalidInputError("a change is of no such kind", kind=name, known=known) from error
