"""Full-text search: combine the matches of several columns into the result of a query.

  red fox       text: rows 3 and 7
  must not dog  text: row 7
  query         row 3

With a limit, only the best rows of each column are computed for match, phrase and multi-match
queries.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.arguments import ArgumentTypeError
from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.expr.data_types import is_text
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.index.inverted.partition import StoredPartition
from lancelet.index.text.analyzer import Analyzer, Token
from lancelet.index.text.elements import ElementIndices, no_element_indices
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.scan.plan import ScanPlan, projection_of
from lancelet.search.combined import WeightedColumn, find_combined
from lancelet.search.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    check_query,
    leaf_queries,
    render_query,
)
from lancelet.search.hits import Hits
from lancelet.search.matches import NO_MATCHES, Matches
from lancelet.search.terms import Statistics
from lancelet.search.text_column import (
    TextColumn,
    analyzer_of_column,
    cached_text_column,
    tokens_of,
)
from lancelet.search.text_indices import BrokenSegmentError, Target, text_indices
from lancelet.search.text_targets import is_by_element, target_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_SCORE: Final = pa.field("_score", pa.float32())
_ELEMENT_FIELD: Final = pa.field(
    "_doc_index", pa.list_(pa.field("item", pa.uint32(), nullable=False)), nullable=False
)


class NoTextIndexError(InvalidInputError):
    """Raised if no column of a full-text query has an INVERTED index."""


class UnbalancedQuoteWarning(UserWarning):
    """The query has an unbalanced quote and is not searched as a phrase."""


@dataclass(frozen=True, slots=True, eq=False)
class TextSearch:
    """A full-text search that returns rows, or elements of list columns.

    `unindexed` holds the result of `count_unindexed` for all unindexed rows, if a scan covers only
    some.
    """

    query: FullTextQuery
    by_element: bool = False
    unindexed: Mapping[Target, Statistics] = field(default_factory=dict)

    is_batch = False

    @property
    def score_field(self) -> pa.Field:
        """The score column."""
        return _SCORE

    @property
    def element_field(self) -> pa.Field | None:
        """The column of list element indices if the search returns elements, otherwise None."""
        return _ELEMENT_FIELD if self.by_element else None

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the matching rows, best first."""
        options = plan.options
        if options.with_deleted:
            raise InvalidInputError("Cannot include deleted rows in a full text search")
        count = None
        if not options.order_by and (rows is not None or not plan.is_filtered):
            count = None if options.limit is None else options.offset + options.limit
        if self.by_element:
            return self._find_elements(plan, rows, count)
        evaluation = _Evaluation(plan, rows, self.query, self.unindexed)
        found = _cut(evaluation.matches(self.query, count), count)
        if len(found.scores) < 2:
            return Hits.of_query(found.addresses, found.scores)
        # Rows are in ascending order, so a stable sort orders equal scores by row.
        order = (-found.scores).argsort(kind="stable")
        return Hits.of_query(found.addresses[order], found.scores[order])

    def _find_elements(
        self, plan: ScanPlan, rows: Mapping[int, Int64s] | None, count: int | None
    ) -> Hits:
        """Return the matching elements, best first; equal scores are ordered by row and element."""
        while True:
            evaluation = _Evaluation(plan, rows, self.query)
            try:
                found = _cut(evaluation.matches(self.query, count), count)
                addresses, element_indices = evaluation.elements(found)
            except BrokenSegmentError as broken:
                text_indices(plan.snapshot).leave_out(broken)
                continue
            order = np.lexsort((*element_indices.T[::-1], addresses, -found.scores))
            return Hits.of_query(
                addresses[order], found.scores[order], element_indices=element_indices[order]
            )

    def steps(self, plan: ScanPlan) -> list[str]:  # noqa: ARG002
        """Return the plan line of the search."""
        return [render_query(self.query)]

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Estimate the index reads of the search."""
        return sum(
            (
                partition.estimate_reads(
                    [each.text for each in tokens], with_position=isinstance(leaf, PhraseQuery)
                )
                for leaf, tokens, partition in self._index_reads(plan)
            ),
            IoCounts(),
        )

    def expected_rows(self, plan: ScanPlan) -> int | None:
        """Return an upper bound of the number of matches; None if frequencies are not cached."""
        total = 0
        for leaf, tokens, partition in self._index_reads(plan):
            counts = partition.cached_doc_frequencies([each.text for each in tokens])
            if counts is None:
                return None
            # Tokens at the same position are alternatives.
            at = Counter[int]()
            for token, count in zip(tokens, counts, strict=True):
                at[token.position] += count
            needs_all = isinstance(leaf, PhraseQuery) or leaf.operator is FullTextOperator.AND
            total += min(at.values(), default=0) if needs_all else at.total()
        return total

    def _index_reads(
        self, plan: ScanPlan
    ) -> Iterator[tuple[MatchQuery | PhraseQuery, list[Token], StoredPartition]]:
        """Yield each single-column query with its tokens and each index partition it reads."""
        for leaf in leaf_queries(self.query):
            target = target_of(plan.snapshot, leaf.column, leaf.document_granularity)
            for segment in text_indices(plan.snapshot).segments(target) or ():
                tokens = list(segment.opened.analyzer.tokens(leaf.query))
                for partition in segment.opened.partitions:
                    if isinstance(partition, StoredPartition):
                        yield leaf, tokens, partition

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the columns, each with the fragments not covered by any segment."""
        options, snapshot = plan.options, plan.snapshot
        found: dict[Target, frozenset[int]] = {}
        for leaf in leaf_queries(self.query):
            target = target_of(snapshot, leaf.column, leaf.document_granularity)
            segments = text_indices(snapshot).segments(target)
            if segments is not None and options.indexed_only:
                continue
            fragment_ids = options.fragments or snapshot.fragments.ids.tolist()
            covered = (each.table.covered for each in segments or ())
            found[target] = frozenset(fragment_ids).difference(*covered)
        return [
            (field, missing)
            for target, missing in found.items()
            for field in projection_of(snapshot, (format_path(target.path),)).fields
            if missing
        ]


