"""The source of a stream: what each new version inserted or changed, exactly once and in order.

    begin                 all rows of the version that is the latest then, by default
    starting_version 5    what version 5 and those after it inserted
    starting_version latest   what versions from now on insert
    batch                 as many rows, bytes or versions as the options allow

Offsets are versions and rows within them, so a restart goes on where the last batch ended. A
version that was cleaned away before it was read is an error: what it brought is not known. The
option `change_feed` makes the rows changes, with their values before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancelet.errors import FieldNotFoundError, similar_names
from lancelet.ops.jobs.scan_task import ScanTask
from lancelet.spark.options import StreamOptions
from lancelet.spark.read_limits import (
    AvailableNow,
    ReadLimit,
    check_limits,
    default_limit,
    limit_of,
)
from lancelet.spark.reader import (
    TaskPartition,
    check_readable,
    schema_of_snapshot,
)
from lancelet.spark.stream_changes import ChangedRows, FeedTask, feed_schema
from lancelet.spark.stream_inserts import InsertedRows
from lancelet.spark.stream_log import LogStreamReader, log_schema
from lancelet.spark.stream_offset import Offset
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot

NewRows: TypeAlias = InsertedRows | ChangedRows
"""What a stream is made of: rows that are counted, and read in parts, version by version."""


@dataclass
class LanceStreamReader(DataSourceStreamReader, AvailableNow):
    """Plans and runs the batches of one stream."""

    options: StreamOptions
    rows: NewRows
    target: int | None = None
    _counts: dict[Offset, int] = field(default_factory=dict)

    @staticmethod
    def prepare(
        options: Mapping[str, str], schema: StructType
    ) -> LanceStreamReader | LogStreamReader:
        """Return the reader of the columns of a schema."""
        wanted = StreamOptions.parse(options)
        if wanted.log:
            return LogStreamReader.prepare(wanted, schema)
        check_limits(wanted)
        snapshot = wanted.read.table.open()
        check_readable(schema, _schema_of(snapshot, wanted, every=True))
        table, arrow = wanted.read.table, arrow_schema(schema)
        rows: NewRows = InsertedRows(table, wanted.on_change, arrow)
        if wanted.change_feed:
            rows = ChangedRows(table, _image_of(snapshot, wanted), wanted.change_keys, arrow)
        return LanceStreamReader(wanted, rows)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return where a new stream begins."""
        start = self.options.starting_version
        if start is None:
            return Offset(self._latest().version, is_snapshot=True).to_dict()
        number = self._latest().version + 1 if start == "latest" else int(start)
        return Offset(number).to_dict()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return where the next batch ends; releases before 4.2 neither say where it starts."""
        end = Offset(self._last_version() + 1)
        if start is None:
            return end.to_dict()
        begin = Offset.parse(start)
        if begin >= end:
            return start
        return self._limited(begin, end, limit_of(limit)).to_dict()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit that the options set for each batch."""
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream with the version that is the latest now."""
        self.target = self._latest().version

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks that read the rows between two offsets."""
        begin, stop = Offset.parse(start), Offset.parse(end)
        return [TaskPartition(task) for task in self._tasks(begin, stop)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task."""
        return self.rows.read(partition.value)

    def _latest(self) -> Snapshot:
        return replace(self.options.read.table, version=None).open()

    def _last_version(self) -> int:
        return self._latest().version if self.target is None else self.target

    def _limited(self, begin: Offset, end: Offset, limit: ReadLimit) -> Offset:
        """Return where a batch ends that begins at an offset and keeps within a limit."""
        if limit.is_none:
            return end
        rows_left, bytes_left, versions_left = limit.max_rows, limit.max_bytes, limit.max_files
        at = begin
        while at < end:
            if versions_left == 0:
                return at
            count = self._count(at) - at.row
            fits = rows_left
            if bytes_left is not None:
                by_bytes = int(bytes_left / self.rows.row_bytes(at))
                fits = by_bytes if fits is None else min(fits, by_bytes)
            if fits is not None and count > fits:
                # A batch without a row would never come to an end.
                taken = max(fits, 1 if at == begin else 0)
                return replace(at, row=at.row + taken)
            rows_left = None if rows_left is None else rows_left - count
            if bytes_left is not None:
                bytes_left -= int(count * self.rows.row_bytes(at))
            versions_left = None if versions_left is None else versions_left - 1
            at = Offset(at.version + 1)
        return at

    def _tasks(self, begin: Offset, end: Offset) -> Iterator[ScanTask | FeedTask]:
        at = begin
        while at < end:
            is_last = at.version == end.version
            stop = end.row if is_last else self._count(at)
            if stop > at.row:
                yield from self.rows.tasks(at, stop)
            at = end if is_last else Offset(at.version + 1)

    def _count(self, at: Offset) -> int:
        """Return how many new rows there are in the version of an offset."""
        key = replace(at, row=0)
        if key not in self._counts:
            self._counts[key] = self.rows.count(at)
        return self._counts[key]


def stream_schema(options: Mapping[str, str]) -> StructType:
    """Return the schema of what options of a stream ask for."""
    wanted = StreamOptions.parse(options)
    snapshot = wanted.read.table.open()
    return log_schema(snapshot, wanted.read.columns) if wanted.log else _schema_of(snapshot, wanted)


def _schema_of(snapshot: Snapshot, wanted: StreamOptions, *, every: bool = False) -> StructType:
    if wanted.change_feed:
        return feed_schema(snapshot, _image_of(snapshot, wanted))
    return schema_of_snapshot(snapshot, wanted.read, every=every)


def _image_of(snapshot: Snapshot, wanted: StreamOptions) -> tuple[str, ...]:
    """Return the columns of the images of a change feed."""
    known = snapshot.schema.names
    chosen = known if wanted.read.columns is None else wanted.read.columns
    for name in chosen:
        if name not in known:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(name, known)}", column=name
            )
    return tuple(chosen)
