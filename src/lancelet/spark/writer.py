"""Batch writes in two phases: tasks write files with unique names, and the driver commits once.

    driver   matches the schema with that of the table, or creates a new one
    tasks    write files and return their fragments; a retried task writes other files
    driver   commits all fragments as one version, or deletes the files if a task failed finally

Files of attempts that died are removed by a cleanup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lancelet.format.fragment import Fragment
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

    @staticmethod
    def prepare(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LanceWriter:
        """Determine the fields to write before any task runs."""
        settings = WriteSettings.parse(options)
        plan = plan_files(settings, latest_of(settings.table), schema, replaces=overwrite)
        publication = Publication(overwrite, settings.stable_row_ids, settings.message)
        return LanceWriter(plan, publication)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        return Written(write_task(self.plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the fragments of all tasks as one version."""
        publish_rows(self.plan, fragments_of(messages), self.publication)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of completed tasks; a cleanup removes those of failed ones."""
        delete_files(self.plan, fragments_of(messages))


def fragments_of(messages: Iterable[WriterCommitMessage | None]) -> tuple[Fragment, ...]:
    """Return the fragments of all tasks that sent a message, in task order."""
    return tuple(
        fragment
        for message in messages
        if isinstance(message, Written)
        for fragment in message.fragments
    )
