"""The streaming sink: each batch becomes one version, exactly once.

    batch 42    tasks write files -> rows and `lancelet.stream.<id> = 42` in one version
    crash, and Spark runs batch 42 again
    batch 42    tasks write other files -> 42 is committed already: the files are deleted

The table stores the number of the last batch of each stream, so repeated batches are detected at
any later time. A stream is identified by its checkpoint, or by the option `stream_id`; a stream
that starts over with a new checkpoint is a new stream.

Rows are appended, replace all others (complete mode), or with the option `upsert_on` replace those
with the same key. With the option `log` they are put into the write-ahead log of the table by
primary key, without a new version.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lancelet import memwal as mem_wal
from lancelet.change.merge.execute import merge_rows
from lancelet.change.merge.key_columns import KeyColumns
from lancelet.change.merge.spec import Matched, MergeSpec
from lancelet.change.rows import RowStream
from lancelet.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsupportedError,
)
from lancelet.format.fragment import Fragment
from lancelet.io.open import open_folder
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
from lancelet.spark.staged import StagedRows
from lancelet.spark.stream_upserts import UPSERT_RETRIES, upsert_fragments
from lancelet.spark.types import has_collation
from lancelet.spark.writer import Written, fragments_of, uncommitted_of
from lancelet.table.commit import CommitOptions, check_same_identity
from lancelet.table.snapshot import Snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import dataclass

_METADATA: Final = "metadata"
_LOG_PART_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of one stream; Spark creates a new instance per batch."""

    plan: FilePlan
    publication: Publication
    stream_id: str
    upsert_on: tuple[str, ...]
    to_log: bool = False

    @staticmethod
    def prepare(
        options: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> LanceStreamWriter:
        """Determine the fields to write and the id of the stream."""
        settings = WriteSettings.parse_stream(options)
        if settings.replace_where is not None:
            raise InvalidInputError(
                "a stream does not replace rows by a condition; call lancelet.spark.write with "
                "mode='replace' in foreachBatch",
                replace_where=settings.replace_where,
            )
        if overwrite and settings.upsert_on:
            raise InvalidInputError("a stream in complete mode replaces all rows; omit upsert_on")
        latest = latest_of(settings.table)
        if settings.log:
            if overwrite or settings.upsert_on:
                raise InvalidInputError(
                    "a log upserts rows by primary key; omit upsert_on and complete mode"
                )
            if latest is None:
                raise DatasetNotFoundError(
                    "a log belongs to an existing table; create the table, and call "
                    "initialize_mem_wal on it",
                    uri=settings.table.uri,
                )
            mem_wal.ingest.check_log(latest)
        if latest is not None:
            # The first start creates the table with them.
            settings = replace(settings, initial_bases=())
        plan = plan_files(settings, latest, schema, replaces=overwrite)
        keys = settings.upsert_on
        if settings.log and latest is not None:
            keys = tuple(field.name for field in latest.schema.primary_key)
        KeyColumns.of(plan.schema, keys)  # Raises before any task if the batch lacks a key.
        _refuse_collations(plan.arrow, keys)
        publication = Publication(overwrite, settings.stable_row_ids, settings.message)
        stream_id = settings.stream_id or checkpoint_id(options)
        return LanceStreamWriter(plan, publication, stream_id, settings.upsert_on, settings.log)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        return Written(write_task(self.plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Commit a batch unless the table contains it already."""
        fragments = fragments_of(messages)
        watermark = BatchWatermark(self.stream_id, batchId)
        latest = self._latest()
        if self.to_log:
            assert latest is not None, "`prepare` has opened it"
            self._log(latest, fragments, batchId)
        elif latest is not None and watermark.is_reached(latest.manifest.config):
            delete_files(self.plan, fragments)
        elif self.upsert_on:
            self._upsert(latest or self._created(), fragments, watermark)
        else:
            publish_rows(self.plan, fragments, replace(self.publication, watermark=watermark))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Delete the files of a failed batch."""
        delete_files(self.plan, uncommitted_of(messages))

    def _latest(self) -> Snapshot | None:
        """Return the latest version of the table that the batch was planned for."""
        table = self.plan.table
        latest = latest_of(table)
        if table.identity is None:
            return latest
        if latest is None:
            raise DatasetNotFoundError(
                "the table was removed while a batch ran; restart the stream to create it again",
                uri=table.uri,
            )
        check_same_identity(self.plan.read_version, table.identity, latest)
        return latest

    def _created(self) -> Snapshot:
        """Create the table without rows, so that the first batch is merged like any other."""
        publish_rows(self.plan, (), self.publication)
        return self.plan.table.open()

    def _upsert(
        self, latest: Snapshot, fragments: tuple[Fragment, ...], watermark: BatchWatermark
    ) -> None:
        if not fragments:
            return
        options = CommitOptions(watermark=watermark, checks_files=True)
        properties = replace(self.publication, watermark=watermark).commit_properties
        staged = StagedRows(self.plan.schema, fragments, self.upsert_on)
        if staged.has_all_values(latest) and upsert_fragments(latest, staged, options, properties):
            return
        staged.check_distinct(latest)
        merge_rows(
            latest,
            staged.rows(latest),
            MergeSpec(on=self.upsert_on, matched=Matched.UPDATE, inserts=True),
            retries=UPSERT_RETRIES,
            options=options,
            properties=properties,
        )
        delete_files(self.plan, fragments)

    def _log(self, latest: Snapshot, fragments: tuple[Fragment, ...], number: int) -> None:
        keys = tuple(field.name for field in latest.schema.primary_key)
        staged = StagedRows(self.plan.schema, fragments, keys)
        staged.check_distinct(latest)
        parts = _in_parts(staged.rows(latest))
        mem_wal.ingest.log_parts(latest, parts, self.stream_id, number)
        delete_files(self.plan, fragments)


def _in_parts(rows: RowStream) -> Iterator[pa.Table]:
    """Yield tables of limited size, at least one."""
    part: list[pa.RecordBatch] = []
    for batch in rows.batches:
        part.append(batch)
        if sum(each.nbytes for each in part) >= _LOG_PART_BYTES:
            yield pa.Table.from_batches(part, rows.schema)
            part = []
    yield pa.Table.from_batches(part, rows.schema)


def _refuse_collations(schema: pa.Schema, keys: Sequence[str]) -> None:
    """Raise if a key has a collation, because keys are compared by their bytes."""
    for name in keys:
        if name in schema.names and has_collation(schema.field(name)):
            raise UnsupportedError(
                "the stream compares keys by their bytes, but this key has a collation; "
                "merge each batch by SQL in foreachBatch",
                column=name,
            )


def checkpoint_id(options: Mapping[str, str]) -> str:
    """Return the id of the stream stored in the checkpoint that the options name."""
    folder = options.get("checkpointlocation")
    if folder is None:
        raise InvalidInputError(
            "a stream is identified by its checkpoint: set the option checkpointLocation on the "
            "stream itself, or set a stream_id"
        )
    try:
        text = open_folder(folder).read(_METADATA)
    except (ObjectNotFoundError, UnsupportedError) as error:
        raise InvalidInputError(
            "the id of the stream cannot be read from its checkpoint; set a stream_id, or the "
            "full path of the checkpoint",
            checkpoint=folder,
        ) from error
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError(
            "the metadata of the checkpoint has no id", checkpoint=folder
        ) from error
