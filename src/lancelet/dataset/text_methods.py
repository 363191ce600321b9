"""The methods of a dataset that show what a search of texts found, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from lancelet.dataset.handle import Handle
from lancelet.query import search as searches

if TYPE_CHECKING:
    from lancelet.query.search.text_explain import ScoreExplanation


class TextMethods:
    """Shows texts that were found."""

    _handle: Handle

    def explain_score(self, query: Any, row_id: int) -> ScoreExplanation:
        """Return why a row has its score: each word, how often it is there, and what it adds.

        Args:
            query: What `full_text_query` takes.
            row_id: The `_rowid` of the row.
        """
        return searches.text_explain.explain_score(self._handle.snapshot, query, row_id)

    def highlight(
        self,
        query: Any,
        texts: Iterable[str | None],
        *,
        column: str | None = None,
        before: str = "<b>",
        after: str = "</b>",
        max_chars: int = 160,
    ) -> list[str]:
        """Return for each text the part of it that has most words of a query, these marked.

        A text that has none of the words is an empty string.

        Args:
            query: What `full_text_query` takes; its words are cut as the index of the column does.
            texts: Texts of the column.
            column: The column, if the query names several.
            before: What stands before a word.
            after: What stands behind a word.
            max_chars: The most characters of a text that are returned, without the marks.
        """
        marks = (before, after, max_chars)
        return searches.text_snippets.snippets(self._handle.snapshot, query, texts, column, marks)
