"""Tables of vectors, and near-duplicate search. Mirrors the pylance module of this name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from lancelet.dataset.index.duplicates import (
    find_duplicate_pairs,
    find_duplicate_pairs_in_partition,
    get_ivf_partition_info,
    hamming_clustering_for_ivf_partition,
    hamming_clustering_for_range,
    hamming_clustering_for_sample,
)
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.torch.training import (
    compute_partitions,
    compute_pq_codes,
    one_pass_assign_ivf_pq_on_accelerator,
    one_pass_train_ivf_pq_on_accelerator,
    train_ivf_centroids_on_accelerator,
    train_pq_codebook_on_accelerator,
)

__all__ = [
    "compute_partitions",
    "compute_pq_codes",
    "find_duplicate_pairs",
    "find_duplicate_pairs_in_partition",
    "get_ivf_partition_info",
    "hamming_clustering_for_ivf_partition",
    "hamming_clustering_for_range",
    "hamming_clustering_for_sample",
    "one_pass_assign_ivf_pq_on_accelerator",
    "one_pass_train_ivf_pq_on_accelerator",
    "train_ivf_centroids_on_accelerator",
    "train_pq_codebook_on_accelerator",
    "vec_to_table",
]


def vec_to_table(
    data: Any,
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,
) -> pa.Table:
    """Return an Arrow table of vectors in single precision.

    Args:
        data: Vectors by id in a dict, or vectors in a list or an array.
        names: The names of the columns; by default `id` and `vector`.
        ndim: The dimension; by default that of the first vector.
        check_ndim: Whether to validate every vector first, for a clearer error.

    >>> vec_to_table({7: [1.0, 0.0]}).column_names
    ['id', 'vector']
    """
    if isinstance(data, dict):
        names = ["id", "vector"] if names is None else names
        vectors = _vectors(list(data.values()), ndim, check_ndim)
        columns = [pa.array(list(data)), vectors]
    elif isinstance(data, list | np.ndarray):
        names = ["vector"] if names is None else names
        columns = [_vectors(data, ndim, check_ndim)]
    else:
        raise UnsupportedError("vectors must be a dict, list or array", found=str(type(data)))
    names = [names] if isinstance(names, str) else list(names)
    if len(names) != len(columns):
        raise InvalidInputError("each column requires a name", columns=len(columns), names=names)
    return pa.Table.from_arrays(columns, names=names)


def _vectors(values: Any, ndim: int | None, check_ndim: bool) -> pa.FixedSizeListArray:
    ndim = len(values[0]) if ndim is None else ndim
    wrong = [len(each) for each in values if len(each) != ndim] if check_ndim else []
    if wrong:
        raise InvalidInputError(f"Expected {ndim} dimensions but got {wrong[0]}")
    flat = np.array(values, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), ndim)
