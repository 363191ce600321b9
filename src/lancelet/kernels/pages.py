"""Arguments and results of the page encoder."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, Int64s


class PageValues(NamedTuple):
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
    """Constants of the choice of encodings; `encodings.pages.encode_pages` has them."""

    few_rows: int
    few_numbers_bytes: int
    few_texts_bytes: int
    tiny_bytes: int
    wide_bytes: int
    long_bytes: int
    long_bytes_before_2_2: int
    inline_bytes_max: int
    chunk_values_max: int
    chunk_bytes_aim: int
    small_chunk_bytes: int
    large_chunk_bytes: int
    lz4_bytes_aim: int
    coded_bytes_aim: int
    chunk_frame_bytes: int
    part_frame_bytes: int
    dictionary_rows_min: int
    dictionary_items_max: int
    compress_items_from_bytes: int
    compress_from_bytes: int
    sample_runs: int
    entropy_values: int
    sample_bytes: float
    sample_bytes_max: float
    sample_values_few: float
    sample_values_max: float
    sample_values_min: float
    byte_ns: float
    lookup_ns: float
    plain_decode_ns: float
    run_decode_ns: float
    lz4_byte_ns: float
    lz4_saved_ns: float
    lz4_split_ns: float
    coded_byte_ns: float
    coded_saved_ns: float
    coded_table_ns: float
    zstd_byte_ns: float
    zstd_stored_ns: float
    zstd_split_byte_ns: float
    zstd_split_stored_ns: float
    repeated_min: float
    indices_max: float
    obvious: float
    dictionary_ratio_max: float
    repetition: float
    lz4_saving_min: float
    coded_saving_min: float
    library_saving_min: float
    lz4_copy_bytes: float
    zstd_per_lz4_min: float


class Found(IntEnum):
    """Result columns of an encoded page. Dictionary columns are set if a dictionary was tried."""

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


ENCODINGS = 6
"""The encodings of values: plain, packed, runs, LZ4, LZ4 of split bytes, entropy coded."""


class PagesEncoded(NamedTuple):
    """Encoded pages in one buffer: chunk table, chunks and dictionary items of each."""

    data: Bytes
    found: Int64s
    """A row of `Found` for each page."""
    costs: npt.NDArray[np.float64]
    """Bytes and decoding time per value, by page and encoding, the last one with a dictionary; -1
    for encodings that were not tried.
    """
