"""Methods that return the changes between versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

from lancelet import upkeep
from lancelet.dataset.handle import Handle, NegativeVersionError, open_reference
from lancelet.dataset.show import display
from lancelet.dataset.write.committing import Transaction, transaction_to_user
from lancelet.errors import InvalidInputError
from lancelet.table.refs import open_as_of
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.handle import VersionLike
    from lancelet.upkeep.changes import ChangeKind, Delta
    from lancelet.upkeep.diff import TableDifference

Moment: TypeAlias = "VersionLike | datetime"
"""A version by number, tag, branch or timestamp."""

Kind: TypeAlias = Literal["insert", "update", "delete"]


class DatasetDelta:
    """The changes between two versions; created by `LanceDataset.delta`."""

    def __init__(self, delta: Delta) -> None:
        """Represent the changes between two versions."""
        self._delta = delta

    def __repr__(self) -> str:
        """Show the versions."""
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
        """Return the inserted rows with `_rowid` and the row versions.

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
        """Return the updated rows with `_rowid` and the row versions.

        Returns:
            A stream of record batches, without rows that were inserted in the interval.

        Example:
            ```python
            dataset.update({"price": "price + 1"}, where="id = 3")
            dataset.delta(compared_against=1).get_updated_rows().read_all()
            ```
        """
        return self._delta.updated_rows()

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Return the ids of the deleted rows in a column `_rowid`.

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
    """Methods that compare versions of a table."""

    _handle: Handle

    def delta(
        self,
        compared_against: int | None = None,
        *,
        begin_version: int | None = None,
        end_version: int | None = None,
    ) -> DatasetDelta:
        """Return the changes between two versions of a table with stable row ids.

        Use `changes` for tables without stable row ids.

        Args:
            compared_against: The version to compare the checked-out one with.
            begin_version: The start of the interval, exclusive; 0 includes the first version.
            end_version: The end of the interval, inclusive.

        Returns:
            A `DatasetDelta`; no data is read yet.

        Raises:
            InvalidInputError: If an argument is invalid.
            VersionNotFoundError: If the version does not exist or was cleaned up.

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
            raise NegativeVersionError("version numbers start at 1", version=min(begin, end))
        return DatasetDelta(upkeep.changes.open_delta(self._handle.snapshot, begin, end))

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
        `after`, which are null if the row did not exist.

        Args:
            begin: The version or time to compare with.
            end: The version or time of the new state; by default the checked-out version.
            columns: The columns of `before` and `after`.
            kinds: The kinds to return, by default all.
            on: Key columns that identify a row, for tables without stable row ids.

        Returns:
            A stream of record batches.

        Raises:
            VersionNotFoundError: If the version does not exist or was cleaned up.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.update({"price": "price + 1"}, where="id = 3")
            dataset.changes(1, columns=["price"]).read_all()
            ```
        """
        selected = upkeep.changes.CHANGE_KINDS if kinds is None else tuple(map(_kind, kinds))
        keys = (on,) if isinstance(on, str) else on
        first, last = self._at(begin), self._at(end)
        return upkeep.changes.changes(
            first, last, columns=columns, kinds=selected, on=keys
        ).reader()

    def diff(self, begin: Moment, end: Moment = None) -> TableDifference:
        """Return the differences between two versions: schema, settings, files, indices and rows.

        Args:
            begin: A version or time; it may be later than `end`.
            end: The version or time to compare with; by default the checked-out version.

        Returns:
            The differences.

        Raises:
            VersionNotFoundError: If the version does not exist or was cleaned up.

        Example:
            ```python
            dataset.delete("id = 3")
            print(dataset.diff(1))
            ```
        """
        return upkeep.diff.diff(self._at(begin), self._at(end))

    def _at(self, moment: Moment) -> Snapshot:
        if isinstance(moment, datetime):
            return open_as_of(self._handle.location, moment.astimezone())
        return open_reference(self._handle, moment)


def _kind(name: str) -> ChangeKind:
    try:
        return upkeep.changes.ChangeKind(name)
    except ValueError as error:
        kinds = [kind.value for kind in upkeep.changes.CHANGE_KINDS]
        raise InvalidInputError("unknown kind of change", kind=name, expected=kinds) from error
