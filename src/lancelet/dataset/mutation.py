"""Changing the rows of a dataset: inserting, deleting, updating, upserting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast, overload

from lancelet import ops
from lancelet.dataset.argument_kinds import checks_kinds
from lancelet.dataset.handle import Handle
from lancelet.dataset.merge_insert import MergeInsertBuilder
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
        """Write rows to the dataset and look at the version with them; see `write_dataset`."""
        from lancelet.dataset.write import write_dataset  # noqa: PLC0415 - it makes datasets

        own = cast("LanceDataset", self)  # what this is mixed into
        if dry_run:
            return write_dataset(data, own, mode=mode, dry_run=True, **kwargs)
        written = write_dataset(data, own, mode=mode, **kwargs)
        self._handle.snapshot = written.snapshot
        return None

    @overload
    def delete(
        self,
        predicate: str,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        dry_run: Literal[False] = False,
    ) -> DeleteResult: ...

    @overload
    def delete(
        self,
        predicate: str,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        dry_run: Literal[True],
    ) -> ChangeReport: ...

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
            predicate: SQL text, or an expression of pyarrow.
            conflict_retries: How often to do it again if others changed the same rows first.
            retry_timeout: For how long to do so.
            dry_run: Whether to change nothing and return what would change.
        """
        handle = self._handle
        if dry_run:
            return ops.delete.report_delete(handle.snapshot, predicate)
        retries = ops.publish.Retries(conflict_retries, retry_timeout.total_seconds())
        deleted = ops.delete.delete_rows(handle.snapshot, predicate, retries=retries)
        handle.snapshot = deleted.snapshot
        return DeleteResult(num_deleted_rows=deleted.num_rows)

    def truncate_table(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Delete all rows, or with `dry_run` return what that would change."""
        if dry_run:
            return ops.delete.report_delete(self._handle.snapshot, "true")
        self.delete("true")
        return None

    @overload
    def update(
        self,
        updates: Mapping[str, str],
        where: Any = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        dry_run: Literal[False] = False,
    ) -> UpdateResult: ...

    @overload
    def update(
        self,
        updates: Mapping[str, str],
        where: Any = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        dry_run: Literal[True],
    ) -> ChangeReport: ...

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
        """Give columns new values in the rows for which a predicate is true.

        Args:
            updates: Expressions in SQL by column; a dotted path means a field of a struct.
            where: SQL text, or an expression of pyarrow; by default all rows.
            conflict_retries: How often to do it again if others changed the same rows first.
            retry_timeout: For how long to do so.
            data_storage_version: The version of the new data files; by default the dataset's.
            dry_run: Whether to change nothing and return what would change.
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
        """Return a builder of a change that merges new rows into the dataset by key.

        Args:
            on: The key: a column, or several; by default the primary key of the schema.
        """
        return MergeInsertBuilder(self, on)  # type: ignore[arg-type]  # the mixin is a dataset

    def look_at(self, snapshot: Snapshot) -> None:
        """Look at another version, such as one that was just committed."""
        self._handle.snapshot = snapshot
