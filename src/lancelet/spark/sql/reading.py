"""Data frames for the tables of a statement, with columns, filters and limits pushed down.

The driver reads small tables, so Spark gets their exact size and joins them without a shuffle.
Tasks read large tables; their data frame has a realistic row count for Spark's estimates. If a
filter leaves few rows of a joined table, their join keys become a filter of the other table:

    part    brand = 'x'                     200 rows, read by the driver
    lines   l_partkey = p_partkey           l_partkey IN (17, 203, ...)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from lancelet.jobs.scan_task import ScanTask, scan
from lancelet.jobs.split import estimate_bytes
from lancelet.spark.arrow_tasks import sized_frame, task_frame
from lancelet.spark.convert import convert_column
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.small_reads import LOCAL_ROWS, local_frame, small_table
from lancelet.spark.sql.aggregates import Aggregation, aggregate_batch, final_rows
from lancelet.spark.sql.analysis import TableColumns, Use
from lancelet.spark.sql.predicates import joined, membership
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.column_statistics import fragment_bounds
from lancelet.values import cached_property, dataclass

SMALL_BYTES: Final = 2 * 1024 * 1024
"""Maximum size of a table that the driver reads and embeds in Spark's plan, in bytes."""
FILTERED_BYTES: Final = 32 * 1024 * 1024
"""Maximum number of bytes that the driver reads to apply a filter."""
_SELECTIVE: Final = 4
"""Join keys become a filter if at most 1 in this many rows of their table remain."""
_FILES_MAX: Final = 256
"""Maximum number of files to read statistics of on the driver."""


@dataclass(frozen=True)
class OpenTable:
    """A version of a table that a statement reads; only rows that match `required` are needed."""

    read_options: ReadOptions
    snapshot: Snapshot
    required: str | None = None

    @cached_property
    def columns(self) -> TableColumns:
        """The stored columns with the types of a scan."""
        return TableColumns.of(self.snapshot.schema)

    def options(self, use: Use) -> ReadOptions:
        """Return the read options of a scan."""
        return replace(self.read_options, columns=use.columns, filter=use.filter, limit=use.limit)

    def bytes_read(self, names: Sequence[str]) -> int:
        """Return the estimated size in bytes of columns."""
        requested = frozenset(names)
        fields = [each for each in self.snapshot.schema.fields if each.name in requested]
        return estimate_bytes(self.snapshot, fields=fields)

    @property
    def num_rows(self) -> int:
        """Number of live rows of the version."""
        return self.snapshot.num_rows


def frame_of(spark: SparkSession, opened: OpenTable, use: Use) -> tuple[DataFrame, pa.Table | None]:
    """Return the rows that a statement needs, and their table if the driver read them."""
    read_options = opened.options(use)
    schema = schema_of_snapshot(opened.snapshot, read_options)
    bytes_max = FILTERED_BYTES if use.filter is not None else SMALL_BYTES
    small = small_table(opened.snapshot, read_options, schema, bytes_max, SMALL_BYTES)
    if small is not None:
        return local_frame(spark, small, schema), small
    tasks = plan_tasks(opened.snapshot, read_options, tuple(schema.fieldNames()))
    made = partial(_scan, arrow_schema(schema))
    rows = opened.num_rows if use.limit is None else min(opened.num_rows, use.limit)
    size = sum(task.split.num_bytes for task in tasks)
    return sized_frame(spark, made, tasks, schema, rows=rows, num_bytes=size), None


def with_keys(opened: OpenTable, use: Use, read: Mapping[str, tuple[int, pa.Table]]) -> Use:
    """Add filters on the join keys of other tables if there are few.

    `read` maps the tables that the driver has read to their total row count and their rows.
    """
    filters = [each for each in (opened.required, use.filter) if each is not None]
    for each in use.same:
        rows, table = read.get(each.table, (0, None))
        field = opened.columns.find(each.column)
        if table is None or field is None or pa.types.is_floating(field.type):
            continue
        if table.num_rows > rows // _SELECTIVE:
            continue
        values = pc.unique(table.column(each.other)).drop_null()
        found = membership(field, values.to_pylist())
        if found is not None:
            filters.append(found)
    return replace(use, filter=joined(filters) if filters else None)


def partial_frame(
    spark: SparkSession, opened: OpenTable, use: Use, aggregation: Aggregation
) -> tuple[DataFrame, bool]:
    """Return partial aggregates of a table, and whether they are final."""
    schema = spark_schema(aggregation.schema(opened.columns))
    shown = arrow_schema(schema)
    if aggregation.is_count and use.filter is None:
        counts = [pa.array([opened.num_rows])] * len(aggregation.partials)
        return local_frame(spark, pa.Table.from_arrays(counts, schema=shown), schema), True
    batches: list[pa.RecordBatch] = []
    rest: tuple[int, ...] | None = None
    if aggregation.can_use_statistics and use.filter is None:
        batches, rest = _from_statistics(opened.snapshot, aggregation, shown)
    if rest == ():
        return _final_frame(spark, aggregation, pa.Table.from_batches(batches, shown))
    columns = aggregation.columns or ("_rowaddr",)
    read_options = replace(opened.read_options, columns=columns, filter=use.filter, fragments=rest)
    tasks = plan_tasks(opened.snapshot, read_options, columns)
    run = partial(_aggregate, replace(aggregation, select=None), shown)
    finished = pa.Table.from_batches(batches, shown)
    if sum(task.split.num_bytes for task in tasks) <= FILTERED_BYTES // 8:
        rows = finished.num_rows
        for batch in (batch for task in tasks for batch in run(task)):
            batches.append(batch)
            rows += batch.num_rows
            if rows > LOCAL_ROWS:
                break
        else:
            return _final_frame(spark, aggregation, pa.Table.from_batches(batches, shown))
    if aggregation.keys or aggregation.is_repeated:
        # The number of groups may approach that of rows, so Spark gets this estimate.
        made = sized_frame(spark, run, tasks, schema, rows=opened.num_rows)
    else:
        made = task_frame(spark, lambda _, task: run(task), tasks, schema)
    return made.unionAll(local_frame(spark, finished, schema)) if finished.num_rows else made, False


def _final_frame(
    spark: SparkSession, aggregation: Aggregation, partials: pa.Table
) -> tuple[DataFrame, bool]:
    """Return partial aggregates that the driver computed, merged per group if possible."""
    merged = final_rows(aggregation, partials) if aggregation.can_be_final else None
    table = partials if merged is None else merged
    return local_frame(spark, table, spark_schema(table.schema)), merged is not None


def _from_statistics(
    snapshot: Snapshot, aggregation: Aggregation, schema: pa.Schema
) -> tuple[list[pa.RecordBatch], tuple[int, ...] | None]:
    """Return partial aggregates computed from file statistics, and the remaining fragments."""
    if not 0 < len(snapshot.fragments) <= _FILES_MAX:
        return [], None
    batches, rest = [], []
    for fragment in snapshot.fragments:
        bounds_by_column = {
            name: fragment_bounds(snapshot, fragment, name) for name in aggregation.columns
        }
        values = []
        rows = snapshot.live_rows(fragment)
        for partial_result in aggregation.partials:
            if partial_result.kind == "rows":
                values.append(pa.scalar(rows))
                continue
            bounds = bounds_by_column[partial_result.column]
            if bounds is None:
                break
            nulls, minimum, maximum = bounds
            kinds = {"valid": pa.scalar(rows - nulls), "min": minimum, "max": maximum}
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


def _scan(schema: pa.Schema, task: ScanTask) -> Iterator[pa.RecordBatch]:
    return run_scan(task, schema)
