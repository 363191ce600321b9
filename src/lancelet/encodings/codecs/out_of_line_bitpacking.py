"""Out-of-line bit-packing codec: one width for all values, kept in the encoding.

    2000 levels of 2 bits   1024 packed (256 bytes), then 976 packed as if zeros followed
    1030 levels of 2 bits   1024 packed (256 bytes), then the six that remain, plain

Whether the tail is packed is nowhere stored: it is plain just if the bytes that remain are those
of plain values. The writer packs it when that takes fewer bytes.

Many buffers, such as the levels of every chunk, are taken apart into what is packed, which is one
run of blocks for all of them, and the plain tails.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks, Encoding
from lancelet.encodings.codecs.cut import joined_bytes, slices_of
from lancelet.encodings.codecs.expect import check_sizes, check_virtual
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.words import WORDS, as_words, checked_word_bits, from_words
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass

BLOCK_VALUES: Final = 1024
"""Values of a packed block."""


LEVEL_BITS = 16
"""Words of this size are levels, which come in many short buffers and have a kernel for it."""


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
        tails = counts % BLOCK_VALUES
        tails[width * BLOCK_VALUES < words.itemsize * 8 * tails] = 0
        shape = _Shape(counts, tails, width, words.itemsize)
        values = slices_of(counts * words.itemsize, words.view(np.uint8))
        padded = np.zeros(int(shape.blocks.sum()) * BLOCK_VALUES, words.dtype)
        kernels.copy_slices(shape.plain_heads(values), padded.view(np.uint8), shape.plain_starts())
        packed = slices_of(shape.packed_bytes(), kernels.pack_blocks(padded, width))
        sizes = packed.size + tails * words.itemsize
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        kernels.copy_slices(packed, out, starts)
        kernels.copy_slices(shape.tails_of(values), out, starts + packed.size)
        encoding = packed_encoding(words.itemsize * 8, width)
        return EncodedBlocks(encoding, Slices(out, starts, sizes))

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
            check_virtual(counts, value_bytes=bits // 8, codec=cls.wire_name)
        if bits == LEVEL_BITS:
            return from_words(kernels.unpack_levels(slices, counts, width))
        shape = _stored_shape(slices, counts, width, bits // 8)
        packed = joined_bytes(Slices(slices.source, slices.position, shape.packed_bytes()))
        total = int(shape.blocks.sum()) * BLOCK_VALUES
        unpacked = kernels.unpack_blocks(packed, width, total, bits)
        if not (shape.kept[:-1] % BLOCK_VALUES).any() and not shape.tails.any():
            return from_words(unpacked[: int(counts.sum())])
        out = np.empty(int(counts.sum()), WORDS[bits])
        starts = (np.cumsum(counts) - counts) * out.itemsize
        heads = Slices(unpacked.view(np.uint8), shape.plain_starts(), shape.kept * out.itemsize)
        kernels.copy_slices(heads, out.view(np.uint8), starts)
        tails = shape.tails_of(slices)
        kernels.copy_slices(tails, out.view(np.uint8), starts + heads.size)
        return from_words(out)


def packed_encoding(bits: int, width: int) -> pb21.CompressiveEncoding:
    """Return the message of words of `bits` bits that are packed to a width."""
    packed = pb21.OutOfLineBitpacking(uncompressed_bits_per_value=bits, values=flat_encoding(width))
    return pb21.CompressiveEncoding(out_of_line_bitpacking=packed)


def packed_level_bits(encoding: Encoding) -> int | None:
    """Return the width of levels that are packed and nothing else; None if they are not."""
    if encoding.WhichOneof("compression") != "out_of_line_bitpacking":
        return None
    message = encoding.out_of_line_bitpacking
    if (
        message.uncompressed_bits_per_value != LEVEL_BITS
        or message.values.WhichOneof("compression") != "flat"
    ):
        return None
    width = int(message.values.flat.bits_per_value)
    return width if 0 < width <= LEVEL_BITS else None


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """How each of many buffers is divided into packed blocks and a plain tail."""

    counts: Int64s
    tails: Int64s
    width: int
    word_bytes: int

    @property
    def kept(self) -> Int64s:
        """Return how many values of each buffer are packed."""
        return self.counts - self.tails

    @property
    def blocks(self) -> Int64s:
        """Return how many packed blocks each buffer has."""
        return -(-self.kept // BLOCK_VALUES)

    def packed_bytes(self) -> Int64s:
        """Return the bytes of the packed blocks of each buffer."""
        return self.blocks * (self.width * BLOCK_VALUES // 8)

    def plain_starts(self) -> Int64s:
        """Return where the values of each buffer begin among unpacked blocks, in bytes."""
        return (np.cumsum(self.blocks) - self.blocks) * (BLOCK_VALUES * self.word_bytes)

    def plain_heads(self, values: Slices) -> Slices:
        """Return the values of each buffer that are to be packed."""
        return Slices(values.source, values.position, self.kept * self.word_bytes)

    def tails_of(self, slices: Slices) -> Slices:
        """Return the plain values at the end of each buffer."""
        size = self.tails * self.word_bytes
        return Slices(slices.source, slices.position + slices.size - size, size)


def _stored_shape(slices: Slices, counts: Int64s, width: int, word_bytes: int) -> _Shape:
    """Tell plain tails from packed ones by the sizes of the buffers, which must be exact."""
    tails = counts % BLOCK_VALUES
    with_tail = _Shape(counts, tails, width, word_bytes)
    is_plain = slices.size == with_tail.packed_bytes() + tails * word_bytes
    shape = _Shape(counts, np.where(is_plain, tails, 0), width, word_bytes)
    expected = shape.packed_bytes() + shape.tails * word_bytes
    check_sizes(slices, expected, codec=OutOfLineBitpacking.wire_name)
    return shape
