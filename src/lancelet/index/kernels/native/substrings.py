"""Substring search by `native/index/substrings.cpp`; `reference/substrings.py` defines it."""

from __future__ import annotations

from typing import Any

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.index.kernels.substrings import Int32s, UInt32s, UInt64s, WaveletTree
from lancelet.kernels import _native
from lancelet.kernels.arguments import as_bytes, as_int64s
from lancelet.kernels.faults import checked
from lancelet.kernels.native.allocate import empty

_BYTE = np.dtype(np.uint8)
_INT32 = np.dtype(np.int32)
_UINT32 = np.dtype(np.uint32)
_INT64 = np.dtype(np.int64)


def order_suffixes(text: Bytes) -> Int32s:
    """Return the suffix array of a text, whose last byte must be its only 0."""
    order = empty(len(text), _INT32)
    checked(_native.order_suffixes(as_bytes(text), order), kernel="order_suffixes")
    return order


def rank_bits(bit_words: UInt64s, starts: Int64s) -> UInt32s:
    """Return the number of set bits before each word of each node, and in the whole node."""
    ranks = empty(len(bit_words) + len(starts) - 1, _UINT32)
    checked(_native.rank_bits(bit_words, as_int64s(starts), ranks), kernel="rank_bits")
    return ranks


def find_suffixes(tree: WaveletTree, pattern: bytes) -> tuple[int, int]:
    """Return the row range of the suffixes that start with a pattern."""
    bounds = np.empty(2, np.int64)
    pattern_bytes = np.frombuffer(pattern, np.uint8)
    checked(_native.find_suffixes(_arrays(tree), pattern_bytes, bounds), kernel="find_suffixes")
    return int(bounds[0]), int(bounds[1])


def locate_suffixes(
    tree: WaveletTree, samples: UInt64s, rate: int, first: int, count: int
) -> Int64s:
    """Return the text positions of suffix rows, from samples of every `rate`-th row."""
    positions = empty(count, _INT64)
    status = _native.locate_suffixes(_arrays(tree), samples, rate, first, positions)
    checked(status, kernel="locate_suffixes")
    return positions


def unwind_text(tree: WaveletTree) -> Bytes:
    """Reconstruct the text."""
    text = empty(max(0, tree.length), _BYTE)
    checked(_native.unwind_text(_arrays(tree), text), kernel="unwind_text")
    return text


def _arrays(tree: WaveletTree) -> tuple[Any, ...]:
    return tree.bit_words, tree.ranks, tree.starts, tree.bits, tree.children, tree.counts
