"""Inline bit-packing codec: blocks of 1024 values, each with a width of its own in front.

    u32 values  3 1 2 0 ...            the largest needs 2 bits
    stored      02 00 00 00            the width, as one word of the value's size
                1024 x 2 bits          packed in the interleaved order of `kernels`

A block may hold fewer than 1024 values; it is packed as if zeros followed. Negative numbers are
taken by their bits, so they need the full width, and columns that have some gain nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    MeasuredPages,
    Picks,
)
from lancelet.encodings.codecs.cut import page_counts
from lancelet.encodings.codecs.expect import check_counts
from lancelet.encodings.codecs.words import (
    WORDS,
    as_words,
    checked_word_bits,
    from_words,
)
from lancelet.errors import InvalidInputError
from lancelet.format.protos import encodings21_pb as pb21

BLOCK_VALUES: Final = 1024
"""Values of a packed block."""


class InlineBitpacking(Codec):
    """Packed values that carry their width."""

    wire_name: ClassVar[str] = "inline_bitpacking"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `inline_bitpacking(bits)`, the bits being the unpacked ones."""
        del codecs
        return f"inline_bitpacking({message.uncompressed_bits_per_value})"

    @classmethod
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Propose packing for pages of numbers whose highest bits are not all in use."""
        if isinstance(block, FixedWidth) and block.bits in WORDS and rows:
            mean = _widths(as_words(block, cls.wire_name), rows).mean(axis=1)
            yield cls(), (mean <= block.bits - 1).nonzero()[0]

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Pack 1024 values a chunk, whatever the limits aim at; they are at most 8 KiB."""
        del limits
        words = as_words(block, self.wire_name)
        counts = page_counts(len(words) // rows if rows else 0, rows, BLOCK_VALUES)
        packed = kernels.pack_chunks(*_padded(words, rows))
        return ChunkedValues(inline_encoding(words.itemsize * 8), (Slices(*packed),), counts)

    def measure_pages(self, block: Block, rows: int, limits: ChunkLimits) -> MeasuredPages | None:
        """Return what the widths of blocks come to."""
        del limits
        words = as_words(block, self.wire_name)
        if not len(words):
            return None
        widths = _widths(words, rows)
        blocks = widths.shape[1]
        sizes = widths.sum(axis=1, dtype=np.int64) * (BLOCK_VALUES // 8) + blocks * words.itemsize
        return MeasuredPages(inline_encoding(words.itemsize * 8), sizes, blocks)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack a single block of at most 1024 values."""
        words = as_words(block, self.wire_name)
        if len(counts) != 1 or int(counts[0]) > BLOCK_VALUES:
            raise InvalidInputError("only a single block is packed inline", values=len(words))
        # A block without values still is one: a width of 0 and nothing behind it.
        packed = kernels.pack_chunks(words if len(words) else np.zeros(1, words.dtype))
        return EncodedBlocks(inline_encoding(words.itemsize * 8), Slices(*packed))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Unpack the chunks."""
        return cls.decode_blocks(message, parts[0], counts, codecs)

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Unpack single values where they lie."""
        del codecs
        bits = checked_word_bits(message.uncompressed_bits_per_value, cls.wire_name)
        check_counts(counts, most=BLOCK_VALUES, codec=cls.wire_name)
        return from_words(kernels.pick_packed(picks.of(parts[0]), picks.index, bits))

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Unpack the blocks."""
        del codecs
        bits = checked_word_bits(message.uncompressed_bits_per_value, cls.wire_name)
        check_counts(counts, most=BLOCK_VALUES, codec=cls.wire_name)
        return from_words(kernels.unpack_chunks(slices, counts, bits))


def _widths(words: npt.NDArray[Any], rows: int) -> Bytes:
    """Return the bits that the values of each block need, a row for each page."""
    return kernels.bit_widths(*_padded(words, rows)).reshape(len(words) // rows, -1)


def _padded(words: npt.NDArray[Any], rows: int) -> tuple[npt.NDArray[Any], int]:
    """Return pages of `rows` values so that blocks end where they do, and the values of a block."""
    if rows == len(words) or rows % BLOCK_VALUES == 0:
        return words, BLOCK_VALUES
    if rows < BLOCK_VALUES:
        return words, rows
    padded = np.zeros((len(words) // rows, -(-rows // BLOCK_VALUES) * BLOCK_VALUES), words.dtype)
    padded[:, :rows] = words.reshape(-1, rows)
    return padded.reshape(-1), BLOCK_VALUES


def inline_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the message of words of `bits` bits that are packed inline."""
    return pb21.CompressiveEncoding(
        inline_bitpacking=pb21.InlineBitpacking(uncompressed_bits_per_value=bits)
    )
