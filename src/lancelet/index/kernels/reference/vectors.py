"""Vector distances, and sums of k-means.

    vectors [[0 0] [3 4]]  query [0 0]    squared L2 [0 25]

Metrics are those of the format: cosine is 1 - cos, dot is 1 - product, Hamming counts bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices, Int64s
from lancelet.errors import CorruptDataError
from lancelet.index.kernels.vectors import Floats, Metric, check_vectors, sum_type

_PASSES: Final = 4


def vector_distances(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None = None,
) -> Floats:
    """Return the distance of each vector, or of selected rows, from a query.

    `vectors` are concatenated: floats, or bytes of bits for Hamming. Distances are accumulated in
    single precision, in double precision for double vectors.
    """
    check_vectors(vectors, dimension, query, metric, rows)
    wide = vectors.reshape(-1, dimension)
    if rows is not None:
        wide = wide[rows]
    if metric is Metric.HAMMING:
        return _single(np.unpackbits(wide ^ query, axis=1).sum(axis=1))
    wide = wide.astype(sum_type(vectors.dtype))
    target = query.astype(wide.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if metric is Metric.L2:
            return _single(((wide - target) ** 2).sum(axis=1))
        product = (wide * target).sum(axis=1)
        if metric is Metric.DOT:
            return _single(1 - product)
        root = np.sqrt((target * target).sum() * (wide * wide).sum(axis=1))
        return _single(1 - product / root)


def nearest_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    count: int,
    valid: npt.NDArray[np.uint8] | None = None,
    valid_offset: int = 0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[Int64s, Floats]:
    """Return the row indices and distances of the `count` nearest vectors.

    Ties are broken by row. Distances must be at least the first bound and below the second, if
    finite. With `valid`, rows must have their bit set, from bit `valid_offset` on. NaN distances
    are never returned.
    """
    scores = vector_distances(vectors, dimension, query, metric)
    lower, upper = np.float32(bounds[0]), np.float32(bounds[1])
    selected = (scores >= lower) & ~((scores >= upper) & (upper < np.inf))
    if valid is not None:
        bits = np.unpackbits(valid, bitorder="little")
        selected &= bits[valid_offset : valid_offset + len(scores)].astype(np.bool_)
    indices = np.flatnonzero(selected)
    order = np.argsort(scores[indices], kind="stable")[:count]
    return indices[order], scores[indices[order]]


def slice_distances(
    slices: ByteSlices,
    dtype: np.dtype[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
) -> Floats:
    """Return the distance of each vector from a query; a slice holds one vector."""
    width = dtype.itemsize * dimension
    if (slices.size != width).any():
        raise CorruptDataError("the size of a vector does not match its dimension")
    indices = slices.position[:, None] + np.arange(width)
    vectors = slices.source[indices].reshape(-1).view(dtype)
    return vector_distances(vectors, dimension, query, metric)


def sum_by_label(vectors: npt.NDArray[Any], labels: Int64s, count: int) -> npt.NDArray[np.float64]:
    """Return the sum of the rows of each of `count` labels."""
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    return sums


def _single(values: npt.NDArray[Any]) -> Floats:
    return values.astype(np.float32)
