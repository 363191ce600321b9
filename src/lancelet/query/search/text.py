"""Searching texts: a query over columns, put together from what is found in each.

    red fox       text: rows 3 and 7
    must not dog  text: row 7
    query         row 3

With a limit no more than the best rows of a column are looked for, if the query has but words, or
a phrase, or words in several columns, each row scored by its best.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.field_path import format_path
from lancelet.format.schema import Schema
from lancelet.index.text.analyzer import Analyzer
from lancelet.query.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    check_query,
    columns_of_query,
    render_query,
)
from lancelet.query.plan import ScanPlan
from lancelet.query.search.combined import WeightedColumn, find_combined
from lancelet.query.search.hits import Hits
from lancelet.query.search.matches import NOTHING, Matches
from lancelet.query.search.text_column import TextColumn, kept_text_column
from lancelet.query.search.text_indices import BrokenSegmentError, text_indices
from lancelet.table.snapshot import Snapshot

_SCORE: Final = pa.field("_score", pa.float32())


class NoTextColumnError(FieldNotFoundError, ValueError):
    """Texts are searched in a column that does not exist."""


class NoTextIndexError(InvalidInputError):
    """Texts are searched in a column that has no index for it."""


@dataclass(frozen=True, slots=True, eq=False)
class TextSearch:
    """A search for texts."""

    query: FullTextQuery

    is_batch = False

    @property
    def score_field(self) -> pa.Field:
        """The column of scores."""
        return _SCORE

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the rows that match, the best first."""
        options = plan.options
        if options.with_deleted:
            raise InvalidInputError("Cannot include deleted rows in a full text search")
        count = None
        if not options.order_by and (rows is not None or not plan.is_filtered):
            count = None if options.limit is None else options.offset + options.limit
        found = _Evaluation(plan, rows).matches(self.query, count)
        if count is not None and len(found.scores) > count:
            found = found.where(_best(found.scores, count))
        # Rows ascend, so that of equal scores the first comes first.
        order = np.argsort(-found.scores, kind="stable")
        return Hits.of_query(found.addresses[order], found.scores[order])

    def steps(self, plan: ScanPlan) -> list[str]:  # noqa: ARG002
        """Return what the search will do."""
        return [render_query(self.query)]


def read_text_search(snapshot: Snapshot, wanted: object) -> TextSearch:
    """Return the search that a caller asked for: a query, or words for columns."""
    if isinstance(wanted, FullTextQuery):
        query = wanted
    elif isinstance(wanted, str):
        query = _words_query(snapshot, wanted, None)
    elif isinstance(wanted, Mapping) and isinstance(wanted.get("query"), FullTextQuery):
        query = wanted["query"]
    elif isinstance(wanted, Mapping) and "query" in wanted:
        query = _words_query(snapshot, wanted["query"], wanted.get("columns"))
    else:
        raise InvalidInputError(
            "a query of texts is words, a query, or a dict with `query` and `columns`",
            found=type(wanted).__name__,
        )
    check_query(query)
    for column in columns_of_query(query):
        path_of(snapshot, column)
    return TextSearch(query)


def _best(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.bool_]:
    """Return which of more scores are among the best; those that equal the last of them are too."""
    if count == 0:
        return np.zeros(len(scores), np.bool_)
    last = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.asarray(scores >= last)


def _words_query(snapshot: Snapshot, words: str, columns: Sequence[str] | None) -> FullTextQuery:
    if not columns:
        columns = sorted({format_path(path) for path in text_indices(snapshot).listed})
        if not columns:
            raise NoTextIndexError(
                "Cannot perform full text search unless an INVERTED index has been created on at "
                "least one column"
            )
    if len(words) > 1 and words[0] == words[-1] == '"':
        if len(columns) != 1:
            raise InvalidInputError(
                "the column must be specified in the query: words in quotes are a phrase, and a "
                "phrase is looked for in one column",
                columns=list(columns),
            )
        return PhraseQuery(words[1:-1], columns[0])
    if len(columns) == 1:
        return MatchQuery(words, columns[0])
    return MultiMatchQuery(words, columns)


def evaluate_query(plan: ScanPlan, query: FullTextQuery) -> Matches:
    """Return all rows that a query finds."""
    return _Evaluation(plan, None).matches(query)


def path_of(snapshot: Snapshot, column: str) -> tuple[str, ...]:
    """Return the path of a column whose texts can be searched, looked up once for a version."""
    return snapshot.kept.get_or_make(
        ("path of texts", column), lambda: _path_of_texts(snapshot.schema, column)
    )


