"""Sorting integers of any width, with what belongs to them.

keys  int16    3 -1 3      numbers  10 11 12
words uint64   the same in order: the sign bit turned around
sorted        -1  3 3               11 10 12
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.kernels import sort_words
from lancelet.rowids.address import UInt64s

_SIGN: Final = np.uint64(1 << 63)
_MANY: Final = 1024
"""Fewer numbers are sorted by NumPy, which starts sooner."""


def sort_numbers(keys: npt.NDArray[Any], numbers: UInt64s) -> tuple[npt.NDArray[Any], UInt64s]:
    """Return integers in ascending order, and what belongs to each; equals stay as they come."""
    if len(keys) < _MANY:
        places = np.argsort(keys, kind="stable")
        return keys[places], numbers[places]
    words, ordered = sort_words(_words(keys), numbers)
    return _from_words(words, keys.dtype), ordered


def sorted_places(keys: npt.NDArray[Any]) -> Int64s:
    """Return the places of integers in ascending order, equals as they come.

    >>> sorted_places(np.array([2, -1, 2])).tolist()
    [1, 0, 2]
    """
    if len(keys) < _MANY:
        return np.argsort(keys, kind="stable")
    _, places = sort_words(_words(keys), np.arange(len(keys), dtype=np.uint64))
    return places.view(np.int64)


def _words(keys: npt.NDArray[Any]) -> UInt64s:
    """Return integers as unsigned ones of the same order."""
    if keys.dtype.kind == "u":
        return keys.astype(np.uint64)
    words: UInt64s = keys.astype(np.int64).view(np.uint64)
    words ^= _SIGN
    return words


def _from_words(words: UInt64s, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the integers of a type that `_words` made of them."""
    if dtype.kind == "u":
        return words.astype(dtype, copy=False)
    words ^= _SIGN
    return words.view(np.int64).astype(dtype, copy=False)
