"""Fusion of several rankings into one, for example of a text and a vector search.

  by text     a 7.0   b 5.0   c 1.0        scores, larger is better
  by vector   c 0.1   a 0.4   d 0.9        distances, smaller is better

Reciprocal rank fusion (the default) uses ranks only, starting at 1:

  score(row) = sum over the lists of   weight / (constant + rank)

  a   1/(60+1) + 1/(60+2) = 0.0325         c   1/(60+3) + 1/(60+1) = 0.0323

The weighted sum uses scores, normalized to 0 for the last row of a list and 1 for the first:

  score(row) = sum over the lists of   weight * (value - worst) / (best - worst)

  a   0.5 * 1 + 0.5 * 0.625 = 0.8125       c   0.5 * 0 + 0.5 * 1 = 0.5

A list without a row contributes 0 to its score. Rows with equal scores are sorted by address.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.errors import InvalidInputError
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

Weights: TypeAlias = tuple[float, ...]
Float64s: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ReciprocalRank:
    """Reciprocal rank fusion; see the module documentation."""

    weights: Weights = (1.0, 1.0)
    constant: float = 60.0

    def __post_init__(self) -> None:
        """Validate the weights and the constant."""
        _check_weights(self.weights)
        if not self.constant >= 0:
            raise InvalidInputError("the constant must not be negative", found=self.constant)

    def values(self, scores: Float64s) -> Float64s:
        """Return the contribution of each row for its scores, best first."""
        ranks = np.arange(1, len(scores) + 1, dtype=np.float64)
        found: Float64s = np.reciprocal(self.constant + ranks)
        return found


@dataclass(frozen=True, slots=True)
class WeightedSum:
    """Weighted sum of normalized scores; see the module documentation."""

    weights: Weights = (0.5, 0.5)

    def __post_init__(self) -> None:
        """Validate the weights."""
        _check_weights(self.weights)

    def values(self, scores: Float64s) -> Float64s:
        """Return the contribution of each row for its scores, best first."""
        if not len(scores):
            return scores
        score_range = scores[0] - scores[-1]
        return (scores - scores[-1]) / score_range if score_range > 0 else np.ones(len(scores))


Fusion: TypeAlias = ReciprocalRank | WeightedSum


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """Rows found by a search, best first; larger scores are better."""

    rows: UInt64s
    scores: Float64s


def fuse(rankings: Sequence[Ranking], fusion: Fusion) -> Ranking:
    """Return the rows of all rankings with their fused scores, best first.

    >>> text = Ranking(np.uint64([1, 2, 3]), np.float64([7, 5, 1]))
    >>> vector = Ranking(np.uint64([3, 1, 4]), np.float64([-0.1, -0.4, -0.9]))
    >>> fuse([text, vector], WeightedSum()).rows.tolist()
    [1, 3, 2, 4]
    """
    if len(rankings) != len(fusion.weights):
        raise InvalidInputError(
            "the number of weights differs from the number of searches",
            weights=fusion.weights,
            searches=len(rankings),
        )
    rows, indices = np.unique(
        np.concatenate([ranking.rows for ranking in rankings]), return_inverse=True
    )
    worth = [
        weight * fusion.values(ranking.scores)
        for weight, ranking in zip(fusion.weights, rankings, strict=True)
    ]
    scores = np.zeros(len(rows))
    np.add.at(scores, indices, np.concatenate(worth))
    order = np.lexsort((rows, -scores))
    return Ranking(rows[order], scores[order])


def _check_weights(weights: Weights) -> None:
    if any(not weight >= 0 for weight in weights) or not sum(weights):
        raise InvalidInputError("weights must not be negative and must not all be 0", found=weights)
