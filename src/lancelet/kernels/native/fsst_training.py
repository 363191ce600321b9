"""Choosing FSST symbols by `native/src/once/fsst_training.cpp`, as `reference` defines it."""

from __future__ import annotations

import numpy as np

from lancelet.buffers import Bytes
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes
from lancelet.kernels.faults import checked
from lancelet.kernels.native.fsst import Symbols
from lancelet.kernels.offsets import Offsets, check_offsets


def fsst_train(offsets: Offsets, data: Bytes) -> tuple[Symbols, Bytes]:
    """Choose at most 255 symbols for strings like these."""
    kernel = "fsst_train"
    check_offsets(offsets, data.nbytes, kernel=kernel)
    symbols, lengths = np.empty(255, np.uint64), np.empty(255, np.uint8)
    width = offsets.dtype.itemsize
    status = _native.fsst_train(as_bytes(offsets), width, data, symbols, lengths)
    count = checked(status, kernel=kernel)
    return symbols[:count], lengths[:count]
