"""Distributed search for many queries.

    queries   0: [0.1, 0.2]   1: [0.9, 0.8]   2: ...       a matrix, or a column of a data frame
    tasks     each searches the same version of the table for a part of the queries
    rows      query 0: id 17 at 0.03, id 4 at 0.05   query 1: ...

A worker opens the table and its index once and caches them for later tasks. Without an
index, every task reads all vectors once for each batch of queries, so use few large tasks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Unpack

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.full_text import FullTextQuery
from lancelet.spark.arrow_tasks import map_in_arrow, task_frame
from lancelet.spark.convert import convert_batch
from lancelet.spark.fan import ByText, ByVector, Kind, Queries, SearchTask
from lancelet.spark.options import ReadOptions
from lancelet.spark.reader import pinned, ref_of
from lancelet.spark.running import TableOptions, table_at
from lancelet.spark.types import arrow_schema, spark_schema
from lancelet.values import dataclass

QUERIES_PER_TASK: Final = 4096
_BATCH_QUERIES: Final = 1024
QUERY: Final = "query_index"


def search(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    queries: DataFrame | Any,
    k: int = 10,
    *,
    column: str,
    query_column: str | None = None,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the usual name
    prefilter: bool = True,
    nearest: Mapping[str, Any] | None = None,
    fast_search: bool = False,
    version: int | None = None,
    tag: str | None = None,
    queries_per_task: int = QUERIES_PER_TASK,
    **table_options: Unpack[TableOptions],
) -> DataFrame:
    """Return the `k` nearest rows for each query vector.

    Args:
        spark: The Spark session.
        uri: The table.
        queries: A matrix with one query per row, or a data frame with a column of vectors. The
            result of a matrix has the column `query_index`; the result of a data frame starts
            with its other columns, and each of its partitions is one task. If the rows of the
            table are lists of vectors, each query is a matrix or a list of vectors.
        k: Number of rows per query.
        column: The vector column of the table.
        query_column: The vector column of the data frame; same name as `column` by default.
        columns: The columns of the table to return; all by default.
        filter: A SQL predicate on the rows of the table.
        prefilter: Apply the filter before the search. Otherwise it is applied to the `k` nearest
            rows, and fewer than `k` may remain.
        nearest: Further keys of the `nearest` argument of a scan, such as `nprobes` or
            `refine_factor`.
        fast_search: Search indexed rows only.
        version: The version to search; the latest by default.
        tag: The tag of the version to search.
        queries_per_task: Number of rows of a matrix per task.
        table_options: See `TableOptions`.
    """
    read_options = ReadOptions(table_at(uri, table_options), version=version, tag=tag)
    options = ScanOptions(
        columns=None if columns is None else tuple(columns),
        filter=filter,
        prefilter=prefilter,
        indexed_only=fast_search,
    )
    kind = ByVector({**(nearest or {}), "column": column, "k": k})
    distributed = _DistributedSearch(read_options, kind, options, queries_per_task)
    return distributed.frame(spark, queries, query_column or column)


def nearest_join(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    *,
    column: str,
    query_column: str | None = None,
    k: int = 1,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the usual name
    nearest: Mapping[str, Any] | None = None,
    **table_options: Unpack[TableOptions],
) -> DataFrame:
    """Join each row of a data frame with the `k` nearest rows of a table.

    The result has the columns of the data frame except the vectors, those of the table, and
    `_distance`. Rows with a null vector have no match. See `search` for the arguments.
    """
    return search(
        frame.sparkSession,
        uri,
        frame,
        k,
        column=column,
        query_column=query_column,
        columns=columns,
        filter=filter,
        nearest=nearest,
        **table_options,
    )


def search_text(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    queries: DataFrame | str | FullTextQuery | Sequence[str | FullTextQuery],
    k: int = 10,
    *,
    on: Sequence[str] | None = None,
    query_column: str = "query",
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the usual name
    prefilter: bool = True,
    fast_search: bool = False,
    version: int | None = None,
    tag: str | None = None,
    queries_per_task: int = QUERIES_PER_TASK,
    **table_options: Unpack[TableOptions],
) -> DataFrame:
    """Return the `k` best rows of a full-text search for each query.

    Args:
        spark: The Spark session.
        uri: The table; it needs an INVERTED index.
        queries: A list of texts or of queries such as `PhraseQuery`, or a data frame with a
            column of texts. The result of a list has the column `query_index`; the result of a
            data frame starts with its other columns, and each of its partitions is one task.
        k: Number of rows per query.
        on: The columns to search; all indexed columns by default.
        query_column: The text column of the data frame.
        columns: The columns of the table to return; all by default.
        filter: A SQL predicate on the rows of the table.
        prefilter: Apply the filter before the search. Otherwise it is applied to the `k` best
            rows, and fewer than `k` may remain.
        fast_search: Search indexed rows only.
        version: The version to search; the latest by default.
        tag: The tag of the version to search.
        queries_per_task: Number of queries of a list per task.
        table_options: See `TableOptions`.
    """
    if k < 1:
        raise InvalidInputError("k must be at least 1", k=k)
    read_options = ReadOptions(table_at(uri, table_options), version=version, tag=tag)
    options = ScanOptions(
        columns=None if columns is None else tuple(columns),
        filter=filter,
        limit=k,
        prefilter=prefilter,
        indexed_only=fast_search,
    )
    kind = ByText(None if on is None else tuple(on))
    return _DistributedSearch(read_options, kind, options, queries_per_task).frame(
        spark, queries, query_column
    )


def to_spark_schema(result: pa.Schema) -> StructType:
    """Return the Spark schema of search results."""
    # Spark has no unsigned integers. Row ids and addresses fit into int64.
    fields = [
        pa.field(field.name, pa.int64()) if field.name in ROW_FIELDS else field for field in result
    ]
    return spark_schema(pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _DistributedSearch:
    """A distributed search before its table version is resolved."""

    read_options: ReadOptions
    kind: Kind
    options: ScanOptions
    queries_per_task: int

    def frame(self, spark: SparkSession, queries: DataFrame | Any, query_column: str) -> DataFrame:
        """Return the results from the requested version, or from the current latest one."""
        step = self.queries_per_task
        if step < 1:
            raise InvalidInputError("queries_per_task must be at least 1", queries_per_task=step)
        snapshot = pinned(self.read_options)
        task = SearchTask(ref_of(snapshot, self.read_options), self.kind, self.options)
        result_schema = to_spark_schema(task.result_schema(snapshot))
        if isinstance(queries, DataFrame):
            return _of_frame(task, queries, query_column, result_schema)
        schema = StructType([StructField(QUERY, LongType(), False), *result_schema.fields])
        values = self.kind.given(snapshot.schema, queries)
        tasks = [
            _Part(first, values[first : first + step]) for first in range(0, len(values), step)
        ]
        return task_frame(spark, partial(_search_part, task, arrow_schema(schema)), tasks, schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """A slice of the queries and the index of its first query."""

    first: int
    queries: Queries


def _search_part(
    task: SearchTask, schema: pa.Schema, number: int, part: _Part
) -> Iterator[pa.RecordBatch]:
    del number
    for start in range(0, len(part.queries), _BATCH_QUERIES):
        query_rows, rows = task.search(part.queries[start : start + _BATCH_QUERIES])
        numbers = pa.array(query_rows + part.first + start)
        yield from _converted(rows.add_column(0, QUERY, numbers), schema)


def _of_frame(
    task: SearchTask, queries: DataFrame, query_column: str, result_schema: StructType
) -> DataFrame:
    if query_column not in queries.columns:
        raise FieldNotFoundError("the queries do not have the query column", column=query_column)
    query_fields = [field for field in queries.schema.fields if field.name != query_column]
    shared = {field.name for field in query_fields} & set(result_schema.fieldNames())
    if shared:
        raise InvalidInputError(
            "queries and results have columns of the same name", columns=sorted(shared)
        )
    schema = StructType([*query_fields, *result_schema.fields])
    run = partial(_search_batches, task, query_column, arrow_schema(schema))
    return map_in_arrow(queries, run, schema)


def _search_batches(
    task: SearchTask, query_column: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        valid = batch.filter(batch.column(query_column).is_valid())
        for start in range(0, valid.num_rows, _BATCH_QUERIES):
            part = valid.slice(start, _BATCH_QUERIES)
            query_rows, result = task.search(task.read_queries(part.column(query_column)))
            other_columns = part.drop_columns([query_column])
            columns = [each.take(pa.array(query_rows)) for each in other_columns.columns]
            names = [*other_columns.schema.names, *result.column_names]
            rows = pa.Table.from_arrays([*columns, *result.columns], names)
            yield from _converted(rows, schema)


def _converted(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        yield convert_batch(batch, schema)
