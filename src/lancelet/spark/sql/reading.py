"""Data frames for the tables of a statement, with what was found about their use pushed down.

What is small is read by the driver, here and now: Spark then knows how small it is, and joins it
without a shuffle. What is large is read in tasks, by a frame of about as many rows for Spark's
estimates. Where little is left of a table that is joined by a key, the keys that are left are a
filter of the other table:

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

from lancelet.ops.column_statistics import fragment_bounds
from lancelet.ops.jobs.scan_task import ScanTask, scan
from lancelet.ops.jobs.split import estimate_bytes
from lancelet.spark.arrow_tasks import sized_frame, task_frame
from lancelet.spark.convert import convert_column
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import plan_tasks, run_scan, schema_of_snapshot
from lancelet.spark.small_reads import LOCAL_ROWS, local_frame, small_table
from lancelet.spark.sql.aggregates import Aggregation, aggregate_batch, final_rows
from lancelet.spark.sql.analysis import TableColumns, Use
from lancelet.spark.sql.predicates import Translator, joined
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass

SMALL_BYTES: Final = 2 * 1024 * 1024
"""How much the driver reads by itself, and Spark then keeps in its plan."""
FILTERED_BYTES: Final = 32 * 1024 * 1024
"""How much it looks at to find what a filter leaves."""
_KEYS_MAX: Final = 10_000
"""Of how many keys a filter is made that a table beside it has."""
_SELECTIVE: Final = 4
"""How many times as many rows a table has as those that were read, for its keys to be few."""
_FILES_MAX: Final = 256
"""Of how many files the driver asks for the smallest and largest values by itself."""


@dataclass(frozen=True)
class Opened:
    """A version of a table that a statement reads."""

    wanted: ReadOptions
    snapshot: Snapshot

    @cached_property
    def columns(self) -> TableColumns:
        """The stored columns, as a scan returns them."""
        return TableColumns.of(self.snapshot.schema)

    def options(self, use: Use) -> ReadOptions:
        """Return what a scan is asked for."""
        return replace(self.wanted, columns=use.columns, filter=use.filter, limit=use.limit)

    def bytes_read(self, names: Sequence[str]) -> int:
        """Return about how many bytes of files hold columns."""
        known = frozenset(names)
        fields = [each for each in self.snapshot.schema.fields if each.name in known]
        return estimate_bytes(self.snapshot, fields=fields)

    @property
    def num_rows(self) -> int:
        """The live rows of the version."""
        return self.snapshot.num_rows


def frame_of(spark: SparkSession, opened: Opened, use: Use) -> tuple[DataFrame, pa.Table | None]:
    """Return the rows of a table that a statement needs of it, and them if the driver read them."""
    wanted = opened.options(use)
    schema = schema_of_snapshot(opened.snapshot, wanted)
    bytes_max = FILTERED_BYTES if use.filter is not None else SMALL_BYTES
    small = small_table(opened.snapshot, wanted, schema, bytes_max, SMALL_BYTES)
    if small is not None:
        return local_frame(spark, small, schema), small
    tasks = plan_tasks(opened.snapshot, wanted, tuple(schema.fieldNames()))
    made = partial(_scan, arrow_schema(schema))
    rows = opened.num_rows if use.limit is None else min(opened.num_rows, use.limit)
    size = sum(task.split.num_bytes for task in tasks)
    return sized_frame(spark, made, tasks, schema, rows=rows, num_bytes=size), None


def with_keys(opened: Opened, use: Use, read: Mapping[str, tuple[int, pa.Table]]) -> Use:
    """Return a use with filters for the keys that tables beside it have, where these are few.

    `read` are tables that the driver has read: how many rows they have in all, and those read.
    """
    filters = [] if use.filter is None else [use.filter]
    translator = Translator(lambda _: None, {})
    for each in use.same:
        rows, table = read.get(each.table, (0, None))
        field = opened.columns.named(each.column)
        if table is None or field is None or pa.types.is_floating(field.type):
            continue
        if table.num_rows > rows // _SELECTIVE:
            continue
        values = pc.unique(table.column(each.other)).drop_null()
        if len(values) > _KEYS_MAX:
            continue
        texts = [translator.text_of(value, field.type) for value in values.to_pylist()]
        name = f"`{field.name.replace('`', '``')}`"
        if not texts:
            filters.append("false")
        elif None not in texts:
            filters.append(f"{name} IN ({', '.join(filter(None, texts))})")
    return replace(use, filter=joined(filters) if filters else None)


def partial_frame(
    spark: SparkSession, opened: Opened, use: Use, aggregation: Aggregation
) -> tuple[DataFrame, bool]:
    """Return partial results of the rows of a table, which are few, and whether they are final."""
    schema = spark_schema(aggregation.schema(opened.columns))
    shown = arrow_schema(schema)
    if aggregation.is_count and use.filter is None:
        counts = [pa.array([opened.num_rows])] * len(aggregation.partials)
        return local_frame(spark, pa.Table.from_arrays(counts, schema=shown), schema), True
    batches: list[pa.RecordBatch] = []
    rest: tuple[int, ...] | None = None
    if aggregation.is_known_of_files and use.filter is None:
        batches, rest = _from_statistics(opened.snapshot, aggregation, shown)
    if rest == ():
        return _final_frame(spark, aggregation, pa.Table.from_batches(batches, shown))
    columns = aggregation.columns or ("_rowaddr",)
    wanted = replace(opened.wanted, columns=columns, filter=use.filter, fragments=rest)
    tasks = plan_tasks(opened.snapshot, wanted, columns)
    run = partial(_aggregate, replace(aggregation, select=None), shown)
    known = pa.Table.from_batches(batches, shown)
    if sum(task.split.num_bytes for task in tasks) <= FILTERED_BYTES // 8:
        rows = known.num_rows
        for batch in (batch for task in tasks for batch in run(task)):
            batches.append(batch)
            rows += batch.num_rows
            if rows > LOCAL_ROWS:
                break
        else:
            return _final_frame(spark, aggregation, pa.Table.from_batches(batches, shown))
    if aggregation.keys or aggregation.is_repeated:
        # There may be nearly as many groups as rows, which Spark must not take for few.
        made = sized_frame(spark, run, tasks, schema, rows=opened.num_rows)
    else:
        made = task_frame(spark, lambda _, task: run(task), tasks, schema)
    return made.unionAll(local_frame(spark, known, schema)) if known.num_rows else made, False


def _final_frame(
    spark: SparkSession, aggregation: Aggregation, partials: pa.Table
) -> tuple[DataFrame, bool]:
    """Return partial results that the driver has, with one row for each group if it can."""
    found = final_rows(aggregation, partials) if aggregation.can_be_final else None
    table = partials if found is None else found
    return local_frame(spark, table, spark_schema(table.schema)), found is not None


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


def _scan(schema: pa.Schema, task: ScanTask) -> Iterator[pa.RecordBatch]:
    return run_scan(task, schema)
