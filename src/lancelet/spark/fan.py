"""What a task finds for each of the queries that it is given, by vectors or by texts.

    one vector in each row   [[0.1, 0.2], [0.9, 0.8]]     one search, which reads rows once for all
    lists of vectors         [[[0.1, 0.2], [0.3, 0.4]]]   a search for each, which is a list too
    texts                    ["red fox", "blue dog"]      a search for each

Each kind says how its queries are read from a column of a data frame and from what a caller gives,
and which searches they are. A worker opens the table and its indices once, so that many searches
for one query each cost little more than what they look at.
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
from lancelet.ops.jobs.table_ref import TableRef
from lancelet.query.execute import execute_to_table
from lancelet.query.full_text import FullTextQuery
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.hits import QUERY_INDEX, Search
from lancelet.query.search.text import read_text_search
from lancelet.query.search.vector import read_vector_search
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Queries: TypeAlias = npt.NDArray[Any] | Sequence[Any]


class Kind(Protocol):
    """A kind of search, as a plain value that tasks are given."""

    def given(self, schema: Schema, queries: Any) -> Queries:
        """Return the queries that a caller gave, one after another."""

    def of_column(self, schema: Schema, column: pa.Array) -> Queries:
        """Return the queries that are in a column of a data frame, which has no nulls."""

    def example(self, schema: Schema) -> Queries:
        """Return a query, of which it only matters which columns are found."""

    def searches(self, snapshot: Snapshot, queries: Queries) -> Iterator[tuple[int, Search]]:
        """Yield searches, and the number of the first query that each is for."""


@dataclass(frozen=True, slots=True)
class ByVector:
    """The nearest rows; `nearest` is that of a scan, but for the query."""

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
        found = vector_type_of(self._type(schema))
        if found is None:
            raise InvalidInputError(
                "the column has no vectors to search for",
                column=self.nearest["column"],
                found=str(self._type(schema)),
            )
        return found

    def _type(self, schema: Schema) -> pa.DataType:
        return schema.field_by_path(self.nearest["column"]).arrow_type


@dataclass(frozen=True, slots=True)
class ByText:
    """The rows that score best; words are looked for in `columns`, by default in all indexed."""

    columns: tuple[str, ...] | None = None

    def given(self, schema: Schema, queries: Any) -> Queries:
        """Return the queries themselves; a single one may stand for a list of it."""
        del schema
        return [queries] if isinstance(queries, str | FullTextQuery) else list(queries)

    def of_column(self, schema: Schema, column: pa.Array) -> Queries:
        """Return the texts."""
        del schema
        texts: list[str] = column.to_pylist()
        return texts

    def example(self, schema: Schema) -> Queries:
        """Return a word."""
        del schema
        return ["a"]

    def searches(self, snapshot: Snapshot, queries: Queries) -> Iterator[tuple[int, Search]]:
        """Yield a search for each query."""
        for number, query in enumerate(queries):
            is_whole = isinstance(query, FullTextQuery)
            wanted = query if is_whole else {"query": str(query), "columns": self.columns}
            yield number, read_text_search(snapshot, wanted)


@dataclass(frozen=True, slots=True)
class Fan:
    """A search that tasks do for the queries each is given, as a plain value."""

    table: TableRef
    kind: Kind
    options: ScanOptions

    def columns_found(self, snapshot: Snapshot) -> pa.Schema:
        """Return the columns that a row found has, without that of the query."""
        _, search = next(self.kind.searches(snapshot, self.kind.example(snapshot.schema)))
        fields = [each for each in self._plan(snapshot, search).schema if each != QUERY_INDEX]
        return pa.schema(fields)

    def find(self, queries: Queries) -> tuple[Int64s, pa.Table]:
        """Return what is found for queries, and for which of them each row is."""
        snapshot = self.table.open()
        numbers: list[Int64s] = []
        rows: list[pa.Table] = []
        for first, search in self.kind.searches(snapshot, queries):
            found = execute_to_table(self._plan(snapshot, search))
            if search.is_batch:
                own = found.column(QUERY_INDEX.name).to_numpy().astype(np.int64)
                found = found.drop_columns([QUERY_INDEX.name])
            else:
                own = np.zeros(found.num_rows, np.int64)
            numbers.append(own + first)
            rows.append(found)
        return np.concatenate(numbers), pa.concat_tables(rows)

    def read(self, column: pa.Array) -> Queries:
        """Return the queries in a column of a data frame, which has no nulls."""
        return self.kind.of_column(self.table.open().schema, column)

    def _plan(self, snapshot: Snapshot, search: Search) -> ScanPlan:
        return plan_scan(snapshot, replace(self.options, search=search))


def matrix_of(vectors: pa.Array) -> npt.NDArray[Any]:
    """Return the vectors of a column as the rows of a matrix."""
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    lengths = np.unique(vectors.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1:
        raise InvalidInputError("all queries have the same dimension", found=lengths.tolist()[:10])
    matrix: npt.NDArray[Any] = flat.reshape(len(vectors), -1)
    return matrix


def _storage(data_type: pa.DataType) -> pa.DataType:
    is_extension = isinstance(data_type, pa.BaseExtensionType)
    return data_type.storage_type if is_extension else data_type
