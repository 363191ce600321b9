"""The source of a stream: the rows that each new version inserted, exactly once and in order.

    begin                 all rows of the version that is the latest then, unless told otherwise
    starting_version 5    what version 5 and those after it inserted
    starting_version latest   what versions from now on insert
    batch                 as many rows, bytes or versions as the options allow

Offsets are versions and rows within them, so a restart goes on where the last batch ended. A
version that was cleaned away before it was read is an error: what it inserted is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from lancelet.errors import VersionNotFoundError
from lancelet.ops.jobs.inserts import Inserts, find_inserts
from lancelet.ops.jobs.scan_task import ScanTask
from lancelet.ops.jobs.split import Split
from lancelet.query.execute import count_rows
from lancelet.query.plan import plan_scan
from lancelet.query.row_columns import ROW_FIELDS
from lancelet.query.scan_options import ScanOptions
from lancelet.spark.options import StreamOptions
from lancelet.spark.read_limits import (
    AvailableNow,
    ReadLimit,
    check_limits,
    default_limit,
    limit_of,
)
from lancelet.spark.reader import TaskPartition, check_readable, run_scan, schema_of_snapshot
from lancelet.spark.stream_offset import Offset
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot

_ROWS_PER_TASK: Final = 1_000_000


class Part(NamedTuple):
    """New rows of one version: the first of them and the one behind the last."""

    snapshot: Snapshot
    inserts: Inserts
    first: int
    stop: int


@dataclass
class LanceStreamReader(DataSourceStreamReader, AvailableNow):
    """Plans and runs the batches of one stream."""

    options: StreamOptions
    schema: pa.Schema
    target: int | None = None
    _counts: dict[Offset, int] = field(default_factory=dict)

    @staticmethod
    def prepare(options: Mapping[str, str], schema: StructType) -> LanceStreamReader:
        """Return the reader of the columns of a schema."""
        wanted = StreamOptions.parse(options)
        check_limits(wanted)
        known = schema_of_snapshot(wanted.read.table.open(), wanted.read, every=True)
        check_readable(schema, known)
        return LanceStreamReader(wanted, arrow_schema(schema))

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
        tasks = (task for part in self._parts(begin, stop) for task in self._tasks(part))
        return [TaskPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task."""
        return run_scan(partition.value, self.schema)

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
                by_bytes = int(bytes_left / self._row_bytes(at))
                fits = by_bytes if fits is None else min(fits, by_bytes)
            if fits is not None and count > fits:
                # A batch without a row would never come to an end.
                taken = max(fits, 1 if at == begin else 0)
                return replace(at, row=at.row + taken)
            rows_left = None if rows_left is None else rows_left - count
            if bytes_left is not None:
                bytes_left -= int(count * self._row_bytes(at))
            versions_left = None if versions_left is None else versions_left - 1
            at = Offset(at.version + 1)
        return at

    def _parts(self, begin: Offset, end: Offset) -> Iterator[Part]:
        at = begin
        while at < end:
            snapshot, inserts = self._inserts(at)
            is_last = at.version == end.version
            stop = end.row if is_last else self._count(at)
            if stop > at.row:
                yield Part(snapshot, inserts, at.row, stop)
            at = end if is_last else Offset(at.version + 1)

    def _tasks(self, part: Part) -> Iterator[ScanTask]:
        table = self.options.read.table.at(part.snapshot.version)
        known = set(part.snapshot.schema.names)
        names = tuple(name for name in self.schema.names if name in known | ROW_FIELDS.keys())
        count = part.stop - part.first
        if part.inserts.filter is not None or count <= _ROWS_PER_TASK:
            split = Split(part.inserts.fragments, part.first, count)
            yield ScanTask(table, names, split, part.inserts.filter)
            return
        for start in range(part.first, part.stop, _ROWS_PER_TASK):
            rows = min(_ROWS_PER_TASK, part.stop - start)
            yield ScanTask(table, names, Split(part.inserts.fragments, start, rows))

    def _inserts(self, at: Offset) -> tuple[Snapshot, Inserts]:
        try:
            snapshot = self.options.read.table.at(at.version).open()
        except VersionNotFoundError as error:
            error.add_note(
                "the stream had not read this version when it was removed; start the stream anew, "
                "or clean up later than the stream may fall behind"
            )
            raise
        if at.is_snapshot:
            return snapshot, Inserts(tuple(snapshot.fragments.ids.tolist()))
        return snapshot, find_inserts(snapshot, self.options.on_change)

    def _count(self, at: Offset) -> int:
        """Return how many new rows there are in the version of an offset."""
        key = replace(at, row=0)
        known = self._counts.get(key)
        if known is None:
            snapshot, inserts = self._inserts(at)
            scanning = ScanOptions(columns=(), filter=inserts.filter, fragments=inserts.fragments)
            known = self._counts[key] = count_rows(plan_scan(snapshot, scanning))
        return known

    def _row_bytes(self, at: Offset) -> float:
        snapshot, inserts = self._inserts(at)
        files = [
            file for number in inserts.fragments for file in snapshot.fragments.by_id(number).files
        ]
        rows = sum(snapshot.fragments.by_id(number).physical_rows for number in inserts.fragments)
        return max(1.0, sum(file.size_bytes for file in files) / max(rows, 1))
