"""Codes of vectors: quantization to bytes, rotation, and PQ encoding."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.index.kernels.vectors import Floats, sum_type

_PASSES: Final = 4


def scaled_codes(vectors: Floats, bits: int, percent: int) -> npt.NDArray[np.uint8]:
    """Return `bits`-bit codes that, plus one half, approximate the direction of vectors.

    Codes are the non-negative vectors times a scale, rounded down. The best of all scales from
    `percent` of the maximum on is used; zero vectors have zero codes.
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
    """Rotate the rows of a matrix by a randomized Hadamard transform of four passes.

    Each pass flips signs by its part of `signs` and applies a Walsh-Hadamard transform:

        [a b c d]  ->  [a+b a-b c+d c-d]  ->  [a+b+c+d a-b+c-d a+b-c-d a-b-c+d], times 1 / sqrt(4)

    If the dimension is not a power of two, passes alternate between the first and the last
    elements, in the number of the next lower power, and then combine both halves.
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
    """Return the Walsh-Hadamard transform of rows, not normalized."""
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
    """Quantize rows minus a center to bytes; return them, the squared norms, and the step sizes.

    With `is_normal`, rows are normalized first. (byte - 128) * step differs from the element by at
    most half a step. Rows that cannot be quantized have NaN steps.
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


def pq_encode(vectors: Floats, codebooks: Floats) -> tuple[npt.NDArray[np.uint8], Floats]:
    """Return the nearest code of each sub-vector, and its squared distance.

    Codebooks have the shape (sub-vectors, codes, elements); the number of codes is a multiple of
    16, up to 256. Ties are resolved in favor of the first code.
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
