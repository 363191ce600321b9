"""Data frames with one task per partition, by `mapInArrow`.

    spark.range(0, n, 1, n)         n partitions of one row, regardless of Spark's settings
      .mapInArrow(run)              each worker selects its task by the row and yields batches

The tasks are pickled with the function, so only row numbers go through Spark. Spark estimates the
size of the output from its input, and assumes that n rows are small enough to broadcast. Tables are
therefore read over a range with approximately the row count and byte size of the table:

    spark.range(0, rows, 1, n)      about the rows of the table
      .where(first of a partition)  one row in each partition
      .select(id, null of a type)   a type that Spark estimates to be as wide as the columns read
      .mapInArrow(run)
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

T = TypeVar("T")

_ROWS_MAX: Final = 1 << 26
"""Upper limit of the rows in a range, because Spark counts to the last one."""
_NUMBER_BYTES: Final = 8
"""Bytes of a range's value in Spark's estimates, in addition to 8 bytes per row."""
_PART_BYTES: Final = {"binary": 100, "decimal(38)": 16}
"""Bytes of types in Spark's estimates, in descending order."""
_PARTS_MAX: Final = 256

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def task_frame(
    spark: SparkSession,
    make: Callable[[int, T], Iterator[pa.RecordBatch]],
    tasks: Sequence[T],
    schema: StructType | str,
) -> DataFrame:
    """Return a data frame with one partition per task: the rows of `make(number, task)`."""
    own_tasks = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(number, own_tasks[number])

    count = len(own_tasks)
    return map_in_arrow(spark.range(0, count, 1, max(count, 1)), run, schema)


def sized_frame(
    spark: SparkSession,
    make: Callable[[T], Iterator[pa.RecordBatch]],
    tasks: Sequence[T],
    schema: StructType,
    *,
    rows: int,
    num_bytes: int = 0,
) -> DataFrame:
    """Return the rows that `make` yields for each task, with an estimated size of `rows` rows.

    `num_bytes` is the estimated total size. Spark assumes at least 8 bytes per row.
    """
    own_tasks = list(tasks)
    count = max(len(own_tasks), 1)
    step = max(1, min(rows, _ROWS_MAX) // count)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(own_tasks[number // step])

    total = step * len(own_tasks)
    frame = spark.range(0, total, 1, count)
    if step > 1:
        frame = frame.where(f"id % {step} = 0")
    width = _type_of_width(num_bytes // max(total, 1) - _NUMBER_BYTES)
    if width is not None:
        frame = frame.selectExpr("id", f"CAST(NULL AS {width}) AS width")
    return map_in_arrow(frame, run, schema)


def _type_of_width(extra_bytes: int) -> str | None:
    """Return a type that adds about `extra_bytes` to Spark's estimated row size; None for zero."""
    # Spark adds 8 bytes to the values of a row, and halves this ratio for a range.
    rest, parts = 2 * extra_bytes, []
    for name, size in _PART_BYTES.items():
        count = min(max(rest, 0) // size, _PARTS_MAX)
        parts += [name] * count
        rest -= count * size
    fields = ", ".join(f"f{number}: {name}" for number, name in enumerate(parts))
    return f"STRUCT<{fields}>" if fields else None


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: StructType | str) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)` without Spark's warnings about pandas.

    Spark imports pandas here although it does not use it, and warns about unsupported releases.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        return frame.mapInArrow(function, schema)
