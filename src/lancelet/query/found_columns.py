"""Columns of what a search finds: those that it adds, and those that are computed of them.

    asked for    {"twice": "_distance * 2", "name": "name"}
    stored       name
    found        twice, at place 0
    behind       _distance, unless a column of that name was asked for

Where the table has a column of such a name too, the name means what the search found.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lancelet.format.schema import Schema
from lancelet.query import search as searches
from lancelet.query.compile import Writable
from lancelet.query.expression import Column
from lancelet.query.projection import OutputColumn, computed_column, scan_schema
from lancelet.query.scan_options import Columns
from lancelet.query.traversal import columns_of
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.query.search.hits import Search


@dataclass(frozen=True, slots=True)
class FoundColumn:
    """A column that takes what a search found, and its place among all that are returned.

    Its `source` is what was found, if it is that as it is.
    """

    place: int
    column: OutputColumn
    source: pa.Field | None


@dataclass(frozen=True, slots=True)
class SplitColumns:
    """The columns of a search: those that it has nothing to do with, and the others."""

    stored: Columns
    found: tuple[FoundColumn, ...] = ()

    @property
    def names(self) -> set[str]:
        """The names that were given to what a search found or to what is computed."""
        names = {each.column.field.name for each in self.found}
        return names | self.stored.keys() if isinstance(self.stored, Mapping) else names


def added_columns(search: Search) -> tuple[pa.Field, ...]:
    """Return the columns that a search adds to those of the table, the scores last."""
    place = search.place_field
    return (search.score_field,) if place is None else (place, search.score_field)


def nameable_columns(search: Search) -> tuple[pa.Field, ...]:
    """Return the columns of what a search finds that an expression may name."""
    added = added_columns(search)
    return (searches.hits.QUERY_INDEX, *added) if search.is_batch else added


def with_added(schema: Schema, added: Sequence[pa.Field]) -> pa.Schema:
    """Return what an expression over rows that were found may name."""
    taken = {each.name for each in added}
    return pa.schema([*(own for own in scan_schema(schema) if own.name not in taken), *added])


def split_columns(
    schema: Schema, columns: Columns, search: Search, *, behind: Collection[str]
) -> SplitColumns:
    """Return which columns a search has to do with; those `behind` come behind all others."""
    if columns is None:
        if not any(each.name in schema.names for each in added_columns(search)):
            return SplitColumns(None)
        columns = tuple(schema.names)
    if isinstance(columns, Mapping):
        return _split_computed(schema, columns, search)
    added = {each.name: each for each in added_columns(search)}
    # The number of the query comes first, wherever it was asked for.
    always = {*behind, searches.hits.QUERY_INDEX.name} if search.is_batch else set(behind)
    names = [each for each in dict.fromkeys(columns) if each in added]
    asked = [each for each in columns if each not in always]
    found = tuple(_as_it_is(asked.index(each), added[each]) for each in names)
    return SplitColumns(tuple(each for each in asked if each not in added), found)


def _split_computed(
    schema: Schema, columns: Mapping[str, Writable], search: Search
) -> SplitColumns:
    added = nameable_columns(search)
    taken = {each.name for each in added}
    names = with_added(schema, added)
    found = []
    for place, (name, written) in enumerate(columns.items()):
        if not any(each in str(written) for each in taken):
            continue
        column = computed_column(name, written, names)
        if any(path[0] in taken for path in columns_of(column.expression)):
            found.append(FoundColumn(place, column, _source(column, added)))
    asked = {each.column.field.name for each in found}
    stored = {name: written for name, written in columns.items() if name not in asked}
    return SplitColumns(stored, tuple(found))


def _source(column: OutputColumn, added: Sequence[pa.Field]) -> pa.Field | None:
    return next((each for each in added if column.expression == Column((each.name,))), None)


def _as_it_is(place: int, field: pa.Field) -> FoundColumn:
    return FoundColumn(place, OutputColumn(field, Column((field.name,))), field)


def columns_behind(
    split: SplitColumns, search: Search, *, place: int, adds_scores: bool
) -> tuple[FoundColumn, ...]:
    """Return the columns that a search adds though nobody asked for them, from a place on."""
    taken = split.names
    fields = [each for each in added_columns(search) if each.name not in taken]
    if not adds_scores:
        fields = [each for each in fields if each is search.place_field]
    return tuple(_as_it_is(place + more, each) for more, each in enumerate(fields))
