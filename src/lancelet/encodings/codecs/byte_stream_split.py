"""Byte-stream-split codec: the first bytes of all values of a chunk, then the second ones, ...

    float32 values   1.0 = 00 00 80 3f    1.5 = 00 00 c0 3f
    stored           00 00 | 00 00 | 80 c0 | 3f 3f

Nothing gets smaller by this, but signs and exponents come to lie together, and a general
compression around it finds them. The format knows it for values of 32 and 64 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec, Codecs, Picks
from lancelet.encodings.codecs.cut import chunk_values, page_counts, slices_of
from lancelet.encodings.codecs.expect import check_sizes, expect_fixed_width
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21


class ByteStreamSplit(Codec):
    """The bytes of values, regrouped by their place."""

    wire_name: ClassVar[str] = "byte_stream_split"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `byte_stream_split(bits)`."""
        del codecs
        return f"byte_stream_split({message.values.flat.bits_per_value})"

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values, which are those of the planes."""
        return codecs.bytes_max(message.values, counts)

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Cut values into chunks and regroup the bytes of each."""
        values = expect_fixed_width(block, self.wire_name)
        if values.bits not in (32, 64):
            raise InvalidInputError("only 32 and 64 bits are split by bytes", bits=values.bits)
        width = values.bits // 8
        chunk = chunk_values(rows, width, limits)
        counts = page_counts(values.count // rows if rows else 0, rows, chunk)
        sizes = counts * width
        split = slices_of(sizes, kernels.split_bytes_chunks(values.data, width, counts))
        encoding = pb21.CompressiveEncoding(
            byte_stream_split=pb21.ByteStreamSplit(values=flat_encoding(values.bits))
        )
        return ChunkedValues(encoding, (split,), counts)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Put the bytes of each value together again."""
        del codecs
        bits = _checked_bits(message, parts[0], counts)
        data = kernels.join_bytes_chunks(parts[0], counts, bits // 8)
        return FixedWidth(bits, data, int(counts.sum()))

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Gather the bytes of each value, one from every plane."""
        del codecs
        width = _checked_bits(message, parts[0], counts) // 8
        first = parts[0].position[picks.chunk] + picks.index
        places = first[:, None] + np.arange(width) * counts[picks.chunk][:, None]
        data = kernels.take_fixed(parts[0].source, places.reshape(-1), 1)
        return FixedWidth(width * 8, data, len(first))


def _checked_bits(message: Any, slices: Slices, counts: Int64s) -> int:
    bits = int(message.values.flat.bits_per_value)
    if message.values.WhichOneof("compression") != "flat" or bits not in (32, 64):
        raise UnsupportedError("only plain 32 and 64 bits are split by bytes", bits=bits)
    check_sizes(slices, counts * (bits // 8), codec=ByteStreamSplit.wire_name)
    return bits
