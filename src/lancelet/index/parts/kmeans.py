"""Clusters of vectors: k-means by matrix products, in layers where there are many clusters.

vectors 0 1 9 10, two clusters     start 0 and 9, centroids 0.5 and 9.5, loss 4 x 0.25

    nearest    argmin |x|^2 - 2<x, c> + |c|^2 = argmin |c|^2 - 2<x, c>, one product for a block
    update     the mean of what is nearest; a cluster left empty takes half of the largest
    layers     above 256 clusters: the largest cluster is split into up to 16, until there are
               enough, and all centroids are then moved together a few times

The same vectors and seed give the same clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.kernels import nearest_words, sum_by_label
from lancelet.values import dataclass

Matrix: TypeAlias = npt.NDArray[Any]
Labels: TypeAlias = npt.NDArray[np.int64]
Shape: TypeAlias = Callable[[Matrix], Matrix]
"""Makes of means what centroids may be."""

_FLAT_MAX: Final = 256
_BRANCHES: Final = 16
_FINAL_ROUNDS: Final = 8
_BLOCK_VALUES: Final = 1 << 22
_SMALL: Final = 32
_WORDS: Final = frozenset({16, 256})
"""Few centroids of few elements are compared one by one, which is less work than a product."""


@dataclass(frozen=True, slots=True, eq=False)
class Clusters:
    """Centroids, and how far the vectors were from theirs, squared and added up."""

    centroids: Matrix
    loss: float


def nearest_of(vectors: Matrix, centroids: Matrix, *, by_product: bool = False) -> Labels:
    """Return which centroid is the nearest of each vector, or has the largest product with it."""
    labels, _ = _nearest(vectors, centroids, by_product=by_product)
    return labels


def find_clusters(
    vectors: Matrix,
    count: int,
    *,
    seed: int,
    rounds: int = 50,
    tolerance: float = 1e-4,
    shape: Shape | None = None,
) -> Clusters:
    """Return clusters of vectors; there are fewer vectors than clusters only if they repeat."""
    random = np.random.default_rng(seed)
    if len(vectors) <= count:
        chosen = np.arange(count) % max(len(vectors), 1)
        own = vectors[chosen] if len(vectors) else np.zeros((count, vectors.shape[1]), np.float32)
        return Clusters(own.copy(), 0.0)
    if count <= _FLAT_MAX:
        start = vectors[random.choice(len(vectors), count, replace=False)]
        return _move(vectors, start, random, rounds, tolerance, shape)
    start = _in_layers(vectors, count, random, rounds, tolerance, shape)
    return _move(vectors, start, random, _FINAL_ROUNDS, tolerance, shape)


def _move(
    vectors: Matrix,
    centroids: Matrix,
    random: np.random.Generator,
    rounds: int,
    tolerance: float,
    shape: Shape | None,
) -> Clusters:
    norms = float(np.einsum("ij,ij->", vectors, vectors, dtype=np.float64))
    loss = np.inf
    for _ in range(max(rounds, 1)):
        labels, scores = _nearest(vectors, centroids)
        now = max(norms + float(scores.sum(dtype=np.float64)), 0.0)
        centroids = _means(vectors, labels, centroids, random)
        if shape is not None:
            centroids = shape(centroids)
        if loss - now <= tolerance * now:
            return Clusters(centroids, now)
        loss = now
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


def _in_layers(
    vectors: Matrix,
    count: int,
    random: np.random.Generator,
    rounds: int,
    tolerance: float,
    shape: Shape | None,
) -> Matrix:
    members: list[Labels] = [np.arange(len(vectors))]
    centroids: list[Matrix] = [vectors.mean(axis=0)]
    while len(members) < count:
        largest = max(range(len(members)), key=lambda each: len(members[each]))
        own = members[largest]
        branches = min(_BRANCHES, count - len(members) + 1, len(own))
        if branches < 2:
            break
        start = vectors[own[random.choice(len(own), branches, replace=False)]]
        part = vectors[own]
        found = _move(part, start, random, rounds, tolerance, shape)
        labels = nearest_of(part, found.centroids)
        pieces = [own[labels == branch] for branch in range(branches)]
        members[largest : largest + 1] = pieces
        centroids[largest : largest + 1] = list(found.centroids)
    return np.stack(centroids)


def _nearest(
    vectors: Matrix, centroids: Matrix, *, by_product: bool = False
) -> tuple[Labels, Matrix]:
    """Return the nearest centroids, and squared distances less the squares of the vectors."""
    is_small = vectors.shape[1] <= _SMALL and len(centroids) in _WORDS
    if is_small and vectors.dtype == np.float32 and not by_product:
        codes, apart = nearest_words(vectors, centroids[None].astype(np.float32))
        norms = np.einsum("ij,ij->i", vectors, vectors)
        return codes[:, 0].astype(np.int64), apart[:, 0] - norms
    labels = np.empty(len(vectors), np.int64)
    scores = np.empty(len(vectors), vectors.dtype)
    weights = np.ascontiguousarray(centroids.T) * vectors.dtype.type(-1 if by_product else -2)
    norms = np.einsum("ij,ij->i", centroids, centroids).astype(vectors.dtype)
    step = max(256, _BLOCK_VALUES // max(len(centroids), 1))
    for first in range(0, len(vectors), step):
        apart = vectors[first : first + step] @ weights
        if not by_product:
            apart += norms
        own = apart.argmin(axis=1)
        labels[first : first + step] = own
        scores[first : first + step] = apart[np.arange(len(own)), own]
    return labels, scores
