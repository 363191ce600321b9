"""Data frames whose rows are made by tasks of ours: one partition for each, by `mapInArrow`.

    spark.range(0, n, 1, n)         n partitions of one row, whatever Spark would rather have
      .mapInArrow(run)              each worker looks its task up by the row and yields batches

The tasks travel inside the function, so nothing but numbers is shuffled or counted. Spark estimates
what comes out by what lies beneath, and would take n rows for few enough to send to all executors,
so tables are read over about as many rows as they have, which are about as wide:

    spark.range(0, rows, 1, n)      about the rows of the table
      .where(first of a partition)  one row in each partition
      .select(id, null of a type)   a type that Spark takes to be as wide as the columns read
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
"""The most rows that Spark is told of, since it counts to them."""
_NUMBER_BYTES: Final = 8
"""What Spark takes a row of a range to be, beside as much for the row itself."""
_PART_BYTES: Final = {"binary": 100, "decimal(38)": 16}
"""What Spark takes values of types to be, the largest first."""
_PARTS_MAX: Final = 256

BatchFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def task_frame(
    spark: SparkSession,
    make: Callable[[int, T], Iterator[pa.RecordBatch]],
    tasks: Sequence[T],
    schema: StructType | str,
) -> DataFrame:
    """Return the rows that `make` yields for each task, given its number, in a partition each."""
    own = list(tasks)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(number, own[number])

    count = len(own)
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
    """Return the rows that `make` yields for each task, which Spark takes for about `rows`.

    `num_bytes` are about what they are in all; Spark takes a row for 8 bytes at least.
    """
    own = list(tasks)
    count = max(len(own), 1)
    step = max(1, min(rows, _ROWS_MAX) // count)

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from make(own[number // step])

    total = step * len(own)
    frame = spark.range(0, total, 1, count)
    if step > 1:
        frame = frame.where(f"id % {step} = 0")
    width = _type_of_width(num_bytes // max(total, 1) - _NUMBER_BYTES)
    if width is not None:
        frame = frame.selectExpr("id", f"CAST(NULL AS {width}) AS width")
    return map_in_arrow(frame, run, schema)


def _type_of_width(wanted: int) -> str | None:
    """Return a type by which Spark takes a number and its value to be so many bytes wider."""
    # A row counts as 8 bytes more than its values, of which a range has 8: half of it is known.
    rest, parts = 2 * wanted, []
    for name, size in _PART_BYTES.items():
        count = min(max(rest, 0) // size, _PARTS_MAX)
        parts += [name] * count
        rest -= count * size
    fields = ", ".join(f"f{number}: {name}" for number, name in enumerate(parts))
    return f"STRUCT<{fields}>" if fields else None


def map_in_arrow(frame: DataFrame, function: BatchFunction, schema: StructType | str) -> DataFrame:
    """Return `frame.mapInArrow(function, schema)`.

    Spark looks for pandas on the way, which it then does not use, and warns of releases that it
    does not know; that would only mislead.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        return frame.mapInArrow(function, schema)
