"""Adding columns to all rows in tasks, by SQL or by a Python function over Arrow batches.

    add_columns(uri, {"total": "price * n"}, spark=spark)

    add_columns(
        uri,
        function=lambda batch, model: pa.record_batch({"v": model.embed(batch["text"])}),
        schema=pa.schema([("v", pa.list_(pa.float32(), 384))]),
        reads=["text"],
        setup=load_model,              once in each worker process, not for each batch
        checkpoint="s3://b/notes",     an interrupted job resumes from here
        spark=spark,
    )

    add_columns(uri, ComputedColumn("v", embed, inputs=("text",), data_type=...), spark=spark)
    refresh_columns(uri, {"embed": embed}, spark=spark)     rows that were inserted or updated since

    join_columns(uri, frame)           columns of a data frame, joined by `_rowaddr`

A worker caches the result of `setup` until another job begins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from typing import Any, Final, Unpack

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias

from lancelet import surroundings
from lancelet.arguments import whole_number
from lancelet.change.bases import absolute_path
from lancelet.change.columns.add import join_columns_to_fragment
from lancelet.change.columns.from_given import Joined, plan_join
from lancelet.change.columns.refresh import RefreshOptions
from lancelet.change.columns.sources import (
    BATCH_ROWS,
    ComputedColumn,
    Expressions,
    Function,
    NewColumns,
)
from lancelet.change.mem_wal_guard import refuse_with_log
from lancelet.change.merge.decide import MergeMatchError
from lancelet.change.publish import CommitProperties
from lancelet.change.rows import RowStream
from lancelet.errors import InvalidInputError
from lancelet.jobs.add_columns import BackfillOptions, FolderCheckpoint, NewFile, publish_columns
from lancelet.jobs.add_columns import add_columns as backfill
from lancelet.jobs.engine import Done, JobReport
from lancelet.jobs.refresh_columns import TaskOptions
from lancelet.jobs.refresh_columns import refresh_columns as refresh
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.convert import convert_batch
from lancelet.spark.frames import quoted, run_over
from lancelet.spark.running import Finished, Running, begin
from lancelet.spark.write_schema import schema_for_new_table
from lancelet.spark.writing import write_settings
from lancelet.values import dataclass, replace

ROW_ADDRESS: Final = "_rowaddr"
_LOADED: Final[dict[str, Any]] = {}
"""The result of the last job's `setup` in this process, by job id."""


