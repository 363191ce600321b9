"""The sink of a stream: each batch becomes one version, exactly once.

    batch 42    tasks write files -> rows and `lancelet.stream.<id> = 42` in one version
    crash, and Spark starts again with batch 42
    batch 42    tasks write other files -> 42 is reached: nothing is published, the files go

The number of the last batch travels in the table itself and never leaves it, so a batch may come
again after any time. The id is that of the stream's checkpoint, or the option `stream_id`; a
stream that starts over with a new checkpoint is another stream.

Rows are appended, replace all others (complete mode), or with the option `upsert_on` replace those
with the same key. With the option `log` they go to the write-ahead log of the table, by its primary
key, and no version is made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lancelet.errors import (
    CorruptDataError,
    DatasetNotFoundError,
    InvalidInputError,
    ObjectNotFoundError,
    UnsupportedError,
)
from lancelet.format.fragment import Fragment
from lancelet.io.open import open_folder
from lancelet.ops import mem_wal
from lancelet.ops.merge_insert.execute import merge_rows
from lancelet.ops.merge_insert.spec import Matched, MergeSpec
from lancelet.ops.publish import Retries
from lancelet.ops.rows import RowStream
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
from lancelet.spark.staged import check_distinct, staged_rows
from lancelet.spark.types import has_collation
from lancelet.spark.writer import Written, fragments_of
from lancelet.table.commit import CommitOptions
from lancelet.table.mark import BatchWatermark
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_METADATA: Final = "metadata"
_UPSERT_RETRIES: Final = Retries(max_retries=20, seconds=300.0)


@dataclass(frozen=True)
class LanceStreamWriter(DataSourceStreamArrowWriter):
    """What writes the batches of one stream; Spark makes it anew for every batch."""

    plan: FilePlan
    publication: Publication
    stream_id: str
    upsert_on: tuple[str, ...]
    to_log: bool = False

    @staticmethod
    def prepare(
        options: Mapping[str, str], schema: StructType, *, overwrite: bool
    ) -> LanceStreamWriter:
        """Decide which fields rows are written as, and as which stream they are known."""
        settings = WriteSettings.parse_stream(options)
        if overwrite and settings.upsert_on:
            raise InvalidInputError("a stream in complete mode replaces all rows; leave upsert_on")
        latest = latest_of(settings.table)
        if settings.log:
            if overwrite or settings.upsert_on:
                raise InvalidInputError(
                    "a log takes rows by the primary key; leave upsert_on, and complete mode"
                )
            if latest is None:
                raise DatasetNotFoundError(
                    "a log belongs to a table; create it, and call initialize_mem_wal on it",
                    uri=settings.table.uri,
                )
            mem_wal.ingest.check_log(latest)
        if latest is not None:
            # The first start has made the table with them.
            settings = replace(settings, initial_bases=())
        plan = plan_files(settings, latest, schema, replaces=overwrite)
        keys = settings.upsert_on
        if settings.log and latest is not None:
            keys = tuple(field.name for field in latest.schema.primary_key)
        _refuse_collations(plan.arrow, keys)
        publication = Publication(overwrite, settings.stable_row_ids, settings.message)
        stream_id = settings.stream_id or checkpoint_id(options)
        return LanceStreamWriter(plan, publication, stream_id, settings.upsert_on, settings.log)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task."""
        return Written(write_task(self.plan, iterator))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish a batch, unless the table has it already."""
        fragments = fragments_of(messages)
        mark = BatchWatermark(self.stream_id, batchId)
        latest = latest_of(self.plan.table)
        if self.to_log:
            assert latest is not None, "`prepare` has opened it"
            self._log(latest, fragments, batchId)
        elif latest is not None and mark.is_reached(latest.manifest.config):
            delete_files(self.plan, fragments)
        elif self.upsert_on:
            self._upsert(latest or self._created(), fragments, mark)
        else:
            publish_rows(self.plan, fragments, replace(self.publication, watermark=mark))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's name
        """Delete the files of a batch that failed."""
        delete_files(self.plan, fragments_of(messages))

    def _created(self) -> Snapshot:
        """Make the table, without rows, so that the first batch is merged like any other."""
        publish_rows(self.plan, (), self.publication)
        return self.plan.table.open()

    def _upsert(
        self, latest: Snapshot, fragments: tuple[Fragment, ...], mark: BatchWatermark
    ) -> None:
        if not fragments:
            return
        check_distinct(latest, self.plan.schema, fragments, self.upsert_on)
        spec = MergeSpec(on=self.upsert_on, matched=Matched.UPDATE, inserts=True)
        rows = RowStream(self.plan.arrow, staged_rows(latest, self.plan.schema, fragments))
        options = CommitOptions(watermark=mark, checks_files=True)
        merge_rows(latest, rows, spec, retries=_UPSERT_RETRIES, options=options)
        delete_files(self.plan, fragments)

    def _log(self, latest: Snapshot, fragments: tuple[Fragment, ...], number: int) -> None:
        keys = tuple(field.name for field in latest.schema.primary_key)
        check_distinct(latest, self.plan.schema, fragments, keys)
        batches = staged_rows(latest, self.plan.schema, fragments) if fragments else ()
        rows = pa.Table.from_batches(batches, self.plan.arrow)
        mem_wal.ingest.log_batch(latest, rows, self.stream_id, number)
        delete_files(self.plan, fragments)


def _refuse_collations(schema: pa.Schema, keys: Sequence[str]) -> None:
    """Raise if a key has a collation, as rows are matched by the bytes of their keys."""
    for name in keys:
        if name in schema.names and has_collation(schema.field(name)):
            raise UnsupportedError(
                "the stream matches rows by the bytes of a key, but this key has a collation; "
                "merge each batch by SQL in foreachBatch",
                column=name,
            )


def checkpoint_id(options: Mapping[str, str]) -> str:
    """Return the id of the stream whose checkpoint the options name."""
    folder = options.get("checkpointlocation")
    if folder is None:
        raise InvalidInputError(
            "a stream is known by its checkpoint: give the option checkpointLocation on the "
            "stream itself, or a stream_id of your own"
        )
    try:
        text = open_folder(folder).read(_METADATA)
    except (ObjectNotFoundError, UnsupportedError) as error:
        raise InvalidInputError(
            "the id of the stream cannot be read from its checkpoint; give a stream_id, or the "
            "whole path of the checkpoint",
            checkpoint=folder,
        ) from error
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptDataError("the checkpoint does not say its id", checkpoint=folder) from error
