"""Rows that a search found, each with its score, the best first.

addresses   7    3    9
scores      0.0  0.4  0.4      distances: the smaller the better, then the smaller row id
queries     0    0    0        which query, where there are several
places      [2]  [0]  [1]      which element of a list of the row, where elements are found
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.format.field import Field
from lancelet.index.text.elements import ElementIndices
from lancelet.io.metered import IoCounts
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

if TYPE_CHECKING:
    from lancelet.query.plan import ScanPlan

QUERY_INDEX: Final = pa.field("query_index", pa.int32(), nullable=False)
"""The column that tells several queries apart."""


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Rows that were found; all arrays have an element for each."""

    addresses: UInt64s
    scores: npt.NDArray[np.float32]
    queries: Int64s
    places: ElementIndices | None = None

    @staticmethod
    def of_query(
        addresses: UInt64s,
        scores: npt.NDArray[np.float32],
        query: int = 0,
        places: ElementIndices | None = None,
    ) -> Hits:
        """Return the rows that one query found."""
        queries = np.zeros(len(addresses), np.int64)  # faster than `full`, and most are the first
        if query:
            queries[:] = query
        return Hits(addresses, scores, queries, places)

    @staticmethod
    def join(parts: Sequence[Hits]) -> Hits:
        """Return the rows of several searches, one behind the other."""
        if not parts:
            return Hits.of_query(np.empty(0, np.uint64), np.empty(0, np.float32))
        return Hits(
            np.concatenate([part.addresses for part in parts]),
            np.concatenate([part.scores for part in parts]),
            np.concatenate([part.queries for part in parts]),
        )

    def as_query(self, query: int) -> Hits:
        """Return the same rows as those of a query."""
        return Hits.of_query(self.addresses, self.scores, query)

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.addresses)

    def take(self, places: npt.NDArray[np.integer]) -> Hits:
        """Return some of the rows, in the order of their places."""
        own = None if self.places is None else self.places[places]
        return Hits(self.addresses[places], self.scores[places], self.queries[places], own)

    def nearest(self, count: int) -> Hits:
        """Return the rows with the smallest scores of each query, in order."""
        if not self.queries.any():  # of the first query alone
            return self.take(np.lexsort((self.addresses, self.scores))[:count])
        order = np.lexsort((self.addresses, self.scores, self.queries))
        ordered = self.take(order)
        first = np.searchsorted(ordered.queries, ordered.queries, side="left")
        return ordered.take(np.flatnonzero(np.arange(len(ordered)) - first < count))


NO_HITS: Final = Hits.of_query(np.empty(0, np.uint64), np.empty(0, np.float32))


class Search(Protocol):
    """What is searched for."""

    @property
    def score_field(self) -> pa.Field:
        """The column of scores."""

    @property
    def place_field(self) -> pa.Field | None:
        """The column of places in lists, if elements of lists are found and not rows."""

    @property
    def is_batch(self) -> bool:
        """Whether there are several queries, which rows must tell apart."""

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the best rows of a version, of those whose offsets are given by fragment."""

    def steps(self, plan: ScanPlan) -> list[str]:
        """Return what the search will do, the last first."""

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:
        """Return about what the search will read of its index."""

    def expected_rows(self, plan: ScanPlan) -> int | None:
        """Return about how many rows will be found, or None if that is not known."""

    def looked_at(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:
        """Return the fields that are looked at row by row, and in which fragments."""


def smallest(scores: npt.NDArray[np.float32], count: int) -> Int64s:
    """Return the places of the smallest scores, NaN left out, in no order."""
    valid = np.flatnonzero(~np.isnan(scores))
    if len(valid) <= count:
        return valid
    found = scores if len(valid) == len(scores) else scores[valid]
    limit = np.partition(found, count - 1)[count - 1]
    places: Int64s = valid[found <= limit]
    return places


@dataclass(frozen=True, slots=True, eq=False)
class FoundSearch:
    """A search whose rows were found before, perhaps elsewhere."""

    hits: Hits
    score_field: pa.Field

    is_batch, place_field = False, None

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:  # noqa: ARG002
        """Return what was found."""
        return self.hits

    def steps(self, plan: ScanPlan) -> list[str]:  # noqa: ARG002
        """Return that nothing is left to do."""
        return []

    def estimate_reads(self, plan: ScanPlan) -> IoCounts:  # noqa: ARG002
        """Return that nothing will be read."""
        return IoCounts()

    def expected_rows(self, plan: ScanPlan) -> int:  # noqa: ARG002
        """Return how many rows were found."""
        return len(self.hits)

    def looked_at(self, plan: ScanPlan) -> Sequence[tuple[Field, frozenset[int]]]:  # noqa: ARG002
        """Return that no field is looked at."""
        return []
