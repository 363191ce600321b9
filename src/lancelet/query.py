"""Filters and computed columns: from SQL text to rows.

`compile` turns SQL text into bound expressions, `prune` skips zones that cannot match, and
`evaluate` computes expressions over batches.
"""

from __future__ import annotations

from lancelet.search.full_text import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    FullTextQuery,
    FullTextQueryType,
    MatchQuery,
    MinHashQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lancelet.search.fusion import Fusion, ReciprocalRank, WeightedSum

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "CombinedFieldsQuery",
    "DocumentGranularity",
    "FullTextOperator",
    "FullTextQuery",
    "FullTextQueryType",
    "Fusion",
    "MatchQuery",
    "MinHashQuery",
    "MultiMatchQuery",
    "Occur",
    "PhraseQuery",
    "ReciprocalRank",
    "WeightedSum",
]
