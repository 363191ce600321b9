"""Looking up dictionaries by `native/src/dictionary.cpp`; `reference/dictionary.py` defines it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_whole_values, word_type
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.offsets import Offsets, check_has_offsets


def look_up_fixed(items: Bytes, item_bytes: int, indices: npt.NDArray[Any]) -> Bytes:
    """Return the item of `item_bytes` at each unsigned index."""
    check_whole_values(items, item_bytes)
    index_bytes = word_type(indices.dtype.itemsize * 8).itemsize
    out = empty_bytes(len(indices) * item_bytes)
    status = _native.look_up_fixed(items, item_bytes, as_bytes(indices), index_bytes, out)
    checked(status, kernel="look_up_fixed")
    return out


def look_up_variable(
    offsets: Offsets, data: Bytes, indices: npt.NDArray[Any]
) -> tuple[Offsets, Bytes]:
    """Return the byte string at each unsigned index, with offsets of the same width."""
    kernel = "look_up_variable"
    check_has_offsets(offsets, kernel=kernel)
    width, index_bytes = offsets.itemsize, word_type(indices.dtype.itemsize * 8).itemsize
    out_offsets = empty(len(indices) + 1, offsets.dtype)
    words, items = as_bytes(indices), as_bytes(offsets)
    status = _native.look_up_sizes(
        items, width, data.nbytes, words, index_bytes, as_bytes(out_offsets)
    )
    out = empty_bytes(checked(status, kernel=kernel))
    checked(_native.look_up_bytes(items, width, data, words, index_bytes, out), kernel=kernel)
    return out_offsets, out
