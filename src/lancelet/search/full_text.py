"""Full-text queries, with the same classes as pylance.

The classes are:

    MatchQuery("red fox", "text")                     any of the terms, scores are summed
    PhraseQuery("red fox", "text", slop=1)            the terms in order, at most one token between
    BoostQuery(positive, negative)                    demotes rows that match the negative query
    MultiMatchQuery("fox", ["title", "text"])         the best score of several columns
    CombinedFieldsQuery("ada lovelace", ["first", "last"])    several columns scored as one text
    BooleanQuery([(Occur.MUST, one), (Occur.MUST_NOT, other)])
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from typing import Final

from lancelet.arguments import ArgumentTypeError, whole_number
from lancelet.errors import InvalidInputError
from lancelet.values import dataclass

_BOOST_MAX: Final = 1 << 20


class FullTextQueryType(Enum):
    """The types of full-text queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Whether all terms are required, or any."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """The unit that is scored as a document: a row, or each element of a list."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """The role of a clause of a `BooleanQuery`."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery(abc.ABC):
    """Base of full-text queries."""

    @property
    def inner(self) -> FullTextQuery:
        """Return the query itself."""
        return self

    @abc.abstractmethod
    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""

    def __and__(self, other: FullTextQuery) -> FullTextQuery:
        """Return a query that requires both."""
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> FullTextQuery:
        """Return a query that matches either."""
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


