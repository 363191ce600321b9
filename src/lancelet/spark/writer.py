"""Batch writes in two phases: tasks write files with unique names, and the driver commits once.

    driver   matches the schema with that of the table, or creates a new one
    tasks    write files and return their fragments; a retried task writes other files
    driver   commits all fragments as one version, or deletes the files if a task failed finally

Files of attempts that died are removed by a cleanup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lancelet.errors import InvalidInputError
from lancelet.format.fragment import Fragment
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.spark.files import (
    FilePlan,
    Publication,
    delete_files,
    latest_of,
    plan_files,
    publish_rows,
    write_task,
)
from lancelet.spark.options import WriteSettings
from lancelet.spark.writing import check_where, replace_rows
from lancelet.values import dataclass


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """The result of a task: the fragments that it wrote."""

    fragments: tuple[Fragment, ...] = field(default=())


@dataclass(frozen=True)
class LanceWriter(DataSourceArrowWriter):
    """A planned write."""

    plan: FilePlan
    publication: Publication
    replace_where: str | None = None

    @staticmethod
    def prepare(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LanceWriter:
        """Determine the fields to write before any task runs."""
        settings = WriteSettings.parse(options)
        where = settings.replace_where
        if where is not None and not overwrite:
            raise InvalidInputError("`replaceWhere` requires mode('overwrite')", found=where)
        latest = latest_of(settings.table)
        if where is not None and latest is None:
            where = None
        is_overwritten = overwrite and where is None
        plan = plan_files(settings, latest, schema, replaces=is_overwritten)
        publication = Publication(is_overwritten, settings.stable_row_ids, settings.message)
        return LanceWriter(plan, publication, where)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        where = self.replace_where
        return Written(
            write_task(self.plan, iterator if where is None else check_where(where, iterator))
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks as one version."""
        fragments = fragments_of(messages)
        if self.replace_where is None:
            publish_rows(self.plan, fragments, self.publication)
            return
        table = replace(self.plan.table, version=None)
        replaced = (table, self.replace_where, fragments)
        replace_rows(Job(LocalEngine(1)), self.plan.table.open(), replaced, self.publication)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of completed tasks; a cleanup removes those of failed ones."""
        delete_files(self.plan, uncommitted_of(messages))


def fragments_of(messages: Iterable[WriterCommitMessage | None]) -> tuple[Fragment, ...]:
    """Return the fragments of all tasks that sent a message, in task order."""
    return tuple(
        fragment
        for message in messages
        if isinstance(message, Written)
        for fragment in message.fragments
    )


def uncommitted_of(messages: Sequence[WriterCommitMessage | None]) -> tuple[Fragment, ...]:
    """Return the fragments of an aborted write that no version can contain.

    If all tasks sent a message, Spark may have called `commit`, which may have published a version
    before its process or the connection failed. Those files are left to a cleanup.
    """
    return fragments_of(messages) if None in messages else ()
