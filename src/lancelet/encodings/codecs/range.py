"""Range codec (2.3): the sequence start, start + step, ...; no buffer.

    range { start: 0  step: 8 }   count 4   ->  0 8 16 24

Positions of a dense set and offsets of strings of one length are such sequences. Sums wrap around
at the width of the values.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.cut import NO_BYTES
from lancelet.encodings.codecs.expect import check_virtual
from lancelet.encodings.codecs.words import WORDS, as_words, checked_word_bits, from_words
from lancelet.errors import InvalidInputError
from lancelet.format.protos import encodings23_pb as pb23


class Range(Codec):
    """An arithmetic sequence."""

    wire_name: ClassVar[str] = "range"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `range(start, step)`."""
        del codecs
        return f"range({message.start}, {message.step})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return 0."""
        del message, codecs
        return 0

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return `False`: the rule is in the encoding."""
        del message, codecs
        return False

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Keep the first value and the step of a single sequence."""
        words = as_words(block, self.wire_name)
        if len(counts) != 1 or not is_range(words):
            raise InvalidInputError("the values are no arithmetic sequence", values=len(words))
        bits = words.itemsize * 8
        start = int(words[0]) if len(words) else 0
        step = (int(words[1]) - start) % (1 << bits) if len(words) > 1 else 0
        message = pb23.Range(uncompressed_bits_per_value=bits, start=start, step=step)
        nothing = np.zeros(1, np.int64)
        return EncodedBlocks(
            pb23.CompressiveEncoding(range=message), Slices(NO_BYTES, nothing, nothing)
        )

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Count from the start again for every block."""
        del slices, codecs
        dtype = WORDS[checked_word_bits(message.uncompressed_bits_per_value, cls.wire_name)]
        check_virtual(counts, value_bytes=dtype.itemsize, codec=cls.wire_name)
        mask = int(np.iinfo(dtype).max)
        ranks = np.arange(int(counts.sum()), dtype=np.int64)
        if len(counts) > 1:
            ranks -= np.repeat(np.cumsum(counts) - counts, counts)
        steps = ranks.astype(dtype) * dtype.type(message.step & mask)
        return from_words(steps + dtype.type(message.start & mask))


def is_range(words: Any) -> bool:
    """Return whether unsigned values are an arithmetic sequence."""
    steps = np.diff(words)
    return len(steps) < 1 or bool((steps == steps[0]).all())
