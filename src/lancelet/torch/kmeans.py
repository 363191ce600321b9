"""K-means on tensors, on any device.

    values 1 2 9 10, k 2      centroids 1 2  ->  1 and 7  ->  1.5 and 9.5      then unchanged

Lloyd's algorithm: each iteration assigns vectors to the nearest centroid, and sets each centroid to
the mean of its vectors. A centroid without vectors is replaced by a slightly shifted copy of one
with many vectors, which splits that cluster. Vectors with non-finite elements belong to no cluster.
For the cosine metric, vectors are normalized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Literal

import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.torch.device import preferred_device
from lancelet.torch.distance import Tensor, cosine_distance, dot_distance, l2_distance
from lancelet.torch.required import require_torch
from lancelet.torch.tensors import numbers_of

_DISTANCES: Final[dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    "l2": l2_distance,
    "euclidean": l2_distance,
    "cosine": cosine_distance,
    "dot": dot_distance,
}
_SPLIT_OFFSET: Final = 1e-3
"""The relative shift of the copy of a centroid that is split."""


class KMeans:
    """K-means clustering.

    `centroids` is a matrix with a row per cluster, or None before `fit`. `total_distance` is the
    sum of distances in the last iteration.
    """

    def __init__(
        self,
        k: int,
        *,
        metric: Literal["l2", "euclidean", "dot", "cosine"] = "l2",
        init: Literal["random"] = "random",
        max_iters: int = 50,
        tolerance: float = 1e-4,
        centroids: Tensor | None = None,
        seed: int | None = None,
        device: str | None = None,
    ) -> None:
        """Configure the clustering.

        Args:
            k: The number of clusters.
            metric: `l2`, `cosine` or `dot`.
            init: The initialization; only `random` is supported.
            max_iters: The maximum number of iterations.
            tolerance: Stops when centroids move less than this, relative to their size.
            centroids: The initial centroids, instead of random vectors.
            seed: Makes the random choice reproducible.
            device: The device to compute on; by default the best available one.
        """
        if metric not in _DISTANCES or init != "random":
            raise InvalidInputError(
                "unknown metric or initialization",
                metric=metric,
                init=init,
                expected=sorted(_DISTANCES),
            )
        self.k = k
        self.metric = metric
        self.max_iters = max_iters
        self.tolerance = tolerance
        self.seed = seed
        self.device = preferred_device(device)
        self.centroids: Tensor | None = None if centroids is None else centroids.to(self.device)
        self.total_distance = 0.0

    def __repr__(self) -> str:
        return f"KMeans(k={self.k}, metric={self.metric}, device={self.device})"

    def fit(self, data: Any, column: str | None = None) -> None:
        """Compute the centroids.

        Args:
            data: Vectors as an array, a tensor or an Arrow array; or an iterable of batches that
                can be iterated repeatedly.
            column: The name of the vectors in batches with several columns.
        """
        torch = require_torch()
        whole = isinstance(data, pa.Array | pa.ChunkedArray) or hasattr(data, "dtype")
        batches: Iterable[Any] = [data] if whole else data
        if self.centroids is None:
            self.centroids = self._random_start(self._parts(batches, column))
        self.centroids = self.prepared(self.centroids)
        for _ in range(self.max_iters):
            before = self.centroids
            self.centroids = self._iterate(self._parts(batches, column), before)
            moved = torch.linalg.norm(self.centroids - before)
            if moved <= self.tolerance * torch.linalg.norm(before):
                break

    def transform(self, data: Any) -> Tensor:
        """Return the cluster of each vector, or -1 for vectors with non-finite elements."""
        if self.centroids is None:
            raise InvalidInputError("the model has no centroids; call `fit` first", k=self.k)
        return _DISTANCES[self.metric](self.prepared(self._tensor(data)), self.centroids)[0]

    def rebuild_index(self) -> None:
        """Do nothing; exists for compatibility with pylance."""

    def prepared(self, vectors: Tensor) -> Tensor:
        """Normalize vectors for the cosine metric."""
        if self.metric != "cosine":
            return vectors
        return require_torch().nn.functional.normalize(vectors, dim=1)

    def _iterate(self, parts: Iterator[Tensor], start: Tensor) -> Tensor:
        """Return the centroids after one iteration."""
        torch = require_torch()
        sums = torch.zeros_like(start, dtype=torch.float32)
        counts = torch.zeros(len(sums), dtype=torch.float32, device=self.device)
        self.total_distance = 0.0
        for part in parts:
            ids, distances = _DISTANCES[self.metric](part, start)
            is_assigned = ids >= 0
            self.total_distance += float(distances[is_assigned].sum())
            sums.index_add_(0, ids[is_assigned], part[is_assigned].float())
            counts.index_add_(0, ids[is_assigned], torch.ones_like(distances[is_assigned]).float())
        means = sums / counts.clamp(min=1)[:, None]
        empty = counts == 0
        crowded = means[torch.argsort(counts, descending=True)[: int(empty.sum())]]
        means[empty] = crowded * (1 + _SPLIT_OFFSET)
        return self.prepared(means).to(start.dtype)

    def _random_start(self, parts: Iterator[Tensor]) -> Tensor:
        torch = require_torch()
        vectors = torch.cat(list(parts))
        vectors = vectors[torch.isfinite(vectors).all(dim=1)]
        if len(vectors) < self.k:
            raise InvalidInputError(
                "fewer vectors than clusters; reduce k",
                vectors=len(vectors),
                k=self.k,
            )
        random = torch.Generator()
        random.seed() if self.seed is None else random.manual_seed(self.seed)
        chosen = torch.randperm(len(vectors), generator=random)[: self.k]
        return vectors[chosen.to(vectors.device)]

    def _parts(self, batches: Iterable[Any], column: str | None) -> Iterator[Tensor]:
        for batch in batches:
            yield self.prepared(self._tensor(batch if column is None else batch[column]))

    def _tensor(self, data: Any) -> Tensor:
        torch = require_torch()
        if isinstance(data, pa.ChunkedArray):
            data = data.combine_chunks()
        if isinstance(data, pa.Array):
            data = numbers_of(data)[0]
        tensor = data if isinstance(data, torch.Tensor) else torch.tensor(data)
        return tensor.to(self.device)
