"""Distances between vectors, computed on the device of the tensors.

    x (2 vectors), y (3 vectors)      pairwise_l2(x, y)       a matrix of 2 x 3
                                      l2_distance(x, y)       2 nearest ids, 2 distances

The squared distance of x and y is x.x - 2 x.y + y.y, so all distances are computed by one matrix
product. Results have the precision of x; half precision is computed in single precision. Nearest
neighbor functions process x in parts with products of at most `_PRODUCT_BYTES_MAX`. The nearest id
of a vector with a non-finite element is -1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from lancelet.errors import InvalidInputError
from lancelet.torch.required import require_torch

Tensor: TypeAlias = Any
"""`torch.Tensor`; PyTorch is an extra that is imported on first use."""

_PRODUCT_BYTES_MAX: Final = 256 << 20


def pairwise_cosine(x: Tensor, y: Tensor, *, y2: Tensor | None = None) -> Tensor:
    """Return the cosine distance of each vector of `x` to each of `y`.

    Args:
        x: Vectors, one per row.
        y: Vectors, one per row.
        y2: The precomputed norms of the vectors of `y`.
    """
    x, y = _as_matrices(x, y)
    torch = require_torch()
    lengths = torch.linalg.norm(_computable(x), dim=1, keepdim=True)
    y_norms = torch.linalg.norm(_computable(y), dim=1) if y2 is None else y2.reshape(-1)
    return (1 - _computable(x) @ _computable(y).T / lengths / y_norms).to(x.dtype)


def pairwise_l2(x: Tensor, y: Tensor, y2: Tensor | None = None) -> Tensor:
    """Return the squared distance of each vector of `x` to each of `y`.

    Args:
        x: Vectors, one per row.
        y: Vectors, one per row.
        y2: The precomputed squared norms of the vectors of `y`.
    """
    x, y = _as_matrices(x, y)
    left, right = _computable(x), _computable(y)
    y_norms = (right * right).sum(dim=1) if y2 is None else y2.reshape(-1)
    squares = (left * left).sum(dim=1, keepdim=True)
    return (squares + y_norms - 2 * (left @ right.T)).clamp(min=0).to(x.dtype)


def argmin_l2(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the squared distance and index of the nearest vector of `y` for each of `x`."""
    ids, distances = l2_distance(x, y)
    return distances, ids


def l2_distance(
    vectors: Tensor, centroids: Tensor, y2: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the index and squared distance of the nearest centroid of each vector."""
    return _argmin(vectors, centroids, lambda part: pairwise_l2(part, centroids, y2))


def cosine_distance(vectors: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index and cosine distance of the nearest centroid of each vector."""
    return _argmin(vectors, centroids, lambda part: pairwise_cosine(part, centroids))


def dot_distance(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the index and dot distance of the nearest vector of `y` for each of `x`."""
    return _argmin(x, y, lambda part: _pairwise_dot(part, y))


def _pairwise_dot(x: Tensor, y: Tensor) -> Tensor:
    x, y = _as_matrices(x, y)
    return (1 - _computable(x) @ _computable(y).T).to(x.dtype)


def _argmin(
    x: Tensor, y: Tensor, distances_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    torch = require_torch()
    x, y = _as_matrices(x, y)
    rows = max(1, _PRODUCT_BYTES_MAX // max(1, 8 * len(y)))
    ids, minima = [], []
    for part in torch.split(x, rows):
        distances = distances_of(part)
        found = torch.nan_to_num(distances, nan=float("inf")).min(dim=1)
        ids.append(torch.where(torch.isfinite(found.values), found.indices, -1))
        minima.append(torch.where(ids[-1] < 0, torch.nan, found.values))
    return torch.cat(ids), torch.cat(minima)


def _computable(tensor: Tensor) -> Tensor:
    """Convert half precision to single precision for matrix products."""
    torch = require_torch()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _as_matrices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise InvalidInputError(
            "distances require two matrices with the same number of columns",
            x=list(x.shape),
            y=list(y.shape),
        )
    return x, y
