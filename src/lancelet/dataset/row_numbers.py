"""Rows as callers name them: lists, NumPy and Arrow arrays of integers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.file.arguments import ArgumentTypeError


def whole_numbers(numbers: Sequence[int] | pa.Array | np.ndarray) -> Int64s:
    """Return row numbers as signed integers; those that do not fit are refused."""
    if isinstance(numbers, pa.ChunkedArray):
        numbers = numbers.combine_chunks()
    if isinstance(numbers, pa.Array):
        numbers = numbers.to_numpy(zero_copy_only=False)
    found = np.asarray(numbers)
    if found.size == 0:
        return np.empty(0, np.int64)
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise ArgumentTypeError("row indices must be integers", dtype=str(found.dtype))
    return found.astype(np.int64)
