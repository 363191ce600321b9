"""Vector distances and sums by `native/index/vectors.cpp`; see the reference."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices, Int64s
from lancelet.index.kernels.vectors import Floats, Metric, check_vectors, sum_type
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked

_ALL: Final = np.empty(0, np.int64)
_NO_BITS: Final = np.empty(0, np.uint8)


def vector_distances(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None = None,
) -> Floats:
    """Return the distance of each vector, or of selected rows, from a query."""
    check_vectors(vectors, dimension, query, metric, rows)
    if rows is not None and not len(rows):
        return np.empty(0, np.float32)
    is_bits = metric is Metric.HAMMING
    target = query if is_bits else query.astype(sum_type(vectors.dtype))
    count = len(vectors) // dimension if rows is None else len(rows)
    out = np.empty(count, np.float32)
    status = _native.vector_distances(
        as_bytes(vectors),
        vectors.dtype.itemsize,
        dimension,
        as_bytes(target),
        int(metric),
        _ALL if rows is None else np.ascontiguousarray(rows, np.int64),
        out,
    )
    checked(status, kernel="vector_distances")
    return out


def nearest_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    count: int,
    valid: npt.NDArray[np.uint8] | None = None,
    valid_offset: int = 0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[Int64s, Floats]:
    """Return the row indices and distances of the `count` nearest vectors."""
    check_vectors(vectors, dimension, query, metric, None)
    is_bits = metric is Metric.HAMMING
    target = query if is_bits else query.astype(sum_type(vectors.dtype))
    room = max(min(count, len(vectors) // dimension), 1)
    found, scores = np.empty(room, np.uint64), np.empty(room, np.float32)
    size = _native.nearest_vectors(
        (as_bytes(vectors), vectors.dtype.itemsize, dimension),
        as_bytes(target),
        int(metric),
        _NO_BITS if valid is None else valid,
        valid_offset,
        np.array(bounds, np.float32),
        found,
        scores,
    )
    checked(size, kernel="nearest_vectors")
    return found[:size].view(np.int64), scores[:size]


def slice_distances(
    slices: ByteSlices,
    dtype: np.dtype[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
) -> Floats:
    """Return the distance of each vector from a query; a slice holds one vector."""
    is_bits = metric is Metric.HAMMING
    target = query if is_bits else query.astype(sum_type(dtype))
    out = np.empty(len(slices), np.float32)
    status = _native.slice_distances(
        slices.source,
        slices.position,
        slices.size,
        dtype.itemsize,
        dimension,
        as_bytes(target),
        int(metric),
        out,
    )
    checked(status, kernel="slice_distances")
    return out


def sum_by_label(vectors: npt.NDArray[Any], labels: Int64s, count: int) -> npt.NDArray[np.float64]:
    """Return the sum of the rows of each of `count` labels."""
    out = np.empty(count * vectors.shape[1])
    status = _native.sum_by_label(
        as_bytes(vectors.reshape(-1)), vectors.dtype.itemsize, vectors.shape[1], labels, out
    )
    checked(status, kernel="sum_by_label")
    return out.reshape(count, vectors.shape[1])
