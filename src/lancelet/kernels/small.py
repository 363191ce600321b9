"""Small pages before and after they are encoded: what kernels are given, and what they find."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s


class SmallPage(NamedTuple):
    """The values of a page.

    They have `bits` each, from bit `first_bit` on, or are strings whose offsets have as many bits
    and begin at that of the first byte of `values`. Of what is missing there are levels, or bits of
    validity from bit `valid_from` on, or neither if nothing is.
    """

    bits: int
    values: Bytes
    first_bit: int = 0
    offsets: Bytes | None = None
    levels: npt.NDArray[np.uint16] | None = None
    validity: Bytes | None = None
    valid_from: int = 0


class Found(IntEnum):
    """The columns of what was found out about pages, and where their buffers are.

    Bytes of encodings include the frames of chunks, and are -1 where one was not tried. What a
    dictionary would be is told wherever one was tried.
    """

    KIND = 0
    ENCODING = 1
    LEVEL_ENCODING = 2
    HAS_DICTIONARY = 3
    ITEMS = 4
    ITEM_WIDTH = 5
    INDEX_BITS = 6
    INDEX_ENCODING = 7
    POSITION = 8
    WORD_BYTES = 9
    CHUNK_BYTES = 10
    ITEM_BYTES = 11
    PLAIN_BYTES = 12
    PACKED_BYTES = 13
    RUN_BYTES = 14
    INDEX_BYTES = 15


class SmallPages(NamedTuple):
    """Pages in one buffer: words, chunks and items of a dictionary behind each other for each."""

    data: Bytes
    found: Int64s
    """A row of `Found` for each page."""
