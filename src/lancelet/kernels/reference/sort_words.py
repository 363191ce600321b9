"""Sorting numbers that carry others: equal ones stay as they stand.

words     7 3 7 0      numbers  10 11 12 13
sorted    0 3 7 7               13 11 10 12
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.kernels.faults import Fault, corrupt

UInt64s = npt.NDArray[np.uint64]


def sort_words(words: UInt64s, numbers: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return words in ascending order, and the numbers that belong to them."""
    if len(words) != len(numbers):
        raise corrupt(Fault.BAD_LENGTH, kernel="sort_words", place=0)
    order = np.argsort(words, kind="stable")
    return words[order], numbers[order]
