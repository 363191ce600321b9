"""Text snippets that contain the tokens of a query.

For example:

    MatchQuery("fox", "text") & MatchQuery("red", "title")      in column text: fox
"""

from __future__ import annotations

from collections.abc import Iterable

from lancelet.errors import InvalidInputError
from lancelet.index.text.analyzer import TextAnalyzer
from lancelet.index.text.highlight import HighlightTags, highlight
from lancelet.search.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    query_columns,
)
from lancelet.search.text import read_text_search
from lancelet.search.text_column import analyzer_of_column
from lancelet.search.text_targets import target_of
from lancelet.table.snapshot import Snapshot


def snippets(
    snapshot: Snapshot,
    query_argument: object,
    texts: Iterable[str | None],
    column: str | None,
    tags: tuple[str, str, int],
) -> list[str]:
    """Return the snippet of each text with the most query tokens, highlighted."""
    search = read_text_search(snapshot, query_argument)
    query = search.query
    columns = query_columns(query)
    if column is None and len(columns) != 1:
        raise InvalidInputError("the query has several columns; pass a column", columns=columns)
    name = column or next(iter(columns))
    rows, elements = DocumentGranularity.ROW, DocumentGranularity.LIST_ELEMENT
    documents = elements if search.by_element else rows
    analyzer = analyzer_of_column(snapshot, target_of(snapshot, name, documents))
    if not isinstance(analyzer, TextAnalyzer):
        raise InvalidInputError("snippets highlight texts, not JSON documents", column=name)
    own = {
        token.text for string in _query_strings(query, name) for token in analyzer.tokens(string)
    }
    chosen = HighlightTags(*tags)
    return ["" if text is None else highlight(text, own, analyzer, chosen) for text in texts]


def _query_strings(query: FullTextQuery, column: str) -> list[str]:
    """Return the query strings for a column."""
    match query:
        case MatchQuery() | PhraseQuery():
            return [query.query] if query.column == column else []
        case CombinedFieldsQuery():
            return [query.query] if column in query.columns else []
        case BoostQuery():
            return _query_strings(query.positive, column)
        case MultiMatchQuery():
            return [each.query for each in query.queries if each.column == column]
        case BooleanQuery():
            included = (each for occur, each in query.queries if occur is not Occur.MUST_NOT)
            return [text for each in included for text in _query_strings(each, column)]
        case _:
            raise InvalidInputError("unknown full-text query", found=type(query).__name__)
