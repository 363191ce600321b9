"""Exact nearest neighbors and recall, for evaluating a vector search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.errors import InvalidInputError
from lancelet.torch.data import LanceDataset as Batches
from lancelet.torch.device import preferred_device
from lancelet.torch.distance import Tensor, pairwise_cosine, pairwise_l2
from lancelet.torch.required import require_torch

if TYPE_CHECKING:
    from lancelet.dataset import LanceDataset

_PAIRWISE: Final = {"l2": pairwise_l2, "euclidean": pairwise_l2, "cosine": pairwise_cosine}


def sort_tensors(source: Tensor, other: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the `k` smallest values per row of `source`, and the same elements of `other`."""
    least = require_torch().topk(source, min(k, source.shape[1]), dim=1, largest=False, sorted=True)
    return least.values, other.gather(1, least.indices)


def ground_truth(
    ds: LanceDataset,
    column: str,
    query: Tensor | npt.NDArray[Any],
    metric_type: str = "L2",
    k: int = 100,
    batch_size: int = 10240,
    device: str | None = None,
) -> Tensor:
    """Return the row ids of the exact nearest neighbors of each query.

    Args:
        ds: The dataset.
        column: The vector column.
        query: A matrix with one query per row.
        metric_type: `L2` or `cosine`.
        k: The number of neighbors per query.
        batch_size: The number of rows per batch.
        device: The device to compute on; by default the best available one.
    """
    torch = require_torch()
    pairwise = _PAIRWISE.get(metric_type.lower())
    if pairwise is None:
        raise InvalidInputError("unknown metric", metric=metric_type, expected=sorted(_PAIRWISE))
    chosen = preferred_device(device)
    queries = torch.as_tensor(query).to(chosen)
    least = torch.empty((len(queries), 0), device=chosen)
    ids = torch.empty((len(queries), 0), dtype=torch.int64, device=chosen)
    for batch in Batches(ds, batch_size=batch_size, columns=[column], with_row_id=True):
        distances = pairwise(queries, batch[column].to(chosen))
        row_ids = batch["_rowid"].to(chosen).expand(len(queries), -1)
        least, ids = sort_tensors(
            torch.cat([least, distances], dim=1), torch.cat([ids, row_ids], dim=1), k
        )
    return ids


def recall(expected: npt.NDArray[Any], actual: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the recall of each query.

    >>> recall(np.array([[1, 2], [3, 4]]), np.array([[2, 9], [4, 3]])).tolist()
    [0.5, 1.0]
    """
    is_hit = (expected[:, :, None] == actual[:, None, :]).any(axis=2)
    return np.asarray(is_hit.sum(axis=1) / expected.shape[1])


def infer_vector_column(ds: LanceDataset) -> str | None:
    """Return the name of the first vector column, or None."""
    for field in ds.schema:
        if pa.types.is_fixed_size_list(field.type) and pa.types.is_floating(field.type.value_type):
            return str(field.name)
    return None
