"""Searching for many queries at once: they are spread over tasks, each of which searches all.

    queries   0: [0.1, 0.2]   1: [0.9, 0.8]   2: ...       a matrix, or a column of a data frame
    tasks     each takes some queries and asks the same version of the table for its best rows
    rows      query 0: id 17 at 0.03, id 4 at 0.05   query 1: ...

A worker opens the table and its index once, and keeps what it has read of them for its next task.
Without an index every task reads the vectors of all rows once for each of its batches of queries,
so few large tasks are better then.
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
from lancelet.query.full_text import FullTextQuery
from lancelet.query.row_columns import ROW_FIELDS
from lancelet.query.scan_options import ScanOptions
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
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    prefilter: bool = True,
    nearest: Mapping[str, Any] | None = None,
    fast_search: bool = False,
    version: int | None = None,
    tag: str | None = None,
    queries_per_task: int = QUERIES_PER_TASK,
    **place: Unpack[TableOptions],
) -> DataFrame:
    """Return the `k` rows whose vectors are nearest to each of many queries.

    Args:
        spark: The session to search in.
        uri: The table.
        queries: A matrix with a query in each row, whose numbers are then the column
            `query_index`; or a data frame with a column of vectors, whose other columns come in
            front of the rows found. The partitions of a data frame are the tasks. Where rows of
            the table are lists of vectors, each query is a matrix or a list of vectors itself.
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
        place: See `TableOptions`.
    """
    wanted = ReadOptions(table_at(uri, place), version=version, tag=tag)
    options = ScanOptions(
        columns=None if columns is None else tuple(columns),
        filter=filter,
        prefilter=prefilter,
        indexed_only=fast_search,
    )
    kind = ByVector({**(nearest or {}), "column": column, "k": k})
    fanned = _Fanned(wanted, kind, options, queries_per_task)
    return fanned.frame(spark, queries, query_column or column)


def nearest_join(
    frame: DataFrame,
    uri: str | os.PathLike[str],
    *,
    column: str,
    query_column: str | None = None,
    k: int = 1,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    nearest: Mapping[str, Any] | None = None,
    **place: Unpack[TableOptions],
) -> DataFrame:
    """Join the rows of a data frame with the `k` rows of a table that are nearest to each.

    The result has the columns of the data frame but for the vectors, those of the table, and
    `_distance`; a row whose vector is null has no partner. See `search` for the arguments.
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
        **place,
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
    filter: str | None = None,  # noqa: A002 - the word for it everywhere
    prefilter: bool = True,
    fast_search: bool = False,
    version: int | None = None,
    tag: str | None = None,
    queries_per_task: int = QUERIES_PER_TASK,
    **place: Unpack[TableOptions],
) -> DataFrame:
    """Return the `k` rows whose texts are best for each of many queries.

    Args:
        spark: The session to search in.
        uri: The table, which has an index of texts.
        queries: Words, or queries such as `PhraseQuery`, whose numbers are then the column
            `query_index`; or a data frame with a column of words, whose other columns come in
            front of the rows found. The partitions of a data frame are the tasks.
        k: How many rows for each query.
        on: The columns in which words are looked for, by default all that have an index.
        query_column: The column of words of the data frame.
        columns: What to return of the rows found, by default every column.
        filter: SQL text; rows for which it is true are returned.
        prefilter: Whether only rows that pass the filter are searched; else fewer than `k` may
            be left.
        fast_search: Whether rows that no index has are left out.
        version: The number of the version to search; by default the latest.
        tag: The tag of the version to search.
        queries_per_task: How many queries of a list a task takes.
        place: See `TableOptions`.
    """
    if k < 1:
        raise InvalidInputError("a search is for one row at least", k=k)
    wanted = ReadOptions(table_at(uri, place), version=version, tag=tag)
    options = ScanOptions(
        columns=None if columns is None else tuple(columns),
        filter=filter,
        limit=k,
        prefilter=prefilter,
        indexed_only=fast_search,
    )
    kind = ByText(None if on is None else tuple(on))
    return _Fanned(wanted, kind, options, queries_per_task).frame(spark, queries, query_column)


def schema_found(found: pa.Schema) -> StructType:
    """Return the columns of what a search returns as Spark's."""
    # Spark has no unsigned numbers, and no id or address comes near the largest signed one.
    fields = [
        pa.field(field.name, pa.int64()) if field.name in ROW_FIELDS else field for field in found
    ]
    return spark_schema(pa.schema(fields))


@dataclass(frozen=True, slots=True)
class _Fanned:
    """What was asked for, before it is known which version of the table answers."""

    wanted: ReadOptions
    kind: Kind
    options: ScanOptions
    queries_per_task: int

    def frame(self, spark: SparkSession, queries: DataFrame | Any, query_column: str) -> DataFrame:
        """Return the rows found; the version is the latest as of now, unless one was named."""
        step = self.queries_per_task
        if step < 1:
            raise InvalidInputError("a task needs a query", queries_per_task=step)
        snapshot = pinned(self.wanted)
        fan = SearchTask(ref_of(snapshot, self.wanted), self.kind, self.options)
        found = schema_found(fan.result_schema(snapshot))
        if isinstance(queries, DataFrame):
            return _of_frame(fan, queries, query_column, found)
        schema = StructType([StructField(QUERY, LongType(), False), *found.fields])
        given = self.kind.given(snapshot.schema, queries)
        tasks = [_Part(first, given[first : first + step]) for first in range(0, len(given), step)]
        return task_frame(spark, partial(_search_part, fan, arrow_schema(schema)), tasks, schema)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some of the queries, and the number of the first."""

    first: int
    queries: Queries


def _search_part(
    fan: SearchTask, schema: pa.Schema, number: int, part: _Part
) -> Iterator[pa.RecordBatch]:
    del number
    for start in range(0, len(part.queries), _BATCH_QUERIES):
        which, rows = fan.search(part.queries[start : start + _BATCH_QUERIES])
        numbers = pa.array(which + part.first + start)
        yield from _converted(rows.add_column(0, QUERY, numbers), schema)


def _of_frame(fan: SearchTask, queries: DataFrame, own: str, found: StructType) -> DataFrame:
    if own not in queries.columns:
        raise FieldNotFoundError("the queries lack the column of what to look for", column=own)
    brought = [field for field in queries.schema.fields if field.name != own]
    shared = {field.name for field in brought} & set(found.fieldNames())
    if shared:
        raise InvalidInputError(
            "the queries and what is returned have columns of the same name", columns=sorted(shared)
        )
    schema = StructType([*brought, *found.fields])
    run = partial(_search_batches, fan, own, arrow_schema(schema))
    return map_in_arrow(queries, run, schema)


def _search_batches(
    fan: SearchTask, own: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        given = batch.filter(batch.column(own).is_valid())
        for start in range(0, given.num_rows, _BATCH_QUERIES):
            asked = given.slice(start, _BATCH_QUERIES)
            which, found = fan.search(fan.read_queries(asked.column(own)))
            brought = asked.drop_columns([own])
            columns = [each.take(pa.array(which)) for each in brought.columns]
            names = [*brought.schema.names, *found.column_names]
            rows = pa.Table.from_arrays([*columns, *found.columns], names)
            yield from _converted(rows, schema)


def _converted(rows: pa.Table, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches():
        yield convert_batch(batch, schema)
