"""Vector distances, quantization and rotation by `native/src/vectors.cpp` and others."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import ByteSlices, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked
from lancelet.kernels.graph import Floats, Metric, check_vectors, sum_type

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
        as_bytes(vectors),
        vectors.dtype.itemsize,
        dimension,
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


def scaled_codes(vectors: Floats, bits: int, percent: int) -> npt.NDArray[np.uint8]:
    """Return `bits`-bit codes that, plus one half, approximate the direction of vectors."""
    codes = np.empty(vectors.shape, np.uint8)
    own = np.ascontiguousarray(vectors, np.float32).reshape(-1)
    status = _native.scaled_codes(own, vectors.shape[1], bits, percent, codes.reshape(-1))
    checked(status, kernel="scaled_codes")
    return codes


def rotate_rows(vectors: Floats, signs: npt.NDArray[np.uint8]) -> Floats:
    """Rotate the rows of a matrix by a randomized Hadamard transform of four passes."""
    out = np.empty(vectors.shape, np.float32)
    own = np.ascontiguousarray(vectors, np.float32).reshape(-1)
    sign_bytes = np.ascontiguousarray(signs, np.uint8).reshape(-1)
    status = _native.rotate_rows(own, vectors.shape[1], sign_bytes, out.reshape(-1))
    checked(status, kernel="rotate_rows")
    return out


def quantize_rows(
    vectors: npt.NDArray[Any], center: Floats, *, is_normal: bool = False
) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    """Quantize rows minus a center to bytes; return them, the squared norms, and the step sizes."""
    count, dimension = vectors.shape
    numbers = np.empty((count, dimension), np.uint8)
    squares, steps = np.empty(count, np.float32), np.empty(count, np.float32)
    status = _native.quantize_rows(
        as_bytes(vectors.reshape(-1)),
        vectors.dtype.itemsize,
        dimension,
        np.ascontiguousarray(center, np.float32),
        int(is_normal),
        numbers.reshape(-1),
        squares,
        steps,
    )
    checked(status, kernel="quantize_rows")
    return numbers, squares, steps


def sum_by_label(vectors: npt.NDArray[Any], labels: Int64s, count: int) -> npt.NDArray[np.float64]:
    """Return the sum of the rows of each of `count` labels."""
    out = np.empty(count * vectors.shape[1])
    status = _native.sum_by_label(
        as_bytes(vectors.reshape(-1)), vectors.dtype.itemsize, vectors.shape[1], labels, out
    )
    checked(status, kernel="sum_by_label")
    return out.reshape(count, vectors.shape[1])


def pq_encode(vectors: Floats, codebooks: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return the nearest code of each sub-vector, and its squared distance."""
    num_sub_vectors, count, _ = codebooks.shape
    rows = len(vectors)
    codes, distances = (
        np.empty(rows * num_sub_vectors, np.uint8),
        np.empty(rows * num_sub_vectors, np.float32),
    )
    status = _native.pq_encode(
        np.ascontiguousarray(vectors, np.float32).reshape(-1),
        np.ascontiguousarray(codebooks.transpose(0, 2, 1), np.float32).reshape(-1),
        num_sub_vectors,
        count,
        codes,
        distances,
    )
    checked(status, kernel="pq_encode")
    return codes.reshape(rows, num_sub_vectors), distances.reshape(rows, num_sub_vectors)
