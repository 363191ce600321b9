"""Hybrid search: fuse the rankings of a text search and a vector search.

  limit 3     each search returns 50 rows, and the best 3 of the fused ranking are returned
  filter      before the searches (prefilter), or on the fused ranking

Each search returns more rows than requested because a row with good ranks in both may be the best
of neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.scan.plan import ScanPlan
from lancelet.search.fusion import Fusion, Ranking, fuse
from lancelet.search.hits import Hits, Search
from lancelet.values import dataclass

RELEVANCE: Final = "_relevance_score"
"""The column of fused scores."""
_DEPTH_MIN: Final = 50
_DEPTH_FACTOR: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class HybridSearch:
    """A text and a vector search that return at most `depth` rows each."""

    text: Search
    vector: Search
    count: int
    depth: int
    fusion: Fusion

    is_batch, element_field = False, None

    @property
    def score_field(self) -> pa.Field:
        """The score column."""
        return pa.field(RELEVANCE, pa.float32())

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return the plan lines of the vector search, then of the text search."""
        return [step for each in self._searches for step in each.steps(plan)]

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Estimate the index reads of both searches."""
        return sum((each.estimate_reads(plan) for each in self._searches), IoCounts())

    def expected_rows(self, plan: ScanPlan) -> int:  # noqa: ARG002
        """Return the number of requested rows."""
        return self.count

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the fields that are scanned without an index, with the scanned fragments."""
        return [found for each in self._searches for found in each.unindexed_fields(plan)]

    @property
    def _searches(self) -> tuple[Search, Search]:
        return self.vector, self.text

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the rows found by either search, best first."""
        alone = replace(
            plan, options=replace(plan.options, limit=self.depth, offset=0, order_by=())
        )
        texts, near = self.text.find(alone, rows), self.vector.find(alone, rows)
        if texts.element_indices is not None:  # retain the best element of each row
            _, first = np.unique(texts.addresses, return_index=True)
            texts = texts.take(np.sort(first))
        fused = fuse(
            [
                Ranking(texts.addresses[: self.depth], texts.scores[: self.depth].astype(float)),
                Ranking(near.addresses[: self.depth], -near.scores[: self.depth].astype(float)),
            ],
            self.fusion,
        )
        is_cut = rows is not None or not plan.is_filtered
        stop = self.count if is_cut else len(fused.rows)
        return Hits.of_query(fused.rows[:stop], fused.scores[:stop].astype(np.float32))


def depth_for(count: int) -> int:
    """Return the default number of candidates per search for `count` results.

    >>> depth_for(3), depth_for(100)
    (50, 400)
    """
    return max(_DEPTH_MIN, _DEPTH_FACTOR * count)
