"""Rotations that spread what vectors have over all elements.

The fast one needs no matrix: four times, elements change sign by chance and are added up crosswise,
as `turn_rows` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lancelet.format.wire import render_message
from lancelet.index.parts.tensor import render_tensor
from lancelet.kernels import turn_rows
from lancelet.values import dataclass

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
        return turn_rows(vectors.astype(np.float32, copy=False), self.signs)

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
