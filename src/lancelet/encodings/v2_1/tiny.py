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
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from lancelet.buffers import Bytes
from lancelet.encodings import registry
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import ColumnChoice, EncodedPage, FileVersion, FixedWidth, Variable
from lancelet.encodings.choose import TINY_BYTES
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.variable import PAD_BYTE as TEXT_PAD_BYTE
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.constant.value import build_value
from lancelet.encodings.encode_leaf import WIDE_BYTES
from lancelet.encodings.layout import ConstantLayout, MiniBlockLayout
from lancelet.encodings.levels import LayerKind, Layers
from lancelet.encodings.miniblock.frame import ALIGNMENT, PAD_BYTE
from lancelet.encodings.options import has_other_defaults
from lancelet.encodings.v2_1.messages import message_of, sealed
from lancelet.format.field import Field

_FLAT_TYPES: Final = frozenset(
    data_type.id
    for data_type in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64()),
        *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(1)),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us")),
        *(pa.timestamp("s"), pa.duration("s"), pa.string(), pa.large_string()),
        *(pa.binary(), pa.large_binary()),
    )
)

_Page: TypeAlias = tuple[tuple[Bytes, ...], bytes, str]
"""The buffers of a page, its message, and what that says."""

_LAYERS: Final = Layers.of([LayerKind.ALL_VALID_ITEM])
_MESSAGE_OF_ONE_TEXT: Final = sealed(
    message_of(ConstantLayout(_LAYERS, inline_value=None, has_value_buffer=True))
)

_PADDING: Final = bytes([PAD_BYTE]) * ALIGNMENT
_TEXT_PADDING: Final = bytes([TEXT_PAD_BYTE]) * ALIGNMENT


def encode_tiny(array: pa.Array, field: Field, version: FileVersion) -> EncodedPage | None:
    """Return the one page of a field's values, or None if they are not few and plain."""
    if (
        array.nbytes > 2 * TINY_BYTES
        or array.type.id not in _FLAT_TYPES
        or array.null_count
        or not len(array)
        or field.metadata
        or has_other_defaults()
    ):
        return None
    block = block_from_arrow(array)
    assert isinstance(block, FixedWidth | Variable), "the type says so"
    value = _repeated(block) if version >= FileVersion.V2_2 else None
    page = _mini_block_page(block, version) if value is None else _constant_page(value)
    if page is None:
        return None
    buffers, encoding, description = page
    layout = "constant" if description == "constant" else "mini-block"
    encoded_bytes = sum(map(len, buffers))
    choice = ColumnChoice(field.name, layout, description, array.nbytes, encoded_bytes)
    return EncodedPage(0, 0, len(array), buffers, encoding, (choice,))


def _mini_block_page(block: FixedWidth | Variable, version: FileVersion) -> _Page | None:
    """Return a page of one chunk, or None if the values are not few, or long."""
    data = _chunk_of(block) if isinstance(block, Variable) else block.data.tobytes()
    if data is None or (isinstance(block, FixedWidth) and len(data) > TINY_BYTES):
        return None
    has_large_chunks = version >= FileVersion.V2_2
    head = struct.pack("<HI" if has_large_chunks else "<HH", 0, len(data))
    chunk = _padded(head) + _padded(data)
    words = struct.pack("<I" if has_large_chunks else "<H", (len(chunk) // ALIGNMENT - 1) << 4)
    offset_bits = block.offsets.itemsize * 8 if isinstance(block, Variable) else None
    value_bits = block.bits if isinstance(block, FixedWidth) else 0
    encoding, description = _message(value_bits, offset_bits, block.count, has_large_chunks)
    return (np.frombuffer(words, np.uint8), np.frombuffer(chunk, np.uint8)), encoding, description


def _constant_page(value: FixedWidth | Variable) -> _Page:
    """Return a page of one value, which is in the message if its width is fixed."""
    if isinstance(value, FixedWidth):
        layout = ConstantLayout(_LAYERS, inline_value=value.data.tobytes())
        return (), sealed(message_of(layout)), "constant"
    return (build_value(value),), _MESSAGE_OF_ONE_TEXT, "constant"


def _repeated(block: FixedWidth | Variable) -> FixedWidth | Variable | None:
    """Return the one value that all are, as a block of one, or None."""
    count = block.count
    if isinstance(block, FixedWidth):
        data, width = block.data.tobytes(), block.bits // 8
        return (
            FixedWidth(block.bits, block.data[:width], 1) if data == data[:width] * count else None
        )
    start, stop = int(block.offsets[0]), int(block.offsets[-1])
    length = int(block.offsets[1]) - start
    text = block.data[start:stop].tobytes()
    if text != text[:length] * count or not (np.diff(block.offsets) == length).all():
        return None
    return Variable(block.offsets[:2], block.data)


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
        layers=_LAYERS,
        values=encoding,
        num_values=num_values,
        num_buffers=1,
        has_large_chunks=has_large_chunks,
    )
    return sealed(message_of(layout)), registry.describe(encoding)
