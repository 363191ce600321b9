"""Making tables of vectors, and what indices of them hold, under pylance's name for the module."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.ops.indexing.vector_models import partition_sizes

if TYPE_CHECKING:
    from lancelet.dataset.dataset import LanceDataset


def vec_to_table(
    data: Any,
    names: str | Sequence[str] | None = None,
    ndim: int | None = None,
    check_ndim: bool = True,
) -> pa.Table:
    """Return a table of vectors in single precision.

    Args:
        data: Vectors by id in a dict, or vectors alone in a list or an array.
        names: The names of the columns, by default `id` and `vector`.
        ndim: How many elements a vector has, by default as many as the first.
        check_ndim: Whether to look at every vector, which else may fail less clearly.

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
        raise UnsupportedError("vectors are a dict, a list or an array", found=str(type(data)))
    names = [names] if isinstance(names, str) else list(names)
    if len(names) != len(columns):
        raise InvalidInputError("each column has a name", columns=len(columns), names=names)
    return pa.Table.from_arrays(columns, names=names)


def get_ivf_partition_info(
    dataset: LanceDataset,
    index_name: str,
    *,
    index_segments: Iterable[str | uuid.UUID] | None = None,
) -> list[dict[str, int]]:
    """Return how many rows each partition of an index has, in all segments or in those named."""
    chosen = None if index_segments is None else {str(each) for each in index_segments}
    sizes = partition_sizes(dataset._handle.snapshot, index_name, chosen)  # noqa: SLF001 - a part of it
    return [{"partition_id": number, "size": size} for number, size in enumerate(sizes)]


def _vectors(values: Any, ndim: int | None, check_ndim: bool) -> pa.FixedSizeListArray:
    ndim = len(values[0]) if ndim is None else ndim
    wrong = [len(each) for each in values if len(each) != ndim] if check_ndim else []
    if wrong:
        raise InvalidInputError(f"Expected {ndim} dimensions but got {wrong[0]}")
    flat = np.array(values, np.float32).reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat), ndim)
