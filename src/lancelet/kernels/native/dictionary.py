"""Dictionary lookup by `native/src/dictionary.cpp`; `reference/dictionary.py` defines it."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, check_whole_values, word_type
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty, empty_bytes
from lancelet.kernels.offsets import Offsets, check_has_offsets

_FIXED_BYTES_MAX: Final = (1 << 31) - 1
"""Larger results may exceed the offsets, which the general kernel reports."""


def lookup_fixed(items: Bytes, item_bytes: int, indices: npt.NDArray[Any]) -> Bytes:
    """Return the item of `item_bytes` at each unsigned index."""
    check_whole_values(items, item_bytes)
    index_bytes = word_type(indices.dtype.itemsize * 8).itemsize
    out = empty_bytes(len(indices) * item_bytes)
    status = _native.lookup_fixed(items, item_bytes, as_bytes(indices), index_bytes, out)
    checked(status, kernel="lookup_fixed")
    return out


def lookup_variable(
    offsets: Offsets, data: Bytes, indices: npt.NDArray[Any]
) -> tuple[Offsets, Bytes]:
    """Return the byte string at each unsigned index, with offsets of the same width.

    Strings of equal size, such as one-letter codes, use the fixed-width lookup.
    """
    kernel = "lookup_variable"
    check_has_offsets(offsets, kernel=kernel)
    # For fewer indices than items, the check costs more than it saves.
    size = _common_size(offsets, data) if len(offsets) <= len(indices) else 0
    if size and len(indices) <= _FIXED_BYTES_MAX // size:
        fixed = empty(len(indices) + 1, offsets.dtype)
        fixed[:] = np.arange(0, fixed.size * size, size)
        return fixed, lookup_fixed(data[offsets[0] : offsets[-1]], size, indices)
    width, index_bytes = offsets.itemsize, word_type(indices.dtype.itemsize * 8).itemsize
    out_offsets = empty(len(indices) + 1, offsets.dtype)
    raw_indices, raw_offsets = as_bytes(indices), as_bytes(offsets)
    status = _native.lookup_sizes(
        raw_offsets, width, data.nbytes, raw_indices, index_bytes, as_bytes(out_offsets)
    )
    out = empty_bytes(checked(status, kernel=kernel))
    checked(
        _native.lookup_bytes(raw_offsets, width, data, raw_indices, index_bytes, out), kernel=kernel
    )
    return out_offsets, out


def _common_size(offsets: Offsets, data: Bytes) -> int:
    """Return the common size of all strings, or 0 if sizes differ or offsets are invalid."""
    if len(offsets) < 2 or not 0 <= int(offsets[0]) <= int(offsets[-1]) <= data.nbytes:
        return 0
    size = int(offsets[1]) - int(offsets[0])
    return size if size > 0 and bool((np.diff(offsets) == size).all()) else 0
