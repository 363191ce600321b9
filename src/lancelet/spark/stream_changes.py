"""The change feed as a stream of the inserted, updated and deleted rows of each version.

    kind     row_id   _commit_version   before                after
    insert   7        3                 null                  {id: 4, name: "d"}
    update   1        4                 {id: 2, name: "b"}    {id: 2, name: "B"}
    delete   3        5                 {id: 3, name: "c"}    null

Each version is compared with its predecessor, so both must exist when it is read. Rows are
identified by stable row ids, or by the columns of the option `change_keys`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from lancelet.expr.scan_types import scan_field
from lancelet.jobs.change_feed import VersionFeed
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.row_columns import RowColumn
from lancelet.spark.convert import convert_batch
from lancelet.spark.stream_offset import Offset, open_version
from lancelet.spark.types import spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

VERSION_COLUMN: Final = "_commit_version"
ID_COLUMN: Final = "row_id"
"""Name of the row id column. Changes are often written to a table, where `_rowid` is reserved."""

_IMAGES: Final = ("before", "after")
_ROWS_PER_TASK: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FeedTask:
    """A range of the changes of a version, read by one task."""

    feed: VersionFeed
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changes of a table's versions; `columns` are those of `before` and `after`."""

    table: TableRef
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    schema: pa.Schema

    def count(self, at: Offset) -> int:
        """Return the number of rows changed by the version of an offset."""
        return self._feed(at).count()

    def row_bytes(self, at: Offset) -> float:
        """Return the average number of bytes per row of the version, from file sizes."""
        snapshot = open_version(self.table, at.version)
        rows = sum(snapshot.physical_rows(each) for each in snapshot.fragments)
        return max(1.0, snapshot.data_bytes / max(1, rows))

    def tasks(self, at: Offset, stop: int) -> Iterator[FeedTask]:
        """Yield tasks for the changes from an offset up to, not including, a number."""
        feed = self._feed(at)
        # With keys, each task would have to compare the whole version.
        step = stop - at.row if self.keys else _ROWS_PER_TASK
        for start in range(at.row, stop, step):
            yield FeedTask(feed, start, min(start + step, stop))

    def read(self, task: FeedTask) -> Iterator[pa.RecordBatch]:
        """Yield the change batches of a task."""
        version = task.feed.table.version
        for batch in task.feed.batches(task.first, task.stop):
            numbers = pa.array(np.full(batch.num_rows, version, np.int64))
            names = [
                ID_COLUMN if name == RowColumn.ID.value else name for name in batch.schema.names
            ]
            whole = batch.rename_columns(names).append_column(VERSION_COLUMN, numbers)
            yield convert_batch(_with_all_columns(whole, self.schema), self.schema)

    def _feed(self, at: Offset) -> VersionFeed:
        snapshot = open_version(self.table, at.version)
        is_start = at.is_snapshot or snapshot.version == 1
        if not is_start:
            open_version(self.table, at.version - 1)
        table = self.table.pinned(snapshot)
        return VersionFeed(table, self.columns, self.keys, is_snapshot=is_start)


def feed_schema(snapshot: Snapshot, columns: tuple[str, ...]) -> StructType:
    """Return the schema of the changes, with `before` and `after` of some columns."""
    fields = {field.name: scan_field(field) for field in snapshot.schema.fields}
    image = pa.struct([fields[name] for name in columns])
    return spark_schema(
        pa.schema(
            [
                pa.field("kind", pa.string(), nullable=False),
                pa.field(ID_COLUMN, pa.int64(), nullable=False),
                pa.field(VERSION_COLUMN, pa.int64(), nullable=False),
                *(pa.field(name, image) for name in _IMAGES),
            ]
        )
    )


def _with_all_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return changes with nulls for columns that are missing from their version."""
    for name in _IMAGES:
        index = batch.schema.get_field_index(name)
        image = batch.column(index)
        target = schema.field(name).type if name in schema.names else pa.struct([])
        missing = [field for field in target if image.type.get_field_index(field.name) < 0]
        if missing:
            nulls = [pa.nulls(len(image), field.type) for field in missing]
            whole = pa.StructArray.from_arrays(
                [*(image.field(number) for number in range(image.type.num_fields)), *nulls],
                fields=[*image.type, *missing],
                mask=image.is_null(),
            )
            batch = batch.set_column(index, name, whole)
    return batch
