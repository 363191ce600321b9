"""Searching by text and by vector at once: each search ranks rows, and the rankings become one.

    wanted 3    each search finds 50 rows, of which the best 3 by both are returned
    filter      before the searches, or on what they found together

Each search is asked for more rows than are wanted, since a row that is good by both may be the
best of neither.
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
from lancelet.query.plan import ScanPlan
from lancelet.query.search.fusion import Fusion, Ranking, fuse
from lancelet.query.search.hits import Hits, Search
from lancelet.values import dataclass

RELEVANCE: Final = "_relevance_score"
"""The column of scores that are made of those of several searches."""
_DEPTH_MIN: Final = 50
_DEPTH_FACTOR: Final = 4


@dataclass(frozen=True, slots=True, eq=False)
class HybridSearch:
    """A search for texts and for vectors, of which each finds at most `depth` rows."""

    text: Search
    vector: Search
    count: int
    depth: int
    fusion: Fusion

    is_batch, place_field = False, None

    @property
    def score_field(self) -> pa.Field:
        """The column of scores."""
        return pa.field(RELEVANCE, pa.float32())

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return what the searches will do, that for vectors last."""
        return [step for each in self._searches for step in each.steps(plan)]

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Return about what the searches will read of their indices."""
        return sum((each.estimate_reads(plan) for each in self._searches), IoCounts())

    def expected_rows(self, plan: ScanPlan) -> int:  # noqa: ARG002
        """Return how many rows are wanted."""
        return self.count

    def looked_at(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the fields that are looked at row by row, and in which fragments."""
        return [found for each in self._searches for found in each.looked_at(plan)]

    @property
    def _searches(self) -> tuple[Search, Search]:
        return self.vector, self.text

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the rows that either search finds, the best first."""
        alone = replace(
            plan, options=replace(plan.options, limit=self.depth, offset=0, order_by=())
        )
        texts, near = self.text.find(alone, rows), self.vector.find(alone, rows)
        if texts.places is not None:  # of a row that is found for several elements, the best
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
    """Return how many rows each search finds by default if so many are wanted.

    >>> depth_for(3), depth_for(100)
    (50, 400)
    """
    return max(_DEPTH_MIN, _DEPTH_FACTOR * count)