def add_columns(
    uri: str | os.PathLike[str],
    columns: Mapping[str, str] | ComputedColumn | None = None,
    *,
    function: Callable[..., Any] | None = None,
    schema: pa.Schema | None = None,
    reads: Sequence[str] | None = None,
    setup: Callable[[], Any] | None = None,
    batch_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    message: str | None = None,
    bytes_per_task: int | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Add columns to a table without rewriting existing data.

    Args:
        uri: The table.
        columns: Maps each new column to an SQL expression; or a `ComputedColumn`, whose function
            gets the result of `setup` after its inputs.
        function: Is called with batches of the columns in `reads` and, if `setup` is given, its
            result; returns a batch of the new columns.
        schema: The new columns that `function` returns.
        reads: The columns that `function` reads; by default all.
        setup: Is called once in each worker process, for example to load a model.
        batch_size: The number of rows per call of `function`.
        checkpoint: A folder for progress records on a store that all workers can access. An
            interrupted job resumes from it; the records are deleted when the job ends.
        message: The message of the transaction.
        bytes_per_task: The approximate size of the input of a task.
        running: See `Running`.
    """
    if (columns is None) == (function is None):
        raise InvalidInputError(
            "specify either SQL expressions or a function for the new columns, not both"
        )
    source, description = _source(columns, function, schema, reads, setup, batch_size)
    job, table = begin(uri, running)
    checkpoint_folder = None
    if checkpoint is not None:
        checkpoint_folder = FolderCheckpoint.of(
            absolute_path(os.fspath(checkpoint)), table.options, f"{table.uri} {description}"
        )
    options = BackfillOptions(
        checkpoint_folder, bytes_per_task, properties=CommitProperties(message)
    )
    published = backfill(job, table, source, options)
    return Finished(published.version, job.report.work.rows, job.report)


@dataclass(frozen=True, slots=True)
class RefreshedColumns:
    """The result of a refresh: the version, the rows computed and still out of date, the report."""

    version: int
    num_rows: int
    remaining: int
    report: JobReport


def refresh_columns(
    uri: str | os.PathLike[str],
    functions: Mapping[str, Callable[..., Any]] | None = None,
    *,
    setup: Callable[[], Any] | None = None,
    max_rows: int | None = None,
    max_seconds: float | None = None,
    batch_size: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    rows_per_task: int | None = None,
    tasks_per_commit: int | None = None,
    message: str | None = None,
    **running: Unpack[Running],
) -> RefreshedColumns:
    """Compute the values of computed columns that are out of date, in tasks.

    Rounds of tasks are committed one after the other: a refresh that stops is continued by the next
    one. A task writes whole fragments. With a checkpoint, several tasks compute the rows of a
    fragment with more than `rows_per_task`. See `dataset.refresh_columns`.

    Args:
        uri: The table.
        functions: The Python functions of computed columns, by name.
        setup: Is called once in each worker process, for example to load a model. The functions get
            its result after their inputs.
        max_rows: The maximum number of rows to compute.
        max_seconds: The time after which tasks compute no further batch.
        batch_size: The number of rows per call of a function, by default 8192.
        checkpoint: A folder for the results of batches, on a store that all workers can access.
            After a kill, the next refresh with the same folder uses them; it deletes results that
            are committed.
        rows_per_task: The approximate number of rows of a task, by default 8192.
        tasks_per_commit: The number of tasks of a round, by default 256.
        message: The message of the transactions.
        running: See `Running`.
    """
    job, table = begin(uri, running)
    options = RefreshOptions(
        None if max_rows is None else whole_number("max_rows", max_rows),
        max_seconds,
        _positive("batch_size", batch_size, BATCH_ROWS),
        None if checkpoint is None else absolute_path(os.fspath(checkpoint)),
    )
    tasks = TaskOptions(
        _positive("rows_per_task", rows_per_task, BATCH_ROWS),
        _positive("tasks_per_commit", tasks_per_commit, 256),
        CommitProperties(message),
    )
    calls = dict(functions or {})
    if setup is not None:
        key = str(surroundings.new_uuid())
        calls = {name: _Prepared(key, setup, call) for name, call in calls.items()}
    published, done = refresh(job, table, calls, options, tasks)
    return RefreshedColumns(published.version, done.refreshed, done.remaining, job.report)


def _positive(name: str, value: int | None, default: int) -> int:
    return default if value is None else whole_number(name, value, least=1)


def join_columns(
    uri: str | os.PathLike[str],
    frame: DataFrame,
    *,
    version: int | None = None,
    message: str | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Add the columns of a data frame to the rows with the addresses in its column `_rowaddr`.

    Rows that are missing from the data frame get nulls; addresses of missing rows are ignored.
    Existing data is not rewritten.

    Args:
        uri: The table.
        frame: `_rowaddr` and the new columns.
        version: The version of the addresses, by default the latest. Later changes to these rows
            are conflicts.
        message: The message of the transaction.
        running: See `Running`; the session of the data frame is used.
    """
    job, table = begin(uri, running | {"spark": frame.sparkSession})
    snapshot = table.at(version).open()
    refuse_with_log(snapshot, "add a computed column", "add it as all nulls, and fill it")
    if ROW_ADDRESS not in frame.columns:
        raise InvalidInputError(
            "the data frame has no column `_rowaddr`, which identifies the rows"
        )
    names = [name for name in frame.columns if name != ROW_ADDRESS]
    settings = write_settings(table, None)
    new = schema_for_new_table(frame.select(*map(quoted, names)).schema, settings)
    schema = pa.schema([pa.field(ROW_ADDRESS, pa.uint64()), *(each for each in new)])
    plan = plan_join(
        snapshot,
        ROW_ADDRESS,
        Joined.of(RowStream(schema, iter(())), ROW_ADDRESS, snapshot.schema, ROW_ADDRESS),
    )
    address = F.col(ROW_ADDRESS).cast("long")
    placed = (
        frame.where(address.isNotNull())
        .select(address.alias(ROW_ADDRESS), *map(quoted, names))
        .repartition(max(1, len(snapshot.fragments)), F.shiftrightunsigned(ROW_ADDRESS, 32))
        .sortWithinPartitions(ROW_ADDRESS)
    )
    write = partial(_join_fragments, table.pinned(snapshot), schema)
    parts = run_over(job, "join", placed, write)
    written = {each.fragment_id: each for part in parts for each in part}
    published = publish_columns(snapshot, plan, written, CommitProperties(message))
    return Finished(published.version, job.report.work.rows, job.report)


def _join_fragments(
    table: TableRef, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Done[tuple[NewFile, ...]]:
    """Write the new columns of fragments from rows sorted by address."""
    snapshot = table.open()
    rows = pa.Table.from_batches((convert_batch(batch, schema) for batch in batches), schema)
    addresses = rows.column(ROW_ADDRESS).combine_chunks().to_numpy()
    if bool((addresses[1:] == addresses[:-1]).any()):
        raise MergeMatchError("several rows of the source have the same `_rowaddr`")
    numbers, starts = np.unique(addresses >> np.uint64(32), return_index=True)
    fragments_by_id = {int(fragment.id): fragment for fragment in snapshot.fragments}
    stops = [*starts.tolist(), len(addresses)][1:]
    done = []
    for number, start, stop in zip(numbers.tolist(), starts.tolist(), stops, strict=True):
        if number in fragments_by_id:
            stream = RowStream(schema, iter(rows.slice(start, stop - start).to_batches()))
            changed, _ = join_columns_to_fragment(
                snapshot, fragments_by_id[number], stream, ROW_ADDRESS, ROW_ADDRESS
            )
            done.append(NewFile(number, fragments_by_id[number].files, changed.files[-1]))
    return Done(tuple(done), len(addresses))


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A function with the result of its setup in this process."""

    job: str
    setup: Callable[[], Any]
    function: Callable[..., Any]

    def __call__(self, *arguments: Any) -> Any:
        if self.job not in _LOADED:
            _LOADED.clear()
            _LOADED[self.job] = self.setup()
        return self.function(*arguments, _LOADED[self.job])


def _source(
    columns: Mapping[str, str] | ComputedColumn | None,
    function: Callable[..., Any] | None,
    schema: pa.Schema | None,
    reads: Sequence[str] | None,
    setup: Callable[[], Any] | None,
    batch_size: int | None,
) -> tuple[NewColumns, str]:
    """Return the source of the new columns, and a text that identifies the job."""
    if isinstance(columns, ComputedColumn):
        value = columns.value
        if setup is not None and callable(value):
            prepared = _Prepared(str(surroundings.new_uuid()), setup, value)
            columns = replace(columns, value=wraps(value)(partial(prepared)))
        name = getattr(value, "__qualname__", str(value))
        return columns, f"computed {columns.name} {name} {columns.inputs} {columns.data_type}"
    if columns is not None:
        return Expressions(dict(columns), batch_size), f"expressions {dict(columns)}"
    assert function is not None
    if schema is None:
        raise InvalidInputError("pass `schema=` with the new columns that the function returns")
    call: Callable[[pa.RecordBatch], pa.RecordBatch] = partial(_plain, function)
    if setup is not None:
        prepared = _Prepared(str(surroundings.new_uuid()), setup, function)
        call = partial(_plain, prepared)
    names = None if reads is None else tuple(reads)
    source = Function(call, schema, names, batch_size or BATCH_ROWS)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return source, f"function {name} {names} {schema}"


def _plain(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> pa.RecordBatch:
    return _as_batch(function(batch))


def _as_batch(result: Any) -> pa.RecordBatch:
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    return result