def _path_of_texts(schema: Schema, column: str) -> tuple[str, ...]:
    try:
        fields = schema.fields_on_path(column)
    except FieldNotFoundError as error:
        raise NoTextColumnError(
            "FTS field path does not exist in the dataset schema", column=column
        ) from error
    data_type = fields[-1].arrow_type
    is_json = isinstance(data_type, pa.JsonType)
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        data_type = data_type.value_type
    if not (is_json or pa.types.is_string(data_type) or pa.types.is_large_string(data_type)):
        raise InvalidInputError(
            "texts are searched in columns of texts", column=column, found=str(data_type)
        )
    return tuple(field.name for field in fields)


class _Evaluation:
    """Evaluates a query over a version."""

    def __init__(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> None:
        self._plan, self._rows = plan, rows
        self._columns: dict[str, TextColumn] = {}

    def matches(self, query: FullTextQuery, count: int | None = None) -> Matches:
        """Return the rows that a query finds; with a count the best may be enough."""
        match query:
            case MatchQuery() | PhraseQuery():
                return self._of_column(query, count)
            case BoostQuery():
                positive = self.matches(query.positive)
                less = np.float32(query.negative_boost) * self.matches(query.negative).among(
                    positive
                )
                return Matches(positive.addresses, positive.scores - less)
            case MultiMatchQuery():
                return reduce(Matches.better, (self.matches(each, count) for each in query.queries))
            case CombinedFieldsQuery():
                return self._combined(query)
            case BooleanQuery():
                return self._boolean(query)
            case _:
                raise InvalidInputError("unknown query of texts", found=type(query).__name__)

    def _boolean(self, query: BooleanQuery) -> Matches:
        parts: dict[Occur, list[Matches]] = {occur: [] for occur in Occur}
        for occur, each in query.queries:
            parts[occur].append(self.matches(each))
        if parts[Occur.MUST]:
            found = reduce(Matches.both, parts[Occur.MUST])
            for other in parts[Occur.SHOULD]:
                found = Matches(found.addresses, found.scores + other.among(found))
        else:
            found = reduce(Matches.either, parts[Occur.SHOULD], NOTHING)
        for other in parts[Occur.MUST_NOT]:
            found = found.where(~other.has(found.addresses))
        return found

    def _combined(self, query: CombinedFieldsQuery) -> Matches:
        paths = [path_of(self._plan.snapshot, name) for name in query.columns]
        while True:
            analyzers = [self._column(path).analyzer for path in paths if self._is_indexed(path)]
            if not analyzers:
                raise NoTextIndexError(
                    "combined_fields requires an inverted index on at least one of its columns",
                    columns=list(query.columns),
                )
            try:
                return find_combined(
                    [
                        self._weighted(path, weight, analyzers[0])
                        for path, weight in zip(paths, query.boosts, strict=True)
                    ],
                    [token.text for token in analyzers[0].tokens(query.query)],
                    needs_all=query.operator is FullTextOperator.AND,
                )
            except BrokenSegmentError as broken:
                self._leave_out(broken)

    def _weighted(self, path: tuple[str, ...], weight: float, analyzer: Analyzer) -> WeightedColumn:
        """Return a column to be combined; without an index it is cut as the others are."""
        own = None if self._is_indexed(path) else analyzer
        counted = TextColumn(self._plan, path, None, own)
        if self._rows is None:
            return WeightedColumn(counted, weight, counted)
        return WeightedColumn(TextColumn(self._plan, path, self._rows, own), weight, counted)

    def _is_indexed(self, path: tuple[str, ...]) -> bool:
        return bool(text_indices(self._plan.snapshot).segments(path))

    def _of_column(self, query: MatchQuery | PhraseQuery, count: int | None) -> Matches:
        path = path_of(self._plan.snapshot, query.column)
        while True:
            try:
                return self._column(path).matches(query, count)
            except BrokenSegmentError as broken:
                self._leave_out(broken)

    def _leave_out(self, broken: BrokenSegmentError) -> None:
        """Do without a segment; there is one less each time, and rows are read in its place."""
        text_indices(self._plan.snapshot).leave_out(broken)
        self._columns.clear()

    def _column(self, path: tuple[str, ...]) -> TextColumn:
        """Return a column; one of all rows is kept for the next search of the version."""
        options, name = self._plan.options, ".".join(path)
        if name in self._columns:
            return self._columns[name]
        if self._rows is not None or options.fragments is not None:
            column = TextColumn(self._plan, path, self._rows)
        else:
            column = kept_text_column(self._plan, path)
        self._columns[name] = column
        return column
