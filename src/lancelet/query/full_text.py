"""What to look for in texts: queries as values, as pylance has them.

MatchQuery("red fox", "text")                     any of the words, scores added up
PhraseQuery("red fox", "text", slop=1)            the words in order, at most one other between
BoostQuery(positive, negative)                    less for what the other query finds
MultiMatchQuery("fox", ["title", "text"])         the better of the columns
CombinedFieldsQuery("ada lovelace", ["first", "last"])    the columns as one text
BooleanQuery([(Occur.MUST, one), (Occur.MUST_NOT, other)])
"""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Sequence
from enum import Enum, StrEnum
from typing import Final

from lancelet.errors import InvalidInputError
from lancelet.file.arguments import ArgumentTypeError, whole_number
from lancelet.values import dataclass

_BOOST_MAX: Final = 1 << 20


class FullTextQueryType(Enum):
    """The kinds of queries."""

    MATCH = "match"
    MATCH_PHRASE = "match_phrase"
    BOOST = "boost"
    MULTI_MATCH = "multi_match"
    COMBINED_FIELDS = "combined_fields"
    BOOLEAN = "boolean"


class FullTextOperator(Enum):
    """Whether all words are needed, or any."""

    AND = "AND"
    OR = "OR"


class DocumentGranularity(StrEnum):
    """What is a document: a row, or each element of a list."""

    ROW = "row"
    LIST_ELEMENT = "list_element"


class Occur(Enum):
    """What a part of a `BooleanQuery` is for."""

    SHOULD = "SHOULD"
    MUST = "MUST"
    MUST_NOT = "MUST_NOT"


class FullTextQuery(abc.ABC):
    """A query over texts."""

    @property
    def inner(self) -> FullTextQuery:
        """Return the query itself."""
        return self

    @abc.abstractmethod
    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""

    def __and__(self, other: FullTextQuery) -> FullTextQuery:
        """Return the query for what both find."""
        return BooleanQuery([(Occur.MUST, self), (Occur.MUST, other)])

    def __or__(self, other: FullTextQuery) -> FullTextQuery:
        """Return the query for what either finds."""
        return BooleanQuery([(Occur.SHOULD, self), (Occur.SHOULD, other)])


class MatchQuery(FullTextQuery):
    """Documents with any, or with all, of the words of a text."""

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
        """Look for the words of a text in a column.

        Args:
            query: The text.
            column: The column.
            boost: What scores are multiplied with.
            fuzziness: How many letters of a word may differ; None is taken as 0.
            max_expansions: The most words that those of the text may stand for together.
            operator: Whether any word is enough or all are needed.
            prefix_length: How many letters at the beginning may not differ.
            document_granularity: What is a document.
        """
        self.query, self.column = _text(query), column
        self.boost = _factor("MatchQuery boost", boost)
        self.fuzziness = 0 if fuzziness is None else whole_number("fuzziness", fuzziness)
        self.max_expansions = whole_number("max_expansions", max_expansions)
        self.operator = FullTextOperator(operator)
        self.prefix_length = whole_number("prefix_length", prefix_length)
        self.document_granularity = document_granularity

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MATCH


class PhraseQuery(FullTextQuery):
    """Documents with the words of a text in this order."""

    def __init__(
        self,
        query: str,
        column: str,
        *,
        slop: int = 0,
        document_granularity: DocumentGranularity | None = None,
    ) -> None:
        """Look for a phrase in a column; `slop` other words may stand between its words."""
        self.query, self.column = _text(query), column
        self.slop = whole_number("slop", slop)
        self.document_granularity = document_granularity

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MATCH_PHRASE


class BoostQuery(FullTextQuery):
    """What one query finds, less of it where another finds it too."""

    def __init__(
        self, positive: FullTextQuery, negative: FullTextQuery, *, negative_boost: float = 0.5
    ) -> None:
        """Take `negative_boost` times the scores of `negative` from those of `positive`."""
        self.positive, self.negative = positive, negative
        self.negative_boost = _factor("BoostQuery negative_boost", negative_boost)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.BOOST


