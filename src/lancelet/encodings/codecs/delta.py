"""Delta codec (2.3): the first value, and the differences that follow it.

    values   100 103 103 110
    stored   base 100, deltas 3 0 7 in a codec of their own

There is one difference less than values; none for an empty block. Sums wrap around at the width of
the values, so falling sequences are possible, though they pack badly.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.words import WORDS, as_words, checked_word_bits, from_words
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.format.protos import encodings23_pb as pb23


class Delta(Codec):
    """Differences; `inner` encodes them."""

    wire_name: ClassVar[str] = "delta"

    def __init__(self, inner: Codec | None = None) -> None:
        """Choose how the differences are encoded: plain, if nothing is said."""
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
        """Keep the first value and encode the differences of a single block."""
        words = as_words(block, self.wire_name)
        if len(counts) != 1 or not len(words):
            raise InvalidInputError("differences need a single block with a first value")
        deltas = self.inner.encode_blocks(from_words(np.diff(words)), counts - 1)
        message = pb23.Delta(uncompressed_bits_per_value=words.itemsize * 8, base=int(words[0]))
        message.deltas.MergeFromString(deltas.encoding.SerializeToString())
        return EncodedBlocks(pb23.CompressiveEncoding(delta=message), deltas.slices)

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Add the differences up, from the base again for every block."""
        dtype = WORDS[checked_word_bits(message.uncompressed_bits_per_value, cls.wire_name)]
        inner = np.maximum(counts - 1, 0)
        deltas = as_words(codecs.decode_blocks(message.deltas, slices, inner), cls.wire_name)
        if deltas.dtype != dtype:
            raise CorruptDataError("differences have another width than the values")
        filled = np.flatnonzero(counts)
        starts = (np.cumsum(counts) - counts)[filled]
        values = np.insert(deltas, starts - np.arange(len(starts)), dtype.type(0))
        sums = np.cumsum(values, dtype=dtype)
        if len(starts) > 1:
            sums -= np.repeat(sums[starts], counts[filled])
        return from_words(sums + dtype.type(message.base & int(np.iinfo(dtype).max)))
