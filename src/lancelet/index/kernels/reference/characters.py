"""UTF-8 decoding and text offsets."""

from __future__ import annotations

from typing import Final

import numpy as np

from lancelet.buffers import Bytes, Int64s
from lancelet.kernels.faults import Fault, corrupt

NO_CHARACTER: Final = 0x110000
"""Code of an invalid byte, in no character set."""


def read_character(source: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the code point and size of a character.

    >>> read_character("né".encode(), 1, 3)
    (233, 2)
    """
    first = source[at]
    if first < 0x80:
        return first, 1
    size = 4 if first >= 0xF0 else 3 if first >= 0xE0 else 2
    rest = source[at + 1 : at + size]
    if first < 0xC0 or at + size > end or any(byte & 0xC0 != 0x80 for byte in rest):
        return NO_CHARACTER, 1
    code = first & (0x7F >> size)
    for byte in rest:
        code = code << 6 | byte & 0x3F
    return code, size


def check_texts(offsets: Int64s, data: Bytes, *, kernel: str) -> None:
    """Raise unless texts are consecutive and within their data."""
    backwards = np.flatnonzero(np.diff(offsets) < 0)
    if not len(offsets) or offsets[0] < 0 or len(backwards) or offsets[-1] > data.nbytes:
        index = int(backwards[0]) if len(backwards) else 0
        raise corrupt(Fault.BAD_OFFSETS, kernel=kernel, index=index)
