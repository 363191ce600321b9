"""Tokenization and sorting by `native/index/tokens.cpp`; see the reference."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.index.kernels.tokens import TokenTable
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s, slice_arrays
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

UInt32s = npt.NDArray[np.uint32]
_UINT32 = np.dtype(np.uint32)
_INT64 = np.dtype(np.int64)

UInt64s = npt.NDArray[np.uint64]

_UINT64: Final = np.dtype(np.uint64)
_SPARE: Final = 4
"""Two keys and two values of scratch space per pair."""


def find_tokens(offsets: Int64s, data: Bytes, members: Bytes) -> tuple[ByteSlices, Int64s]:
    """Return the tokens of texts, and the number of tokens per text."""
    kernel = "find_tokens"
    texts = as_int64s(offsets), as_bytes(data), as_bytes(members)
    counts = np.empty(max(0, len(offsets) - 1), np.int64)
    total = checked(_native.count_tokens(*texts, counts), kernel=kernel)
    position, size = empty(total, _INT64), empty(total, _INT64)
    checked(_native.locate_tokens(*texts, position, size), kernel=kernel)
    return ByteSlices(data, position, size), counts


def assign_token_ids(slices: ByteSlices, table: TokenTable) -> UInt32s:
    """Return the token id of each slice; new tokens are added to the table."""
    ids = empty(len(slices), _UINT32)
    source, position, size = slice_arrays(slices)
    done = 0
    while True:
        rest = source, position[done:], size[done:]
        buffers = table.slots, table.hashes, table.ends, table.text, table.state
        count = _native.assign_token_ids(rest, buffers, ids[done:])
        done += checked(count, kernel="assign_token_ids")
        if done == len(slices):
            return ids
        if table.grow(int(size[done])):
            status = _native.insert_hashes(table.hashes[: len(table)], table.slots)
            checked(status, kernel="insert_hashes")


def counting_order(keys: UInt32s, num_keys: int) -> UInt32s:
    """Return the indices that sort keys; stable."""
    order = empty(len(keys), _UINT32)
    status = _native.counting_order(np.ascontiguousarray(keys), num_keys, order)
    checked(status, kernel="counting_order")
    return order


def sort_pairs(keys: UInt64s, values: UInt64s) -> tuple[UInt64s, UInt64s]:
    """Return keys in ascending order and their values; stable."""
    count = len(keys)
    keys_out, values_out = empty(count, _UINT64), empty(count, _UINT64)
    spare = empty(_SPARE * count, _UINT64)
    arrays = _aligned(keys), _aligned(values), keys_out, values_out, spare
    checked(_native.sort_pairs(*arrays), kernel="sort_pairs")
    return keys_out, values_out


def _aligned(keys: UInt64s) -> UInt64s:
    return np.require(keys, np.uint64, ["C", "A"])
