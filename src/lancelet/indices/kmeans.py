"""K-means clustering, exported as `lancelet.util.KMeans`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.index.kernels import Metric
from lancelet.index.parts.kmeans import assign_nearest, find_clusters
from lancelet.index.vector.vectors import prepare

_METRICS: Final = {
    "l2": Metric.L2,
    "euclidean": Metric.L2,
    "cosine": Metric.COSINE,
    "dot": Metric.DOT,
}
_NAMES: Final = {Metric.L2: "l2", Metric.COSINE: "cosine", Metric.DOT: "dot"}
_SEED: Final = 42


class UntrainedError(InvalidInputError, RuntimeError):
    """`predict` was called before `fit`."""


class TooFewVectorsError(InvalidInputError, RuntimeError):
    """There are fewer vectors than clusters."""


class KMeans:
    """K-means clustering of `float32` vectors."""

    def __init__(
        self,
        k: int,
        metric_type: str = "l2",
        max_iters: int = 50,
        centroids: pa.FixedSizeListArray | None = None,
    ) -> None:
        """Create a model with `k` clusters, optionally with initial centroids."""
        metric = _METRICS.get(metric_type.lower())
        if metric is None:
            raise InvalidInputError(
                f"Invalid metric_type: {metric_type}", expected=sorted(_METRICS)
            )
        if k < 1:
            raise InvalidInputError("the number of clusters must be at least 1", k=k)
        self.k = k
        self._metric = metric
        self._max_iterations = max_iters
        self._centroids = None if centroids is None else _to_matrix(centroids)

    def __repr__(self) -> str:
        return f"lance.KMeans(k={self.k}, metric_type={_NAMES[self._metric]})"

    @property
    def centroids(self) -> pa.FixedShapeTensorArray | None:
        """Centroid of each cluster, or None before `fit`."""
        if self._centroids is None:
            return None
        return pa.FixedShapeTensorArray.from_numpy_ndarray(self._centroids)

    def fit(self, data: Any) -> None:
        """Train the clusters on fixed-size lists, tensors or a NumPy array of vectors."""
        vectors = self._prepare(data)
        if len(vectors) < self.k:
            raise TooFewVectorsError(
                "there are fewer vectors than clusters", vectors=len(vectors), k=self.k
            )
        self._centroids = find_clusters(
            vectors, self.k, seed=_SEED, max_iterations=self._max_iterations
        ).centroids

    def predict(self, data: Any) -> pa.UInt32Array:
        """Return the cluster of each vector."""
        if self._centroids is None:
            raise UntrainedError("KMeans must fit (train) first")
        vectors = self._prepare(data)
        labels = assign_nearest(vectors, self._centroids, by_product=self._metric is Metric.DOT)
        return pa.array(labels.astype(np.uint32), pa.uint32())

    def _prepare(self, data: Any) -> npt.NDArray[np.float32]:
        vectors, _ = prepare(_to_matrix(data), self._metric)
        return np.ascontiguousarray(vectors, np.float32)


def _to_matrix(data: Any) -> npt.NDArray[np.float32]:
    if isinstance(data, pa.FixedShapeTensorArray):
        if len(data.type.shape) != 1:
            raise InvalidInputError(
                f"Fixed shape tensor array must be a 1-D array, got {len(data.type.shape)}-D"
            )
        data = data.storage
    if isinstance(data, pa.FixedSizeListArray):
        if data.type.value_type != pa.float32():
            raise InvalidInputError(f"Array must be float32 type, got: {data.type.value_type}")
        values = data.flatten().to_numpy(zero_copy_only=False)
        return np.ascontiguousarray(values).reshape(-1, data.type.list_size)
    if isinstance(data, np.ndarray):
        if data.ndim != 2:
            raise InvalidInputError(f"Numpy array must be a 2-D array, got {data.ndim}-D")
        if data.dtype != np.float32:
            raise InvalidInputError(f"Numpy array must be float32 type, got: {data.dtype}")
        return np.ascontiguousarray(data)
    raise InvalidInputError(
        "Data must be a FixedSizeListArray, Tensor or numpy array", found=type(data).__name__
    )
