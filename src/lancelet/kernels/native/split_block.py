"""Bloom filters by `native/src/split_block.cpp`; `reference/split_block.py` defines them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, check_filters
from lancelet.kernels.faults import checked
from lancelet.kernels.native.hashing import Hashes


def fill_filters(hashes: Hashes, stops: Int64s, filter_bytes: int) -> Bytes:
    """Return filters one after another: each has the hashes up to its stop."""
    check_filters((), filter_bytes)
    filters = np.empty(len(stops) * filter_bytes, np.uint8)
    status = _native.fill_filters(_aligned(hashes), as_int64s(stops), filters)
    checked(status, kernel="fill_filters")
    return filters


def ask_filters(
    data: Bytes, starts: Int64s, sizes: Int64s, hashes: Hashes
) -> npt.NDArray[np.bool_]:
    """Return for each filter, a part of `data`, and each hash whether it may have been added."""
    check_filters((len(starts), len(sizes)), sizes)
    found = np.empty((len(starts), len(hashes)), np.bool_)
    status = _native.ask_filters(
        as_bytes(data), as_int64s(starts), as_int64s(sizes), _aligned(hashes), as_bytes(found)
    )
    checked(status, kernel="ask_filters")
    return found


def _aligned(hashes: Hashes) -> Hashes:
    return np.require(hashes, np.uint64, ["C", "A"])
