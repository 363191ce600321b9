"""Reading a table into a data frame with everything pushed down, and counting without reading.

    scan(spark, uri, columns=["id"], filter="price > 10", limit=100)

Each task reads just the columns, zones and rows that are asked for, and hands batches over as they
are; that is faster than `format("lance")`, where Spark takes rows. The version is pinned here and
now. What a filter leaves of a small table is read by the driver, since workers take longer to
start. `count` looks into the manifest, and only with a filter at rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import broadcast
from pyspark.sql.types import StructType

from lancelet.errors import InvalidInputError
from lancelet.ops import mem_wal
from lancelet.ops.jobs.engine import Done
from lancelet.ops.jobs.scan_task import ScanTask
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import count_rows
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.spark.arrow_tasks import sized_frame, task_frame
from lancelet.spark.convert import convert_batch
from lancelet.spark.frames import quoted
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.running import Running, TableOptions, begin, table_at
from lancelet.spark.small_reads import DRIVER_BYTES, small_frame
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot


def scan(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    limit: int | None = None,
    version: int | None = None,
    tag: str | None = None,
    asof: datetime | None = None,
    fragments: Sequence[int] | None = None,
    bytes_per_task: int | None = None,
    bytes_on_driver: int = DRIVER_BYTES,
    fresh: bool = False,
    **place: Unpack[TableOptions],
) -> DataFrame:
    """Return rows of a table as a data frame.

    Args:
        spark: The session to read in.
        uri: The table.
        columns: Names of columns, also of those of rows such as `_rowid`; by default all stored.
        filter: SQL text; rows for which it is true are read.
        limit: The most rows.
        version: The number of the version to read; by default the latest.
        tag: The tag of the version to read.
        asof: Reads the version that was the latest at that time.
        fragments: The ids of the fragments to read.
        bytes_per_task: How much a task reads, about.
        bytes_on_driver: How much the driver reads by itself, here and now, where a filter needs
            no more and leaves no more; with 0 tasks do everything.
        fresh: Whether to read the write-ahead log as well: the latest version with all that was put
            durably until now, by the primary key.
        place: See `TableOptions`.
    """
    wanted = ReadOptions(
        table_at(uri, place),
        None if columns is None else tuple(columns),
        filter,
        limit,
        version,
        tag,
        asof,
        fragments=None if fragments is None else tuple(fragments),
        split_bytes=bytes_per_task,
    )
    if fresh:
        return _fresh_frame(spark, wanted)
    snapshot = pinned(wanted)
    schema = schema_of_snapshot(snapshot, wanted)
    on_driver = 0 if filter is None else bytes_on_driver
    found = small_frame(spark, snapshot, wanted, schema, on_driver)
    return _scan_frame(spark, snapshot, wanted, schema) if found is None else found


def _fresh_frame(spark: SparkSession, wanted: ReadOptions) -> DataFrame:
    """Return rows of the latest version, but for keys of shards, and the rows of these."""
    named = (wanted.version, wanted.tag, wanted.asof, wanted.fragments)
    if any(each is not None for each in named) or wanted.row_columns:
        raise InvalidInputError("a fresh read is of the latest version; leave what names another")
    read = replace(mem_wal.fresh.fresh_read(wanted.table.locate()), filter=wanted.filter)
    shown = tuple(read.base.schema.names if wanted.columns is None else wanted.columns)
    names = tuple(dict.fromkeys([*shown, *read.keys]))
    table = replace(wanted, columns=names, limit=None)
    schema = schema_of_snapshot(read.base, table)
    newer, live = mem_wal.merged.rows_of_shards(read, names)
    rows = _scan_frame(spark, read.base, table, schema)
    if len(newer):
        keys = StructType([schema[name] for name in read.keys])
        rows = rows.join(broadcast(_frame_of(spark, newer, keys)), read.keys, "left_anti")
        found = _frame_of(spark, live.select(names), schema)
        rows = rows.select(*map(quoted, names)).unionAll(found)
    rows = rows.select(*map(quoted, shown))
    return rows if wanted.limit is None else rows.limit(wanted.limit)


def _frame_of(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return a table in memory as a data frame of one task."""
    wanted = arrow_schema(schema)
    batches = [convert_batch(batch, wanted) for batch in table.combine_chunks().to_batches()]

    def rows(number: int, task: int) -> Iterator[pa.RecordBatch]:
        del number, task
        yield from batches

    return task_frame(spark, rows, [0], schema)


def scan_version(
    spark: SparkSession, table: TableRef, snapshot: Snapshot, *, columns: Sequence[str]
) -> DataFrame:
    """Return columns of all rows of a version."""
    wanted = ReadOptions(table, tuple(columns))
    return _scan_frame(spark, snapshot, wanted, schema_of_snapshot(snapshot, wanted))


def _scan_frame(
    spark: SparkSession, snapshot: Snapshot, wanted: ReadOptions, schema: StructType
) -> DataFrame:
    tasks = plan_tasks(snapshot, wanted, tuple(schema.fieldNames()))
    rows = snapshot.num_rows if wanted.limit is None else min(snapshot.num_rows, wanted.limit)
    size = sum(task.split.num_bytes for task in tasks)
    read = partial(_scan, arrow_schema(schema))
    return sized_frame(spark, read, tasks, schema, rows=rows, num_bytes=size)


def count(
    uri: str | os.PathLike[str],
    *,
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    version: int | None = None,
    tag: str | None = None,
    **running: Unpack[Running],
) -> int:
    """Return how many rows a table has, or how many match a filter.

    Without a filter nothing but the manifest is read; with one, the columns of the filter, in
    tasks. See `scan` for the arguments.
    """
    job, table = begin(uri, running)
    wanted = ReadOptions(table, filter=filter, version=version, tag=tag)
    snapshot = pinned(wanted)
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=filter))
    if not plan.is_filtered or plan.is_empty:
        return count_rows(plan)
    return sum(job.run("count", _count, plan_tasks(snapshot, wanted, ())))


def _scan(schema: pa.Schema, task: ScanTask) -> Iterator[pa.RecordBatch]:
    return run_scan(task, schema)


def _count(task: ScanTask) -> Done[int]:
    rows = count_rows(task.plan())
    return Done(rows, rows)
