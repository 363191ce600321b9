"""Searching for many vectors at once: queries are spread over tasks, each of which searches all.

    queries   0: [0.1, 0.2]   1: [0.9, 0.8]   2: ...       a matrix, or a column of a data frame
    tasks     each takes some queries and asks the same version of the table for their neighbours
    rows      query 0: id 17 at 0.03, id 4 at 0.05   query 1: ...

A worker opens the table and its index once, and keeps what it has read of them for its next task.
Without an index every task reads the vectors of all rows once for each of its batches of queries,
so few large tasks are better then.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute_to_table
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.row_columns import ROW_FIELDS
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.hits import QUERY_INDEX
from lancelet.query.search.vector import read_vector_search
from lancelet.spark.arrow_tasks import map_in_arrow, task_frame
from lancelet.spark.convert import convert_batch
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, ref_of
from lancelet.spark.running import Place, table_at
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.table.snapshot import Snapshot

QUERIES_PER_TASK: Final = 4096
_BATCH_QUERIES: Final = 1024
QUERY: Final = "query_index"


@dataclass(frozen=True, slots=True)
class Fan:
    """A search that tasks do for the queries each is given; a plain value."""

    table: TableRef
    nearest: Mapping[str, Any]
    columns: tuple[str, ...] | None = None
    filter: str | None = None
    prefilter: bool = True
    fast_search: bool = False

    def plan(self, snapshot: Snapshot, queries: npt.NDArray[Any]) -> ScanPlan:
        """Return the plan of the search for some queries."""
        wanted = {**self.nearest, "q": queries}
        options = ScanOptions(
            columns=self.columns,
            filter=self.filter,
            prefilter=self.prefilter,
            indexed_only=self.fast_search,
            search=read_vector_search(snapshot.schema, wanted),
        )
        return plan_scan(snapshot, options)

    def schema(self, snapshot: Snapshot) -> StructType:
        """Return the columns that a row found has, without that of the query."""
        field = snapshot.schema.field_by_path(self.nearest["column"])
        if not pa.types.is_fixed_size_list(field.arrow_type):
            raise UnsupportedError(
                "only columns with one vector in each row are searched for many queries at once",
                column=self.nearest["column"],
                found=str(field.arrow_type),
            )
        return schema_found(self.plan(snapshot, np.zeros(field.arrow_type.list_size)))

    def find(self, queries: npt.NDArray[Any]) -> pa.Table:
        """Return what is nearest to each query, with the number of the query."""
        return execute_to_table(self.plan(self.table.open(), queries))


def search(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    queries: DataFrame | Any,
    k: int = 10,
    *,
    column: str,
    query_column: str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    prefilter: bool = True,
    nearest: Mapping[str, Any] | None = None,
    fast_search: bool = False,
    version: int | None = None,
    tag: str | None = None,
    queries_per_task: int = QUERIES_PER_TASK,
    **place: Unpack[Place],
) -> DataFrame:
    """Return the `k` rows whose vectors are nearest to each of many queries.

    Args:
        spark: The session to search in.
        uri: The table.
        queries: A matrix with a query in each row, whose numbers are then the column
            `query_index`; or a data frame with a column of vectors, whose other columns come in
            front of the rows found. The partitions of a data frame are the tasks.
        k: How many rows for each query.
        column: The column of vectors of the table.
        query_column: The column of vectors of the data frame, by default of the same name.
        columns: What to return of the rows found, by default every column.
        filter: SQL text; rows for which it is true are returned.
        prefilter: Whether only rows that pass the filter are searched; else fewer than `k` may
            be left.
        nearest: Further keys of `nearest` of a scan, such as `nprobes` or `refine_factor`.
        fast_search: Whether rows that no index has are left out.
        version: The number of the version to search; by default the latest.
        tag: The tag of the version to search.
        queries_per_task: How many rows of a matrix a task takes.
        place: See `Place`.
    """
    if queries_per_task < 1:
        raise InvalidInputError("a task needs a query", queries_per_task=queries_per_task)
    wanted = ReadOptions(table_at(uri, place), version=version, tag=tag)
    snapshot = pinned(wanted)
    fan = Fan(
        ref_of(snapshot, wanted),
        {**(nearest or {}), "column": column, "k": k},
        None if columns is None else tuple(columns),
        filter,
        prefilter,
        fast_search,
    )
    found = fan.schema(snapshot)
    if isinstance(queries, DataFrame):
        return _of_frame(fan, queries, query_column or column, found)
    schema = StructType([StructField(QUERY, LongType(), False), *found.fields])
    matrix = np.atleast_2d(np.asarray(queries))
    tasks = [
        _Part(first, matrix[first : first + queries_per_task])
        for first in range(0, len(matrix), queries_per_task)
    ]
    return task_frame(spark, partial(_search_part, fan, arrow_schema(schema)), tasks, schema)


def schema_found(plan: ScanPlan) -> StructType:
    """Return the columns of what a search returns as Spark's."""
    # Spark has no unsigned numbers, and no id or address comes near the largest signed one.
    fields = [
        pa.field(field.name, pa.int64()) if field.name in ROW_FIELDS else field
        for field in plan.schema
    ]
    return spark_schema(pa.schema(fields))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some of the queries of a matrix, and the number of the first."""

    first: int
    queries: npt.NDArray[Any]


def _search_part(fan: Fan, schema: pa.Schema, number: int, part: _Part) -> Iterator[pa.RecordBatch]:
    del number
    for start in range(0, len(part.queries), _BATCH_QUERIES):
        found = fan.find(part.queries[start : start + _BATCH_QUERIES])
        which = found.column(QUERY_INDEX.name).to_numpy().astype(np.int64)
        rows = found.drop_columns([QUERY_INDEX.name])
        rows = rows.add_column(0, QUERY, pa.array(which + part.first + start))
        yield from _converted(rows, schema)


def _of_frame(fan: Fan, queries: DataFrame, vectors: str, found: StructType) -> DataFrame:
    names = queries.columns
    if vectors not in names:
        raise FieldNotFoundError("the queries lack the column of vectors", column=vectors)
    brought = [field for field in queries.schema.fields if field.name != vectors]
    shared = {field.name for field in brought} & set(found.fieldNames())
    if shared:
        raise InvalidInputError(
            "the queries and what is returned have columns of the same name", columns=sorted(shared)
        )
    schema = StructType([*brought, *found.fields])
    run = partial(_search_batches, fan, vectors, arrow_schema(schema))
    return map_in_arrow(queries, run, schema)


def _search_batches(
    fan: Fan, vectors: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        given = batch.filter(batch.column(vectors).is_valid())
        for start in range(0, given.num_rows, _BATCH_QUERIES):
            asked = given.slice(start, _BATCH_QUERIES)
            found = fan.find(_matrix(asked.column(vectors)))
            which = found.column(QUERY_INDEX.name)
            rows = pa.Table.from_batches([asked.drop_columns([vectors])]).take(which)
            own = found.drop_columns([QUERY_INDEX.name])
            for name in own.column_names:
                rows = rows.append_column(name, own.column(name))
            yield from _converted(rows, schema)


def _matrix(vectors: pa.Array) -> npt.NDArray[Any]:
    """Return the vectors of a column as the rows of a matrix."""
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    lengths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise InvalidInputError("all queries have the same dimension", found=lengths.tolist()[:10])
    matrix: npt.NDArray[Any] = flat.reshape(len(vectors), -1)
    return matrix


def _converted(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        yield convert_batch(batch, schema)
