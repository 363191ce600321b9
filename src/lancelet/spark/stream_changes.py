"""The change feed as a stream: what each version inserted, updated and deleted.

    kind     row_id   _commit_version   before                after
    insert   7        3                 null                  {id: 4, name: "d"}
    update   1        4                 {id: 2, name: "b"}    {id: 2, name: "B"}
    delete   3        5                 {id: 3, name: "c"}    null

Each version is compared with the one before it, so both must be there when it is read. Which rows
are the same row is known by stable row ids, or by the columns that the option `change_keys` names.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from lancelet.ops.jobs.change_feed import VersionFeed
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_types import scan_field
from lancelet.spark.convert import convert_batch
from lancelet.spark.stream_offset import Offset, open_version
from lancelet.spark.types import spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

VERSION_COLUMN: Final = "_commit_version"
ID_COLUMN: Final = "row_id"
"""What ids are called here, since no table may have a column `_rowid`, and changes go to tables."""

_IMAGES: Final = ("before", "after")
_ROWS_PER_TASK: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class FeedTask:
    """Changes of a version that one task reads: from one number to before another."""

    feed: VersionFeed
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """The changes of versions of a table; `columns` are those of the images."""

    table: TableRef
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    schema: pa.Schema

    def count(self, at: Offset) -> int:
        """Return how many rows the version of an offset changed."""
        return self._feed(at).count()

    def row_bytes(self, at: Offset) -> float:
        """Return how many bytes a row of the version takes, by the sizes of files."""
        snapshot = open_version(self.table, at.version)
        rows = sum(snapshot.physical_rows(each) for each in snapshot.fragments)
        return max(1.0, snapshot.data_bytes / max(1, rows))

    def tasks(self, at: Offset, stop: int) -> Iterator[FeedTask]:
        """Yield tasks that read the changes from an offset to before a number."""
        feed = self._feed(at)
        # By keys all tasks of a version would compare all of it.
        step = stop - at.row if self.keys else _ROWS_PER_TASK
        for start in range(at.row, stop, step):
            yield FeedTask(feed, start, min(start + step, stop))

    def read(self, task: FeedTask) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task."""
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
    """Return the schema of the changes of a table, with images of some columns."""
    known = {field.name: scan_field(field) for field in snapshot.schema.fields}
    image = pa.struct([known[name] for name in columns])
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
    """Return changes with nulls for columns that their version does not have yet."""
    for name in _IMAGES:
        place = batch.schema.get_field_index(name)
        image = batch.column(place)
        wanted = schema.field(name).type if name in schema.names else pa.struct([])
        missing = [field for field in wanted if image.type.get_field_index(field.name) < 0]
        if missing:
            nulls = [pa.nulls(len(image), field.type) for field in missing]
            whole = pa.StructArray.from_arrays(
                [*(image.field(number) for number in range(image.type.num_fields)), *nulls],
                fields=[*image.type, *missing],
                mask=image.is_null(),
            )
            batch = batch.set_column(place, name, whole)
    return batch
