"""Values of 8, 16, 32 or 64 bits as numbers, and back: what codecs that calculate work on.

    FixedWidth(16, 01 00 02 00, 2)   <->   uint16 [1 2]

Numbers are unsigned: a codec takes negative ones, floats and times by their bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.expect import expect_fixed_width
from lancelet.errors import CorruptDataError

WORDS: dict[int, np.dtype[Any]] = {
    8: np.dtype("<u1"),
    16: np.dtype("<u2"),
    32: np.dtype("<u4"),
    64: np.dtype("<u8"),
}
"""The unsigned type of each width that codecs calculate with."""


def as_words(block: Block, codec: str) -> npt.NDArray[Any]:
    """Return values of 8, 16, 32 or 64 bits as unsigned numbers; copied only if unaligned.

    >>> as_words(FixedWidth(16, np.array([1, 0, 2, 0], np.uint8), 2), "delta").tolist()
    [1, 2]
    """
    values = expect_fixed_width(block, codec)
    dtype = WORDS.get(values.bits)
    if dtype is None:
        raise CorruptDataError("values have a width that no number has", bits=values.bits)
    words = values.data[: values.count * dtype.itemsize].view(dtype)
    return words if words.flags.aligned else words.copy()


def from_words(values: npt.NDArray[Any]) -> FixedWidth:
    """Return numbers as a block."""
    return FixedWidth(values.itemsize * 8, values.view(np.uint8), len(values))


def checked_word_bits(bits: int, codec: str) -> int:
    """Return the width of a word from storage, or say that it is none."""
    if bits not in WORDS:
        raise CorruptDataError("a word has 8, 16, 32 or 64 bits", codec=codec, found_bits=int(bits))
    return int(bits)
