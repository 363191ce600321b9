"""Range codec (2.3): the sequence start, start + step, ...; no buffer.

    range { start: 0  step: 8 }   count 4   ->  0 8 16 24

Used for positions of a dense set and offsets of strings of equal length. Sums wrap around at the
width of the values.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.chunking import NO_BYTES
from lancelet.encodings.codecs.unsigned import (
    UNSIGNED_TYPES,
    from_unsigned,
    to_unsigned,
    validate_bits,
)
from lancelet.encodings.codecs.validate import check_virtual
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
        """Return `False`: the values are computed."""
        del message, codecs
        return False

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Store the first value and the step of a single sequence."""
        integers = to_unsigned(block, self.wire_name)
        if len(counts) != 1 or not is_range(integers):
            raise InvalidInputError(
                "the values to encode as range are not an arithmetic sequence", values=len(integers)
            )
        bits = integers.itemsize * 8
        start = int(integers[0]) if len(integers) else 0
        step = (int(integers[1]) - start) % (1 << bits) if len(integers) > 1 else 0
        message = pb23.Range(uncompressed_bits_per_value=bits, start=start, step=step)
        empty = np.zeros(1, np.int64)
        return EncodedBlocks(
            pb23.CompressiveEncoding(range=message), ByteSlices(NO_BYTES, empty, empty)
        )

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Generate the sequence, restarting in every block."""
        del slices, codecs
        dtype = UNSIGNED_TYPES[validate_bits(message.uncompressed_bits_per_value, cls.wire_name)]
        check_virtual(counts, value_bytes=dtype.itemsize, codec=cls.wire_name)
        mask = int(np.iinfo(dtype).max)
        ranks = np.arange(int(counts.sum()), dtype=np.int64)
        if len(counts) > 1:
            ranks -= np.repeat(np.cumsum(counts) - counts, counts)
        steps = ranks.astype(dtype) * dtype.type(message.step & mask)
        return from_unsigned(steps + dtype.type(message.start & mask))


def is_range(integers: Any) -> bool:
    """Return whether unsigned values are an arithmetic sequence."""
    steps = np.diff(integers)
    return len(steps) < 1 or bool((steps == steps[0]).all())
