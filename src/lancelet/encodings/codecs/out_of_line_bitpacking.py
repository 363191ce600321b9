"""Out-of-line bit-packing codec: one width for all values, kept in the encoding.

    2000 levels of 2 bits   1024 packed (256 bytes), then 976 packed as if zeros followed
    1030 levels of 2 bits   1024 packed (256 bytes), then the six that remain, plain

Whether the tail is packed is nowhere stored: it is plain just if the bytes that remain are those
of plain values. The writer packs it when the padding costs less than the packing saves.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.cut import NO_BYTES, slices_of
from lancelet.encodings.codecs.expect import check_virtual
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.words import WORDS, as_words, checked_word_bits, from_words
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21


class OutOfLineBitpacking(Codec):
    """Packed values of one width."""

    wire_name: ClassVar[str] = "out_of_line_bitpacking"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `out_of_line_bitpacking(bits -> width)`."""
        del codecs
        width = message.values.flat.bits_per_value
        return f"out_of_line_bitpacking({message.uncompressed_bits_per_value} -> {width})"

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack every block with the width that the largest value of all needs."""
        words = as_words(block, self.wire_name)
        width = int(words.max(initial=0)).bit_length()
        encoding = pb21.CompressiveEncoding(
            out_of_line_bitpacking=pb21.OutOfLineBitpacking(
                uncompressed_bits_per_value=words.itemsize * 8, values=flat_encoding(width)
            )
        )
        stops = np.cumsum(counts)
        packed = [
            kernels.pack_blocks(words[stop - count : stop], width)
            for count, stop in zip(counts.tolist(), stops.tolist(), strict=True)
        ]
        sizes = np.array([len(part) for part in packed], np.int64)
        return EncodedBlocks(encoding, slices_of(sizes, np.concatenate([NO_BYTES, *packed])))

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Unpack the blocks."""
        del codecs
        bits = checked_word_bits(message.uncompressed_bits_per_value, cls.wire_name)
        if message.values.WhichOneof("compression") != "flat":
            raise UnsupportedError(
                "packed values of one width are plain words", codec=cls.wire_name
            )
        width = int(message.values.flat.bits_per_value)
        if width > bits:
            raise CorruptDataError(
                "packed values are wider than plain ones", width=width, bits=bits
            )
        if width == 0:
            check_virtual(counts, codec=cls.wire_name)
        blocks = [
            kernels.unpack_blocks(slices.slice_bytes(i), width, int(counts[i]), bits)
            for i in range(len(slices))
        ]
        return from_words(np.concatenate([np.empty(0, WORDS[bits]), *blocks]))
