"""The methods of a dataset that tell what changed between versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from lancelet import ops
from lancelet.dataset.handle import Handle, NegativeVersionError, open_reference
from lancelet.dataset.show import display
from lancelet.dataset.write.committing import Transaction, transaction_to_user
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

    def __repr__(self) -> str:
        """Show which versions are compared."""
        delta = self._delta
        return display.line("DatasetDelta", begin=delta.begin_version, end=delta.end_version)

    def list_transactions(self) -> list[Transaction]:
        """Return the transactions of the interval, oldest first.

        Returns:
            The transactions.

        Example:
            ```python
            dataset.delete("id = 3")
            dataset.delta(compared_against=1).list_transactions()
            ```
        """
        return [transaction_to_user(each) for each in self._delta.transactions()]

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were inserted, with `_rowid` and the versions of the rows.

        Returns:
            A stream of record batches.

        Example:
            ```python
            dataset.insert(new_books)
            dataset.delta(compared_against=1).get_inserted_rows().read_all()
            ```
        """
        return self._delta.inserted_rows()

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Return the rows that were updated, with `_rowid` and the versions of the rows.

        Returns:
            A stream of record batches; rows inserted in the interval are not among them.

        Example:
            ```python
            dataset.update({"price": "price + 1"}, where="id = 3")
            dataset.delta(compared_against=1).get_updated_rows().read_all()
            ```
        """
        return self._delta.updated_rows()

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the rows that were deleted, as a column `_rowid`.

        Returns:
            A stream of record batches.

        Example:
            ```python
            dataset.delete("id = 3")
            dataset.delta(compared_against=1).get_deleted_row_ids().read_all()
            ```
        """
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
        """Return what changed between two versions, of a table with stable row ids.

        See `changes` for tables without.

        Args:
            compared_against: The version to compare the checked-out one with.
            begin_version: The same, with `end_version`; 0 is before the first version.
            end_version: The last version whose changes count.

        Returns:
            A `DatasetDelta`; nothing is read yet.

        Raises:
            InvalidInputError: If an argument has a value that it cannot have.
            VersionNotFoundError: If the version was never committed, or was cleaned up.

        Example:
            ```python
            dataset.update({"price": "price + 1"}, where="id < 3")
            delta = dataset.delta(compared_against=1)
            delta.get_updated_rows().read_all().num_rows
            ```
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
        """Return the row-level changes between two versions, with values before and after.

        The columns are `kind` (insert, update or delete), `_rowid`, and the structs `before` and
        `after`, null where there was no row.

        Args:
            begin: The version to compare with, or a time.
            end: The version whose changes are returned; by default the checked-out one.
            columns: The columns of `before` and `after`.
            kinds: The kinds to return, by default all.
            on: Key columns that identify a row; for tables without stable row ids.

        Returns:
            A stream of record batches.

        Raises:
            VersionNotFoundError: If the version was never committed, or was cleaned up.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            dataset.update({"price": "price + 1"}, where="id = 3")
            dataset.changes(1, columns=["price"]).read_all()
            ```
        """
        wanted = ops.changes.CHANGE_KINDS if kinds is None else tuple(map(_kind, kinds))
        keys = (on,) if isinstance(on, str) else on
        first, last = self._at(begin), self._at(end)
        return ops.changes.changes(first, last, columns=columns, kinds=wanted, on=keys).reader()

    def diff(self, begin: Moment, end: Moment = None) -> TableDifference:
        """Return how two versions differ: in schema, settings, files, indices and rows.

        Args:
            begin: A version to compare with, or a time; it may be the newer one.
            end: The other version; by default the checked-out one.

        Returns:
            The differences.

        Raises:
            VersionNotFoundError: If the version was never committed, or was cleaned up.

        Example:
            ```python
            dataset.delete("id = 3")
            print(dataset.diff(1))
            ```
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
