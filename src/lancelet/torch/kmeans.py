"""K-means on tensors, on any device.

    values 1 2 9 10, k 2      centroids 1 2  ->  1 and 7  ->  1.5 and 9.5      then nothing moves

Lloyd's rounds: every vector goes to the nearest centroid, and every centroid to the mean of its
vectors. A centroid without vectors goes to the place of one that has many, a little aside, so that
they part these between them. Vectors with an element that is not finite belong to no cluster. For
angles all vectors are made as long as 1 first.
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

_NEAREST: Final[dict[str, Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]]] = {
    "l2": l2_distance,
    "euclidean": l2_distance,
    "cosine": cosine_distance,
    "dot": dot_distance,
}
_ASIDE: Final = 1e-3
"""How far aside, relative to the centroid that is parted, its new neighbour starts."""


class KMeans:
    """Clusters vectors.

    Its `centroids` are a matrix with a row for each cluster, None before `fit`; `total_distance` is
    the sum of distances in the last iteration.
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
            init: How the first centroids are chosen; only at random.
            max_iters: The maximum number of iterations.
            tolerance: Stops when centroids move less than this, relative to their size.
            centroids: The initial centroids, instead of random vectors.
            seed: Makes the random choice reproducible.
            device: The device to compute on, by default the best one available.
        """
        if metric not in _NEAREST or init != "random":
            raise InvalidInputError(
                "no such metric or way to start", metric=metric, init=init, known=sorted(_NEAREST)
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
        """Find the centroids.

        Args:
            data: Vectors as an array, a tensor, or a column of Arrow; or a dataset that yields
                batches of them as often as it is iterated over.
            column: Which of the tensors of a batch, if it has several.
        """
        torch = require_torch()
        whole = isinstance(data, pa.Array | pa.ChunkedArray) or hasattr(data, "dtype")
        batches: Iterable[Any] = [data] if whole else data
        if self.centroids is None:
            self.centroids = self._random_start(self._parts(batches, column))
        self.centroids = self.prepared(self.centroids)
        for _ in range(self.max_iters):
            before = self.centroids
            self.centroids = self._round(self._parts(batches, column), before)
            moved = torch.linalg.norm(self.centroids - before)
            if moved <= self.tolerance * torch.linalg.norm(before):
                break

    def transform(self, data: Any) -> Tensor:
        """Return which cluster each vector belongs to, -1 for those that belong to none."""
        if self.centroids is None:
            raise InvalidInputError("there are no centroids yet: call `fit` first", k=self.k)
        return _NEAREST[self.metric](self.prepared(self._tensor(data)), self.centroids)[0]

    def rebuild_index(self) -> None:
        """Do nothing: distances are computed from the centroids as they are."""

    def prepared(self, vectors: Tensor) -> Tensor:
        """Return vectors as they are compared: for angles as long as 1."""
        if self.metric != "cosine":
            return vectors
        return require_torch().nn.functional.normalize(vectors, dim=1)

    def _round(self, parts: Iterator[Tensor], start: Tensor) -> Tensor:
        """Return the means of the vectors that are nearest to each centroid."""
        torch = require_torch()
        sums = torch.zeros_like(start, dtype=torch.float32)
        counts = torch.zeros(len(sums), dtype=torch.float32, device=self.device)
        self.total_distance = 0.0
        for part in parts:
            ids, distances = _NEAREST[self.metric](part, start)
            known = ids >= 0
            self.total_distance += float(distances[known].sum())
            sums.index_add_(0, ids[known], part[known].float())
            counts.index_add_(0, ids[known], torch.ones_like(distances[known]).float())
        means = sums / counts.clamp(min=1)[:, None]
        empty = counts == 0
        crowded = means[torch.argsort(counts, descending=True)[: int(empty.sum())]]
        means[empty] = crowded * (1 + _ASIDE)
        return self.prepared(means).to(start.dtype)

    def _random_start(self, parts: Iterator[Tensor]) -> Tensor:
        torch = require_torch()
        vectors = torch.cat(list(parts))
        vectors = vectors[torch.isfinite(vectors).all(dim=1)]
        if len(vectors) < self.k:
            raise InvalidInputError(
                "there are fewer vectors than clusters; ask for fewer",
                vectors=len(vectors),
                k=self.k,
            )
        chance = torch.Generator()
        chance.seed() if self.seed is None else chance.manual_seed(self.seed)
        chosen = torch.randperm(len(vectors), generator=chance)[: self.k]
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
        found = data if isinstance(data, torch.Tensor) else torch.tensor(data)
        return found.to(self.device)
