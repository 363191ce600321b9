"""Explanation of full-text scores by token.

For example:

    fox    3 times in 120 tokens, in 40 of 9,000 documents    idf 5.4, score 7.9
    red    1 time                                             idf 1.2, score 1.1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.search.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    PhraseQuery,
    render_query,
)
from lancelet.search.text import best_element, evaluate_query, read_text_search
from lancelet.search.text_column import TermScore, cached_text_column
from lancelet.search.text_targets import target_of
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True)
class ScoreExplanation:
    """The score of a row for a query.

    Attributes:
      query: The query in the notation of plans.
      score: The score; None if the row does not match.
      terms: The tokens of a single-column query with their contributions.
      parts: The explanations of the clauses of a compound query.
    """

    query: str
    score: float | None
    terms: tuple[TermScore, ...] = ()
    parts: tuple[ScoreExplanation, ...] = ()


def explain_score(snapshot: Snapshot, query: object, row_id: int) -> ScoreExplanation:
    """Explain the score of a row; the score is None if the row does not match.

    For searches by element, explain the best element of the row.
    """
    search = read_text_search(snapshot, query)
    key = np.array([row_id], np.uint64)
    if snapshot.manifest.uses_stable_row_ids:
        key = row_id_index_of(snapshot).addresses(key)
    plan = plan_scan(snapshot, ScanOptions())
    if search.by_element:
        best = best_element(plan, search.query, int(key[0]))
        key = np.array([NO_ADDRESS if best is None else best], np.uint64)
    return _explain(plan, search.query, key)


def _explain(plan: ScanPlan, query: FullTextQuery, key: UInt64s) -> ScoreExplanation:
    matches = evaluate_query(plan, query)
    is_found = bool(matches.has(key)[0])
    score = None
    if is_found:
        score = float(matches.scores[np.searchsorted(matches.addresses, key[0])])
    terms: tuple[TermScore, ...] = ()
    if is_found and isinstance(query, MatchQuery | PhraseQuery):
        target = target_of(plan.snapshot, query.column, query.document_granularity)
        terms = tuple(cached_text_column(plan, target, query).explain(query, int(key[0])))
    parts = tuple(_explain(plan, each, key) for each in _parts(query))
    return ScoreExplanation(render_query(query), score, terms, parts)


def _parts(query: FullTextQuery) -> Sequence[FullTextQuery]:
    match query:
        case BoostQuery():
            return query.positive, query.negative
        case MultiMatchQuery():
            return query.queries
        case BooleanQuery():
            return [each for _, each in query.queries]
        case CombinedFieldsQuery():
            return [MatchQuery(query.query, column) for column in query.columns]
        case _:
            return ()
