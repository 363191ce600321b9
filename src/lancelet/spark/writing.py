"""Writing a data frame: a new table, more rows, other rows, or other rows where a condition holds.

    write(frame, uri, mode="create")
    write(frame, uri, mode="append")
    write(frame, uri, mode="replace", where="day = DATE '2024-02-29'")

Each partition of the data frame becomes files of its own, and all of them one version. To replace
means to delete what the condition is true for and to add the rows in that same version; rows that
the condition is not true for are refused, since they would not be found there again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame

from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import AlreadyExistsError, DatasetNotFoundError, InvalidInputError
from lancelet.expr.compile import compile_filter
from lancelet.expr.evaluate import evaluate_filter
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Update
from lancelet.jobs.change_rows import combine, delete_part
from lancelet.jobs.engine import Done, Job
from lancelet.jobs.part import plan_parts
from lancelet.jobs.table_ref import TableRef
from lancelet.spark.files import (
    FilePlan,
    Publication,
    delete_files,
    latest_of,
    plan_files,
    publish_rows,
    write_task,
)
from lancelet.spark.frames import run_over
from lancelet.spark.options import WriteSettings, text_of
from lancelet.spark.running import Finished, Running, begin
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass

MODES: Final = ("create", "append", "overwrite", "replace")


@dataclass(frozen=True, slots=True)
class Once:
    """Makes a write happen once however often it is called, as in `foreachBatch`.

    `sequence` names what the batches belong to, and `batch` counts them.
    """

    sequence: str
    batch: int


def write(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    *,
    mode: str = "create",
    where: str | None = None,
    once: Once | None = None,
    message: str | None = None,
    options: Mapping[str, Any] | None = None,
    config: Mapping[str, str] | None = None,
    **running: Unpack[Running],
) -> Finished:
    """Write the rows of a data frame.

    Args:
        frame: The rows.
        uri: The table.
        mode: `create` refuses where there is a table, `append` adds rows, `overwrite` replaces
            schema and rows, `replace` replaces the rows for which `where` is true.
        where: The condition of `replace`, as SQL text.
        once: Makes a batch that is written again change nothing.
        message: A note for the transaction.
        options: Options of files, as for `format("lance")`.
        config: The config of the table that is made or overwritten, in the same version.
        running: See `Running`; the session is that of the data frame.
    """
    if mode not in MODES:
        raise InvalidInputError("unknown mode", mode=mode, expected=MODES)
    if (where is not None) != (mode == "replace"):
        raise InvalidInputError("`where` belongs to the mode replace, which needs it", mode=mode)
    if config and mode not in {"create", "overwrite"}:
        raise InvalidInputError("`config` belongs to the modes create and overwrite", mode=mode)
    job, table = begin(uri, running | {"spark": frame.sparkSession})
    settings = write_settings(table, options)
    latest = latest_of(table)
    if mode == "create" and latest is not None:
        raise AlreadyExistsError("Dataset already exists", uri=table.uri)
    if mode == "replace" and latest is None:
        raise DatasetNotFoundError("there is no table to replace rows of", uri=table.uri)
    watermark = None if once is None else BatchWatermark(once.sequence, once.batch)
    if (
        watermark is not None
        and latest is not None
        and watermark.is_reached(latest.manifest.config)
    ):
        return Finished(latest.version, 0, job.report)
    plan = plan_files(settings, latest, frame.schema, replaces=mode == "overwrite")
    publication = Publication(
        mode == "overwrite", settings.stable_row_ids, message, watermark, config=config or {}
    )
    check = partial(_check_where, where) if where is not None else None
    parts = run_over(job, "write", frame, partial(_write, plan, check))
    fragments = tuple(fragment for part in parts for fragment in part)
    if where is not None and latest is not None:
        published: Snapshot | None = _replace(job, latest, (table, where, fragments), publication)
    else:
        published = publish_rows(plan, fragments, publication) or latest
    assert published is not None
    _forget_if_repeated(plan, fragments, published, watermark)
    return Finished(published.version, job.report.phases[0].work.rows, job.report)


def write_settings(table: TableRef, options: Mapping[str, Any] | None) -> WriteSettings:
    """Return the settings of a write to a table."""
    given = {name.lower(): text_of(value) for name, value in (options or {}).items()}
    return replace(WriteSettings.parse(given | {"path": table.uri}), table=table)


def _write(
    plan: FilePlan, check: Any, batches: Iterator[pa.RecordBatch]
) -> Done[tuple[Fragment, ...]]:
    fragments = write_task(plan, batches if check is None else check(batches))
    return Done(fragments, sum(fragment.physical_rows for fragment in fragments))


def _check_where(where: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    condition = None
    for batch in batches:
        if condition is None:
            condition = compile_filter(where, batch.schema)
        fits = evaluate_filter(condition, batch)
        if fits.true_count < batch.num_rows:
            raise InvalidInputError(
                "a row is not within what it is to replace",
                where=where,
                rows=batch.num_rows - fits.true_count,
            )
        yield batch


def _replace(
    job: Job,
    latest: Snapshot,
    target: tuple[TableRef, str, tuple[Fragment, ...]],
    publication: Publication,
) -> Snapshot:
    """Commit new rows and the deletion of those that they replace, as one version."""
    table, where, fragments = target

    def attempt(snapshot: Snapshot) -> Snapshot:
        found = combine(job.run("locate", partial(delete_part, where), plan_parts(table, snapshot)))
        operation = Update(
            removed_fragment_ids=found.removed,
            updated_fragments=found.updated,
            new_fragments=fragments,
        )
        committing = CommitOptions(
            affected=found.rows, watermark=publication.watermark, checks_files=True
        )
        return publish(snapshot, operation, committing, publication.commit_properties)

    return with_retries(latest, attempt, Retries())


def _forget_if_repeated(
    plan: FilePlan,
    fragments: tuple[Fragment, ...],
    published: Snapshot,
    watermark: BatchWatermark | None,
) -> None:
    """Delete the files of a batch that another writer had landed meanwhile."""
    if watermark is None:
        return
    paths = {file.path for fragment in published.fragments for file in fragment.files}
    unused = [each for each in fragments if each.files[0].path not in paths]
    delete_files(plan, unused)
