"""Random rotations, which distribute information evenly over all dimensions.

The fast rotation needs no matrix. It applies four rounds of random sign flips and a Hadamard
transform, see `rotate_rows`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.format.wire import render_message
from lancelet.index.kernels import rotate_rows
from lancelet.index.parts.tensor import render_tensor
from lancelet.values import dataclass

_Matrix = npt.NDArray[Any]


class Rotation(Protocol):
    """Rotates vectors, preserving lengths and angles."""

    def rotate(self, vectors: _Matrix) -> _Matrix:
        """Return the rotated rows of a matrix."""

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Return the storage metadata of the rotation."""

    def is_same(self, other: Rotation) -> bool:
        """Return whether another rotation is equal."""


@dataclass(frozen=True, slots=True, eq=False)
class FastRotation:
    """A rotation defined by sign bits, an equal number of bytes for each of four rounds."""

    dimension: int
    signs: npt.NDArray[np.uint8]

    def rotate(self, vectors: _Matrix) -> _Matrix:
        """Return the rotated vectors."""
        return rotate_rows(vectors.astype(np.float32, copy=False), self.signs)

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:  # noqa: ARG002
        """Return the signs."""
        return {
            "rotate_mat_position": None,
            "fast_rotation_signs": self.signs.tolist(),
            "rotation_type": "fast",
        }

    def is_same(self, other: Rotation) -> bool:
        """Return whether the other rotation has the same signs."""
        return isinstance(other, FastRotation) and np.array_equal(self.signs, other.signs)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRotation:
    """A rotation defined by a matrix."""

    matrix: _Matrix

    def rotate(self, vectors: _Matrix) -> _Matrix:
        """Return the rotated vectors."""
        rotated: _Matrix = vectors.astype(np.float32) @ self.matrix.T
        return rotated

    def storage_metadata(self, add_buffer: Callable[[bytes], int]) -> dict[str, Any]:
        """Write the matrix to a buffer and return its number."""
        position = add_buffer(render_message(render_tensor(self.matrix)))
        return {"rotate_mat_position": position, "rotation_type": "matrix"}

    def is_same(self, other: Rotation) -> bool:
        """Return whether the other rotation has the same matrix."""
        return isinstance(other, MatrixRotation) and np.array_equal(self.matrix, other.matrix)