class MultiMatchQuery(FullTextQuery):
    """Documents with the words of a text in any of several columns, scored by the best."""

    def __init__(
        self,
        query: str,
        columns: Sequence[str],
        *,
        boosts: Sequence[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        """Look for the words of a text in columns, each with its boost."""
        factors = [1.0] * len(columns) if boosts is None else list(boosts)
        if not columns or len(factors) != len(columns):
            raise InvalidInputError(
                "the boosts must be as many as the columns, and there must be a column",
                columns=list(columns),
                boosts=factors,
            )
        self.queries = tuple(
            MatchQuery(query, column, boost=boost, operator=operator)
            for column, boost in zip(columns, factors, strict=True)
        )

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.MULTI_MATCH


class CombinedFieldsQuery(FullTextQuery):
    """Documents with the words of a text in columns that are scored as one (BM25F)."""

    def __init__(
        self,
        query: str,
        columns: Sequence[str],
        *,
        boosts: Sequence[float] | None = None,
        operator: FullTextOperator = FullTextOperator.OR,
    ) -> None:
        """Look for the words of a text in columns.

        Args:
            query: The text.
            columns: The columns, which are cut into words alike; one at least has an index.
            boosts: How often each word of a column counts, 1 or more.
            operator: Whether any word is enough or each must be in some column.
        """
        weights = [1.0] * len(columns) if boosts is None else [float(each) for each in boosts]
        if not columns or len(weights) != len(columns):
            raise InvalidInputError(
                "the boosts must be as many as the columns, and there must be a column",
                columns=list(columns),
                boosts=weights,
            )
        if len(set(columns)) != len(columns):
            raise InvalidInputError("a column is combined with itself", columns=list(columns))
        if not all(1 <= each <= _BOOST_MAX for each in weights):
            raise InvalidInputError(
                f"a boost of combined columns is between 1 and {_BOOST_MAX}", boosts=weights
            )
        self.query, self.columns, self.boosts = _text(query), tuple(columns), tuple(weights)
        self.operator = FullTextOperator(operator)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.COMBINED_FIELDS


class BooleanQuery(FullTextQuery):
    """What other queries find, together."""

    def __init__(self, queries: Sequence[tuple[Occur, FullTextQuery]]) -> None:
        """Join queries: all that must, none that must not, and any of the others."""
        self.queries = tuple((Occur(occur), query) for occur, query in queries)

    def query_type(self) -> FullTextQueryType:
        """Return the kind of the query."""
        return FullTextQueryType.BOOLEAN


def columns_of_query(query: FullTextQuery) -> frozenset[str]:
    """Return the columns that a query names."""
    match query:
        case MatchQuery() | PhraseQuery():
            return frozenset((query.column,))
        case BoostQuery():
            return columns_of_query(query.positive) | columns_of_query(query.negative)
        case MultiMatchQuery():
            return frozenset(each.column for each in query.queries)
        case CombinedFieldsQuery():
            return frozenset(query.columns)
        case BooleanQuery():
            return frozenset().union(*(columns_of_query(each) for _, each in query.queries))
        case _:
            raise InvalidInputError("unknown query of texts", found=type(query).__name__)


def leaves_of(query: FullTextQuery) -> Iterator[MatchQuery | PhraseQuery]:
    """Yield the queries of one column that a query is put together of."""
    match query:
        case MatchQuery() | PhraseQuery():
            yield query
        case BoostQuery():
            yield from leaves_of(query.positive)
            yield from leaves_of(query.negative)
        case MultiMatchQuery():
            yield from query.queries
        case BooleanQuery():
            for _, each in query.queries:
                yield from leaves_of(each)
        case _:
            return


def render_query(query: FullTextQuery) -> str:
    """Return a query as plans show it.

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
            raise InvalidInputError("unknown query of texts", found=type(query).__name__)


def check_query(query: FullTextQuery) -> None:
    """Raise if a query can find nothing because of how it is made."""
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
        raise ArgumentTypeError("a query of texts is text", found=type(query).__name__)
    return query


@dataclass(frozen=True, slots=True)
class MinHashQuery:
    """A search for texts that are nearly the same, in a column with a MINHASHLSH index.

    Passed as `nearest` to a scan, it returns the rows whose texts are most similar, with
    `_distance`, the estimated share of shingles in which each differs. Their number is the limit of
    the scan, or 10.

    Attributes:
        text: The text to compare with; it is cut into words as those of the index are.
        column: The column that has the index.
    """

    text: str
    column: str
