"""Looking up dictionaries by `native/src/dictionary.cpp`; `reference/dictionary.py` defines it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_whole_values, word_type
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty_bytes


def look_up_fixed(items: Bytes, item_bytes: int, indices: npt.NDArray[Any]) -> Bytes:
    """Return the item of `item_bytes` at each unsigned index."""
    check_whole_values(items, item_bytes)
    index_bytes = word_type(indices.dtype.itemsize * 8).itemsize
    out = empty_bytes(len(indices) * item_bytes)
    status = _native.look_up_fixed(items, item_bytes, as_bytes(indices), index_bytes, out)
    checked(status, kernel="look_up_fixed")
    return out
