"""Arguments and results of the small page encoder."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s


class SmallPage(NamedTuple):
    """The values of a page.

    Numbers have `bits` each, from bit `first_bit` on. Strings have offsets of that width, relative
    to the first byte of `values`. Nulls are given by levels, or by validity bits from bit
    `valid_offset` on, or neither.
    """

    bits: int
    values: Bytes
    first_bit: int = 0
    offsets: Bytes | None = None
    levels: npt.NDArray[np.uint16] | None = None
    validity: Bytes | None = None
    valid_offset: int = 0


class PageRules(NamedTuple):
    """Constants of the choice of encodings; `encodings.miniblock.small` has their values."""

    rows_max: int
    raw_bytes_max: int
    few_rows: int
    few_numbers_bytes: int
    few_texts_bytes: int
    tiny_bytes: int
    wide_bytes: int
    long_bytes_before_2_2: int
    inline_bytes_max: int
    chunk_values_max: int
    chunk_bytes_aim: int
    small_chunk_bytes: int
    large_chunk_bytes: int
    chunk_frame_bytes: int
    part_frame_bytes: int
    dictionary_rows_min: int
    compress_items_from_bytes: int
    sample_bytes: float
    sample_values_min: float
    sample_values_max: float
    byte_ns: float
    lookup_ns: float
    plain_decode_ns: float
    run_decode_ns: float
    repeated_min: float
    indices_max: float
    obvious: float
    dictionary_ratio_max: float


class Found(IntEnum):
    """Result columns of an encoded page.

    Sizes of encodings include chunk headers, and are -1 for encodings that were not tried.
    Dictionary columns are set if a dictionary was tried.
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
    """Encoded pages in one buffer: chunk table, chunks and dictionary items of each."""

    data: Bytes
    found: Int64s
    """A row of `Found` for each page."""
