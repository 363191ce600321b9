"""Rotations that spread what vectors have over all elements.

The fast one needs no matrix. Four times, elements change sign by chance and are added up crosswise:

    [a b c d]  ->  [a+b a-b c+d c-d]  ->  [a+b+c+d a-b+c-d a+b-c-d a-b-c+d], times 1 / sqrt(4)

Where the dimension is no power of two the largest below takes turns at the beginning and the end,
and halves are added crosswise after each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.format.wire import render_message
from lancelet.index.parts.tensor import render_tensor

_ROUNDS: Final = 4
_Matrix = npt.NDArray[Any]


class Rotation(Protocol):
    """Turns vectors, keeping their lengths and angles."""

    def turn(self, vectors: _Matrix) -> _Matrix:
        """Return the vectors turned; the rows of a matrix."""

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return what to write of the rotation."""

    def is_same(self, other: Rotation) -> bool:
        """Return whether another turns vectors the same way."""


@dataclass(frozen=True, slots=True, eq=False)
class FastRotation:
    """A rotation by sign bits, so many bytes for each of four rounds."""

    dimension: int
    signs: npt.NDArray[np.uint8]

    def turn(self, vectors: _Matrix) -> _Matrix:
        """Return the vectors turned."""
        size = self.dimension
        power = 1 << (size.bit_length() - 1)
        scale = np.float32(1 / np.sqrt(power))
        turned = vectors.astype(np.float32)
        flips = np.unpackbits(self.signs.reshape(_ROUNDS, -1), axis=1, bitorder="little")
        for round_, flip in enumerate(flips[:, :size].astype(np.float32)):
            turned = turned * (1 - 2 * flip)
            if power == size:
                turned = _crosswise(turned) * scale
                continue
            first = 0 if round_ % 2 == 0 else size - power
            part = slice(first, first + power)
            turned[:, part] = _crosswise(turned[:, part]) * scale
            half = size // 2
            low, high = turned[:, :half].copy(), turned[:, half : 2 * half].copy()
            turned[:, :half], turned[:, half : 2 * half] = low + high, low - high
        return turned if power == size else turned * np.float32(0.25)

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the signs."""
        return {
            "rotate_mat_position": None,
            "fast_rotation_signs": self.signs.tolist(),
            "rotation_type": "fast",
        }

    def is_same(self, other: Rotation) -> bool:
        """Return whether the other has the same signs."""
        return isinstance(other, FastRotation) and np.array_equal(self.signs, other.signs)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRotation:
    """A rotation by a matrix."""

    matrix: _Matrix

    def turn(self, vectors: _Matrix) -> _Matrix:
        """Return the vectors turned."""
        turned: _Matrix = vectors.astype(np.float32) @ self.matrix.T
        return turned

    def notes(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return where the matrix is, which becomes a buffer."""
        position = add_buffer(render_message(render_tensor(self.matrix)))
        return {"rotate_mat_position": position, "rotation_type": "matrix"}

    def is_same(self, other: Rotation) -> bool:
        """Return whether the other has the same matrix."""
        return isinstance(other, MatrixRotation) and np.array_equal(self.matrix, other.matrix)


def _crosswise(vectors: _Matrix) -> _Matrix:
    """Return sums and differences of elements 1 apart, then 2, then 4, up to half of them."""
    count, size = vectors.shape
    step = 1
    while step < size:
        pairs = vectors.reshape(count, -1, 2, step)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        vectors = np.stack([low + high, low - high], axis=2).reshape(count, size)
        step *= 2
    return vectors