def read_text_search(snapshot: Snapshot, argument: object) -> TextSearch:
    """Return the search for a query object, a string, or a dict with `query` and `columns`."""
    if isinstance(argument, FullTextQuery):
        query = argument
    elif isinstance(argument, str):
        query = _simple_query(snapshot, argument, None)
    elif isinstance(argument, Mapping) and isinstance(argument.get("query"), FullTextQuery):
        query = argument["query"]
    elif isinstance(argument, Mapping) and "query" in argument:
        unknown = sorted(argument.keys() - {"query", "columns"})
        if unknown:
            raise ArgumentTypeError(
                ("unknown arguments of a full-text query; expected query and columns"),
                arguments=unknown,
            )
        query = _simple_query(snapshot, argument["query"], argument.get("columns"))
    else:
        raise InvalidInputError(
            "a text query is a string, a query object, or a dict with `query` and `columns`",
            found=type(argument).__name__,
        )
    check_query(query)
    return TextSearch(query, is_by_element(snapshot, query))


def unindexed_fragments(search: TextSearch, snapshot: Snapshot) -> list[int] | None:
    """Return the fragments with unindexed rows that the search scans.

    They can be scanned separately with shared statistics; None if the query does not support this.
    """
    leaves = list(leaf_queries(search.query))
    is_plain = isinstance(search.query, MatchQuery | PhraseQuery | MultiMatchQuery)
    if not is_plain or search.by_element:
        return None
    if any(isinstance(each, MatchQuery) and each.fuzziness for each in leaves):
        return None
    missing: set[int] = set()
    for leaf in leaves:
        target = target_of(snapshot, leaf.column, leaf.document_granularity)
        segments = text_indices(snapshot).segments(target) or ()
        missing |= set(snapshot.fragments.ids.tolist()).difference(
            *(each.table.covered for each in segments)
        )
    return sorted(missing)


