"""K-means clustering with matrix products, hierarchical for large numbers of clusters.

    vectors 0 1 9 10, two clusters     start 0 and 9, centroids 0.5 and 9.5, loss 4 x 0.25

    nearest    argmin |x|^2 - 2<x, c> + |c|^2 = argmin |c|^2 - 2<x, c>, one product per block
    update     the mean of the assigned vectors; an empty cluster splits the largest one
    layers     above 256 clusters, the largest cluster is split into up to 16 until the count is
               reached; a few iterations over all centroids follow

Results are deterministic for the same vectors and seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.index.kernels import pq_encode, sum_by_label
from lancelet.values import dataclass

Matrix: TypeAlias = npt.NDArray[Any]
Labels: TypeAlias = npt.NDArray[np.int64]
Constraint: TypeAlias = Callable[[Matrix], Matrix]
"""Maps means to valid centroids."""

_FLAT_MAX: Final = 256
_BRANCHES: Final = 16
_FINAL_ITERATIONS: Final = 8
_BLOCK_VALUES: Final = 1 << 22
_DIRECT_DIMENSION_MAX: Final = 32
_DIRECT_COUNTS: Final = frozenset({16, 256})
"""Limits up to which centroids are compared directly instead of by matrix product."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Centroids, and the sum of squared distances of the vectors to them."""

    centroids: Matrix
    loss: float


def assign_nearest(vectors: Matrix, centroids: Matrix, *, by_product: bool = False) -> Labels:
    """Return the index of the nearest centroid of each vector, or of the largest dot product."""
    labels, _ = _nearest(vectors, centroids, by_product=by_product)
    return labels


def find_clusters(
    vectors: Matrix,
    count: int,
    *,
    seed: int,
    max_iterations: int = 50,
    tolerance: float = 1e-4,
    constrain: Constraint | None = None,
) -> Clusters:
    """Cluster vectors into `count` centroids. With fewer vectors, centroids repeat."""
    random = np.random.default_rng(seed)
    if len(vectors) <= count:
        chosen = np.arange(count) % max(len(vectors), 1)
        centroids = (
            vectors[chosen] if len(vectors) else np.zeros((count, vectors.shape[1]), np.float32)
        )
        return Clusters(centroids.copy(), 0.0)
    if count <= _FLAT_MAX:
        start = vectors[random.choice(len(vectors), count, replace=False)]
        return _iterate(vectors, start, random, max_iterations, tolerance, constrain)
    start = _split_hierarchically(vectors, count, random, max_iterations, tolerance, constrain)
    return _iterate(vectors, start, random, _FINAL_ITERATIONS, tolerance, constrain)


def _iterate(
    vectors: Matrix,
    centroids: Matrix,
    random: np.random.Generator,
    max_iterations: int,
    tolerance: float,
    constrain: Constraint | None,
) -> Clusters:
    norms = float(np.einsum("ij,ij->", vectors, vectors, dtype=np.float64))
    loss = np.inf
    for _ in range(max(max_iterations, 1)):
        labels, scores = _nearest(vectors, centroids)
        new_loss = max(norms + float(scores.sum(dtype=np.float64)), 0.0)
        centroids = _means(vectors, labels, centroids, random)
        if constrain is not None:
            centroids = constrain(centroids)
        if loss - new_loss <= tolerance * new_loss:
            return Clusters(centroids, new_loss)
        loss = new_loss
    return Clusters(centroids, loss)


def _means(
    vectors: Matrix, labels: Labels, centroids: Matrix, random: np.random.Generator
) -> Matrix:
    count = len(centroids)
    sizes = np.bincount(labels, minlength=count)
    sums = sum_by_label(vectors, labels, count)
    means: Matrix = (sums / np.maximum(sizes, 1)[:, None]).astype(vectors.dtype)
    for empty in np.flatnonzero(sizes == 0):
        largest = int(np.argmax(sizes))
        jitter = np.asarray(random.uniform(-1e-3, 1e-3, means.shape[1]), means.dtype)
        shift = means[largest] * jitter
        means[empty], means[largest] = means[largest] + shift, means[largest] - shift
        sizes[empty] = sizes[largest] // 2
        sizes[largest] -= sizes[empty]
    return means


def _split_hierarchically(
    vectors: Matrix,
    count: int,
    random: np.random.Generator,
    max_iterations: int,
    tolerance: float,
    constrain: Constraint | None,
) -> Matrix:
    members: list[Labels] = [np.arange(len(vectors))]
    centroids: list[Matrix] = [vectors.mean(axis=0)]
    while len(members) < count:
        largest = max(range(len(members)), key=lambda each: len(members[each]))
        largest_members = members[largest]
        branches = min(_BRANCHES, count - len(members) + 1, len(largest_members))
        if branches < 2:
            break
        start = vectors[
            largest_members[random.choice(len(largest_members), branches, replace=False)]
        ]
        subset = vectors[largest_members]
        clusters = _iterate(subset, start, random, max_iterations, tolerance, constrain)
        labels = assign_nearest(subset, clusters.centroids)
        split = [largest_members[labels == branch] for branch in range(branches)]
        members[largest : largest + 1] = split
        centroids[largest : largest + 1] = list(clusters.centroids)
    return np.stack(centroids)


def _nearest(
    vectors: Matrix, centroids: Matrix, *, by_product: bool = False
) -> tuple[Labels, Matrix]:
    """Return the nearest centroids, and squared distances minus the squared vector norms."""
    is_small = vectors.shape[1] <= _DIRECT_DIMENSION_MAX and len(centroids) in _DIRECT_COUNTS
    if is_small and vectors.dtype == np.float32 and not by_product:
        codes, distances = pq_encode(vectors, centroids[None].astype(np.float32))
        norms = np.einsum("ij,ij->i", vectors, vectors)
        return codes[:, 0].astype(np.int64), distances[:, 0] - norms
    labels = np.empty(len(vectors), np.int64)
    scores = np.empty(len(vectors), vectors.dtype)
    weights = np.ascontiguousarray(centroids.T) * vectors.dtype.type(-1 if by_product else -2)
    norms = np.einsum("ij,ij->i", centroids, centroids).astype(vectors.dtype)
    step = max(256, _BLOCK_VALUES // max(len(centroids), 1))
    for first in range(0, len(vectors), step):
        distances = vectors[first : first + step] @ weights
        if not by_product:
            distances += norms
        block_labels = distances.argmin(axis=1)
        labels[first : first + step] = block_labels
        scores[first : first + step] = distances[np.arange(len(block_labels)), block_labels]
    return labels, scores
