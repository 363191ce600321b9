"""Pages of a few plain values, put together without a look at what they could be.

A commit of ten rows writes pages of eighty bytes, and there is nothing to find out about them: so
few bytes are one chunk of values as they are (`choose.TINY_BYTES`). Array operations over one
chunk cost some twenty times as much as these:

    int32 5 6 7     words    20 00 00 00                             3 words of 8 bytes, less one
                    chunk    00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                             05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

What is not flat and plain, or has levels, is left to those.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from lancelet.encodings import registry
from lancelet.encodings.arrow import NUMBER_BITS
from lancelet.encodings.base import FileVersion, Variable
from lancelet.encodings.choose import TINY_BYTES
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.variable import PAD_BYTE as TEXT_PAD_BYTE
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.constant.value import fixed_value
from lancelet.encodings.constant.write import build_constant_value
from lancelet.encodings.layout import Body, MiniBlockLayout
from lancelet.encodings.levels import Layers, ShreddedLeaf
from lancelet.encodings.miniblock.frame import ALIGNMENT, PAD_BYTE

_OFFSETS: Final[Mapping[int, np.dtype[Any]]] = {
    pa.string().id: np.dtype(np.int32),
    pa.binary().id: np.dtype(np.int32),
    pa.large_string().id: np.dtype(np.int64),
    pa.large_binary().id: np.dtype(np.int64),
}
_WIDE_BYTES: Final = 256
"""Strings of so many bytes on average are no values for chunks."""

_PADDING: Final = bytes([PAD_BYTE]) * ALIGNMENT
_TEXT_PADDING: Final = bytes([TEXT_PAD_BYTE]) * ALIGNMENT


def build_tiny(leaf: ShreddedLeaf, version: FileVersion) -> Body | None:
    """Return the page of a leaf without levels, or None if its values are not few and plain."""
    array, kind = leaf.values, leaf.values.type.id
    if version >= FileVersion.V2_3 or array.nbytes > 2 * TINY_BYTES:
        return None
    bits = NUMBER_BITS.get(kind, 0)
    if bits >= 8:
        return _page_of_numbers(leaf, bits, version)
    offsets = _OFFSETS.get(kind)
    return None if offsets is None else _page_of_texts(leaf, offsets, version)


def _page_of_numbers(leaf: ShreddedLeaf, bits: int, version: FileVersion) -> Body | None:
    array, width = leaf.values, bits // 8
    count, start = len(array), array.offset * width
    data = array.buffers()[1][start : start + count * width].to_pybytes()
    has_large_chunks = version is not FileVersion.V2_1
    if has_large_chunks and data == data[:width] * count:
        return build_constant_value(leaf, fixed_value(np.frombuffer(data, np.uint8, width)))
    if len(data) > TINY_BYTES:
        return None
    return _body(data, _layout(leaf.layers, bits, None, count, has_large_chunks))


def _page_of_texts(leaf: ShreddedLeaf, offsets: np.dtype[Any], version: FileVersion) -> Body | None:
    array, word = leaf.values, offsets.itemsize
    _, ends, text = array.buffers()
    block = Variable(
        np.frombuffer(ends, offsets, len(array) + 1, array.offset * word),
        np.empty(0, np.uint8) if text is None else np.frombuffer(text, np.uint8),
    )
    has_large_chunks = version is not FileVersion.V2_1
    if has_large_chunks and _is_one_text(block):
        return build_constant_value(leaf, Variable(block.offsets[:2], block.data))
    start, stop = int(block.offsets[0]), int(block.offsets[-1])
    size, head = stop - start, word * (block.count + 1)
    if size + word * block.count > TINY_BYTES or size >= _WIDE_BYTES * block.count:
        return None
    own: bytes = block.data[start:stop].tobytes()
    shifted: bytes = (block.offsets + (head - start)).tobytes()
    data = shifted + own + _TEXT_PADDING[: -size % word]
    return _body(data, _layout(leaf.layers, 0, word * 8, block.count, has_large_chunks))


def _is_one_text(block: Variable) -> bool:
    """Whether all values are the same."""
    start, stop = int(block.offsets[0]), int(block.offsets[-1])
    length = int(block.offsets[1]) - start
    text = block.data[start:stop].tobytes()
    is_repeated = text == text[:length] * block.count
    return is_repeated and bool((np.diff(block.offsets) == length).all())


def _body(data: bytes, laid_out: tuple[MiniBlockLayout, str]) -> Body:
    """Return a page of one chunk."""
    layout, description = laid_out
    head = struct.pack("<HI" if layout.has_large_chunks else "<HH", 0, len(data))
    chunk = _padded(head) + _padded(data)
    word = (len(chunk) // ALIGNMENT - 1) << 4
    words = struct.pack("<I" if layout.has_large_chunks else "<H", word)
    buffers = (np.frombuffer(words, np.uint8), np.frombuffer(chunk, np.uint8))
    return Body(layout, buffers, description)


def _padded(data: bytes) -> bytes:
    return data + _PADDING[: -len(data) % ALIGNMENT]


@lru_cache(1024)
def _layout(
    layers: Layers, value_bits: int, offset_bits: int | None, count: int, has_large_chunks: bool
) -> tuple[MiniBlockLayout, str]:
    """Return the layout of a page, and what it says, for people; the same for like pages."""
    encoding = flat_encoding(value_bits) if offset_bits is None else variable_encoding(offset_bits)
    layout = MiniBlockLayout(layers, encoding, count, 1, has_large_chunks)
    return layout, registry.describe(encoding)
