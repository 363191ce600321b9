"""Output columns of a search: the columns it adds, and expressions that use them.

    requested   {"twice": "_distance * 2", "name": "name"}
    stored      name
    search      twice, at index 0
    trailing    _distance, unless a column of that name was requested

If the table has a column with the same name, the name refers to the column of the search.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa

from lancelet.expr.compile import ExpressionLike
from lancelet.expr.expression import Column
from lancelet.expr.traversal import columns_of
from lancelet.format.schema import Schema
from lancelet.scan.projection import OutputColumn, computed_column, scan_schema
from lancelet.scan.scan_options import Columns, SearchRequest
from lancelet.values import dataclass

QUERY_INDEX: Final = pa.field("query_index", pa.int32(), nullable=False)
"""The output column with the query index of a batch search."""


@dataclass(frozen=True, slots=True)
class SearchColumn:
    """An output column of a search, and its index in the output.

    `source` is the column of the search if the column is returned unchanged.
    """

    index: int
    column: OutputColumn
    source: pa.Field | None


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """The output columns of a search: stored columns, and those the search provides."""

    stored: Columns
    computed: tuple[SearchColumn, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names of requested search columns and computed columns."""
        names = {each.column.field.name for each in self.computed}
        return names | self.stored.keys() if isinstance(self.stored, Mapping) else names


def added_columns(search: SearchRequest) -> tuple[pa.Field, ...]:
    """Return the columns that a search adds to the table, scores last."""
    rank = search.element_field
    return (search.score_field,) if rank is None else (rank, search.score_field)


def referable_columns(search: SearchRequest) -> tuple[pa.Field, ...]:
    """Return the columns of a search that expressions can refer to."""
    added = added_columns(search)
    return (QUERY_INDEX, *added) if search.is_batch else added


def with_added(schema: Schema, added: Sequence[pa.Field]) -> pa.Schema:
    """Return the schema for expressions over the results of a search."""
    added_names = {each.name for each in added}
    return pa.schema(
        [*(field for field in scan_schema(schema) if field.name not in added_names), *added]
    )


def split_columns(
    schema: Schema, columns: Columns, search: SearchRequest, *, trailing: Collection[str]
) -> SplitColumns:
    """Split output columns into stored and search columns; `trailing` ones are appended last."""
    if columns is None:
        if not any(each.name in schema.names for each in added_columns(search)):
            return SplitColumns(None)
        columns = tuple(schema.names)
    if isinstance(columns, Mapping):
        return _split_computed(schema, columns, search)
    added = {each.name: each for each in added_columns(search)}
    # The query index always comes first.
    automatic = {*trailing, QUERY_INDEX.name} if search.is_batch else set(trailing)
    names = [each for each in dict.fromkeys(columns) if each in added]
    requested = [each for each in columns if each not in automatic]
    computed = tuple(_unchanged(requested.index(each), added[each]) for each in names)
    return SplitColumns(tuple(each for each in requested if each not in added), computed)


def _split_computed(
    schema: Schema, columns: Mapping[str, ExpressionLike], search: SearchRequest
) -> SplitColumns:
    added = referable_columns(search)
    added_names = {each.name for each in added}
    names = with_added(schema, added)
    computed = []
    for index, (name, expression) in enumerate(columns.items()):
        if not any(each in str(expression) for each in added_names):
            continue
        column = computed_column(name, expression, names)
        if any(path[0] in added_names for path in columns_of(column.expression)):
            computed.append(SearchColumn(index, column, _source(column, added)))
    computed_names = {each.column.field.name for each in computed}
    stored = {
        name: expression for name, expression in columns.items() if name not in computed_names
    }
    return SplitColumns(stored, tuple(computed))


def _source(column: OutputColumn, added: Sequence[pa.Field]) -> pa.Field | None:
    return next((each for each in added if column.expression == Column((each.name,))), None)


def _unchanged(index: int, field: pa.Field) -> SearchColumn:
    return SearchColumn(index, OutputColumn(field, Column((field.name,))), field)


def trailing_columns(
    split: SplitColumns, search: SearchRequest, *, index: int, adds_scores: bool
) -> tuple[SearchColumn, ...]:
    """Return search columns that are added without being requested, from an output index on."""
    requested = split.names
    fields = [each for each in added_columns(search) if each.name not in requested]
    if not adds_scores:
        fields = [each for each in fields if each is search.element_field]
    return tuple(_unchanged(index + offset, each) for offset, each in enumerate(fields))
