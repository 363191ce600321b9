"""Changing the rows of a dataset: inserting, deleting, updating, upserting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, cast

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.handle import Handle
from lancelet.dataset.merge_insert import MergeInsertBuilder
from lancelet.dataset.signatures import previews
from lancelet.dataset.write_request import WriteRequest
from lancelet.file.arguments import mapping
from lancelet.format.version import FileVersion
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset
    from lancelet.ops.dry_run import ChangeReport

_RETRY_TIMEOUT: Final = timedelta(seconds=30)


class DeleteResult(TypedDict):
    """What a deletion did."""

    num_deleted_rows: int


class UpdateResult(TypedDict):
    """What an update did."""

    num_rows_updated: int


class MutationMethods:
    """What changes rows."""

    _handle: Handle

    @checks_kinds
    def insert(
        self, data: Any, *, mode: str = "append", dry_run: bool = False, **kwargs: Any
    ) -> ChangeReport | None:
        """Append rows, and check the new version out.

        Args:
            data: The rows, in any form that `write_dataset` takes.
            mode: `append` or `overwrite`.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.
            kwargs: Further arguments of `write_dataset`.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not fit the schema, or a value would change by
                conversion.
            CommitConflictError: If a concurrent commit changed the same thing first.

        Example:
            ```python
            dataset.insert([{"id": 100, "name": "Emma", "price": 4.5}])
            ```
        """
        rows = ops.rows.read_rows_of(data, kwargs.pop("schema", None))
        own = cast("LanceDataset", self)  # what this is mixed into
        request = WriteRequest(own, mode, **kwargs)
        if dry_run:
            return request.report(rows)
        self._handle.snapshot = request.write(rows).snapshot
        return None

    @previews
    @checks_kinds
    def delete(
        self,
        predicate: str,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        dry_run: bool = False,
    ) -> DeleteResult | ChangeReport:
        """Delete the rows for which a predicate is true.

        Args:
            predicate: SQL text or a pyarrow expression.
            conflict_retries: The number of retries if concurrent commits changed the same rows.
            retry_timeout: How long to retry.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            A dict with `num_deleted_rows`; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.
            CommitConflictError: If a concurrent commit changed the same rows, and still did after
                all retries.

        Example:
            ```python
            dataset.delete("price < 1", dry_run=True)
            dataset.delete("price < 1")["num_deleted_rows"]
            ```
        """
        handle = self._handle
        if dry_run:
            return ops.delete.report_delete(handle.snapshot, predicate)
        retries = ops.publish.Retries(conflict_retries, retry_timeout.total_seconds())
        deleted = ops.delete.delete_rows(handle.snapshot, predicate, retries=retries)
        handle.snapshot = deleted.snapshot
        return DeleteResult(num_deleted_rows=deleted.num_rows)

    def truncate_table(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Delete all rows.

        Args:
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit changed the same rows, and still did after
                all retries.

        Example:
            ```python
            dataset.truncate_table()
            dataset.count_rows()  # 0
            ```
        """
        if dry_run:
            return ops.delete.report_delete(self._handle.snapshot, "true")
        self.delete("true")
        return None

    @previews
    @checks_kinds
    def update(
        self,
        updates: Mapping[str, str],
        where: Any = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        dry_run: bool = False,
    ) -> UpdateResult | ChangeReport:
        """Set columns to new values, in the rows for which a predicate is true.

        Args:
            updates: SQL expressions by column; a dotted path is a field of a struct.
            where: SQL text or a pyarrow expression; by default all rows.
            conflict_retries: The number of retries if concurrent commits changed the same rows.
            retry_timeout: How long to retry.
            data_storage_version: The version of new data files; by default the dataset's.
            dry_run: Preview: commit nothing and return a `ChangeReport` of what would change.

        Returns:
            A dict with `num_rows_updated`; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression does not parse, or names a column that is not there.
            FieldNotFoundError: If there is no such column.
            CommitConflictError: If a concurrent commit changed the same rows, and still did after
                all retries.

        Example:
            ```python
            dataset.update({"price": "price * 1.1"}, where="id > 10")["num_rows_updated"]
            ```
        """
        mapping("updates", updates)
        handle = self._handle
        files = ops.moved_rows.RowFiles(
            None if data_storage_version is None else FileVersion.parse(data_storage_version)
        )
        if dry_run:
            return ops.update.report_update(handle.snapshot, updates, where, files)
        retries = ops.publish.Retries(conflict_retries, retry_timeout.total_seconds())
        updated = ops.update.update_rows(
            handle.snapshot, updates, where, ops.update.UpdateOptions(files, retries)
        )
        handle.snapshot = updated.snapshot
        return UpdateResult(num_rows_updated=updated.num_rows)

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Start an upsert: a merge of new rows by key.

        Args:
            on: The key column or columns; by default the unenforced primary key of the schema.

        Returns:
            A builder: say what to do with matches, then `execute`.

        Raises:
            FieldNotFoundError: If there is no such column.
            InvalidInputError: If an argument has a value that it cannot have.

        Example:
            ```python
            upsert = dataset.merge_insert("id").when_matched_update_all()
            upsert.when_not_matched_insert_all().execute(new_books)
            ```
        """
        return MergeInsertBuilder(self, on)  # type: ignore[arg-type]  # the mixin is a dataset

    def look_at(self, snapshot: Snapshot) -> None:
        """Check another snapshot out, in place.

        Args:
            snapshot: The snapshot, such as one that was just committed.
        """
        self._handle.snapshot = snapshot
