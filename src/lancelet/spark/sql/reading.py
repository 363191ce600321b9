"""Data frames for the tables of a statement, with what was found about their use pushed down.

What is small is read by the driver, here and now: Spark then knows how small it is, and joins it
without a shuffle. What is large is read in tasks, of which Spark is told about how many rows come
out, so that it does not take every table for a small one:

    spark.range(0, rows, 1, tasks)      about the rows of the table: what Spark estimates by
      .where(first of a partition)      the tasks, one row in each partition
      .mapInArrow(scan)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lancelet.ops.column_statistics import fragment_bounds
from lancelet.ops.jobs.scan_task import ScanTask, scan
from lancelet.ops.jobs.split import estimate_bytes
from lancelet.spark.arrow_tasks import map_in_arrow, task_frame
from lancelet.spark.convert import convert_column
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.small_reads import local_frame, small_frame
from lancelet.spark.sql.aggregates import Aggregation, aggregate_batch
from lancelet.spark.sql.analysis import TableColumns, Use
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

T = TypeVar("T")

SMALL_BYTES: Final = 2 * 1024 * 1024
"""How much the driver reads by itself, and Spark then keeps in its plan."""
FILTERED_BYTES: Final = 32 * 1024 * 1024
"""How much it looks at to find what a filter leaves."""
_FILES_MAX: Final = 256
"""Of how many files the driver asks for the smallest and largest values by itself."""
_ROWS_MAX: Final = 1 << 26
"""The most rows that Spark is told of; counting to them costs some hundredths of a second."""


@dataclass(frozen=True, slots=True)
class Opened:
    """A version of a table that a statement reads."""

    wanted: ReadOptions
    snapshot: Snapshot

    @property
    def columns(self) -> TableColumns:
        """The stored columns, as a scan returns them."""
        return TableColumns.of(self.snapshot.schema)

    def options(self, use: Use) -> ReadOptions:
        """Return what a scan is asked for."""
        return replace(self.wanted, columns=use.columns, filter=use.filter, limit=use.limit)

    def bytes_read(self, names: Sequence[str], fragments: Sequence[int] | None = None) -> int:
        """Return about how many bytes of files hold columns, of all or some fragments."""
        fields = [each for each in self.snapshot.schema.fields if each.name in names]
        return estimate_bytes(self.snapshot, fields=fields, fragments=fragments)

    @property
    def num_rows(self) -> int:
        """The live rows of the version."""
        return sum(map(self.snapshot.live_rows, self.snapshot.fragments))


def frame_of(spark: SparkSession, opened: Opened, use: Use) -> DataFrame:
    """Return the rows of a table that a statement needs of it."""
    wanted = opened.options(use)
    schema = schema_of_snapshot(opened.snapshot, wanted)
    small = small_frame(
        spark,
        opened.snapshot,
        wanted,
        schema,
        FILTERED_BYTES if use.filter is not None else SMALL_BYTES,
        SMALL_BYTES,
    )
    if small is not None:
        return small
    tasks = plan_tasks(opened.snapshot, wanted, tuple(schema.fieldNames()))
    return sized_frame(
        spark, partial(_scan, arrow_schema(schema)), tasks, schema, rows=opened.num_rows
    )


def partial_frame(
    spark: SparkSession, opened: Opened, use: Use, aggregation: Aggregation
) -> DataFrame:
    """Return partial results of the rows of a table, which are few."""
    schema = spark_schema(aggregation.schema(opened.columns))
    shown = arrow_schema(schema)
    if aggregation.is_count and use.filter is None:
        counts = [opened.num_rows] * len(aggregation.partials)
        return spark.createDataFrame([tuple(counts)], schema)
    batches: list[pa.RecordBatch] = []
    rest: tuple[int, ...] | None = None
    if aggregation.is_known_of_files and use.filter is None:
        batches, rest = _from_statistics(opened.snapshot, aggregation, shown)
    if rest == ():
        return local_frame(spark, pa.Table.from_batches(batches, shown), schema)
    columns = aggregation.columns or ("_rowaddr",)
    wanted = replace(opened.wanted, columns=columns, filter=use.filter, fragments=rest)
    tasks = plan_tasks(opened.snapshot, wanted, columns)
    run = partial(_aggregate, replace(aggregation, select=None), shown)
    if opened.bytes_read(columns, rest) > FILTERED_BYTES // 8:
        if aggregation.keys or aggregation.is_repeated:
            # There may be nearly as many groups as rows, which Spark must not take for few.
            made = sized_frame(spark, run, tasks, schema, rows=opened.num_rows)
        else:
            made = task_frame(spark, lambda _, task: run(task), tasks, schema)
        known = pa.Table.from_batches(batches, shown)
        return made.unionAll(local_frame(spark, known, schema)) if batches else made
    batches += [batch for task in tasks for batch in run(task)]
    table = pa.Table.from_batches(batches, shown)
    if not table.num_rows:
        return spark.createDataFrame([], schema)
    return local_frame(spark, table, schema)


def _from_statistics(
    snapshot: Snapshot, aggregation: Aggregation, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], tuple[int, ...] | None]:
    """Return partial results of fragments whose files tell them, and the other fragments."""
    if not 0 < len(snapshot.fragments) <= _FILES_MAX:
        return [], None
    batches, rest = [], []
    for fragment in snapshot.fragments:
        found = {name: fragment_bounds(snapshot, fragment, name) for name in aggregation.columns}
        values = []
        rows = snapshot.live_rows(fragment)
        for partial_result in aggregation.partials:
            if partial_result.kind == "rows":
                values.append(pa.scalar(rows))
                continue
            bounds = found[partial_result.column]
            if bounds is None:
                break
            nulls, least, most = bounds
            kinds = {"valid": pa.scalar(rows - nulls), "min": least, "max": most}
            values.append(kinds[partial_result.kind])
        if len(values) < len(schema):
            rest.append(int(fragment.id))
            continue
        arrays = [
            convert_column(pa.repeat(value, 1), field)
            for value, field in zip(values, schema, strict=True)
        ]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return batches, tuple(rest)


def _aggregate(
    aggregation: Aggregation, schema: pa.Schema, task: ScanTask
) -> Iterator[pa.RecordBatch]:
    for batch in scan(task):
        yield aggregate_batch(aggregation, batch, schema)


def sized_frame(
    spark: SparkSession,
    make: Callable[[T], Iterator[pa.RecordBatch]],
    tasks: Sequence[T],
    schema: StructType,
    *,
    rows: int,
) -> DataFrame:
    """Return the rows that `make` yields for each task, which Spark takes for about `rows`."""
    own = list(tasks)
    count = max(len(own), 1)
    step = max(1, min(rows, _ROWS_MAX) // count)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(own[number // step])

    total = step * len(own)
    frame = spark.range(0, total, 1, count)
    return map_in_arrow(frame.where(f"id % {step} = 0") if step > 1 else frame, run, schema)


def _scan(schema: pa.Schema, task: ScanTask) -> Iterator[pa.RecordBatch]:
    return run_scan(task, schema)
