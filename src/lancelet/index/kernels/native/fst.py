"""Finite-state transducers from keys to numbers, by `native/index/fst.cpp`."""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.index.kernels.fst import COMMON, HEADER_BYTES
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s
from lancelet.kernels.faults import Fault, checked
from lancelet.kernels.native.allocate import empty_bytes

_COMMON: Final = np.frombuffer(COMMON, np.uint8)
_CODES: Final = np.zeros(256, np.uint8)
_CODES[_COMMON] = np.arange(1, len(COMMON) + 1)
_NODE_BYTES_MAX: Final = 1 << 13
"""Upper bound of the size of a node."""
_KEY_BYTES: Final = 16
"""Estimated size of a key and its nodes."""
_GROWTH: Final = 4


def write_fst(offsets: Int64s, data: Bytes, numbers: Int64s) -> tuple[Bytes, int]:
    """Return the nodes of sorted keys, preceded by room for a header, and the root address."""
    root = np.empty(1, np.int64)
    arrays = as_int64s(offsets), as_bytes(data), as_int64s(numbers)
    room = _KEY_BYTES * len(numbers) + len(data) + _NODE_BYTES_MAX
    while True:
        out = empty_bytes(room)
        used = _native.write_fst(*arrays, _CODES, out, root)
        if not _is_full(used):
            checked(used, kernel="write_fst")
            out[:HEADER_BYTES] = 0
            return out[:used], int(root[0])
        room *= _GROWTH


def read_fst(data: Bytes, root: int, max_count: int) -> tuple[Bytes, Int64s, Int64s]:
    """Return at most `max_count` keys: their bytes, the end of each, and their numbers."""
    ends, numbers = np.empty(max_count, np.int64), np.empty(max_count, np.int64)
    room = _KEY_BYTES * max_count
    while True:
        text = empty_bytes(room)
        found = _native.read_fst(as_bytes(data), root, _COMMON, text, ends, numbers)
        if not _is_full(found):
            checked(found, kernel="read_fst")
            return text[: ends[found - 1] if found else 0], ends[:found], numbers[:found]
        room *= _GROWTH


def _is_full(status: int) -> bool:
    return status < 0 and -status % 16 == Fault.OUTPUT_FULL
