"""Methods that insert, delete, update and merge rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypedDict, cast

import pyarrow as pa

from lancelet import change
from lancelet.arguments import mapping
from lancelet.dataset.arguments import checks_types, refuse_unknown
from lancelet.dataset.dry_runs import previews
from lancelet.dataset.handle import Handle
from lancelet.dataset.show import display
from lancelet.dataset.show.listing import Facts, Text
from lancelet.dataset.show.progress import ProgressOption, shown
from lancelet.dataset.write.committing import Transaction
from lancelet.dataset.write.operation_forms import operation_to_user
from lancelet.dataset.write.request import WriteRequest
from lancelet.errors import InvalidInputError
from lancelet.format.operation import CompactedSsTable
from lancelet.format.version import FileVersion
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from lancelet.change.dry_run import ChangeReport
    from lancelet.change.merge.spec import MergeStatistics
    from lancelet.dataset.dataset import LanceDataset


class ExecuteResult(TypedDict):
    """The row counts of a merge."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


class MergeInsertBuilder:
    """Builds a merge: actions for matched rows, new source rows, and unmatched target rows."""

    def __init__(self, dataset: LanceDataset, on: str | Iterable[str] | None = None) -> None:
        """Merge into a dataset by key columns, by default its primary key."""
        self._dataset = dataset
        self._spec = change.merge.spec.MergeSpec(_key_names(dataset, on))
        self._retries = change.publish.Retries()
        self._options = CommitOptions()

    def __repr__(self) -> str:
        """Show the target and the actions."""
        return display.line("MergeInsertBuilder", self._dataset.uri, **self._facts())

    def _repr_html_(self) -> str:
        """Render the target and the actions for notebooks."""
        return display.card(f"Merge into {self._dataset.uri}", self._facts())

    def _facts(self) -> dict[str, object]:
        spec = self._spec
        deletes = spec.delete_condition or True
        return {
            "on": list(spec.on),
            "matched": spec.matched.value,
            "condition": spec.update_condition,
            "inserts": spec.inserts,
            "deletes_unmatched": deletes if spec.deletes_unmatched else False,
        }

    def when_matched_update_all(self, condition: str | None = None) -> Self:
        """Update matched rows with all columns of the source.

        Args:
            condition: SQL over `source.` and `target.` columns; other rows remain unchanged.

        Returns:
            The builder.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all("target.price < 20")
            merge.execute(new_books)
            ```
        """
        return self._with(matched=change.merge.spec.Matched.UPDATE, update_condition=condition)

    def when_matched_delete(self) -> Self:
        """Delete matched rows.

        Returns:
            The builder.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_delete()
            merge.execute(new_books)["num_deleted_rows"]  # 1
            ```
        """
        return self._with(matched=change.merge.spec.Matched.DELETE, update_condition=None)

    def when_matched_fail(self) -> Self:
        """Raise if any row matches.

        Returns:
            The builder.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_fail().when_not_matched_insert_all().execute(
                new_books.slice(1)
            )
            ```
        """
        return self._with(matched=change.merge.spec.Matched.FAIL, update_condition=None)

    def when_not_matched_insert_all(self) -> Self:
        """Insert source rows that match no row.

        Returns:
            The builder.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_not_matched_insert_all()
            merge.execute(new_books)["num_inserted_rows"]  # 1
            ```
        """
        return self._with(inserts=True)

    def when_not_matched_by_source_delete(self, expr: str | None = None) -> Self:
        """Delete target rows without a matching source row.

        Args:
            expr: A SQL condition on the columns of the dataset; by default all unmatched rows.

        Returns:
            The builder.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_not_matched_by_source_delete("id > 10")
            merge.execute(new_books)["num_deleted_rows"]  # 9
            ```
        """
        return self._with(deletes_unmatched=True, delete_condition=expr)

    def source_dedupe_behavior(self, behavior: Literal["fail", "first_seen"]) -> Self:
        """Set the behavior for several source rows with the same key.

        Args:
            behavior: `fail` raises, which is the default; `first_seen` uses the first row.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all()
            twice = pa.concat_tables([new_books, new_books])
            merge.source_dedupe_behavior("first_seen").execute(twice)
            ```
        """
        return self._with(duplicates=change.merge.spec.Duplicates(behavior))

    @checks_types
    def conflict_retries(self, max_retries: int) -> Self:
        """Set the number of retries after a conflict.

        Args:
            max_retries: The number of retries, by default 10.

        Returns:
            The builder.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_update_all().conflict_retries(20).execute(new_books)
            ```
        """
        self._retries = replace(self._retries, max_retries=max_retries)
        return self

    @checks_types
    def retry_timeout(self, timeout: timedelta) -> Self:
        """Set the time limit of retries.

        Args:
            timeout: The time limit, by default 30 seconds.

        Returns:
            The builder.

        Example:
            ```python
            from datetime import timedelta

            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.retry_timeout(timedelta(minutes=2)).execute(new_books)
            ```
        """
        self._retries = replace(self._retries, seconds=timeout.total_seconds())
        return self

    def data_storage_version(self, version: str) -> Self:
        """Set the file version of new data files.

        Args:
            version: The file version, by default the dataset's.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_not_matched_insert_all()
            merge.data_storage_version(dataset.data_storage_version).execute(new_books)
            ```
        """
        files = replace(self._spec.files, version=FileVersion.parse(version))
        return self._with(files=files)

    @checks_types
    def use_index(self, use_index: bool) -> Self:
        """Set whether to use an index on the key.

        Args:
            use_index: On by default.

        Returns:
            The builder.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_update_all().use_index(False).execute(new_books)
            ```
        """
        return self._with(uses_index=use_index)

    def write_mode(self, mode: Literal["auto", "rewrite_rows", "rewrite_columns"]) -> Self:
        """Set the method of updating rows.

        Args:
            mode: `auto` or `rewrite_rows` appends changed rows and deletes the old rows.
                `rewrite_columns` keeps rows in their fragments and rewrites the source columns of
                the affected fragments; only for updates of some columns.

        Returns:
            The builder.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_update_all().write_mode("rewrite_rows").execute(new_books)
            ```
        """
        modes = [each.value for each in change.merge.spec.RewriteMode]
        if mode not in modes:
            raise InvalidInputError(
                f"Invalid write_mode: {mode}. Expected one of "
                + ", ".join(f"'{each}'" for each in modes)
            )
        return self._with(mode=change.merge.spec.RewriteMode(mode))

    def target_bases(self, bases: list[str]) -> Self:
        """Write new files to base paths, in rotation.

        Args:
            bases: Names or paths of base paths.

        Returns:
            The builder.

        Example:
            ```python
            from lancelet import DatasetBasePath

            books = lance.write_dataset(
                pa.table({"id": [1, 2]}),
                "tiered.lance",
                initial_bases=[DatasetBasePath("cold-books", name="cold")],
            )
            merge = books.merge_insert("id").when_not_matched_insert_all()
            merge.target_bases(["cold"]).execute(pa.table({"id": [3]}))
            ```
        """
        return self._with(
            files=replace(self._spec.files, bases=change.bases.BaseSelection(tuple(bases)))
        )

    def target_all_bases(self, include_primary: bool = True) -> Self:
        """Write new files to all base paths, in rotation.

        Args:
            include_primary: Whether to include the folder of the dataset.

        Returns:
            The builder.

        Example:
            ```python
            from lancelet import DatasetBasePath

            books = lance.write_dataset(
                pa.table({"id": [1, 2]}),
                "tiered.lance",
                initial_bases=[DatasetBasePath("cold-books", name="cold")],
            )
            merge = books.merge_insert("id").when_not_matched_insert_all()
            merge.target_all_bases().execute(pa.table({"id": [3]}))
            ```
        """
        return self._with(
            files=replace(
                self._spec.files, bases=change.bases.BaseSelection(rotates=include_primary)
            )
        )

    def mark_sstables_as_compacted(self, sstables: Iterable[Any]) -> Self:
        """Record which generations of write-ahead log shards this commit merges.

        Args:
            sstables: Objects with a `shard_id` and a `generation`.

        Returns:
            The builder.

        Example:
            ```python
            from lancelet.mem_wal import CompactedSsTable

            (shard,) = people.mem_wal_shards()
            merge = people.merge_insert("id").when_not_matched_insert_all()
            merge.mark_sstables_as_compacted([CompactedSsTable(shard.shard_id, 1)])
            merge.execute(pa.table({"id": [2], "name": ["Grace"]}, people.schema))
            ```
        """
        compacted = tuple(
            CompactedSsTable(uuid.UUID(str(each.shard_id)), each.generation) for each in sstables
        )
        return self._with(compacted=compacted)

    def skip_auto_cleanup(self, skip: bool = True) -> Self:
        """Set whether to skip the automatic cleanup of old versions.

        Args:
            skip: Whether to skip it.

        Returns:
            The builder.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_update_all().skip_auto_cleanup().execute(new_books)
            ```
        """
        self._options = replace(self._options, skips_cleanup=skip)
        return self

    def memory_limit(self, limit: int) -> Self:
        """Set the memory limit of the merge; larger streams spill to disk.

        Args:
            limit: The approximate number of bytes. Buffers for reading and writing take about
                150 MB whatever the limit.

        Returns:
            The builder.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all().memory_limit(1 << 30)
            merge.execute(new_books)
            ```
        """
        return self._with(memory_limit=limit)

    @previews
    def execute(
        self,
        data_obj: Any,
        *,
        schema: pa.Schema | None = None,
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> ExecuteResult | ChangeReport:
        """Merge the source rows into the dataset, and check out the new version.

        Args:
            data_obj: The source rows, in any form that `write_dataset` accepts.
            schema: The schema to convert the rows to.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The numbers of inserted, updated and deleted rows; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            CommitConflictError: If concurrent commits changed the same rows in every attempt.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            upsert = dataset.merge_insert("id").when_matched_update_all()
            upsert.when_not_matched_insert_all().execute(new_books)["num_inserted_rows"]  # 1
            ```
        """
        stream, dataset = change.rows.read_rows(data_obj, schema), self._dataset
        if dry_run:
            return change.merge.execute.report_merge(dataset.snapshot, stream, self._spec)
        with shown(progress):
            merged = change.merge.execute.merge_rows(
                dataset.snapshot, stream, self._spec, retries=self._retries, options=self._options
            )
        dataset.set_snapshot(merged.snapshot)
        return _result(merged.statistics)

    def execute_uncommitted(
        self, data_obj: Any, *, schema: pa.Schema | None = None
    ) -> tuple[Transaction, ExecuteResult]:
        """Write the changes of the merge without committing them.

        Args:
            data_obj: The source rows.
            schema: The schema to convert the rows to.

        Returns:
            The transaction for `LanceDataset.commit`, and the row counts.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all()
            transaction, stats = merge.execute_uncommitted(new_books)
            dataset = lance.LanceDataset.commit(dataset, transaction)
            ```
        """
        snapshot = self._dataset.snapshot
        done = change.merge.execute.merge_uncommitted(
            snapshot, change.rows.read_rows(data_obj, schema), self._spec
        )
        operation = operation_to_user(done.operation)
        return Transaction(snapshot.version, operation), _result(done.statistics)

    def execute_batches(
        self, new_data: Any, *, dry_run: bool = False
    ) -> ExecuteResult | ChangeReport:
        """Merge in-memory rows. Equivalent to `execute`; a method of pylance.

        Args:
            new_data: The source rows.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The row counts; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            CommitConflictError: If concurrent commits changed the same rows in every attempt.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.merge_insert("id").when_matched_update_all().execute_batches(new_books.to_batches())
            ```
        """
        return self.execute(new_data, dry_run=True) if dry_run else self.execute(new_data)

    def execute_uncommitted_batches(self, new_data: Any) -> tuple[Transaction, ExecuteResult]:
        """Write the changes of merging in-memory rows. Equivalent to `execute_uncommitted`.

        Args:
            new_data: The source rows.

        Returns:
            The transaction for `LanceDataset.commit`, and the row counts.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all()
            merge.execute_uncommitted_batches(new_books.to_batches())
            ```
        """
        return self.execute_uncommitted(new_data)

    def analyze_plan_batches(self, new_data: Any) -> str:
        """Return the measured plan for in-memory rows. Equivalent to `analyze_plan`.

        Args:
            new_data: The source rows.

        Returns:
            The plan as text.

        Example:
            ```python
            merge = dataset.merge_insert("id").when_matched_update_all()
            print(merge.analyze_plan_batches(new_books.to_batches()))
            ```
        """
        return self.analyze_plan(new_data)

    def explain_plan(self, schema: pa.Schema | None = None, verbose: bool = False) -> str:  # noqa: ARG002 - pylance's signature
        """Return the plan of the merge.

        Args:
            schema: The schema of the source; by default the dataset's.
            verbose: Has no effect: the plan is always complete.

        Returns:
            The plan as text.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            print(dataset.merge_insert("id").when_matched_update_all().explain_plan())
            ```
        """
        plan = change.merge.explain.explain_merge(self._dataset.snapshot, schema, self._spec)
        return Text(plan)

    def analyze_plan(self, data_obj: Any, *, schema: pa.Schema | None = None) -> str:
        """Run the merge without writing or committing, and return the plan with measurements.

        Args:
            data_obj: The source rows.
            schema: The schema to convert the rows to.

        Returns:
            The plan as text.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            print(dataset.merge_insert("id").when_matched_update_all().analyze_plan(new_books))
            ```
        """
        stream = change.rows.read_rows(data_obj, schema)
        plan = change.merge.explain.analyze_merge(self._dataset.snapshot, stream, self._spec)
        return Text(plan)

    def _with(self, **changes: Any) -> Self:
        self._spec = replace(self._spec, **changes)
        return self


def _result(did: MergeStatistics) -> ExecuteResult:
    found = ExecuteResult(
        num_inserted_rows=did.num_inserted_rows,
        num_updated_rows=did.num_updated_rows,
        num_deleted_rows=did.num_deleted_rows,
    )
    return cast("ExecuteResult", Facts(found))


def _key_names(dataset: LanceDataset, on: str | Iterable[str] | None) -> tuple[str, ...]:
    schema = dataset.snapshot.schema
    own_key = (schema.path_of(field.id) for field in schema.primary_key)
    names = (on,) if isinstance(on, str) else tuple(on or own_key)
    if not names:
        raise InvalidInputError(
            "A merge insert operation requires join keys: specify `on` columns explicitly or "
            "configure a primary key in the dataset schema"
        )
    change.merge.key_columns.KeyColumns.of(schema, names)
    return names


_RETRY_TIMEOUT: Final = timedelta(seconds=30)


class DeleteResult(TypedDict):
    """The row count of a deletion."""

    num_deleted_rows: int


class UpdateResult(TypedDict):
    """The row count of an update."""

    num_rows_updated: int


class MutationMethods:
    """Methods that insert, delete, update and merge rows."""

    _handle: Handle

    @checks_types
    def insert(
        self, data: Any, *, mode: str = "append", dry_run: bool = False, **kwargs: Any
    ) -> ChangeReport | None:
        """Append rows, and check out the new version.

        Args:
            data: The rows, in any form that `write_dataset` accepts.
            mode: `append` or `overwrite`.
            dry_run: If True, return a `ChangeReport` without committing.
            kwargs: Further arguments of `write_dataset`.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.insert([{"id": 100, "name": "Emma", "price": 4.5}])
            ```
        """
        rows = change.rows.read_rows(data, kwargs.pop("schema", None))
        own = cast("LanceDataset", self)  # the class that uses this mixin
        refuse_unknown(MutationMethods.insert, kwargs, WriteRequest.__init__.__code__)
        request = WriteRequest(own, mode, **kwargs)
        if dry_run:
            return request.report(rows)
        self._handle.snapshot = request.write(rows).snapshot
        return None

    @previews
    @checks_types
    def delete(
        self,
        predicate: str | pc.Expression,
        *,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> DeleteResult | ChangeReport:
        """Delete rows that match a predicate.

        Args:
            predicate: SQL text or a pyarrow expression.
            conflict_retries: The number of retries if concurrent commits changed the same rows.
            retry_timeout: The time limit of retries.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            A dict with `num_deleted_rows`; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            CommitConflictError: If concurrent commits changed the same rows in every attempt.

        Example:
            ```python
            dataset.delete("price < 1", dry_run=True)
            dataset.delete("price < 1")["num_deleted_rows"]
            ```
        """
        handle = self._handle
        if dry_run:
            return change.delete.report_delete(handle.snapshot, predicate)
        retries = change.publish.Retries(conflict_retries, retry_timeout.total_seconds())
        with shown(progress):
            deleted = change.delete.delete_rows(handle.snapshot, predicate, retries=retries)
        handle.snapshot = deleted.snapshot
        return cast("DeleteResult", Facts(num_deleted_rows=deleted.num_rows))

    def truncate_table(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Delete all rows.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If concurrent commits changed the same rows in every attempt.

        Example:
            ```python
            dataset.truncate_table()
            dataset.count_rows()  # 0
            ```
        """
        if dry_run:
            return change.delete.report_delete(self._handle.snapshot, "true")
        self.delete("true")
        return None

    @previews
    @checks_types
    def update(
        self,
        updates: Mapping[str, str],
        where: Any = None,
        conflict_retries: int = 10,
        retry_timeout: timedelta = _RETRY_TIMEOUT,
        data_storage_version: str | None = None,
        *,
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> UpdateResult | ChangeReport:
        """Set columns to new values in rows that match a predicate.

        Args:
            updates: SQL expressions by column; a dotted path refers to a struct field.
            where: SQL text or a pyarrow expression; by default all rows.
            conflict_retries: The number of retries if concurrent commits changed the same rows.
            retry_timeout: The time limit of retries.
            data_storage_version: The version of new data files; by default the dataset's.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            A dict with `num_rows_updated`; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If concurrent commits changed the same rows in every attempt.

        Example:
            ```python
            dataset.update({"price": "price * 1.1"}, where="id > 10")["num_rows_updated"]
            ```
        """
        mapping("updates", updates)
        handle = self._handle
        files = change.moved_rows.RowFiles(
            None if data_storage_version is None else FileVersion.parse(data_storage_version)
        )
        if dry_run:
            return change.update.report_update(handle.snapshot, updates, where, files)
        retries = change.publish.Retries(conflict_retries, retry_timeout.total_seconds())
        with shown(progress):
            updated = change.update.update_rows(
                handle.snapshot, updates, where, change.update.UpdateOptions(files, retries)
            )
        handle.snapshot = updated.snapshot
        return cast("UpdateResult", Facts(num_rows_updated=updated.num_rows))

    def merge_insert(self, on: str | Iterable[str] | None = None) -> MergeInsertBuilder:
        """Start a merge of new rows by key, such as an upsert.

        Args:
            on: The key column or columns; by default the unenforced primary key of the schema.

        Returns:
            A builder: set the actions, then call `execute`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            upsert = dataset.merge_insert("id").when_matched_update_all()
            upsert.when_not_matched_insert_all().execute(new_books)
            ```
        """
        return MergeInsertBuilder(self, on)  # type: ignore[arg-type]  # the mixin is a dataset

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Replace the snapshot of this dataset object.

        Args:
            snapshot: The snapshot, such as the result of a commit.

        Example:
            ```python
            dataset.set_snapshot(lance.dataset(dataset.uri, version=1).snapshot)
            dataset.version  # 1
            ```
        """
        self._handle.snapshot = snapshot
