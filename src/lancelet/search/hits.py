"""Search hits: row addresses with scores, best first.

For example:

    addresses         7    3    9
    scores            0.0  0.4  0.4    distances: smaller is better, then the smaller row address
    queries           0    0    0      the query index in a batch of queries
    element_indices   [2]  [0]  [1]    the matching list element, if elements are searched
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import InternalError
from lancelet.format.field import Field
from lancelet.index.text.elements import ElementIndices
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.scan.plan import ScanPlan
from lancelet.scan.scan_options import SearchRequest
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Rows found by a search; all arrays have one element per row."""

    addresses: UInt64s
    scores: npt.NDArray[np.float32]
    queries: Int64s
    element_indices: ElementIndices | None = None

    @staticmethod
    def of_query(
        addresses: UInt64s,
        scores: npt.NDArray[np.float32],
        query: int = 0,
        element_indices: ElementIndices | None = None,
    ) -> Hits:
        """Return the hits of one query."""
        queries = np.zeros(
            len(addresses), np.int64
        )  # Faster than `full`, and most hits belong to the first query.
        if query:
            queries[:] = query
        return Hits(addresses, scores, queries, element_indices)

    @staticmethod
    def join(parts: Sequence[Hits]) -> Hits:
        """Concatenate the hits of several searches."""
        if not parts:
            return Hits.of_query(np.empty(0, np.uint64), np.empty(0, np.float32))
        return Hits(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.queries for part in parts]),
        )

    def as_query(self, query: int) -> Hits:
        """Return the same hits with another query index."""
        return Hits.of_query(self.addresses, self.scores, query)

    def __len__(self) -> int:
        """Return the number of hits."""
        return len(self.addresses)

    def take(self, indices: npt.NDArray[np.integer]) -> Hits:
        """Return the hits at `indices`."""
        own = None if self.element_indices is None else self.element_indices[indices]
        return Hits(self.addresses[indices], self.scores[indices], self.queries[indices], own)

    def top_k(self, count: int) -> Hits:
        """Return the `count` hits with the smallest scores of each query, sorted by score."""
        if not self.queries.any():  # all hits belong to the first query
            return self.take(np.lexsort((self.addresses, self.scores))[:count])
        order = np.lexsort((self.addresses, self.scores, self.queries))
        ordered = self.take(order)
        first = np.searchsorted(ordered.queries, ordered.queries, side="left")
        return ordered.take(np.flatnonzero(np.arange(len(ordered)) - first < count))


NO_HITS: Final = Hits.of_query(np.empty(0, np.uint64), np.empty(0, np.float32))


class Search(SearchRequest, Protocol):
    """A vector or text search of a scan."""

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the best rows of a version, limited to `rows` (offsets by fragment) if given."""

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return the plan lines of the search, the last step first."""

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Estimate the index reads of the search."""

    def expected_rows(self, plan: ScanPlan) -> int | None:
        """Estimate the number of hits; None if unknown."""

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the fields that are scanned without an index, with the scanned fragments."""


def search_of(plan: ScanPlan) -> Search:
    """Return the search of a plan that has one."""
    if plan.options.search is None:
        raise InternalError("the scan has no search")
    return cast("Search", plan.options.search)


def smallest(scores: npt.NDArray[np.float32], count: int) -> Int64s:
    """Return the unsorted indices of the `count` smallest scores, ignoring NaN.

    Ties with the largest of them are included.
    """
    valid = np.flatnonzero(~np.isnan(scores))
    if len(valid) <= count:
        return valid
    found = scores if len(valid) == len(scores) else scores[valid]
    limit = np.partition(found, count - 1)[count - 1]
    indices: Int64s = valid[found <= limit]
    return indices


@dataclass(frozen=True, slots=True, eq=False)
class FoundSearch:
    """A search whose hits were computed earlier, for example by another process."""

    hits: Hits
    score_field: pa.Field

    is_batch, element_field = False, None

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:  # noqa: ARG002
        """Return the precomputed hits."""
        return self.hits

    def steps(self, plan: ScanPlan) -> list[str]:  # noqa: ARG002
        """Return no plan lines."""
        return []

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:  # noqa: ARG002
        """Return zero reads."""
        return IoCounts()

    def expected_rows(self, plan: ScanPlan) -> int:  # noqa: ARG002
        """Return the number of hits."""
        return len(self.hits)

    def unindexed_fields(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:  # noqa: ARG002
        """Return no fields."""
        return []