def count_unindexed(plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> dict[Target, Statistics]:
    """Return the statistics of the unindexed rows that a full-text search scans.

    The sums over several scans determine all scores; see `TextSearch.unindexed`.
    """
    search, snapshot = plan.options.search, plan.snapshot
    assert isinstance(search, TextSearch), "only full-text searches count unindexed rows"
    found: dict[Target, Statistics] = {}
    for leaf in leaf_queries(search.query):
        target = target_of(snapshot, leaf.column, leaf.document_granularity)
        tokens = tokens_of(snapshot, search.query, target)
        assert tokens is not None, "fuzzy queries are not split"
        column = TextColumn(plan, target, rows, only=tokens)
        found[target] = column.unindexed(sorted(tokens))
    return found


def _cut(found: Matches, count: int | None) -> Matches:
    """Return the `count` best matches, including ties with the last."""
    if count is None or len(found.scores) <= count:
        return found
    return found.where(_best(found.scores, count))


def _best(scores: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the `count` best scores, including ties with the last."""
    if count == 0:
        return np.zeros(len(scores), np.bool_)
    last = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.asarray(scores >= last)


def _simple_query(snapshot: Snapshot, text: str, columns: Sequence[str] | None) -> FullTextQuery:
    granularity = None
    if not columns:
        granularity = DocumentGranularity.ROW
        listed = text_indices(snapshot).listed
        columns = sorted(format_path(target.path) for target in listed if not target.by_element)
        if not columns:
            texts = [field.name for field in snapshot.schema.fields if is_text(field.arrow_type)]
            example = repr(texts[0]) if len(texts) == 1 else "column"
            raise NoTextIndexError(
                "Cannot perform full text search unless an INVERTED index has been created on at "
                f"least one column; call dataset.create_scalar_index({example}, 'INVERTED'), or "
                "search an unindexed column with lancelet.query.MatchQuery(terms, column)",
                string_columns=texts,
            )
    if len(text) > 1 and text[0] == text[-1] == '"':
        if len(columns) != 1:
            raise InvalidInputError(
                "the column must be specified in the query: phrases are searched in a "
                "single column",
                columns=list(columns),
            )
        return PhraseQuery(text[1:-1], columns[0], document_granularity=granularity)
    if '"' in (text[:1], text[-1:]) and text.count('"') % 2:
        warnings.warn(
            f"the query {text!r} has an unbalanced quote and is not searched as a phrase; for a "
            "phrase, quote both ends",
            UnbalancedQuoteWarning,
            stacklevel=2,
        )
    if len(columns) == 1:
        return MatchQuery(text, columns[0], document_granularity=granularity)
    query = MultiMatchQuery(text, columns)
    for each in query.queries:
        each.document_granularity = granularity
    return query


def evaluate_query(plan: ScanPlan, query: FullTextQuery) -> Matches:
    """Return all matching rows, or the keys of all matching documents."""
    return _Evaluation(plan, None, query).matches(query)


def best_element(plan: ScanPlan, query: FullTextQuery, address: int) -> int | None:
    """Return the key of the best matching element of a row, or None."""
    evaluation = _Evaluation(plan, None, query)
    found = evaluation.matches(query)
    of_row = evaluation.elements(found)[0] == address
    if not of_row.any():
        return None
    return int(found.addresses[np.argmax(np.where(of_row, found.scores, -np.inf))])


class _Evaluation:
    """The evaluation of a query on a version.

    Searches by element identify documents by number. The numbers are valid until a segment turns
    out to be damaged. All clauses of such a query use the same column.
    """

    def __init__(
        self,
        plan: ScanPlan,
        rows: Mapping[int, Int64s] | None,
        query: FullTextQuery,
        unindexed: Mapping[Target, Statistics] | None = None,
    ) -> None:
        self._plan, self._rows, self._query = plan, rows, query
        self._unindexed = unindexed or {}
        self._columns: dict[Target, TextColumn] = {}

    def matches(self, query: FullTextQuery, count: int | None = None) -> Matches:
        """Return the matching rows; with `count`, the best ones suffice."""
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
                raise InvalidInputError("unknown full-text query", found=type(query).__name__)

    def elements(self, found: Matches) -> tuple[UInt64s, ElementIndices]:
        """Return the row addresses and element indices of matching documents."""
        for column in self._columns.values():
            return column.elements(found.addresses)
        return found.addresses, no_element_indices(0)

    def _boolean(self, query: BooleanQuery) -> Matches:
        parts: dict[Occur, list[Matches]] = {occur: [] for occur in Occur}
        for occur, each in query.queries:
            parts[occur].append(self.matches(each))
        if parts[Occur.MUST]:
            found = reduce(Matches.both, parts[Occur.MUST])
            for other in parts[Occur.SHOULD]:
                found = Matches(found.addresses, found.scores + other.among(found))
        else:
            found = reduce(Matches.either, parts[Occur.SHOULD], NO_MATCHES)
        for other in parts[Occur.MUST_NOT]:
            found = found.where(~other.has(found.addresses))
        return found

    def _combined(self, query: CombinedFieldsQuery) -> Matches:
        rows = DocumentGranularity.ROW
        targets = [target_of(self._plan.snapshot, name, rows) for name in query.columns]
        while True:
            indexed = [each for each in targets if self._is_indexed(each)]
            if not indexed:
                raise NoTextIndexError(
                    "combined_fields requires an inverted index on at least one of its columns",
                    columns=list(query.columns),
                )
            try:
                analyzer = analyzer_of_column(self._plan.snapshot, indexed[0])
                tokens = [token.text for token in analyzer.tokens(query.query)]
                return find_combined(
                    [
                        self._weighted(target, weight, analyzer, frozenset(tokens))
                        for target, weight in zip(targets, query.boosts, strict=True)
                    ],
                    tokens,
                    needs_all=query.operator is FullTextOperator.AND,
                )
            except BrokenSegmentError as broken:
                self._leave_out(broken)

    def _weighted(
        self, target: Target, weight: float, analyzer: Analyzer, only: frozenset[str]
    ) -> WeightedColumn:
        """Return a column for BM25F; a column without an index uses the shared analyzer."""
        own = None if self._is_indexed(target) else analyzer
        counted = TextColumn(self._plan, target, None, own, only)
        if self._rows is None:
            return WeightedColumn(counted, weight, counted)
        column = TextColumn(self._plan, target, self._rows, own, only)
        return WeightedColumn(column, weight, counted)

    def _is_indexed(self, target: Target) -> bool:
        return bool(text_indices(self._plan.snapshot).segments(target))

    def _of_column(self, query: MatchQuery | PhraseQuery, count: int | None) -> Matches:
        target = target_of(self._plan.snapshot, query.column, query.document_granularity)
        while True:
            try:
                return self._column(target).matches(query, count)
            except BrokenSegmentError as broken:
                if (
                    target.by_element
                ):  # earlier matches use document numbers that include the segment
                    raise
                self._leave_out(broken)

    def _leave_out(self, broken: BrokenSegmentError) -> None:
        """Exclude a damaged segment, whose rows are then read from the table."""
        text_indices(self._plan.snapshot).leave_out(broken)
        self._columns.clear()

    def _column(self, target: Target) -> TextColumn:
        """Return a column; columns that cover all rows are cached with the version."""
        if target in self._columns:
            return self._columns[target]
        if self._rows is not None or self._plan.options.fragments is not None:
            only = tokens_of(self._plan.snapshot, self._query, target)
            unindexed = self._unindexed.get(target)
            column = TextColumn(self._plan, target, self._rows, only=only, unindexed=unindexed)
        else:
            column = cached_text_column(self._plan, target, self._query)
        self._columns[target] = column
        return column
