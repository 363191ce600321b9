"""Sorting by `native/src/sort_words.cpp`; `reference/sort_words.py` defines it."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.kernels import _native
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

UInt64s = npt.NDArray[np.uint64]

_UINT64: Final = np.dtype(np.uint64)
_SPARE: Final = 4
"""Two words and two numbers wait between passes for each that is sorted."""


def sort_words(words: UInt64s, numbers: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return words in ascending order, and the numbers that belong to them."""
    count = len(words)
    words_out, numbers_out = empty(count, _UINT64), empty(count, _UINT64)
    spare = empty(_SPARE * count, _UINT64)
    arrays = _aligned(words), _aligned(numbers), words_out, numbers_out, spare
    checked(_native.sort_words(*arrays), kernel="sort_words")
    return words_out, numbers_out


def _aligned(words: UInt64s) -> UInt64s:
    return np.require(words, np.uint64, ["C", "A"])
