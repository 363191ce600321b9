"""Distance metrics, and checks of the arguments of vector kernels."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.errors import InternalError

Floats: TypeAlias = npt.NDArray[np.float32]


class Metric(IntEnum):
    """Distance metrics, numbered as in index details."""

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
    """Return the accumulator type of distances between vectors of a type."""
    return _SUMS[dtype.itemsize]


def check_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None,
) -> None:
    """Raise unless vectors, query and metric are compatible."""
    is_bits = vectors.dtype == np.uint8
    if dimension < 1 or len(vectors) % dimension or len(query) != dimension:
        raise InternalError(
            "vectors and query differ in dimension",
            values=len(vectors),
            dimension=dimension,
            query=len(query),
        )
    if is_bits != (metric is Metric.HAMMING) or not (is_bits or vectors.dtype.kind == "f"):
        raise InternalError("the metric does not support the vector type", metric=metric.name)
    if rows is not None and len(rows):
        check_row_indices(rows, len(vectors) // dimension)


def check_row_indices(rows: Int64s, count: int) -> None:
    """Raise unless row indices are in [0, `count`)."""
    if rows.min() < 0 or rows.max() >= count:
        raise InternalError("a row index is out of range", rows=len(rows), count=count)
