"""Conversion of 8, 16, 32 or 64-bit values to unsigned integers and back, for arithmetic codecs.

    FixedWidth(16, 01 00 02 00, 2)   <->   uint16 [1 2]

Negative numbers, floats and times are reinterpreted as unsigned integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.validate import require_fixed_width
from lancelet.errors import CorruptDataError

UNSIGNED_TYPES: dict[int, np.dtype[Any]] = {
    8: np.dtype("<u1"),
    16: np.dtype("<u2"),
    32: np.dtype("<u4"),
    64: np.dtype("<u8"),
}
"""The unsigned integer type of each supported bit width."""


def to_unsigned(block: Block, codec: str) -> npt.NDArray[Any]:
    """Return values of 8, 16, 32 or 64 bits as unsigned integers; copied only if unaligned.

    >>> to_unsigned(FixedWidth(16, np.array([1, 0, 2, 0], np.uint8), 2), "delta").tolist()
    [1, 2]
    """
    values = require_fixed_width(block, codec)
    dtype = UNSIGNED_TYPES.get(values.bits)
    if dtype is None:
        raise CorruptDataError("unsupported bit width of numbers", bits=values.bits)
    integers = values.data[: values.count * dtype.itemsize].view(dtype)
    return integers if integers.flags.aligned else integers.copy()


def from_unsigned(values: npt.NDArray[Any]) -> FixedWidth:
    """Return numbers as a block."""
    return FixedWidth(values.itemsize * 8, values.view(np.uint8), len(values))


def validate_bits(bits: int, codec: str) -> int:
    """Return a stored bit width of integers, or raise if invalid."""
    if bits not in UNSIGNED_TYPES:
        raise CorruptDataError(
            "invalid bit width; expected 8, 16, 32 or 64", codec=codec, found_bits=int(bits)
        )
    return int(bits)
