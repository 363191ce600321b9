"""Lengths of documents in a byte: exact below 8, else the four highest bits.

length    5    19 = 10011b     code 5,  0b0010001 = 17     read as 5, 18
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

UInt32s = npt.NDArray[np.uint32]


def length_codes(lengths: UInt32s) -> UInt32s:
    """Return the code of each length.

    >>> length_codes(np.array([5, 8, 19], np.uint32)).tolist()
    [5, 8, 17]
    """
    bits = np.frexp(lengths.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0).astype(np.uint32)
    large = lengths >= 8
    codes = (lengths >> shift & 7) | (shift + 1) << 3
    return np.where(large, codes, lengths).astype(np.uint32)


def quantized_lengths(lengths: UInt32s) -> UInt32s:
    """Return the smallest length with the same code, for each length."""
    bits = np.frexp(lengths.astype(np.float64))[1]
    shift = np.maximum(bits - 4, 0).astype(np.uint32)
    found: UInt32s = lengths >> shift << shift
    return found
