"""Adding columns to every row, in tasks: by SQL, or by a Python function over Arrow batches.

    add_columns(uri, {"total": "price * n"}, spark=spark)

    add_columns(
        uri,
        function=lambda batch, model: pa.record_batch({"v": model.embed(batch["text"])}),
        schema=pa.schema([("v", pa.list_(pa.float32(), 384))]),
        reads=["text"],
        setup=load_model,              once in each worker process, not for each batch
        checkpoint="s3://b/notes",     a job that was killed goes on where it was
        spark=spark,
    )

A worker keeps what the setup of the last job returned, and lets go of it when another job begins.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.ops.columns.sources import BATCH_ROWS, Expressions, Function, NewColumns
from lancelet.ops.jobs.add_columns import BackfillOptions
from lancelet.ops.jobs.add_columns import add_columns as backfill
from lancelet.ops.jobs.checkpoint import FolderCheckpoint
from lancelet.ops.publish import Remarks
from lancelet.spark.running import Finished, Running, begin
from lancelet.values import dataclass

_LOADED: Final[dict[str, Any]] = {}
"""What the setup of the last job returned in this process, by the name of the job."""


def add_columns(
    uri: str | os.PathLike[str],
    columns: Mapping[str, str] | None = None,
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
    """Add columns to a table without writing anything of it again.

    Args:
        uri: The table.
        columns: SQL expressions by the name of the column that each makes.
        function: Is called with batches of the columns it reads, and with what `setup` returned,
            and returns a batch with the new columns.
        schema: The new columns that `function` makes.
        reads: The columns that `function` reads; by default all.
        setup: Is called once in each worker process, for instance to load a model.
        batch_size: The rows that `function` is given at a time.
        checkpoint: A folder for notes of what is done, on any store that workers reach. With it
            a job that was killed resumes; the notes go when it is done.
        message: A note for the transaction.
        bytes_per_task: How much a task works on, about.
        running: See `Running`.
    """
    if (columns is None) == (function is None):
        raise InvalidInputError("columns are made by expressions or by a function, and not by both")
    source, what = _source(columns, function, schema, reads, setup, batch_size)
    job, table = begin(uri, running)
    notes = None
    if checkpoint is not None:
        notes = FolderCheckpoint.of(os.fspath(checkpoint), table.options, f"{table.uri} {what}")
    options = BackfillOptions(notes, bytes_per_task, remarks=Remarks(message))
    published = backfill(job, table, source, options)
    return Finished(published.version, job.report.work.rows, job.report)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A function that is given what its setup returned in this process."""

    job: str
    setup: Callable[[], Any]
    function: Callable[[pa.RecordBatch, Any], Any]

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.job not in _LOADED:
            _LOADED.clear()
            _LOADED[self.job] = self.setup()
        return _as_batch(self.function(batch, _LOADED[self.job]))


def _source(
    columns: Mapping[str, str] | None,
    function: Callable[..., Any] | None,
    schema: pa.Schema | None,
    reads: Sequence[str] | None,
    setup: Callable[[], Any] | None,
    batch_size: int | None,
) -> tuple[NewColumns, str]:
    """Return what is computed, and a text that tells it from other jobs."""
    if columns is not None:
        return Expressions(dict(columns), batch_size), f"expressions {dict(columns)}"
    assert function is not None
    if schema is None:
        raise InvalidInputError("the columns that a function makes are said by `schema`")
    call: Callable[[pa.RecordBatch], pa.RecordBatch] = partial(_plain, function)
    if setup is not None:
        call = _Prepared(str(uuid.uuid4()), setup, function)
    names = None if reads is None else tuple(reads)
    made = Function(call, schema, names, batch_size or BATCH_ROWS)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return made, f"function {name} {names} {schema}"


def _plain(function: Callable[[pa.RecordBatch], Any], batch: pa.RecordBatch) -> pa.RecordBatch:
    return _as_batch(function(batch))


def _as_batch(result: Any) -> pa.RecordBatch:
    if isinstance(result, pa.Table):
        batches = result.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=result.schema)
    return result
