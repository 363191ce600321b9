"""Distances between one vector and many, and what finding clusters takes.

vectors [[0 0] [3 4]]  query [0 0]    squared L2 [0 25]

The metrics are those of the format: cosine is 1 - cos, dot is 1 - product, Hamming counts bits.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s, Slices
from lancelet.errors import CorruptDataError
from lancelet.kernels.graph import Floats, Metric, check_vectors, sum_type

_PASSES: Final = 4


def vector_distances(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    rows: Int64s | None = None,
) -> Floats:
    """Return the distance of each vector from a query, or of those in chosen rows.

    `vectors` are one after another: floats, or bytes of bits for Hamming. Distances are summed
    up in single precision, in double for vectors of that.
    """
    check_vectors(vectors, dimension, query, metric, rows)
    wide = vectors.reshape(-1, dimension)
    if rows is not None:
        wide = wide[rows]
    if metric is Metric.HAMMING:
        return _single(np.unpackbits(wide ^ query, axis=1).sum(axis=1))
    wide = wide.astype(sum_type(vectors.dtype))
    target = query.astype(wide.dtype)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        if metric is Metric.L2:
            return _single(((wide - target) ** 2).sum(axis=1))
        product = (wide * target).sum(axis=1)
        if metric is Metric.DOT:
            return _single(1 - product)
        root = np.sqrt((target * target).sum() * (wide * wide).sum(axis=1))
        return _single(1 - product / root)


def nearest_vectors(
    vectors: npt.NDArray[Any],
    dimension: int,
    query: npt.NDArray[Any],
    metric: Metric,
    count: int,
    valid: npt.NDArray[np.uint8] | None = None,
    valid_from: int = 0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[Int64s, Floats]:
    """Return the places and distances of so many vectors at most, the nearest first.

    Of those that are as near as each other the first come first. Only vectors are found whose
    distances are at least the first bound and below the second, if it is finite, and whose bits
    are set, which begin at bit `valid_from`. A distance that is no number is never found.
    """
    scores = vector_distances(vectors, dimension, query, metric)
    lower, upper = np.float32(bounds[0]), np.float32(bounds[1])
    selected = (scores >= lower) & ~((scores >= upper) & (upper < np.inf))
    if valid is not None:
        bits = np.unpackbits(valid, bitorder="little")
        selected &= bits[valid_from : valid_from + len(scores)].astype(np.bool_)
    indices = np.flatnonzero(selected)
    order = np.argsort(scores[indices], kind="stable")[:count]
    return indices[order], scores[indices[order]]


def slice_distances(
    slices: Slices, dtype: np.dtype[Any], dimension: int, query: npt.NDArray[Any], metric: Metric
) -> Floats:
    """Return the distance of each vector, whose elements are a slice, from a query."""
    width = dtype.itemsize * dimension
    if (slices.size != width).any():
        raise CorruptDataError("a vector has not as many bytes as its dimension needs")
    indices = slices.position[:, None] + np.arange(width)
    vectors = slices.source[indices].reshape(-1).view(dtype)
    return vector_distances(vectors, dimension, query, metric)


def scaled_codes(vectors: Floats, bits: int, percent: int) -> npt.NDArray[np.uint8]:
    """Return whole numbers of so many bits that, with a half added, point as vectors do.

    They are the rows of a matrix, without negative elements, times a scale and rounded down. Of
    all scales from `percent` of the greatest on, the one is taken that points best; rows of zeros
    have none.
    """
    top = (1 << bits) - 1
    codes = np.zeros(vectors.shape, np.uint8)
    for row, own in enumerate(vectors.astype(np.float64)):
        if not 0 < own.max(initial=0) < np.inf:
            continue
        last = (top + 10) / own.max()
        first = last * percent / 100
        start = np.minimum(np.floor(first * own + 1e-5), top)
        steps = sorted(
            (number / x, element)
            for element, (x, begun) in enumerate(zip(own, start, strict=True))
            for number in range(int(begun) + 1, top + 1)
            if x > 0 and number / x < last
        )
        full, chosen = start + 0.5, first
        best = (full * own).sum() / np.sqrt((full * full).sum())
        for scale, element in steps:
            full[element] += 1
            now = (full * own).sum() / np.sqrt((full * full).sum())
            if now > best:
                best, chosen = now, scale
        codes[row] = np.minimum(np.floor(chosen * own + 1e-5), top)
    return codes


def rotate_rows(vectors: Floats, signs: npt.NDArray[np.uint8]) -> Floats:
    """Return the rows of a matrix turned by sign bits, so many bytes for each of four rounds.

    In each, elements change sign and are added up crosswise:

        [a b c d]  ->  [a+b a-b c+d c-d]  ->  [a+b+c+d a-b+c-d a+b-c-d a-b-c+d], times 1 / sqrt(4)

    Where the dimension is no power of two the largest below takes turns at the beginning and the
    end, and halves are added crosswise after each.
    """
    size = vectors.shape[1]
    power = 1 << (size.bit_length() - 1)
    scale = np.float32(1 / np.sqrt(power))
    rotated = vectors.astype(np.float32)
    flips = np.unpackbits(signs.reshape(_PASSES, -1), axis=1, bitorder="little")
    for pass_, flip in enumerate(flips[:, :size].astype(np.float32)):
        rotated = rotated * (1 - 2 * flip)
        if power == size:
            rotated = _hadamard(rotated) * scale
            continue
        first = 0 if pass_ % 2 == 0 else size - power
        part = slice(first, first + power)
        rotated[:, part] = _hadamard(rotated[:, part]) * scale
        half = size // 2
        low, high = rotated[:, :half].copy(), rotated[:, half : 2 * half].copy()
        rotated[:, :half], rotated[:, half : 2 * half] = low + high, low - high
    return rotated if power == size else rotated * np.float32(0.25)


def _hadamard(vectors: Floats) -> Floats:
    """Return sums and differences of elements 1 apart, then 2, then 4, up to half of them."""
    count, size = vectors.shape
    step = 1
    while step < size:
        pairs = vectors.reshape(count, -1, 2, step)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        vectors = np.stack([low + high, low - high], axis=2).reshape(count, size)
        step *= 2
    return vectors


def quantize_rows(
    vectors: npt.NDArray[Any], center: Floats, *, is_normal: bool = False
) -> tuple[npt.NDArray[np.uint8], Floats, Floats]:
    """Return rows less a centre as bytes, the sums of squares of what is rounded, and the steps.

    Where it is asked for, a row is made of length one before. A byte less 128 times the step of
    its row is at most half a step off. Rows that cannot be rounded have steps that are no numbers.
    """
    wide = vectors.astype(sum_type(vectors.dtype))
    with np.errstate(all="ignore"):
        if is_normal:
            lengths = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
            wide = wide / np.where(lengths > 0, lengths, 1)
        difference = (wide - center).astype(np.float32)
        squares = _single((difference * difference).sum(axis=1))
        is_finite = squares < 1e30
        steps = np.abs(difference).max(axis=1, initial=0) / np.float32(127)
        steps = np.where(steps * 127 > 1e-20, steps, 0)
        scaled = np.floor(difference / np.where(steps > 0, steps, np.inf)[:, None] + 0.5) + 128
    numbers = np.where(is_finite[:, None], scaled, 128).astype(np.uint8)
    unknown = np.float32(np.nan)
    return numbers, np.where(is_finite, squares, unknown), np.where(is_finite, steps, unknown)


def sum_by_label(vectors: npt.NDArray[Any], labels: Int64s, count: int) -> npt.NDArray[np.float64]:
    """Return, for each of so many labels, the sum of the rows that have it."""
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, labels, vectors)
    return sums


def pq_encode(vectors: Floats, codebooks: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return which word is the nearest of each piece of each vector, and the squared distance.

    Words have the shape (pieces, words, elements); there are 16, or some more times that, up to
    256. The first of several that are as near is taken.
    """
    num_sub_vectors, _, size = codebooks.shape
    rows = len(vectors)
    codes = np.empty((rows, num_sub_vectors), np.uint8)
    distances = np.empty((rows, num_sub_vectors), np.float32)
    for sub_vector, own in enumerate(codebooks):
        difference = vectors.reshape(rows, num_sub_vectors, size)[:, sub_vector, None, :] - own
        squares = (difference * difference).sum(axis=2)
        codes[:, sub_vector] = squares.argmin(axis=1)
        distances[:, sub_vector] = squares.min(axis=1, initial=np.inf)
    return codes, distances


def _single(values: npt.NDArray[Any]) -> Floats:
    return values.astype(np.float32)
