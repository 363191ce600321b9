"""Combination of the rows and scores of query clauses; all arrays are sorted by row.

For example:

    must      rows 1 2 5    scores 2 1 3
    should    rows 2 7      scores 4 1
    result    rows 1 2 5    scores 2 5 3
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

Float32s = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Matches:
    """Row addresses in ascending order, with their scores."""

    addresses: UInt64s
    scores: Float32s

    @staticmethod
    def of(addresses: UInt64s, scores: Float32s) -> Matches:
        """Return matches of distinct rows in any order."""
        if len(addresses) < 2 or bool((addresses[1:] > addresses[:-1]).all()):
            return Matches(addresses, scores)
        order = np.argsort(addresses)
        return Matches(addresses[order], scores[order])

    @staticmethod
    def joined(parts: Sequence[Matches]) -> Matches:
        """Concatenate matches without common rows."""
        each = NO_MATCHES, *parts
        addresses = np.concatenate([part.addresses for part in each])
        return Matches.of(addresses, np.concatenate([part.scores for part in each]))

    def among(self, other: Matches) -> Float32s:
        """Return the scores of the rows of `other`, 0 for rows without a match."""
        found = np.zeros(len(other.addresses), np.float32)
        if len(self.addresses):
            indices = np.searchsorted(self.addresses, other.addresses)
            indices = np.minimum(indices, len(self.addresses) - 1)
            hit = self.addresses[indices] == other.addresses
            found[hit] = self.scores[indices[hit]]
        return found

    def has(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the addresses that match."""
        if not len(self.addresses):
            return np.zeros(len(addresses), np.bool_)
        indices = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        return np.asarray(self.addresses[indices] == addresses)

    def where(self, mask: npt.NDArray[np.bool_]) -> Matches:
        """Return the matches selected by a mask."""
        return Matches(self.addresses[mask], self.scores[mask])

    def both(self, other: Matches) -> Matches:
        """Return the intersection, with the sum of both scores."""
        shared = self.where(other.has(self.addresses))
        return Matches(shared.addresses, shared.scores + other.among(shared))

    def either(self, other: Matches) -> Matches:
        """Return the union, with the sum of both scores."""
        addresses = np.union1d(self.addresses, other.addresses)
        rows = Matches(addresses, np.empty(0, np.float32))
        return Matches(addresses, self.among(rows) + other.among(rows))

    def better(self, other: Matches) -> Matches:
        """Return the union, with the larger of both scores."""
        addresses = np.union1d(self.addresses, other.addresses)
        rows = Matches(addresses, np.empty(0, np.float32))
        return Matches(addresses, np.maximum(self.among(rows), other.among(rows)))


NO_MATCHES = Matches(np.empty(0, np.uint64), np.empty(0, np.float32))
