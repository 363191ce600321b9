"""Methods for full-text and hybrid search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from lancelet import search as searches
from lancelet.dataset.arguments import validated_columns
from lancelet.dataset.handle import Handle
from lancelet.errors import InvalidInputError
from lancelet.index.vector.vectors import not_vectors_hint
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.snapshot import Snapshot

if TYPE_CHECKING:
    from lancelet.search.fusion import Fusion
    from lancelet.search.hybrid import HybridSearch
    from lancelet.search.text_explain import ScoreExplanation


class TextMethods:
    """Methods that explain and highlight full-text results."""

    _handle: Handle

    def explain_score(self, query: Any, row_id: int) -> ScoreExplanation:
        """Explain the score of a row in a text search: the terms, their frequencies and weights.

        Args:
            query: A query as in `full_text_query` of a scan.
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
        """Return the best snippet of each text, with the matched terms marked.

        Args:
            query: A query as in `full_text_query` of a scan; tokenized like the index.
            texts: Values of the column.
            column: The column, if the query refers to several.
            before: Inserted before each term.
            after: Inserted after each term.
            max_chars: The maximum length of a snippet, excluding the insertions.

        Returns:
            A snippet per text, empty if no term occurs.

        Raises:
            InvalidInputError: If no text index covers the query.

        Example:
            ```python
            dataset.create_scalar_index("text", "INVERTED")
            dataset.highlight("fox", ["a quick fox", None])
            ```
        """
        tags = (before, after, max_chars)
        return searches.text_snippets.snippets(self._handle.snapshot, query, texts, column, tags)


class HybridMethods:
    """Methods for hybrid search: full-text and vector search combined."""

    _handle: Handle

    def hybrid_search(
        self,
        text: Any,
        nearest: Any,
        k: int = 10,
        *,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: Any = None,  # noqa: A002 - the name used by all scans
        prefilter: bool = True,
        fusion: Fusion | None = None,
        depth: int | None = None,
        fast_search: bool = False,
        with_row_id: bool = False,
    ) -> pa.Table:
        """Return the best rows of a combined text and vector search, best first.

        The column `_relevance_score` holds the fused score, computed by
        `lancelet.query.ReciprocalRank` or `WeightedSum`.

        Args:
            text: Search terms, or a query of `lancelet.query`.
            nearest: The query vector, if the table has one vector column; otherwise a dict with
                `column` and `q`, as for `nearest` of a scan. Its `k` is ignored.
            k: The number of rows to return.
            columns: Names of columns, or SQL expressions by name; by default all columns.
            filter: SQL text or a pyarrow expression.
            prefilter: Whether to filter before the search; filtering afterwards may leave fewer
                than `k` rows.
            fusion: The method of combining the scores; by default `ReciprocalRank()`.
            depth: The number of candidates of each search; by default the larger of 50 and `4 * k`.
            fast_search: Whether to skip unindexed rows.
            with_row_id: Whether to return a column `_rowid`.

        Returns:
            The rows with their scores.

        Raises:
            ExpressionError: If the expression is invalid or refers to an unknown column.
            FieldNotFoundError: If a column does not exist.
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            dataset.create_scalar_index("text", "INVERTED")
            dataset.hybrid_search("fox", [0.1, 0.2, 0.3, 0.4], k=3)
            ```
        """
        snapshot = self._handle.snapshot
        options = ScanOptions(
            columns=validated_columns(columns),
            filter=filter,
            limit=k,
            with_row_id=with_row_id,
            indexed_only=fast_search,
            prefilter=prefilter,
            search=hybrid_search(snapshot, text, nearest, k, fusion=fusion, depth=depth),
        )
        return execute_to_table(plan_scan(snapshot, options))


def hybrid_search(
    snapshot: Snapshot,
    text: Any,
    nearest: Any,
    count: int,
    *,
    fusion: Fusion | None = None,
    depth: int | None = None,
) -> HybridSearch:
    """Validate and return a hybrid search; see `HybridMethods.hybrid_search`."""
    if count < 1 or (depth is not None and depth < count):
        raise InvalidInputError(
            "k must be positive and at most the depth",
            k=count,
            depth=depth,
        )
    if not isinstance(nearest, Mapping):
        nearest = {"column": _vector_column(snapshot), "q": nearest}
    depth = depth or searches.hybrid.depth_for(count)
    return searches.hybrid.HybridSearch(
        searches.text.read_text_search(snapshot, text),
        searches.vector.read_vector_search(snapshot.schema, {**nearest, "k": depth}),
        count,
        depth,
        fusion or searches.fusion.ReciprocalRank(),
    )


_NAMES_MAX: Final = 100
"""Column names in an error."""


def _vector_column(snapshot: Snapshot) -> str:
    """Return the only vector column."""
    names: list[str] = [
        field.name
        for field in snapshot.schema.to_arrow()
        if pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type)
    ]
    if len(names) > 1:
        raise InvalidInputError(
            "a query vector without a column requires a table with one vector column; pass "
            f"nearest={{'column': {names[0]!r}, 'q': vector}}",
            columns=names,
        )
    if not names:
        raise InvalidInputError(
            f"a hybrid search requires a vector column, and the table has none{_advice(snapshot)}",
            columns=list(snapshot.schema.names[:_NAMES_MAX]),
        )
    return names[0]


def _advice(snapshot: Snapshot) -> str:
    """Return how to get a vector column: from a column of lists, or by computing a new one."""
    for field in snapshot.schema.to_arrow():
        element = field.type.value_type if pa.types.is_list(field.type) else None
        if element is not None and (pa.types.is_floating(element) or pa.types.is_integer(element)):
            return not_vectors_hint(field.type, field.name)
    return (
        "; add one with dataset.add_columns(function), where the function returns a batch with "
        "vectors, or search the text with full_text_query="
    )
