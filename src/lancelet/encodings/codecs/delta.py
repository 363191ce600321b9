"""Delta codec (2.3): the first value and the differences between consecutive values.

    values   100 103 103 110
    stored   base 100, deltas 3 0 7 with another codec

There is one difference fewer than values, none for an empty block. Sums wrap around at the width of
the values, so decreasing sequences are supported, but pack poorly.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.unsigned import (
    UNSIGNED_TYPES,
    from_unsigned,
    to_unsigned,
    validate_bits,
)
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import encodings23_pb as pb23


class Delta(Codec):
    """Differences encoded by `inner`."""

    wire_name: ClassVar[str] = "delta"

    def __init__(self, inner: Codec | None = None) -> None:
        """Use `inner` for the differences, by default plain values."""
        self.inner = inner or Flat()

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `delta(base){deltas}`."""
        return f"delta({message.base}){{{codecs.describe(message.deltas)}}}"

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return whether the differences need a buffer."""
        return codecs.owns_bytes(message.deltas)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Store the first value and encode the differences of a single block."""
        integers = to_unsigned(block, self.wire_name)
        if len(counts) != 1 or not len(integers):
            raise InvalidInputError("delta encoding requires a single non-empty block")
        deltas = self.inner.encode_blocks(from_unsigned(np.diff(integers)), counts - 1)
        message = pb23.Delta(
            uncompressed_bits_per_value=integers.itemsize * 8, base=int(integers[0])
        )
        message.deltas.MergeFromString(deltas.encoding.SerializeToString())
        return EncodedBlocks(pb23.CompressiveEncoding(delta=message), deltas.slices)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Accumulate the differences, restarting from the base in every block."""
        dtype = UNSIGNED_TYPES[validate_bits(message.uncompressed_bits_per_value, cls.wire_name)]
        inner = np.maximum(counts - 1, 0)
        deltas = to_unsigned(codecs.decode_blocks(message.deltas, slices, inner), cls.wire_name)
        if deltas.dtype != dtype:
            raise CorruptDataError(
                "the differences of a delta encoding have a different width than the values"
            )
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        values = np.insert(deltas, starts - np.arange(len(starts)), dtype.type(0))
        sums = np.cumsum(values, dtype=dtype)
        if len(starts) > 1:
            sums -= np.repeat(sums[starts], counts[filled])
        return from_unsigned(sums + dtype.type(message.base & int(np.iinfo(dtype).max)))
