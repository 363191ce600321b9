"""The coarse model of an index: centroids, around which vectors are put into partitions.

centroids [0 0] [10 10]    vector [9 9]    partition 1

A vector belongs to the centroid that is nearest, or has the largest product with it where products
are the metric, or differs in the fewest bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.index.parts.kmeans import assign_nearest, find_clusters
from lancelet.index.vector.quantizers.base import Matrix, work_type
from lancelet.kernels import Metric, vector_distances
from lancelet.kernels.graph import Floats
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

ROWS_PER_CENTROID: Final = 256
"""How many vectors of a sample each centroid is found from."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownPartitions:
    """The partitions of rows that were found elsewhere, by the numbers of the rows, ascending."""

    numbers: UInt64s
    labels: Int64s

    @staticmethod
    def of(numbers: UInt64s, labels: Int64s) -> KnownPartitions:
        """Return the partitions of rows in any order, each of which may be there once."""
        order = np.argsort(numbers, kind="stable")
        known = KnownPartitions(numbers[order], labels[order])
        if (known.numbers[1:] == known.numbers[:-1]).any():
            raise InvalidInputError("a row has two partitions among those that are given")
        return known

    def check(self, partitions: int) -> None:
        """Raise unless there are so many partitions."""
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < partitions:
            raise InvalidInputError(
                "rows are in partitions that have no centroid",
                partitions=partitions,
                found=int(self.labels.max()),
            )

    def labels_of(self, numbers: UInt64s) -> Int64s:
        """Return the partitions of rows, -1 for those that are not known."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, np.int64)
        places = np.minimum(self.numbers.searchsorted(numbers), len(self.numbers) - 1)
        return np.where(self.numbers[places] == numbers, self.labels[places], -1)


@dataclass(frozen=True, slots=True, eq=False)
class IvfModel:
    """Centroids in the type of the column, with how far the sample was from them."""

    metric: Metric
    centroids: Matrix
    loss: float | None = None

    @staticmethod
    def train(
        sample: Matrix,
        metric: Metric,
        dtype: np.dtype[Any],
        *,
        partitions: int,
        seed: int,
        rounds: int = 50,
    ) -> IvfModel:
        """Find centroids of a sample of vectors that are prepared for the metric."""
        is_bits = metric is Metric.HAMMING
        found = find_clusters(
            signs_of(sample) if is_bits else sample,
            partitions,
            seed=seed,
            max_iterations=rounds,
            constrain=_as_signs if is_bits else None,
        )
        if is_bits:
            return IvfModel(metric, np.packbits(found.centroids > 0, axis=1), found.loss / 4)
        return IvfModel(metric, found.centroids.astype(dtype), found.loss)

    @property
    def partitions(self) -> int:
        """How many partitions there are."""
        return len(self.centroids)

    @property
    def dimension(self) -> int:
        """How many elements a vector has."""
        return int(self.centroids.shape[1])

    def assign(self, vectors: Matrix) -> Int64s:
        """Return the partition of each vector, which is prepared for the metric."""
        if self.metric is Metric.HAMMING:
            return assign_nearest(signs_of(vectors), signs_of(self.centroids))
        centroids = self.centroids.astype(work_type(self.centroids.dtype))
        own = vectors.astype(centroids.dtype, copy=False)
        return assign_nearest(own, centroids, by_product=self.metric is Metric.DOT)

    def distances(self, query: Matrix) -> Floats:
        """Return how far each centroid is from a query that is prepared for the metric."""
        metric = Metric.L2 if self.metric is Metric.COSINE else self.metric
        return vector_distances(self.centroids.reshape(-1), self.dimension, query, metric)

    def is_same(self, other: IvfModel) -> bool:
        """Return whether another model makes the same partitions."""
        return self.metric is other.metric and np.array_equal(self.centroids, other.centroids)


def signs_of(vectors: npt.NDArray[np.uint8]) -> Matrix:
    """Return bits as 1 and -1, whose squared distance is four times the bits that differ."""
    signs: Matrix = np.unpackbits(vectors, axis=1).astype(np.float32) * 2 - 1
    return signs


def _as_signs(means: Matrix) -> Matrix:
    return np.where(means > 0, np.float32(1), np.float32(-1))
