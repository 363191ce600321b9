"""The streaming source: rows inserted or changed by each new version, exactly once and in order.

    start                 with all rows of the latest version, by default
    starting_version 5    with the rows inserted by version 5 and later versions
    starting_version latest   with the rows inserted by future versions
    batch                 rows, bytes or versions are limited by the options

An offset is a version and a row number, so a restart continues after the last batch. A version
that was removed before it was read is an error, because its rows are lost. With the option
`change_feed`, rows are changes with values before and after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancelet.errors import FieldNotFoundError, similar_names
from lancelet.jobs.scan_task import ScanTask
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
"""A source of a stream: counts rows, and reads ranges of them, version by version."""


@dataclass
class LanceStreamReader(DataSourceStreamReader, AvailableNow):
    """Plans and runs the batches of one stream."""

    options: StreamOptions
    rows: NewRows
    target: int | None = None
    _counts: dict[Offset, int] = field(default_factory=dict)

    @staticmethod
    def prepare(
        given: Mapping[str, str], schema: StructType
    ) -> LanceStreamReader | LogStreamReader:
        """Return a reader of the columns of a schema."""
        options = StreamOptions.parse(given)
        if options.log:
            return LogStreamReader.prepare(options, schema)
        check_limits(options)
        snapshot = options.read.table.open()
        check_readable(schema, _infer_schema(snapshot, options, all_columns=True))
        table, arrow = options.read.table, arrow_schema(schema)
        rows: NewRows = InsertedRows(table, options.on_change, arrow)
        if options.change_feed:
            rows = ChangedRows(table, _image_of(snapshot, options), options.change_keys, arrow)
        return LanceStreamReader(options, rows)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Return the start offset of a new stream."""
        start = self.options.starting_version
        if start is None:
            return Offset(self._latest().version, is_snapshot=True).to_dict()
        number = self._latest().version + 1 if start == "latest" else int(start)
        return Offset(number).to_dict()

    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """Return the end offset of the next batch; Spark before 4.2 passes no start."""
        end = Offset(self._last_version() + 1)
        if start is None:
            return end.to_dict()
        begin = Offset.parse(start)
        if begin >= end:
            return start
        return self._limited(begin, end, limit_of(limit)).to_dict()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        """Return the limit per batch that the options set."""
        return default_limit(self.options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """End the stream with the current latest version."""
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
        """Return the end offset of the batch that starts at an offset, within a limit."""
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
                # A batch without rows would make no progress.
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
        """Return the number of new rows in the version of an offset."""
        key = replace(at, row=0)
        if key not in self._counts:
            self._counts[key] = self.rows.count(at)
        return self._counts[key]


def stream_schema(given: Mapping[str, str]) -> StructType:
    """Return the schema of a stream with the given options."""
    options = StreamOptions.parse(given)
    snapshot = options.read.table.open()
    return (
        log_schema(snapshot, options.read.columns)
        if options.log
        else _infer_schema(snapshot, options)
    )


def _infer_schema(
    snapshot: Snapshot, options: StreamOptions, *, all_columns: bool = False
) -> StructType:
    if options.change_feed:
        return feed_schema(snapshot, _image_of(snapshot, options))
    return schema_of_snapshot(snapshot, options.read, all_columns=all_columns)


def _image_of(snapshot: Snapshot, options: StreamOptions) -> tuple[str, ...]:
    """Return the columns of `before` and `after` in a change feed."""
    names = snapshot.schema.names
    chosen = names if options.read.columns is None else options.read.columns
    for name in chosen:
        if name not in names:
            raise FieldNotFoundError(
                f"the table has no such column{similar_names(name, names)}", column=name
            )
    return tuple(chosen)
