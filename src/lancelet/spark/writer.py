"""Batch writes in two phases: tasks write files under names of their own, the driver commits once.

    driver   fits the schema to the table, or makes one
    tasks    write files and return their fragments; a task that is tried again writes others
    driver   commits all fragments as one version, or deletes the files when a task failed for good

Files of attempts that died are not known to anybody; cleaning up finds them by their age.
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
    """What a task wrote."""

    fragments: tuple[Fragment, ...] = field(default=())


@dataclass(frozen=True)
class LanceWriter(DataSourceArrowWriter):
    """A planned write."""

    plan: FilePlan
    publication: Publication

    @staticmethod
    def prepare(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LanceWriter:
        """Decide which fields the rows are written as, before any task runs."""
        settings = WriteSettings.parse(options)
        plan = plan_files(settings, latest_of(settings.table), schema, replaces=overwrite)
        publication = Publication(overwrite, settings.stable_row_ids, settings.message)
        return LanceWriter(plan, publication)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        return Written(write_task(self.plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote as one version."""
        publish_rows(self.plan, fragments_of(messages), self.publication)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of tasks that ended well; those of others are not known."""
        delete_files(self.plan, fragments_of(messages))


def fragments_of(messages: Iterable[WriterCommitMessage | None]) -> tuple[Fragment, ...]:
    """Return the fragments of all tasks that sent a message, in their order."""
    return tuple(
        fragment
        for message in messages
        if isinstance(message, Written)
        for fragment in message.fragments
    )
