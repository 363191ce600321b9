"""FastLanes bit packing by `native/src/bitpack.cpp`; `reference/bitpack.py` defines it."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from lancelet.buffers import Int64s, Slices
from lancelet.kernels import _native
from lancelet.kernels.arguments import (
    BLOCK,
    as_bytes,
    as_int64s,
    check_counts,
    slice_arrays,
    word_type,
)
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty


def unpack_chunks(slices: Slices, counts: Int64s, word_bits: int) -> npt.NDArray[Any]:
    """Unpack inline blocks, one per slice, and keep the first `counts[i]` values of each."""
    kernel = "unpack_chunks"
    dtype = word_type(word_bits)
    check_counts(counts, most=BLOCK, kernel=kernel)
    out = empty(int(counts.sum()), dtype)
    status = _native.unpack_chunks(
        *slice_arrays(slices, counts), as_int64s(counts), word_bits, as_bytes(out)
    )
    checked(status, kernel=kernel)
    return out
