"""Output memory, allocated from Arrow's pool if large.

NumPy returns large arrays to the system, so each call would pay page faults again. The pool reuses
memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.kernels.recycled import recycled_bytes

_POOL_FROM_BYTES: Final = 64 * 1024


def empty(count: int, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an uninitialized, aligned array of `count` items."""
    size = count * dtype.itemsize
    if size < _POOL_FROM_BYTES:
        return np.empty(count, dtype)
    if (recycled := recycled_bytes(size)) is not None:
        values: npt.NDArray[Any] = recycled.view(dtype)
        return values
    array: npt.NDArray[Any] = np.frombuffer(memoryview(pa.allocate_buffer(size)), dtype)
    return array


def empty_bytes(count: int) -> Bytes:
    """Return `count` uninitialized bytes."""
    return empty(count, np.dtype(np.uint8))
