"""Vector and text searches for the queries of a task.

    one vector in each row   [[0.1, 0.2], [0.9, 0.8]]     one batch search for all rows
    lists of vectors         [[[0.1, 0.2], [0.3, 0.4]]]   one multivector search per row
    texts                    ["red fox", "blue dog"]      one search per row

A kind of search parses queries from a data frame column or from an argument and creates the
searches. A worker opens the table and its indices once for all queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.format.schema import Schema
from lancelet.index.vector.vectors import vector_type_of
from lancelet.jobs.table_ref import TableRef
from lancelet.scan.execute import execute_to_table
from lancelet.scan.found_columns import QUERY_INDEX
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.full_text import FullTextQuery
from lancelet.search.hits import Search
from lancelet.search.text import read_text_search
from lancelet.search.vector import read_vector_search
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Queries: TypeAlias = npt.NDArray[Any] | Sequence[Any]


class Kind(Protocol):
    """A kind of search; a plain value that is sent to tasks."""

    def given(self, schema: Schema, queries: Any) -> Queries:
        """Return the queries in an argument as a list or matrix."""

    def of_column(self, schema: Schema, column: pa.Array) -> Queries:
        """Return the queries in a data frame column without nulls."""

    def example(self, schema: Schema) -> Queries:
        """Return a query to derive the columns of the result from."""

    def searches(self, snapshot: Snapshot, queries: Queries) -> Iterator[tuple[int, Search]]:
        """Yield each search with the index of its first query."""


@dataclass(frozen=True, slots=True)
class ByVector:
    """Vector search; `nearest` is the option of a scan without the query."""

    nearest: Mapping[str, Any]

    def given(self, schema: Schema, queries: Any) -> Queries:
        """Return the rows of a matrix, or one matrix for each query where rows are lists."""
        if not self._has_lists(schema):
            return np.atleast_2d(np.asarray(queries))
        is_one = np.ndim(queries[0]) == 1
        return [np.asarray(each) for each in ([queries] if is_one else queries)]

    def of_column(self, schema: Schema, column: pa.Array) -> Queries:
        """Return vectors as the rows of a matrix, and each list of vectors as a matrix."""
        if not self._has_lists(schema):
            return matrix_of(column)
        return [matrix_of(each.values) for each in column]

    def example(self, schema: Schema) -> Queries:
        """Return a vector of zeros."""
        vector = np.zeros((1, self._vector_type(schema).list_size))
        return [vector] if self._has_lists(schema) else vector

    def searches(self, snapshot: Snapshot, queries: Queries) -> Iterator[tuple[int, Search]]:
        """Yield one search for all vectors, or one for each list of them."""
        if not self._has_lists(snapshot.schema):
            yield 0, read_vector_search(snapshot.schema, {**self.nearest, "q": queries})
            return
        for number, query in enumerate(queries):
            yield number, read_vector_search(snapshot.schema, {**self.nearest, "q": query})

    def _has_lists(self, schema: Schema) -> bool:
        return bool(self._vector_type(schema) != _storage(self._type(schema)))

    def _vector_type(self, schema: Schema) -> pa.DataType:
        vector_type = vector_type_of(self._type(schema))
        if vector_type is None:
            raise InvalidInputError(
                "the column contains no vectors to search for; choose a column of fixed-size lists",
                column=self.nearest["column"],
                found=str(self._type(schema)),
            )
        return vector_type

    def _type(self, schema: Schema) -> pa.DataType:
        return schema.field_by_path(self.nearest["column"]).arrow_type


@dataclass(frozen=True, slots=True)
class ByText:
    """Full-text search in `columns`, by default in all indexed columns."""

    columns: tuple[str, ...] | None = None

    def given(self, schema: Schema, queries: Any) -> Queries:
        """Return the queries as a list; a single query becomes a list of one."""
        del schema
        return [queries] if isinstance(queries, str | FullTextQuery) else list(queries)

    def of_column(self, schema: Schema, column: pa.Array) -> Queries:
        """Return the texts."""
        del schema
        texts: list[str] = column.to_pylist()
        return texts

    def example(self, schema: Schema) -> Queries:
        """Return a token."""
        del schema
        return ["a"]

    def searches(self, snapshot: Snapshot, queries: Queries) -> Iterator[tuple[int, Search]]:
        """Yield a search for each query."""
        for number, query in enumerate(queries):
            is_whole = isinstance(query, FullTextQuery)
            text_query = query if is_whole else {"query": str(query), "columns": self.columns}
            yield number, read_text_search(snapshot, text_query)


@dataclass(frozen=True, slots=True)
class SearchTask:
    """A search that each task runs for its queries; a plain value."""

    table: TableRef
    kind: Kind
    options: ScanOptions

    def result_schema(self, snapshot: Snapshot) -> pa.Schema:
        """Return the result columns without the query index."""
        _, search = next(self.kind.searches(snapshot, self.kind.example(snapshot.schema)))
        fields = [each for each in self._plan(snapshot, search).schema if each != QUERY_INDEX]
        return pa.schema(fields)

    def search(self, queries: Queries) -> tuple[Int64s, pa.Table]:
        """Return the query index of each result, and the results."""
        snapshot = self.table.open()
        numbers: list[Int64s] = []
        rows: list[pa.Table] = []
        for first, search in self.kind.searches(snapshot, queries):
            result = execute_to_table(self._plan(snapshot, search))
            if search.is_batch:
                query_numbers = result.column(QUERY_INDEX.name).to_numpy().astype(np.int64)
                result = result.drop_columns([QUERY_INDEX.name])
            else:
                query_numbers = np.zeros(result.num_rows, np.int64)
            numbers.append(query_numbers + first)
            rows.append(result)
        return np.concatenate(numbers), pa.concat_tables(rows)

    def read_queries(self, column: pa.Array) -> Queries:
        """Return the queries in a column of a data frame, which has no nulls."""
        return self.kind.of_column(self.table.open().schema, column)

    def _plan(self, snapshot: Snapshot, search: Search) -> ScanPlan:
        return plan_scan(snapshot, replace(self.options, search=search))


def matrix_of(vectors: pa.Array) -> npt.NDArray[Any]:
    """Return the vectors of a column as the rows of a matrix."""
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    lengths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise InvalidInputError(
            "all queries must have the same dimension", found=lengths.tolist()[:10]
        )
    matrix: npt.NDArray[Any] = flat.reshape(len(vectors), -1)
    return matrix


def _storage(data_type: pa.DataType) -> pa.DataType:
    is_extension = isinstance(data_type, pa.BaseExtensionType)
    return data_type.storage_type if is_extension else data_type
