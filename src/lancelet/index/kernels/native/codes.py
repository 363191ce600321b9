"""Quantization and rotation of vectors by `native/index/codes.cpp`; see the reference."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.index.kernels.vectors import Floats
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked

_ALL: Final = np.empty(0, np.int64)
_NO_BITS: Final = np.empty(0, np.uint8)


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
