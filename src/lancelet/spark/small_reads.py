"""Reads small results in the driver, without tasks.

    filter id = 17, on 200 MB       the driver reads 3 MB of `id` and the columns of one row
                                    createDataFrame: one row, no Python worker is started
    filter flag, on 9 TB            too many bytes to scan: tasks
    filter year = 2024, on 200 MB   too many matching rows: tasks after all

The bytes to scan are estimated from the manifest, as for tasks; nothing needs to be scanned if an
index answers the filter. The read stops at the limit, which bounds the driver's memory.
"""

from __future__ import annotations

import warnings
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lancelet.expr.traversal import columns_of
from lancelet.jobs.split import estimate_bytes
from lancelet.scan.execute import execute
from lancelet.scan.indexing.choose import choose_parts
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import ReadOptions
from lancelet.spark.types import arrow_schema
from lancelet.table.snapshot import Snapshot

DRIVER_BYTES: Final = 32 * 1024 * 1024
LOCAL_ROWS: Final = 32 * 1024
"""Maximum number of rows in a Spark plan, which sends them to tasks one by one."""
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
    read_options: ReadOptions,
    schema: StructType,
    bytes_max: int,
    result_bytes_max: int | None = None,
) -> DataFrame | None:
    """Return the matching rows as a local data frame, or None if tasks should read them.

    At most `bytes_max` are read and `result_bytes_max` returned (by default the same), and at most
    `LOCAL_ROWS` rows.
    """
    table = small_table(snapshot, read_options, schema, bytes_max, result_bytes_max)
    return None if table is None else local_frame(spark, table, schema)


def small_table(
    snapshot: Snapshot,
    read_options: ReadOptions,
    schema: StructType,
    bytes_max: int,
    result_bytes_max: int | None = None,
) -> pa.Table | None:
    """Return the matching rows, or None if tasks should read them; see `small_frame`."""
    if not bytes_max or not is_plain(schema):
        return None
    names = tuple(schema.fieldNames())
    options = ScanOptions(
        columns=names,
        filter=read_options.filter,
        limit=read_options.limit,
        fragments=read_options.fragments,
    )
    plan = plan_scan(snapshot, options)
    is_large = _bytes_to_scan(plan, read_options) > bytes_max
    if is_large and (read_options.filter is None or not choose_parts(plan)):
        return None
    rows_max = (
        snapshot.num_rows
        if read_options.limit is None
        else min(snapshot.num_rows, read_options.limit)
    )
    if read_options.filter is None and rows_max > LOCAL_ROWS:
        return None
    batches: list[pa.RecordBatch] = []
    result_bytes = rows = 0
    for batch in execute(plan):
        batches.append(convert_batch(batch, arrow_schema(schema)))
        result_bytes, rows = result_bytes + max(batch.nbytes, 1), rows + batch.num_rows
        if rows > LOCAL_ROWS or result_bytes > (
            bytes_max if result_bytes_max is None else result_bytes_max
        ):
            return None
    return pa.Table.from_batches(batches, arrow_schema(schema))


def local_frame(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Return a table as a data frame that is part of the Spark plan."""
    if not table.num_rows:
        return spark.createDataFrame([], schema)  # Spark rejects tables without rows
    table = table.combine_chunks()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        return spark.createDataFrame(table, schema)


def _bytes_to_scan(plan: ScanPlan, read_options: ReadOptions) -> int:
    if read_options.filter is None:
        names = set(plan.schema.names)
    else:
        names = {path[0] for path in columns_of(plan.filter)}
    fields = [field for field in plan.snapshot.schema.fields if field.name in names]
    return estimate_bytes(plan.snapshot, fields=fields, fragments=read_options.fragments)


def is_plain(data_type: DataType) -> bool:
    """Return whether every Spark release reads values of this type from Arrow unchanged."""
    match data_type:
        case StructType():
            return all(is_plain(field.dataType) for field in data_type)
        case ArrayType():
            return is_plain(data_type.elementType)
        case MapType():
            return is_plain(data_type.keyType) and is_plain(data_type.valueType)
        case _:
            return isinstance(data_type, _PLAIN)
