"""Reading what is left of a table in the driver, where that is too little for tasks.

    filter id = 17, on 200 MB       the driver looks at 3 MB of `id` and reads one row
                                    createDataFrame: one row, and no Python worker is started
    filter flag, on 9 TB            too much to look at: tasks
    filter year = 2024, on 200 MB   the rows that were found are too many: tasks after all

What is looked at is estimated by the manifest, as the sizes of tasks are; where an index answers
the filter nothing need be looked at. Rows are given up when they are too many, so that the driver
never holds more than the limit.
"""

from __future__ import annotations

import warnings
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lancelet.ops.jobs.split import estimate_bytes
from lancelet.query.execute import execute
from lancelet.query.indexing.choose import choose_parts
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.query.traversal import columns_of
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import ReadOptions
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot

DRIVER_BYTES: Final = 32 * 1024 * 1024
LOCAL_ROWS: Final = 32 * 1024
"""How many rows Spark keeps in its plan: it sends them to tasks one by one."""
_PLAIN: Final = (
    spark_types.BooleanType,
    spark_types.NumericType,
    spark_types.StringType,
    spark_types.BinaryType,
    spark_types.DateType,
    spark_types.TimestampType,
    spark_types.TimestampNTZType,
)


def small_frame(
    spark: SparkSession,
    snapshot: Snapshot,
    wanted: ReadOptions,
    schema: StructType,
    bytes_max: int,
    held_max: int | None = None,
) -> DataFrame | None:
    """Return the rows that match as a data frame of values, or None if tasks should find them.

    At most `bytes_max` are read, and `held_max` kept, by default as many, of `LOCAL_ROWS` rows.
    """
    table = small_table(snapshot, wanted, schema, bytes_max, held_max)
    return None if table is None else local_frame(spark, table, schema)


def small_table(
    snapshot: Snapshot,
    wanted: ReadOptions,
    schema: StructType,
    bytes_max: int,
    held_max: int | None = None,
) -> pa.Table | None:
    """Return the rows that match, or None if tasks should find them; see `small_frame`."""
    if not bytes_max or not _is_plain(schema):
        return None
    names = tuple(schema.fieldNames())
    options = ScanOptions(
        columns=names, filter=wanted.filter, limit=wanted.limit, fragments=wanted.fragments
    )
    plan = plan_scan(snapshot, options)
    is_large = _looked_at(plan, wanted) > bytes_max
    if is_large and (wanted.filter is None or not choose_parts(plan)):
        return None
    most = snapshot.num_rows if wanted.limit is None else min(snapshot.num_rows, wanted.limit)
    if wanted.filter is None and most > LOCAL_ROWS:
        return None
    batches: list[pa.RecordBatch] = []
    held = rows = 0
    for batch in execute(plan):
        batches.append(convert_batch(batch, arrow_schema(schema)))
        held, rows = held + max(batch.nbytes, 1), rows + batch.num_rows
        if rows > LOCAL_ROWS or held > (bytes_max if held_max is None else held_max):
            return None
    return pa.Table.from_batches(batches, arrow_schema(schema))


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return a table as a data frame which Spark keeps in its plan."""
    if not table.num_rows:
        return spark.createDataFrame([], schema)  # Spark refuses tables without a row
    table = table.combine_chunks()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        return spark.createDataFrame(table, schema)


def _looked_at(plan: ScanPlan, wanted: ReadOptions) -> int:
    if wanted.filter is None:
        names = set(plan.schema.names)
    else:
        names = {path[0] for path in columns_of(plan.filter)}
    fields = [field for field in plan.snapshot.schema.fields if field.name in names]
    return estimate_bytes(plan.snapshot, fields=fields, fragments=wanted.fragments)


def _is_plain(data_type: DataType) -> bool:
    """Say whether Spark takes values of a type from Arrow as they are in every release."""
    match data_type:
        case StructType():
            return all(_is_plain(field.dataType) for field in data_type)
        case ArrayType():
            return _is_plain(data_type.elementType)
        case MapType():
            return _is_plain(data_type.keyType) and _is_plain(data_type.valueType)
        case _:
            return isinstance(data_type, _PLAIN)
