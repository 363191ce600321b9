"""Byte-stream-split codec: the first bytes of all values of a chunk, then the second ones, ...

    float32 values   1.0 = 00 00 80 3f    1.5 = 00 00 c0 3f
    stored           00 00 | 00 00 | 80 c0 | 3f 3f

The size does not change, but signs and exponents become adjacent, which improves general
compression. The format supports values of 32 and 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec, Codecs, ValuePositions
from lancelet.encodings.codecs.chunking import chunk_counts, chunk_values, to_slices
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.validate import check_sizes, require_fixed_width
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21


class ByteStreamSplit(Codec):
    """Byte planes of values."""

    wire_name: ClassVar[str] = "byte_stream_split"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `byte_stream_split(bits)`."""
        del codecs
        return f"byte_stream_split({message.values.flat.bits_per_value})"

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values, which equal those of the planes."""
        return codecs.bytes_max(message.values, counts)

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split values into chunks and their bytes into planes."""
        values = require_fixed_width(block, self.wire_name)
        if values.bits not in (32, 64):
            raise InvalidInputError(
                "byte-stream split requires values of 32 or 64 bits", bits=values.bits
            )
        width = values.bits // 8
        counts = chunk_counts(values.count, chunk_values(values.count, width, limits))
        sizes = counts * width
        split = to_slices(sizes, kernels.split_bytes_chunks(values.data, width, counts))
        return ChunkedValues(split_encoding(values.bits), (split,), counts)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Reassemble the values."""
        del codecs
        bits = _validate_bits(message, parts[0], counts)
        data = kernels.join_bytes_chunks(parts[0], counts, bits // 8)
        return FixedWidth(bits, data, int(counts.sum()))

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Gather the bytes of each value from the planes."""
        del codecs
        width = _validate_bits(message, parts[0], counts) // 8
        first = parts[0].position[positions.chunk] + positions.index
        indices = first[:, None] + np.arange(width) * counts[positions.chunk][:, None]
        data = kernels.take_fixed(parts[0].source, indices.reshape(-1), 1)
        return FixedWidth(width * 8, data, len(first))


def split_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the encoding of byte planes of values of `bits` bits."""
    return pb21.CompressiveEncoding(
        byte_stream_split=pb21.ByteStreamSplit(values=flat_encoding(bits))
    )


def _validate_bits(message: Any, slices: ByteSlices, counts: Int64s) -> int:
    bits = int(message.values.flat.bits_per_value)
    if message.values.WhichOneof("compression") != "flat" or bits not in (32, 64):
        raise UnsupportedError(
            "byte-stream split requires plain values of 32 or 64 bits", bits=bits
        )
    check_sizes(slices, counts * (bits // 8), codec=ByteStreamSplit.wire_name)
    return bits
