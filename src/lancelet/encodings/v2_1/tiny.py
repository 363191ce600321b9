"""Pages of a few plain values, put together without the steps that larger ones need.

A commit of ten rows writes pages of eighty bytes, and there is nothing to find out about them: so
few bytes are one chunk of values as they are (`choose.TINY_BYTES`). The general way would come to
the same bytes, by shredding, choosing and joining what is one piece from the beginning:

    int32 5 6 7     words    20 00 00 00                             3 words of 8 bytes, less one
                    chunk    00 00 | 0c 00 00 00 | fe fe             no levels; 12 bytes of values
                             05 00 00 00 06 00 00 00 07 00 00 00 | fe fe fe fe

What is not flat and plain, has nulls, repeats one value or asks for an encoding is left to it.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.encodings import registry
from lancelet.encodings.arrow import block_from_arrow
from lancelet.encodings.base import ColumnChoice, EncodedPage, FileVersion, FixedWidth, Variable
from lancelet.encodings.choose import TINY_BYTES
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.variable import PAD_BYTE as TEXT_PAD_BYTE
from lancelet.encodings.codecs.variable import variable_encoding
from lancelet.encodings.encode_leaf import WIDE_BYTES
from lancelet.encodings.layout import MiniBlockLayout
from lancelet.encodings.levels import LayerKind, Layers
from lancelet.encodings.miniblock.frame import ALIGNMENT, PAD_BYTE
from lancelet.encodings.options import EncodingOptions
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

_DEFAULT: Final = EncodingOptions()

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
        or EncodingOptions.from_metadata(field.name, None) != _DEFAULT
    ):
        return None
    block = block_from_arrow(array)
    assert isinstance(block, FixedWidth | Variable), "the type says so"
    data = _flat(block) if isinstance(block, FixedWidth) else _variable(block)
    if data is None:
        return None
    has_large_chunks = version >= FileVersion.V2_2
    head = struct.pack("<HI" if has_large_chunks else "<HH", 0, len(data))
    chunk = _padded(head) + _padded(data)
    words = struct.pack("<I" if has_large_chunks else "<H", (len(chunk) // ALIGNMENT - 1) << 4)
    offset_bits = block.offsets.itemsize * 8 if isinstance(block, Variable) else None
    value_bits = block.bits if isinstance(block, FixedWidth) else None
    encoding, description = _message(value_bits, offset_bits, len(array), has_large_chunks)
    choice = ColumnChoice(
        field.name, "mini-block", description, array.nbytes, len(words) + len(chunk)
    )
    buffers = (np.frombuffer(words, np.uint8), np.frombuffer(chunk, np.uint8))
    return EncodedPage(0, 0, len(array), buffers, encoding, (choice,))


def _flat(block: FixedWidth) -> bytes | None:
    """Return the values of a chunk, or None if all are one value or they are not tiny."""
    data = block.data.tobytes()
    first = data[: block.bits // 8]
    return None if len(data) > TINY_BYTES or data == first * block.count else data


def _variable(block: Variable) -> bytes | None:
    """Return offsets and strings of a chunk, on the same conditions, if they are not long."""
    word, count = block.offsets.itemsize, block.count
    offsets = block.offsets.tolist()
    start, stop = offsets[0], offsets[-1]
    size, head = stop - start, word * (count + 1)
    if size + word * count > TINY_BYTES or size >= WIDE_BYTES * count:
        return None
    text: bytes = block.data[start:stop].tobytes()
    length = offsets[1] - start
    if text == text[:length] * count and (block.offsets[1:] - block.offsets[:-1] == length).all():
        return None
    shifted: bytes = (block.offsets + (head - start)).tobytes()
    return shifted + text + _TEXT_PADDING[: -size % word]


def _padded(data: bytes) -> bytes:
    return data + _PADDING[: -len(data) % ALIGNMENT]


@lru_cache(1024)
def _message(
    value_bits: int | None, offset_bits: int | None, num_values: int, has_large_chunks: bool
) -> tuple[bytes, str]:
    """Return the message of such a page, and what it says, for people."""
    encoding = flat_encoding(value_bits or 0)
    if offset_bits is not None:
        encoding = variable_encoding(offset_bits)
    layout = MiniBlockLayout(
        layers=Layers.of([LayerKind.ALL_VALID_ITEM]),
        values=encoding,
        num_values=num_values,
        num_buffers=1,
        has_large_chunks=has_large_chunks,
    )
    return sealed(message_of(layout)), registry.describe(encoding)
