"""Write a data frame: create a table, append or overwrite rows, or replace matching rows.

    write(frame, uri, mode="create")
    write(frame, uri, mode="append")
    write(frame, uri, mode="replace", where="day = DATE '2024-02-29'")

Each partition of the data frame is written to separate files, which are committed as one version.
`replace` deletes the rows that match the condition and adds the new rows in the same version. New
rows that do not match the condition raise an error, since a later write with the same condition
would not replace them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, NoReturn, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the customary alias

from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import (
    AlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
    SchemaMismatchError,
)
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
    add_new_columns,
    delete_files,
    latest_of,
    plan_files,
    publish_rows,
    write_task,
)
from lancelet.spark.fitting import fit_value
from lancelet.spark.frames import is_case_sensitive, quoted, run_over
from lancelet.spark.options import WriteSettings, text_of
from lancelet.spark.running import Finished, Running, begin
from lancelet.spark.types import JSON_KEY, uncollated
from lancelet.spark.write_schema import schema_for_table, target_schema
from lancelet.table.commit import CommitOptions
from lancelet.table.snapshot import Snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass

MODES: Final = ("create", "append", "overwrite", "replace")


@dataclass(frozen=True, slots=True)
class Once:
    """Makes a write idempotent, for example in `foreachBatch`.

    `sequence` identifies the sequence of batches, and `batch` is the number of a batch.
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
        mode: `create` raises if the table exists, `append` adds rows, `overwrite` replaces schema
            and rows, and `replace` replaces the rows for which `where` is true.
        where: The condition of `replace`, as SQL text.
        once: Identifies a batch; a batch that was already written has no effect.
        message: A note for the transaction.
        options: Write options, as for `format("lance")`.
        config: The config of the created or overwritten table, set in the same version.
        running: See `Running`; the session of the data frame is used.
    """
    if mode not in MODES:
        raise InvalidInputError("unknown mode", mode=mode, expected=MODES)
    if (where is not None) != (mode == "replace"):
        raise InvalidInputError("`where` requires mode='replace' and vice versa", mode=mode)
    if config and mode not in {"create", "overwrite"}:
        raise InvalidInputError("`config` requires the mode create or overwrite", mode=mode)
    job, table = begin(uri, running | {"spark": frame.sparkSession})
    settings = write_settings(table, options)
    if settings.replace_where is not None and mode == "overwrite":
        mode, where = "replace", settings.replace_where
    latest = latest_of(table)
    if mode == "create" and latest is not None:
        raise AlreadyExistsError("Dataset already exists", uri=table.uri)
    if mode == "replace" and latest is None:
        raise DatasetNotFoundError("the table to replace rows of does not exist", uri=table.uri)
    watermark = None if once is None else BatchWatermark(once.sequence, once.batch)
    if (
        watermark is not None
        and latest is not None
        and watermark.is_reached(latest.manifest.config)
    ):
        return Finished(latest.version, 0, job.report)
    if latest is not None and mode != "overwrite":
        if settings.merge_schema:
            latest = add_new_columns(table, frame.schema, settings)
        frame = _fitted(frame, latest)
    plan = plan_files(settings, latest, frame.schema, replaces=mode == "overwrite")
    publication = Publication(
        mode == "overwrite", settings.stable_row_ids, message, watermark, config=config or {}
    )
    check = partial(check_where, where) if where is not None else None
    parts = run_over(job, "write", frame, partial(_write, plan, check))
    fragments = tuple(fragment for part in parts for fragment in part)
    if where is not None and latest is not None:
        published: Snapshot | None = replace_rows(
            job, latest, (table, where, fragments), publication
        )
    else:
        published = publish_rows(plan, fragments, publication) or latest
    assert published is not None
    _forget_if_repeated(plan, fragments, published, watermark)
    return Finished(published.version, job.report.phases[0].work.rows, job.report)


def _fitted(frame: DataFrame, latest: Snapshot) -> DataFrame:
    """Return the rows with the names and types of the table's columns, cast by Spark."""
    is_exact = is_case_sensitive(frame.sparkSession)
    names = schema_for_table(
        latest.schema, frame.schema, is_case_sensitive=is_exact, is_cast_by_spark=True
    ).names
    if names != frame.columns:
        frame = frame.toDF(*names)
    stored = {each.name: each for each in target_schema(latest, frame.schema)}

    def fail(message: str) -> NoReturn:
        raise SchemaMismatchError(message)

    casts = {
        own.name: fit_value(F.col(quoted(own.name)), own.dataType, field, fail, by_name=True)
        for own in frame.schema
        if not (field := stored[own.name]).metadata.get(JSON_KEY)
        and uncollated(own.dataType).simpleString() != uncollated(field.dataType).simpleString()
    }
    return frame.withColumns(casts) if casts else frame


def write_settings(table: TableRef, options: Mapping[str, Any] | None) -> WriteSettings:
    """Return the settings of a write to a table."""
    given = {name.lower(): text_of(value) for name, value in (options or {}).items()}
    return replace(WriteSettings.parse(given | {"path": table.uri}), table=table)


def _write(
    plan: FilePlan, check: Any, batches: Iterator[pa.RecordBatch]
) -> Done[tuple[Fragment, ...]]:
    fragments = write_task(plan, batches if check is None else check(batches))
    return Done(fragments, sum(fragment.physical_rows for fragment in fragments))


def check_where(where: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield batches; raise for rows that a later replacement with the condition would not find."""
    condition = None
    for batch in batches:
        if condition is None:
            condition = compile_filter(where, batch.schema)
        fits = evaluate_filter(condition, batch)
        if fits.true_count < batch.num_rows:
            raise InvalidInputError(
                "new rows do not match the condition of the rows to replace",
                where=where,
                rows=batch.num_rows - fits.true_count,
            )
        yield batch


def replace_rows(
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
