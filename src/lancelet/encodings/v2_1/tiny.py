"""Pages of a few plain values, put together without the steps that larger ones need.

A commit of ten rows writes pages of eighty bytes, and there is nothing to find out about them: so
few bytes are one chunk of values as they are (`choose.TINY_BYTES`). The general way would come to
the same bytes, by shredding, choosing and joining what is one piece from the beginning:

    int32 5 6 7     words    20 00 00 00                             3 words of 8 bytes, less one
                    chunk    00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                             05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

One value all over, as a single row is, needs no chunk from 2.2 on: it is in the message itself.
What is not flat and plain, has nulls or asks for an encoding is left to the general way.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.encodings import registry
from lancelet.encodings.base import EncodedPage, FileVersion, Variable
from lancelet.encodings.choose import TINY_BYTES
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.variable import PAD_BYTE as TEXT_PAD_BYTE
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.encode_leaf import WIDE_BYTES
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.miniblock.frame import ALIGNMENT, PAD_BYTE
from lancelet.encodings.options import has_other_defaults
from lancelet.encodings.v2_1.messages import message_of, sealed
from lancelet.encodings.v2_1.plain_page import (
    ALL_VALID,
    Page,
    encoded_page,
    page_of_one_number,
    page_of_one_text,
)
from lancelet.format.field import Field

_FIXED_TYPES: Final = frozenset(
    data_type.id
    for data_type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1)),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("s"), pa.duration("s")),
    )
)
_OFFSETS: Final[Mapping[int, np.dtype[Any]]] = {
    pa.string().id: np.dtype(np.int32),
    pa.binary().id: np.dtype(np.int32),
    pa.large_string().id: np.dtype(np.int64),
    pa.large_binary().id: np.dtype(np.int64),
}

_PADDING: Final = bytes([PAD_BYTE]) * ALIGNMENT
_TEXT_PADDING: Final = bytes([TEXT_PAD_BYTE]) * ALIGNMENT


def encode_tiny(array: pa.Array, field: Field, version: FileVersion) -> EncodedPage | None:
    """Return the one page of a field's values, or None if they are not few and plain."""
    return None if has_other_defaults() else tiny_page(array, field, version)


def tiny_page(array: pa.Array, field: Field, version: FileVersion) -> EncodedPage | None:
    """Return the same in a process without other defaults, which the caller found out for all."""
    if array.nbytes > 2 * TINY_BYTES or field.metadata or not len(array) or array.null_count:
        return None
    data_type = array.type
    if data_type.id in _FIXED_TYPES:
        page = _page_of_numbers(array, data_type.bit_width, version)
    elif data_type.id in _OFFSETS:
        page = _page_of_texts(array, _OFFSETS[data_type.id], version)
    else:
        return None
    return None if page is None else encoded_page(array, field, page)


def _page_of_numbers(array: pa.Array, bits: int, version: FileVersion) -> Page | None:
    count, width = len(array), bits // 8
    start = array.offset * width
    data = array.buffers()[1][start : start + count * width].to_pybytes()
    has_large_chunks = version is not FileVersion.V2_1
    if has_large_chunks and data == data[:width] * count:
        return page_of_one_number(data[:width])
    if len(data) > TINY_BYTES:
        return None
    return _mini_block_page(data, *_message(bits, None, count, has_large_chunks), has_large_chunks)


def _page_of_texts(array: pa.Array, offsets: np.dtype[Any], version: FileVersion) -> Page | None:
    _, ends, text = array.buffers()
    block = Variable(
        np.frombuffer(ends, offsets, len(array) + 1, array.offset * offsets.itemsize),
        np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8),
    )
    has_large_chunks = version is not FileVersion.V2_1
    if has_large_chunks and _is_one_text(block):
        return page_of_one_text(Variable(block.offsets[:2], block.data))
    data = _chunk_of(block)
    if data is None:
        return None
    message = _message(0, offsets.itemsize * 8, block.count, has_large_chunks)
    return _mini_block_page(data, *message, has_large_chunks)


def _mini_block_page(
    data: bytes, encoding: bytes, description: str, has_large_chunks: bool
) -> Page:
    """Return a page of one chunk."""
    head = struct.pack("<HI" if has_large_chunks else "<HH", 0, len(data))
    chunk = _padded(head) + _padded(data)
    words = struct.pack("<I" if has_large_chunks else "<H", (len(chunk) // ALIGNMENT - 1) << 4)
    buffers = (np.frombuffer(words, np.uint8), np.frombuffer(chunk, np.uint8))
    return Page(buffers, encoding, "mini-block", description)


def _is_one_text(block: Variable) -> bool:
    """Whether all values are the same."""
    start, stop = int(block.offsets[0]), int(block.offsets[-1])
    length = int(block.offsets[1]) - start
    text = block.data[start:stop].tobytes()
    is_repeated = text == text[:length] * block.count
    return is_repeated and bool((np.diff(block.offsets) == length).all())


def _chunk_of(block: Variable) -> bytes | None:
    """Return offsets and strings of a chunk, or None if they are not few or some are long."""
    word, count = block.offsets.itemsize, block.count
    start, stop = int(block.offsets[0]), int(block.offsets[-1])
    size, head = stop - start, word * (count + 1)
    if size + word * count > TINY_BYTES or size >= WIDE_BYTES * count:
        return None
    text: bytes = block.data[start:stop].tobytes()
    shifted: bytes = (block.offsets + (head - start)).tobytes()
    return shifted + text + _TEXT_PADDING[: -size % word]


def _padded(data: bytes) -> bytes:
    return data + _PADDING[: -len(data) % ALIGNMENT]


@lru_cache(1024)
def _message(
    value_bits: int, offset_bits: int | None, num_values: int, has_large_chunks: bool
) -> tuple[bytes, str]:
    """Return the message of a mini-block page, and what it says, for people."""
    encoding = flat_encoding(value_bits) if offset_bits is None else variable_encoding(offset_bits)
    layout = MiniBlockLayout(
        layers=ALL_VALID,
        values=encoding,
        num_values=num_values,
        num_buffers=1,
        has_large_chunks=has_large_chunks,
    )
    return sealed(message_of(layout)), registry.describe(encoding)
