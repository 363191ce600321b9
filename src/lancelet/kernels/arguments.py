"""What both implementations of the kernels do with their arguments before any loop."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.errors import InvalidInputError
from lancelet.kernels.faults import Fault, corrupt

BLOCK: Final = 1024
"""Values in a bit-packed block."""

UNSIGNED: Final[dict[int, np.dtype[Any]]] = {
    8: np.dtype(np.uint8),
    16: np.dtype(np.uint16),
    32: np.dtype(np.uint32),
    64: np.dtype(np.uint64),
}
"""The unsigned type of a word, by its bits."""


def word_type(word_bits: int) -> np.dtype[Any]:
    """Return the unsigned type of `word_bits` bits."""
    if word_bits not in UNSIGNED:
        raise InvalidInputError("a word has 8, 16, 32 or 64 bits", word_bits=word_bits)
    return UNSIGNED[word_bits]


def as_bytes(array: npt.NDArray[Any]) -> Bytes:
    """Return the bytes of an array, copied only if they are not contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def as_int64s(array: npt.ArrayLike) -> Int64s:
    """Return aligned, contiguous 64-bit integers, copied only if they are not."""
    return np.require(array, np.int64, ["C", "A"])


def slice_arrays(slices: Slices, *per_slice: Int64s) -> tuple[Bytes, Int64s, Int64s]:
    """Return source, positions and sizes as a native kernel takes them, with equal lengths."""
    for array in (slices.size, *per_slice):
        if len(array) != len(slices):
            raise InvalidInputError(
                "every slice needs one size and one count", slices=len(slices), found=len(array)
            )
    return slices.source, as_int64s(slices.position), as_int64s(slices.size)


def check_slices(slices: Slices, counts: Int64s | None = None, *, kernel: str) -> None:
    """Check that slices lie in their source and that there is one count each."""
    if counts is not None and len(counts) != len(slices):
        raise InvalidInputError(
            "every slice needs one count", kernel=kernel, slices=len(slices), counts=len(counts)
        )
    bad = (slices.position < 0) | (slices.size < 0)
    bad |= slices.size > slices.source.nbytes
    bad |= slices.position > slices.source.nbytes - slices.size
    if bad.any():
        raise corrupt(Fault.OUT_OF_SOURCE, kernel=kernel, place=int(bad.argmax()))


def check_counts(counts: Int64s, *, most: int, kernel: str) -> None:
    """Check that every count is between 0 and `most`, so that their sum is honest."""
    bad = (counts < 0) | (counts > most)
    if bad.any():
        raise corrupt(Fault.BAD_COUNT, kernel=kernel, place=int(bad.argmax()))
