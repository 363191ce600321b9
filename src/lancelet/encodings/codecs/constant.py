"""Constant codec: a single value stored in the encoding; no buffer.

    constant { value: 07 00 00 00 }   count 3   ->  7 7 7 as 32-bit values
    constant { }                      count 0   ->  the empty set of a sparse layer

The size of the stored value is the width of all values.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.chunking import NO_BYTES
from lancelet.encodings.codecs.validate import check_virtual, require_fixed_width
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import encodings21_pb as pb21


class Constant(Codec):
    """A single value for all rows."""

    wire_name: ClassVar[str] = "constant"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `constant(bytes of the value)`."""
        del codecs
        return f"constant({message.value.hex()})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return 0."""
        del message, codecs
        return 0

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return `False`: the value is in the encoding."""
        del message, codecs
        return False

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Store the common value."""
        values = require_fixed_width(block, self.wire_name)
        constant = pb21.Constant()
        if values.count:
            rows = values.data.reshape(values.count, -1)
            if values.bits == 1 or (rows != rows[0]).any():
                raise InvalidInputError(
                    "the values to encode as constant are not equal", values=values.count
                )
            constant = pb21.Constant(value=rows[0].tobytes())
        empty = np.zeros(len(counts), np.int64)
        encoding = pb21.CompressiveEncoding(constant=constant)
        return EncodedBlocks(encoding, ByteSlices(NO_BYTES, empty, empty))

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Repeat the value."""
        del slices, codecs
        return _repeat(message, int(counts.sum()))

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Repeat the value for each row; rows have no bytes."""
        del codecs
        return _repeat(message, rows.count)


def _repeat(message: Any, count: int) -> FixedWidth:
    value: bytes = message.value
    if not value:
        if count:
            raise CorruptDataError("a constant encoding has no value", count=count)
        return FixedWidth(64, NO_BYTES, 0)
    counts = np.array([count], np.int64)
    check_virtual(counts, value_bytes=len(value), codec=Constant.wire_name)
    data = np.tile(np.frombuffer(value, np.uint8), count)
    return FixedWidth(len(value) * 8, data, count)
