"""Methods that add, change and drop columns, and user-defined functions that compute columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypedDict

import pyarrow as pa

from lancelet import change, upkeep
from lancelet.arguments import instance, mapping, text, texts, whole_number
from lancelet.dataset.arguments import checks_types
from lancelet.dataset.dry_runs import previews
from lancelet.dataset.show.progress import ProgressOption, shown
from lancelet.errors import InvalidInputError, similar_names
from lancelet.scan.execute import execute
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.change.columns.alter import Alteration
    from lancelet.change.columns.computed import StaleRows
    from lancelet.change.columns.refresh import RefreshedRows
    from lancelet.change.columns.sources import Function, NewColumns
    from lancelet.change.dry_run import ChangeReport
    from lancelet.change.rows import RowStream
    from lancelet.dataset.handle import Handle


class BatchUDF:
    """A user-defined function that computes columns from batches."""

    def __init__(
        self,
        func: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        """Wrap a function.

        Args:
            func: Maps a batch to a batch or a data frame with the same number of rows.
            output_schema: The schema of the results; by default inferred from the first row.
            checkpoint_file: Stores completed results, so an interrupted job can be resumed.
        """
        self.func = func
        self.output_schema = output_schema
        self.cache = (
            None
            if checkpoint_file is None
            else change.columns.checkpoint.BatchUDFCheckpoint(checkpoint_file)
        )

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function without checks, for tests."""
        return self.func(batch)

    def call_checked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the result of the function for a batch, and validate its schema."""
        result = as_batch(self.func(batch))
        if result.schema != self.output_schema:
            raise change.columns.fields.ColumnError(
                "Output schema of function does not match the expected schema",
                expected=str(self.output_schema),
                found=str(result.schema),
            )
        return result


def batch_udf(
    output_schema: pa.Schema | None = None,
    checkpoint_file: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Decorate a function as a `BatchUDF` for `LanceDataset.add_columns`."""

    def wrap(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


def as_batch(result: Any) -> pa.RecordBatch:
    """Convert the result of a function, a batch, table or data frame, to a batch."""
    if isinstance(result, pa.RecordBatch):
        return result
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    if type(result).__module__.split(".")[0] == "pandas":
        return pa.RecordBatch.from_pandas(result)
    raise InvalidInputError(
        "a function must return a batch, a table or a data frame", found=str(type(result))
    )


class TransformTypeError(InvalidInputError, TypeError):
    """The value passed as new columns has an unsupported type."""


def new_columns_of(
    transforms: Any,
    snapshot: Snapshot,
    read_columns: Sequence[str] | None = None,
    reader_schema: pa.Schema | None = None,
    batch_size: int | None = None,
) -> NewColumns:
    """Return the source of the values of new columns."""
    match transforms:
        case change.columns.sources.ComputedColumn():
            return transforms
        case pa.Schema():
            return change.columns.sources.Nulls(transforms)
        case pa.Field():
            return change.columns.sources.Nulls(pa.schema([transforms]))
        case [pa.Field(), *_]:
            return change.columns.sources.Nulls(pa.schema(transforms))
        case BatchUDF():
            return _function(transforms, snapshot, read_columns, batch_size)
        case dict():
            return change.columns.sources.Expressions(_checked(transforms), batch_size)
    if callable(transforms):
        return _plain_function(transforms, snapshot, read_columns, batch_size)
    return change.columns.sources.Rows(_rows(transforms, reader_schema))


def _function(
    udf: BatchUDF, snapshot: Snapshot, reads: Sequence[str] | None, batch_size: int | None
) -> Function:
    if udf.output_schema is None:
        udf.output_schema = as_batch(udf(_first_row(snapshot, reads))).schema
    return change.columns.sources.Function(
        udf.call_checked,
        udf.output_schema,
        None if reads is None else tuple(reads),
        batch_size or change.columns.sources.BATCH_ROWS,
        udf.cache,
    )


def _plain_function(
    function: Callable[[pa.RecordBatch], Any],
    snapshot: Snapshot,
    reads: Sequence[str] | None,
    batch_size: int | None,
) -> Function:
    """Wrap a function as a source; its result for the first row determines the schema."""
    sample = _first_row(snapshot, reads)
    try:
        schema = as_batch(function(sample)).schema
    except Exception as error:
        # Any exception of a user's function on the first row is reported as an unsuitable function.
        raise TransformTypeError(
            "transforms must be a BatchUDF, dict, map function, or ReaderLike value, but this "
            f"one is callable and gave an error when called with a batch: {error}",
            type=str(type(function)),
        ) from error
    return _function(BatchUDF(function, schema), snapshot, reads, batch_size)


def _first_row(snapshot: Snapshot, reads: Sequence[str] | None) -> pa.RecordBatch:
    columns = None if reads is None else tuple(reads)
    plan = plan_scan(snapshot, ScanOptions(columns=columns, limit=1))
    empty = pa.RecordBatch.from_pylist([], schema=plan.schema)
    return next(execute(plan), empty)


def _rows(data: Any, schema: pa.Schema | None) -> RowStream:
    is_plain = isinstance(data, Iterator | list | tuple) and not isinstance(
        data, pa.RecordBatchReader
    )
    if schema is None and is_plain:
        raise InvalidInputError("Must provide schema to write dataset from RecordBatch iterable")
    try:
        return change.rows.read_rows(data, schema)
    except InvalidInputError as error:
        raise TransformTypeError(
            "transforms must be a BatchUDF, dict, map function, or ReaderLike value",
            type=str(type(data)),
        ) from error


def _checked(expressions: Mapping[Any, Any]) -> Mapping[str, str]:
    for name, written in expressions.items():
        if not isinstance(name, str):
            raise TransformTypeError(f"Column names must be a string. Got {type(name)}")
        if not isinstance(written, str):
            raise TransformTypeError(f"Column expressions must be a string. Got {type(written)}")
    return expressions


class AlterColumn(TypedDict, total=False):
    """Changes to a column; missing keys leave the property unchanged."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class EvolutionMethods:
    """Methods that add, alter and drop columns.

    With `dry_run`, each method only reports its changes.
    """

    _handle: Handle

    @checks_types
    def add_columns(
        self,
        transforms: Any,
        read_columns: list[str] | None = None,
        reader_schema: pa.Schema | None = None,
        batch_size: int | None = None,
        *,
        progress: ProgressOption = None,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add columns, or fields of structs, without rewriting existing data files.

        Args:
            transforms: SQL expressions by column name; a function or `BatchUDF` that maps a batch
                to new columns; a `ComputedColumn`, whose definition is stored; rows in the order of
                the table; or a field, list of fields or schema for all-null columns.
            read_columns: The columns passed to a function; by default all.
            reader_schema: The schema of the new rows, if they have none.
            batch_size: The number of rows per batch.
            progress: Whether to show a progress bar, or a function called with `IndexProgress`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            InvalidInputError: If a column of this name exists.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.add_columns({"total": "price * 1.19"})
            dataset.add_columns(pa.field("note", pa.string()))
            ```
        """
        handle = self._handle
        source = new_columns_of(
            transforms, handle.snapshot, read_columns, reader_schema, batch_size
        )
        if dry_run:
            return change.columns.add.report_add_columns(handle.snapshot, source)
        with shown(progress):
            handle.snapshot = change.columns.add.add_columns(handle.snapshot, source)
        return None

    def stale_rows(self) -> StaleRows:
        """Return the computed columns, and the rows whose values are out of date.

        Returns:
            The definitions by column, and the numbers of rows and fragments.

        Example:
            ```python
            from lancelet import ComputedColumn

            dataset.add_columns(ComputedColumn("total", "price * 1.19"))
            dataset.insert({"id": [30], "price": [9.0]})
            dataset.stale_rows().rows  # 1
            ```
        """
        return change.columns.computed.stale_rows(self._handle.snapshot)

    @previews
    @checks_types
    def refresh_columns(
        self,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        *,
        max_rows: int | None = None,
        max_seconds: float | None = None,
        batch_size: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        dry_run: bool = False,
    ) -> RefreshedRows | ChangeReport:
        """Compute the values of computed columns that are out of date.

        Rows that were inserted or updated since the last refresh are computed, and committed
        fragment by fragment: a refresh that stops is continued by the next one. If a function
        fails, the batches before are committed.

        Args:
            functions: The Python functions of computed columns, by name.
            max_rows: The maximum number of rows to compute.
            max_seconds: The time after which no further batch is computed.
            batch_size: The number of rows per call of a function, by default 8192.
            checkpoint: A folder for the results of batches, on any store. After a kill, the next
                refresh with the same folder computes at most one batch again.
            dry_run: If True, call the functions and return a `ChangeReport` without committing.

        Returns:
            The numbers of computed and of remaining rows; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If an input of a computed column was dropped.
            ColumnFunctionError: If a function is missing, or its values are unsuitable.
            CommitConflictError: If other writers changed the same rows repeatedly.

        Example:
            ```python
            from lancelet import ComputedColumn

            dataset.add_columns(ComputedColumn("total", "price * 1.19"))
            dataset.insert({"id": [30], "price": [9.0]})
            dataset.refresh_columns()
            ```
        """
        refresh = change.columns.refresh
        options = refresh.RefreshOptions(
            max_rows,
            max_seconds,
            change.columns.sources.BATCH_ROWS
            if batch_size is None
            else whole_number("batch_size", batch_size, least=1),
            None if checkpoint is None else os.fspath(checkpoint),
        )
        snapshot = self._handle.snapshot
        if dry_run:
            return refresh.report_refresh(snapshot, functions or {}, options)
        self._handle.snapshot, done = refresh.refresh_columns(snapshot, functions or {}, options)
        return done

    @checks_types
    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add columns by a left join with in-memory rows.

        Args:
            data_obj: The rows to join; they must fit into memory.
            left_on: The key column of the dataset; may be `_rowid` or `_rowaddr`.
            right_on: The key column of `data_obj`; by default the same name.
            schema: The schema of `data_obj`, if it has none.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If the key column does not exist, or a new column already exists.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.merge({"id": [1, 2], "stock": [5, 0]}, "id")
            dataset.count_rows("stock is null")  # 18
            ```
        """
        handle = self._handle
        rows, right = change.rows.read_rows(data_obj, schema), right_on or left_on
        if dry_run:
            return change.columns.add.report_join_columns(handle.snapshot, rows, left_on, right)
        handle.snapshot = change.columns.add.join_columns(handle.snapshot, rows, left_on, right)
        return None

    def alter_columns(
        self, *alterations: AlterColumn, dry_run: bool = False
    ) -> ChangeReport | None:
        """Rename columns, cast them, or change their nullability.

        Args:
            alterations: Dicts with `path` and at least one of `name`, `nullable`, `data_type`.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.alter_columns({"path": "price", "name": "cost", "data_type": pa.float32()})
            ```
        """
        handle = self._handle
        parsed = [_alteration(each) for each in alterations]
        if dry_run:
            return change.columns.alter.report_alter_columns(handle.snapshot, parsed)
        handle.snapshot = change.columns.alter.alter_columns(handle.snapshot, parsed)
        return None

    def drop_columns(self, columns: list[str], *, dry_run: bool = False) -> ChangeReport | None:
        """Drop columns or struct fields, and their indices.

        The values remain in the data files until compaction and cleanup.

        Args:
            columns: The paths to drop.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            FieldNotFoundError: If a column does not exist.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.drop_columns(["text"])
            ```
        """
        columns = texts("columns", columns)
        handle = self._handle
        if dry_run:
            return change.columns.drop.report_drop_columns(handle.snapshot, columns)
        handle.snapshot = change.columns.drop.drop_columns(handle.snapshot, columns)
        return None

    def replace_columns(
        self, values: Mapping[int, Any], *, dry_run: bool = False
    ) -> ChangeReport | None:
        """Replace whole columns of some fragments; other columns are not rewritten.

        Args:
            values: The new columns by fragment id, with one row per live row. All fragments must
                have the same columns.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            SchemaMismatchError: If the rows do not match the schema, or a cast would lose data.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            dataset.replace_columns({0: {"price": [1.0] * 10}, 1: {"price": [2.0] * 10}})
            ```
        """
        snapshot = self._handle.snapshot
        rows = {fragment_id: change.rows.read_rows(data) for fragment_id, data in values.items()}
        columns = dict.fromkeys(name for each in rows.values() for name in each.schema.names)
        by_id = snapshot.fragments.by_id
        return self._handle.change(
            lambda current: change.columns.replace.replace_columns(current, list(columns), rows),
            sum(snapshot.live_rows(by_id(each)) for each in rows) if dry_run else 0,
            dry_run=dry_run,
        )

    def migrate_to_stable_row_ids(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Enable stable row ids, which do not change when rows move.

        The ids are the current row addresses, so indices stay valid. Has no effect if the dataset
        already has stable row ids.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            plain = lance.write_dataset({"id": [1, 2]}, "memory://")
            plain.migrate_to_stable_row_ids()
            plain.has_stable_row_ids  # True
            ```
        """
        handle = self._handle
        if dry_run:
            return upkeep.migrate_row_ids.report_migration(handle.snapshot)
        handle.snapshot = upkeep.migrate_row_ids.migrate_to_stable_row_ids(handle.snapshot)
        return None


_ALTERABLE: Final[dict[str, type]] = {
    "name": str,
    "nullable": bool,
    "data_type": pa.DataType,
}


def _alteration(form: AlterColumn) -> Alteration:
    mapping("alterations", form)
    if "path" not in form:
        raise InvalidInputError("path is required", found=sorted(form))
    path = form["path"]
    given = {key: value for key, value in form.items() if key != "path"}
    unknown = sorted(given.keys() - set(_ALTERABLE))
    if unknown:
        raise InvalidInputError(
            f"Unknown key: {unknown[0]}. Valid keys are name, nullable, and data_type"
            f"{similar_names(unknown[0], list(_ALTERABLE)) or '.'}"
        )
    if all(value is None for value in given.values()):
        raise InvalidInputError(
            "At least one of name, nullable, or data_type must be specified", path=path
        )
    text("path", path)
    for key, value in given.items():
        if value is not None:
            instance(key, value, _ALTERABLE[key])
    return change.columns.alter.Alteration(
        path, form.get("name"), form.get("nullable"), form.get("data_type")
    )
