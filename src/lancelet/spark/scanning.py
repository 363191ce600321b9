"""Reads of a table with column, filter and limit pushdown, and counts from metadata.

    scan(spark, uri, columns=["id"], filter="price > 10", limit=100)

Each task reads only the requested columns, zones and rows, and returns Arrow batches; this is
faster than `format("lance")`, which passes rows. The version is pinned by the call. If a filter
selects few rows of a small table, the driver reads them, because starting workers takes longer.
`count` without a filter reads only the manifest.
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

from lancelet import memwal as mem_wal
from lancelet.errors import InvalidInputError
from lancelet.jobs.engine import Done
from lancelet.jobs.scan_task import ScanTask
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import count_rows
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
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
    filter: str | None = None,  # noqa: A002 - the usual name
    limit: int | None = None,
    version: int | None = None,
    tag: str | None = None,
    asof: datetime | None = None,
    fragments: Sequence[int] | None = None,
    bytes_per_task: int | None = None,
    bytes_on_driver: int = DRIVER_BYTES,
    fresh: bool = False,
    **table_options: Unpack[TableOptions],
) -> DataFrame:
    """Return rows of a table as a data frame.

    Args:
        spark: The Spark session.
        uri: The table.
        columns: Names of columns, also virtual ones such as `_rowid`; all stored ones by default.
        filter: A SQL predicate.
        limit: Maximum number of rows.
        version: The version to read; the latest by default.
        tag: The tag of the version to read.
        asof: Read the latest version at this time.
        fragments: The ids of the fragments to read.
        bytes_per_task: The approximate input size of a task.
        bytes_on_driver: Maximum number of bytes that the driver reads itself instead of starting
            tasks, for both the filter and its result; 0 always starts tasks.
        fresh: Also read the write-ahead log: return the latest version merged with all durable
            entries by primary key.
        table_options: See `TableOptions`.
    """
    read_options = ReadOptions(
        table_at(uri, table_options),
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
        return _frame_with_shards(spark, read_options)
    snapshot = pinned(read_options)
    schema = schema_of_snapshot(snapshot, read_options)
    on_driver = 0 if filter is None else bytes_on_driver
    found = small_frame(spark, snapshot, read_options, schema, on_driver)
    return _scan_frame(spark, snapshot, read_options, schema) if found is None else found


def _frame_with_shards(spark: SparkSession, read_options: ReadOptions) -> DataFrame:
    """Return the rows of the latest version merged with those of the shards by primary key."""
    named = (read_options.version, read_options.tag, read_options.asof, read_options.fragments)
    if any(each is not None for each in named) or read_options.row_columns:
        raise InvalidInputError(
            "a fresh read always reads the latest version; omit options that select another version"
        )
    read = replace(
        mem_wal.fresh.fresh_read(read_options.table.locate()), filter=read_options.filter
    )
    shown = tuple(read.base.schema.names if read_options.columns is None else read_options.columns)
    names = tuple(dict.fromkeys([*shown, *read.keys]))
    table = replace(read_options, columns=names, limit=None)
    schema = schema_of_snapshot(read.base, table)
    newer, live = mem_wal.merged.rows_of_shards(read, names)
    rows = _scan_frame(spark, read.base, table, schema)
    if len(newer):
        keys = StructType([schema[name] for name in read.keys])
        rows = rows.join(broadcast(_frame_of(spark, newer, keys)), read.keys, "left_anti")
        found = _frame_of(spark, live.select(names), schema)
        rows = rows.select(*map(quoted, names)).unionAll(found)
    rows = rows.select(*map(quoted, shown))
    return rows if read_options.limit is None else rows.limit(read_options.limit)


def _frame_of(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return a table in memory as a data frame of one task."""
    read_options = arrow_schema(schema)
    batches = [convert_batch(batch, read_options) for batch in table.combine_chunks().to_batches()]

    def rows(number: int, task: int) -> Iterator[pa.RecordBatch]:
        del number, task
        yield from batches

    return task_frame(spark, rows, [0], schema)


def scan_version(
    spark: SparkSession,
    table: TableRef,
    snapshot: Snapshot,
    *,
    columns: Sequence[str],
    filter: str | None = None,  # noqa: A002 - the usual name
) -> DataFrame:
    """Return columns of the rows of a version, or of those that match a filter."""
    read_options = ReadOptions(table, tuple(columns), filter)
    schema = schema_of_snapshot(snapshot, read_options)
    if filter is not None:
        small = small_frame(spark, snapshot, read_options, schema, DRIVER_BYTES)
        if small is not None:
            return small
    return _scan_frame(spark, snapshot, read_options, schema)


def _scan_frame(
    spark: SparkSession, snapshot: Snapshot, read_options: ReadOptions, schema: StructType
) -> DataFrame:
    tasks = plan_tasks(snapshot, read_options, tuple(schema.fieldNames()))
    rows = (
        snapshot.num_rows
        if read_options.limit is None
        else min(snapshot.num_rows, read_options.limit)
    )
    size = sum(task.split.num_bytes for task in tasks)
    read = partial(_scan, arrow_schema(schema))
    return sized_frame(spark, read, tasks, schema, rows=rows, num_bytes=size)


def count(
    uri: str | os.PathLike[str],
    *,
    filter: str | None = None,  # noqa: A002 - the usual name
    version: int | None = None,
    tag: str | None = None,
    **running: Unpack[Running],
) -> int:
    """Return the number of rows of a table, or of the rows that match a filter.

    Without a filter, only the manifest is read; with a filter, tasks read the columns of the
    filter. See `scan` for the arguments.
    """
    job, table = begin(uri, running)
    read_options = ReadOptions(table, filter=filter, version=version, tag=tag)
    snapshot = pinned(read_options)
    plan = plan_scan(snapshot, ScanOptions(columns=(), filter=filter))
    if not plan.is_filtered or plan.is_empty:
        return count_rows(plan)
    return sum(job.run("count", _count, plan_tasks(snapshot, read_options, ())))


def _scan(schema: pa.Schema, task: ScanTask) -> Iterator[pa.RecordBatch]:
    return run_scan(task, schema)


def _count(task: ScanTask) -> Done[int]:
    rows = count_rows(task.plan())
    return Done(rows, rows)
