"""Words of texts by `native/src/words.cpp`; `reference/words.py` defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

UInt32s = npt.NDArray[np.uint32]
_UINT32 = np.dtype(np.uint32)
_INT64 = np.dtype(np.int64)


def find_words(offsets: Int64s, data: Bytes, members: Bytes) -> tuple[Slices, Int64s]:
    """Return the words of texts, and how many each text has."""
    kernel = "find_words"
    texts = as_int64s(offsets), as_bytes(data), as_bytes(members)
    counts = np.empty(max(0, len(offsets) - 1), np.int64)
    total = checked(_native.count_words(*texts, counts), kernel=kernel)
    position, size = empty(total, _INT64), empty(total, _INT64)
    checked(_native.place_words(*texts, position, size), kernel=kernel)
    return Slices(data, position, size), counts


def intern_slices(slices: Slices) -> tuple[UInt32s, Int64s]:
    """Return a number for each slice, the same for equal ones, and where each is first met."""
    ids, first = empty(len(slices), _UINT32), empty(len(slices), _INT64)
    arrays = slice_arrays(slices)
    met = checked(_native.intern_slices(*arrays, ids, first), kernel="intern_slices")
    return ids, first[:met]


def counting_order(keys: UInt32s, num_keys: int) -> UInt32s:
    """Return the places of keys in ascending order, equal ones as they stand."""
    order = empty(len(keys), _UINT32)
    status = _native.counting_order(np.ascontiguousarray(keys), num_keys, order)
    checked(status, kernel="counting_order")
    return order
