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
        """Explain the score of a row in a text search: the terms, their frequencies and weights.

        Args:
            query: What `full_text_query` of a scan takes.
            row_id: The `_rowid` of the row.

        Returns:
            The explanation.

        Raises:
            InvalidInputError: If no text index covers the query, or the row is not in it.

        Example:
            ```python
            dataset.create_scalar_index("text", "INVERTED")
            found = dataset.to_table(full_text_query="fox", with_row_id=True, limit=1)
            print(dataset.explain_score("fox", found["_rowid"][0].as_py()))
            ```
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
        """Return the best snippet of each text, with the words of a query marked.

        Args:
            query: What `full_text_query` of a scan takes; it is tokenized as the index does.
            texts: Texts of the column.
            column: The column, if the query names several.
            before: Inserted before each word.
            after: Inserted after each word.
            max_chars: The maximum length of a snippet, without the marks.

        Returns:
            A snippet per text, empty if no word occurs.

        Raises:
            InvalidInputError: If no text index covers the query.

        Example:
            ```python
            dataset.create_scalar_index("text", "INVERTED")
            dataset.highlight("fox", ["a quick fox", None])
            ```
        """
        marks = (before, after, max_chars)
        return searches.text_snippets.snippets(self._handle.snapshot, query, texts, column, marks)
