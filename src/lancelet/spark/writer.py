"""Batch writes in two phases: tasks write files under names of their own, the driver commits once.

    driver   fits the schema to the table, or makes one
    tasks    write files and return their fragments; a task that is tried again writes others
    driver   commits all fragments as one version, or deletes the files when a task failed for good

Files of attempts that died are not known to anybody; cleaning up finds them by their age.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lancelet.errors import AlreadyExistsError, StorageError
from lancelet.file.batches import rebatch
from lancelet.format.fragment import Fragment
from lancelet.format.operation import Append, Overwrite
from lancelet.format.paths import DATA
from lancelet.format.schema import Schema
from lancelet.format.version import DEFAULT_VERSION, FileVersion
from lancelet.ops.fit import fit_to_table
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.ops.publish import Remarks, new_transaction
from lancelet.ops.write import FileLimits, FileOptions, Target, write_fragments
from lancelet.ops.write_table import latest_or_none
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import WriteSettings
from lancelet.spark.write_schema import schema_for_new_table, schema_for_table
from lancelet.table.apply.state import with_true_version
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.snapshot import Snapshot

_PAGE_ROWS = 65536


@dataclass(frozen=True, slots=True)
class FilePlan:
    """How tasks write their rows: where, as which fields, in files of which kind."""

    table: TableRef
    schema: Schema
    arrow: pa.Schema
    version: FileVersion
    limits: FileLimits


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task wrote."""

    fragments: tuple[Fragment, ...] = field(default=())


@dataclass(frozen=True)
class LanceWriter(DataSourceArrowWriter):
    """A planned write. `read_version` is 0 if there was no table."""

    files: FilePlan
    read_version: int
    overwrite: bool
    settings: WriteSettings

    @staticmethod
    def plan(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> LanceWriter:
        """Decide which fields the rows are written as."""
        settings = WriteSettings.parse(options)
        latest = latest_or_none(settings.table.locate())
        files = plan_files(settings, latest, schema, replaces=overwrite)
        return LanceWriter(files, 0 if latest is None else latest.version, overwrite, settings)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        return Written(write_task(self.files, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what all tasks wrote as one version."""
        fragments = tuple(_fragments_of(messages))
        if self.read_version and not self.overwrite:
            if fragments:
                commit_append(self.settings, self.read_version, fragments)
        else:
            commit_overwrite(
                self.settings,
                self.files,
                self.read_version,
                fragments,
                may_append=not self.overwrite,
            )

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of tasks that ended well; those of others are not known."""
        delete_files(self.files.table, _fragments_of(messages))


def plan_files(
    settings: WriteSettings, latest: Snapshot | None, schema: StructType, *, replaces: bool
) -> FilePlan:
    """Return how the rows of a data frame are written, beside or instead of those of a version."""
    table = settings.table
    if latest is not None and not replaces:
        version = with_true_version(latest.manifest).data_version
        arrow = schema_for_table(latest.schema, schema)
        fields = fit_to_table(latest.schema, arrow)
        return FilePlan(table, fields, arrow, version, settings.limits)
    known = None if latest is None else with_true_version(latest.manifest).data_version
    version = settings.version or known or DEFAULT_VERSION
    arrow = schema_for_new_table(schema, settings)
    fields = Schema.from_arrow(arrow, blob_v2=version >= FileVersion.V2_2)
    return FilePlan(table, fields, arrow, version, settings.limits)


def write_task(plan: FilePlan, batches: Iterable[pa.RecordBatch]) -> tuple[Fragment, ...]:
    """Write the rows of a task under names that no other attempt has."""
    converted = (convert_batch(batch, plan.arrow) for batch in batches)
    options = FileOptions(version=plan.version, limits=plan.limits)
    location = plan.table.locate()
    return write_fragments(
        [Target(location.store)], rebatch(converted, _PAGE_ROWS), plan.schema, options
    )


def commit_append(
    settings: WriteSettings, read_version: int, fragments: tuple[Fragment, ...]
) -> Snapshot:
    """Publish fragments beside those that are there."""
    transaction = new_transaction(read_version, Append(fragments), Remarks(settings.message))
    return commit(settings.table.locate(), transaction)


def commit_overwrite(
    settings: WriteSettings,
    files: FilePlan,
    read_version: int,
    fragments: tuple[Fragment, ...],
    *,
    may_append: bool,
) -> Snapshot:
    """Publish fragments as all there is; where another made the table first, beside its own."""
    location = settings.table.locate()
    operation = Overwrite(fragments, files.schema)
    transaction = new_transaction(read_version, operation, Remarks(settings.message))
    options = CommitOptions(
        stable_row_ids=settings.stable_row_ids,
        data_version=files.version,
        must_create=not read_version,
    )
    try:
        return commit(location, transaction, options)
    except AlreadyExistsError:
        latest = latest_or_none(location)
        if latest is None or not may_append or latest.schema.fields != files.schema.fields:
            raise
        return commit_append(settings, latest.version, fragments)


def delete_files(table: TableRef, fragments: Iterable[Fragment]) -> None:
    """Delete the files of fragments that will not be committed, as far as the store lets us."""
    store = table.locate().store
    for fragment in fragments:
        for file in fragment.files:
            with contextlib.suppress(StorageError):
                store.delete(f"{DATA}/{file.path}")


def _fragments_of(messages: Iterable[WriterCommitMessage | None]) -> Iterator[Fragment]:
    for message in messages:
        if isinstance(message, Written):
            yield from message.fragments
