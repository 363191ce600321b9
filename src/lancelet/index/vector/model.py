"""IVF model: the centroids of the partitions.

    centroids [0 0] [10 10]    vector [9 9]    partition 1

A vector belongs to the nearest centroid: the one with the smallest distance, the largest dot
product, or the fewest differing bits, depending on the metric.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InvalidInputError
from lancelet.index.kernels import Metric, vector_distances
from lancelet.index.kernels.vectors import Floats
from lancelet.index.parts.kmeans import assign_nearest, find_clusters
from lancelet.index.vector.quantizers.base import Matrix, work_type
from lancelet.rowids.address import UInt64s
from lancelet.values import dataclass

ROWS_PER_CENTROID: Final = 256
"""Number of sampled vectors per centroid."""


@dataclass(frozen=True, slots=True, eq=False)
class AssignedPartitions:
    """Precomputed partitions of rows, sorted by row number."""

    numbers: UInt64s
    labels: Int64s

    @staticmethod
    def from_unsorted(numbers: UInt64s, labels: Int64s) -> AssignedPartitions:
        """Sort precomputed partitions by row number. Raise for duplicate rows."""
        order = np.argsort(numbers, kind="stable")
        result = AssignedPartitions(numbers[order], labels[order])
        if (result.numbers[1:] == result.numbers[:-1]).any():
            raise InvalidInputError("a row has several precomputed partitions")
        return result

    def check(self, partitions: int) -> None:
        """Raise if a partition number is not below `partitions`."""
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < partitions:
            raise InvalidInputError(
                "precomputed partitions exceed the number of centroids",
                partitions=partitions,
                found=int(self.labels.max()),
            )

    def labels_of(self, numbers: UInt64s) -> Int64s:
        """Return the partitions of rows, or -1 for rows without one."""
        if not len(self.numbers):
            return np.full(len(numbers), -1, np.int64)
        indices = np.minimum(self.numbers.searchsorted(numbers), len(self.numbers) - 1)
        return np.where(self.numbers[indices] == numbers, self.labels[indices], -1)


@dataclass(frozen=True, slots=True, eq=False)
class IvfModel:
    """Centroids in the type of the column, and the training loss."""

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
        max_iterations: int = 50,
    ) -> IvfModel:
        """Train centroids on a sample of vectors prepared for the metric."""
        is_bits = metric is Metric.HAMMING
        clusters = find_clusters(
            to_signs(sample) if is_bits else sample,
            partitions,
            seed=seed,
            max_iterations=max_iterations,
            constrain=_as_signs if is_bits else None,
        )
        if is_bits:
            return IvfModel(metric, np.packbits(clusters.centroids > 0, axis=1), clusters.loss / 4)
        return IvfModel(metric, clusters.centroids.astype(dtype), clusters.loss)

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.centroids)

    @property
    def dimension(self) -> int:
        """Number of elements of a vector."""
        return int(self.centroids.shape[1])

    def assign(self, vectors: Matrix) -> Int64s:
        """Return the partition of each vector prepared for the metric."""
        if self.metric is Metric.HAMMING:
            return assign_nearest(to_signs(vectors), to_signs(self.centroids))
        centroids = self.centroids.astype(work_type(self.centroids.dtype))
        converted = vectors.astype(centroids.dtype, copy=False)
        return assign_nearest(converted, centroids, by_product=self.metric is Metric.DOT)

    def distances(self, query: Matrix) -> Floats:
        """Return the distance of each centroid to a query prepared for the metric."""
        metric = Metric.L2 if self.metric is Metric.COSINE else self.metric
        return vector_distances(self.centroids.reshape(-1), self.dimension, query, metric)

    def is_same(self, other: IvfModel) -> bool:
        """Return whether another model has the same centroids and metric."""
        return self.metric is other.metric and np.array_equal(self.centroids, other.centroids)


def to_signs(vectors: npt.NDArray[np.uint8]) -> Matrix:
    """Convert bits to 1 and -1; squared distances are then four times the Hamming distance."""
    signs: Matrix = np.unpackbits(vectors, axis=1).astype(np.float32) * 2 - 1
    return signs


def _as_signs(means: Matrix) -> Matrix:
    return np.where(means > 0, np.float32(1), np.float32(-1))
