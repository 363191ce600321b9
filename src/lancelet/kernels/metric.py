"""How far vectors are apart, and what the kernels that say so take."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InternalError

Floats: TypeAlias = npt.NDArray[np.float32]


class Metric(IntEnum):
    """A measure of distance; the numbers are those of index details."""

    L2 = 0
    COSINE = 1
    DOT = 2
    HAMMING = 3


_SUMS: Final[dict[int, np.dtype[Any]]] = {
    2: np.dtype(np.float32),
    4: np.dtype(np.float32),
    8: np.dtype(np.float64),
}


def sum_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in which distances between vectors of a type are summed up."""
    return _SUMS[dtype.itemsize]


def check_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None,
) -> None:
    """Raise unless vectors, query and metric fit together."""
    is_bits = vectors.dtype == np.uint8
    if dimension < 1 or len(vectors) % dimension or len(query) != dimension:
        raise InternalError(
            "vectors and query must have the dimension",
            values=len(vectors),
            dimension=dimension,
            query=len(query),
        )
    if is_bits != (metric is Metric.HAMMING) or not (is_bits or vectors.dtype.kind == "f"):
        raise InternalError("the metric is not one of such vectors", metric=metric.name)
    if rows is not None and len(rows):
        check_places(rows, len(vectors) // dimension)


def check_places(rows: Int64s, count: int) -> None:
    """Raise unless rows are among so many."""
    if rows.min() < 0 or rows.max() >= count:
        raise InternalError("a row is outside of the vectors", rows=len(rows), count=count)