class MatchQuery(FullTextQuery):
    """Matches documents that contain any, or all, terms of a text."""

    def __init__(
        self,
        query: str,
        column: str,
        *,
        boost: float = 1.0,
        fuzziness: int | None = 0,
        max_expansions: int = 50,
        operator: FullTextOperator = FullTextOperator.OR,
        prefix_length: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        """Create a match query.

        Args:
            query: The text, split into terms by the tokenizer of the index.
            column: The column to search.
            boost: Factor of the scores.
            fuzziness: Maximum edit distance of a term; None is equivalent to 0.
            max_expansions: Maximum number of terms matched by fuzzy expansion in total.
            operator: Whether any term suffices or all are required.
            prefix_length: Number of leading characters that must match exactly.
            document_granularity: The unit that is scored as a document.
        """
        self.query, self.column = _text(query), column
        self.boost = _factor("MatchQuery boost", boost)
        self.fuzziness = 0 if fuzziness is None else whole_number("fuzziness", fuzziness)
        self.max_expansions = whole_number("max_expansions", max_expansions)
        self.operator = FullTextOperator(operator)
        self.prefix_length = whole_number("prefix_length", prefix_length)
        self.document_granularity = document_granularity

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.MATCH


class PhraseQuery(FullTextQuery):
    """Matches documents that contain the terms of a text in order."""

    def __init__(
        self,
        query: str,
        column: str,
        *,
        slop: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        """Create a phrase query; up to `slop` other tokens may occur between the terms."""
        self.query, self.column = _text(query), column
        self.slop = whole_number("slop", slop)
        self.document_granularity = document_granularity

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.MATCH_PHRASE


class BoostQuery(FullTextQuery):
    """Matches the positive query, with lower scores for rows that also match the negative one."""

    def __init__(
        self, positive: FullTextQuery, negative: FullTextQuery, *, negative_boost: float = 0.5
    ) -> None:
        """Create a query that subtracts `negative_boost` times the scores of `negative`."""
        self.positive, self.negative = positive, negative
        self.negative_boost = _factor("BoostQuery negative_boost", negative_boost)

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.BOOST


class MultiMatchQuery(FullTextQuery):
    """Matches the terms of a text in any of several columns; the best score counts."""

    def __init__(
        self,
        query: str,
        columns: Sequence[str],
        *,
        boosts: Sequence[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        """Create a query over several columns, each with an optional boost."""
        factors = [1.0] * len(columns) if boosts is None else list(boosts)
        if not columns or len(factors) != len(columns):
            raise InvalidInputError(
                "at least one column is required, and as many boosts as columns",
                columns=list(columns),
                boosts=factors,
            )
        self.queries = tuple(
            MatchQuery(query, column, boost=boost, operator=operator)
            for column, boost in zip(columns, factors, strict=True)
        )

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.MULTI_MATCH


class CombinedFieldsQuery(FullTextQuery):
    """Matches the terms of a text in columns that are scored as one field (BM25F)."""

    def __init__(
        self,
        query: str,
        columns: Sequence[str],
        *,
        boosts: Sequence[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        """Create a query over the combined text of columns.

        Args:
            query: The text, split into terms by the tokenizer of the columns.
            columns: Columns with equal tokenizers; at least one needs an index.
            boosts: Weight of each term occurrence by column, 1 or more.
            operator: Whether any term suffices or each must occur in some column.
        """
        weights = [1.0] * len(columns) if boosts is None else [float(each) for each in boosts]
        if not columns or len(weights) != len(columns):
            raise InvalidInputError(
                "at least one column is required, and as many boosts as columns",
                columns=list(columns),
                boosts=weights,
            )
        if len(set(columns)) != len(columns):
            raise InvalidInputError(
                "duplicate columns in a combined fields query", columns=list(columns)
            )
        if not all(1 <= each <= _BOOST_MAX for each in weights):
            raise InvalidInputError(
                f"boosts of combined fields must be between 1 and {_BOOST_MAX}", boosts=weights
            )
        self.query, self.columns, self.boosts = _text(query), tuple(columns), tuple(weights)
        self.operator = FullTextOperator(operator)

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.COMBINED_FIELDS


class BooleanQuery(FullTextQuery):
    """Combines queries by occurrence."""

    def __init__(self, queries: Sequence[tuple[Occur, FullTextQuery]]) -> None:
        """Create a query that matches all MUST, no MUST_NOT and any SHOULD clauses."""
        self.queries = tuple((Occur(occur), query) for occur, query in queries)

    def query_type(self) -> FullTextQueryType:
        """Return the type of the query."""
        return FullTextQueryType.BOOLEAN


def query_columns(query: FullTextQuery) -> frozenset[str]:
    """Return the columns of a query."""
    match query:
        case MatchQuery() | PhraseQuery():
            return frozenset((query.column,))
        case BoostQuery():
            return query_columns(query.positive) | query_columns(query.negative)
        case MultiMatchQuery():
            return frozenset(each.column for each in query.queries)
        case CombinedFieldsQuery():
            return frozenset(query.columns)
        case BooleanQuery():
            return frozenset().union(*(query_columns(each) for _, each in query.queries))
        case _:
            raise InvalidInputError("unknown full-text query", found=type(query).__name__)


def leaf_queries(query: FullTextQuery) -> Iterator[MatchQuery | PhraseQuery]:
    """Yield the single-column queries that a query is composed of."""
    match query:
        case MatchQuery() | PhraseQuery():
            yield query
        case BoostQuery():
            yield from leaf_queries(query.positive)
            yield from leaf_queries(query.negative)
        case MultiMatchQuery():
            yield from query.queries
        case BooleanQuery():
            for _, each in query.queries:
                yield from leaf_queries(each)
        case _:
            return


def render_query(query: FullTextQuery) -> str:
    """Return the text of a query for plans.

    >>> render_query(MatchQuery("fox", "text"))
    'MatchQuery: column=text, query=[fox]'
    """
    match query:
        case MatchQuery():
            return f"MatchQuery: column={query.column}, query=[{query.query}]"
        case PhraseQuery():
            return f"PhraseQuery: column={query.column}, query=[{query.query}], slop={query.slop}"
        case BoostQuery():
            parts = [("positive", query.positive), ("negative", query.negative)]
            inner = ", ".join(f"{name}=({render_query(each)})" for name, each in parts)
            return f"BoostQuery: {inner}, negative_boost={query.negative_boost}"
        case MultiMatchQuery():
            return f"MultiMatchQuery: {', '.join(render_query(each) for each in query.queries)}"
        case CombinedFieldsQuery():
            names = ", ".join(query.columns)
            return f"CombinedFieldsQuery: columns=[{names}], query=[{query.query}]"
        case BooleanQuery():
            parts = [(occur.value, each) for occur, each in query.queries]
            return f"BooleanQuery: {', '.join(f'{n}=({render_query(e)})' for n, e in parts)}"
        case _:
            raise InvalidInputError("unknown full-text query", found=type(query).__name__)


def check_query(query: FullTextQuery) -> None:
    """Raise if a query can never match because of its structure."""
    match query:
        case BooleanQuery():
            if not query.queries:
                raise InvalidInputError("FTS query must contain at least one leaf query")
            if all(occur is Occur.MUST_NOT for occur, _ in query.queries):
                raise InvalidInputError("boolean query must have at least one should/must query")
            for _, each in query.queries:
                check_query(each)
        case BoostQuery():
            check_query(query.positive)
            check_query(query.negative)
        case _:
            return


def _factor(name: str, value: float) -> float:
    factor = float(value)
    if not 0 <= factor < math.inf:
        raise InvalidInputError(f"{name} must be finite and non-negative", found=factor)
    return factor


def _text(query: str) -> str:
    if not isinstance(query, str):
        raise ArgumentTypeError("a full-text query must be a string", found=type(query).__name__)
    return query


@dataclass(frozen=True, slots=True)
class MinHashQuery:
    """A search for near-duplicate texts in a column with a MINHASHLSH index.

    Passed as `nearest` to a scan, it returns the rows with the most similar texts and `_distance`,
    the estimated share of shingles that differ. The number of rows is the limit of the scan, by
    default 10.

    Attributes:
        text: The text to compare with; it is tokenized as in the index.
        column: The column with the index.
    """

    text: str
    column: str
