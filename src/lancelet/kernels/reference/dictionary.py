"""Dictionary lookup: the item at each index.

For example:

    items 10 20 30     indices 2 0 2     values 30 10 30
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.arguments import check_whole_values, word_type
from lancelet.kernels.faults import Fault, corrupt
from lancelet.kernels.offsets import Offsets, check_has_offsets, offsets_of
from lancelet.kernels.reference.copies import gather


def lookup_fixed(items: Bytes, item_bytes: int, indices: npt.NDArray[Any]) -> Bytes:
    """Return the item of `item_bytes` at each unsigned index."""
    count = check_whole_values(items, item_bytes)
    rows = _rows(indices, count, kernel="lookup_fixed")
    taken: Bytes = items.reshape(count, item_bytes)[rows].reshape(-1)
    return taken


def lookup_variable(
    offsets: Offsets, data: Bytes, indices: npt.NDArray[Any]
) -> tuple[Offsets, Bytes]:
    """Return the byte string at each unsigned index, with offsets of the same width."""
    check_has_offsets(offsets, kernel="lookup_variable")
    rows = _rows(indices, len(offsets) - 1, kernel="lookup_variable")
    start = offsets[rows].astype(np.int64)
    size = offsets[rows + 1].astype(np.int64) - start
    bad = (start < 0) | (size < 0) | (start + size > data.nbytes)
    if bad.any():
        raise corrupt(Fault.BAD_OFFSETS, kernel="lookup_variable", index=int(bad.argmax()))
    bits = offsets.dtype.itemsize * 8
    return offsets_of(size, out_bits=bits, kernel="lookup_variable"), gather(data, start, size)


def _rows(indices: npt.NDArray[Any], count: int, *, kernel: str) -> Int64s:
    outside = indices.view(word_type(indices.dtype.itemsize * 8)) >= count
    if outside.any():
        raise corrupt(Fault.BAD_INDEX, kernel=kernel, index=int(outside.argmax()))
    return indices.astype(np.int64)
