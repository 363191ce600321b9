"""Distances between vectors as tensors, on whatever device these are.

    x (2 vectors), y (3 vectors)      pairwise_l2(x, y)       a matrix of 2 x 3
                                      l2_distance(x, y)       2 ids of the nearest, 2 distances

The squared distance of x and y is x.x - 2 x.y + y.y, so all of them are one product of matrices;
the values are in the precision of x, but halves are computed as singles. Those that look for the
nearest go through x in parts whose products fit into `_MOST_BYTES`. A vector that has no distance,
since an element is not finite, has -1 for the id of the nearest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from lancelet.errors import InvalidInputError
from lancelet.torch.required import require_torch

Tensor: TypeAlias = Any
"""`torch.Tensor`: PyTorch is an extra, and is not loaded before it is used."""

_MOST_BYTES: Final = 256 << 20


def pairwise_cosine(x: Tensor, y: Tensor, *, y2: Tensor | None = None) -> Tensor:
    """Return one less the cosine of each vector of `x` with each of `y`.

    Args:
        x: Vectors, one a row.
        y: Vectors, one a row.
        y2: The lengths of the vectors of `y`, if known.
    """
    x, y = _as_matrices(x, y)
    torch = require_torch()
    lengths = torch.linalg.norm(_computable(x), dim=1, keepdim=True)
    others = torch.linalg.norm(_computable(y), dim=1) if y2 is None else y2.reshape(-1)
    return (1 - _computable(x) @ _computable(y).T / lengths / others).to(x.dtype)


def pairwise_l2(x: Tensor, y: Tensor, y2: Tensor | None = None) -> Tensor:
    """Return the squared distance of each vector of `x` to each of `y`.

    Args:
        x: Vectors, one a row.
        y: Vectors, one a row.
        y2: The squared lengths of the vectors of `y`, if known.
    """
    x, y = _as_matrices(x, y)
    left, right = _computable(x), _computable(y)
    others = (right * right).sum(dim=1) if y2 is None else y2.reshape(-1)
    squares = (left * left).sum(dim=1, keepdim=True)
    return (squares + others - 2 * (left @ right.T)).clamp(min=0).to(x.dtype)


def argmin_l2(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the least squared distance of each vector of `x`, and which of `y` has it."""
    ids, distances = l2_distance(x, y)
    return distances, ids


def l2_distance(
    vectors: Tensor, centroids: Tensor, y2: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return which centroid is nearest to each vector, and its squared distance."""
    return _nearest(vectors, centroids, lambda part: pairwise_l2(part, centroids, y2))


def cosine_distance(vectors: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """Return which centroid is nearest to each vector by angle, and its distance."""
    return _nearest(vectors, centroids, lambda part: pairwise_cosine(part, centroids))


def dot_distance(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return which of `y` has the largest product with each vector of `x`, and 1 less it."""
    return _nearest(x, y, lambda part: _pairwise_dot(part, y))


def _pairwise_dot(x: Tensor, y: Tensor) -> Tensor:
    x, y = _as_matrices(x, y)
    return (1 - _computable(x) @ _computable(y).T).to(x.dtype)


def _nearest(
    x: Tensor, y: Tensor, distances_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    torch = require_torch()
    x, y = _as_matrices(x, y)
    rows = max(1, _MOST_BYTES // max(1, 8 * len(y)))
    ids, least = [], []
    for part in torch.split(x, rows):
        distances = distances_of(part)
        found = torch.nan_to_num(distances, nan=float("inf")).min(dim=1)
        ids.append(torch.where(torch.isfinite(found.values), found.indices, -1))
        least.append(torch.where(ids[-1] < 0, torch.nan, found.values))
    return torch.cat(ids), torch.cat(least)


def _computable(tensor: Tensor) -> Tensor:
    """Return a tensor of the same values of which processors multiply matrices exactly enough."""
    torch = require_torch()
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _as_matrices(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise InvalidInputError(
            "distances are between the rows of two matrices that are as wide",
            x=list(x.shape),
            y=list(y.shape),
        )
    return x, y
