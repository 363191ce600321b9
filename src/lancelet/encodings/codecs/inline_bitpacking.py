"""Inline bit-packing codec: blocks of 1024 values, each preceded by its bit width.

    u32 values  3 1 2 0 ...            the largest needs 2 bits
    stored      02 00 00 00            the width, as one integer of the value type
                1024 x 2 bits          packed in the interleaved order of `kernels`

Blocks with fewer than 1024 values are padded with zeros. Negative numbers are packed as unsigned,
so they need the full width, and columns that contain some are not compressed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    Positions,
    ValuePositions,
    ValueRanges,
)
from lancelet.encodings.codecs.chunking import chunk_counts
from lancelet.encodings.codecs.unsigned import (
    UNSIGNED_TYPES,
    from_unsigned,
    to_unsigned,
    validate_bits,
)
from lancelet.encodings.codecs.validate import check_counts
from lancelet.errors import InvalidInputError
from lancelet.format.protos import encodings21_pb as pb21

BLOCK_VALUES: Final = 1024
"""Number of values per packed block."""


class InlineBitpacking(Codec):
    """Bit-packed blocks with inline widths."""

    wire_name: ClassVar[str] = "inline_bitpacking"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `inline_bitpacking(bits)` with the unpacked bit width."""
        del codecs
        return f"inline_bitpacking({message.uncompressed_bits_per_value})"

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose packing for numbers with unused high bits."""
        if isinstance(block, FixedWidth) and block.bits in UNSIGNED_TYPES and block.count:
            widths = kernels.bit_widths(to_unsigned(block, cls.wire_name), BLOCK_VALUES)
            if widths.mean() <= block.bits - 1:
                yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Pack 1024 values per chunk (at most 8 KiB), regardless of the target size."""
        del limits
        integers = to_unsigned(block, self.wire_name)
        counts = chunk_counts(len(integers), BLOCK_VALUES)
        packed = kernels.pack_chunks(integers)
        return ChunkedValues(inline_encoding(integers.itemsize * 8), (ByteSlices(*packed),), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack a single block of at most 1024 values."""
        integers = to_unsigned(block, self.wire_name)
        if len(counts) != 1 or int(counts[0]) > BLOCK_VALUES:
            raise InvalidInputError(
                "inline bit-packing requires a single block", values=len(integers)
            )
        # An empty block is stored as a width of 0 without data.
        packed = kernels.pack_chunks(integers if len(integers) else np.zeros(1, integers.dtype))
        return EncodedBlocks(inline_encoding(integers.itemsize * 8), ByteSlices(*packed))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Unpack the chunks."""
        return cls.decode_blocks(message, parts[0], counts, codecs)

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Unpack selected values."""
        del codecs
        bits = validate_bits(message.uncompressed_bits_per_value, cls.wire_name)
        check_counts(counts, count_max=BLOCK_VALUES, codec=cls.wire_name)
        return from_unsigned(kernels.pick_packed(positions.of(parts[0]), positions.index, bits))

    @classmethod
    def match_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        values: ValueRanges,
        codecs: Codecs,
    ) -> npt.NDArray[np.bool_] | None:
        """Compare the values while they are unpacked."""
        del codecs
        bits = validate_bits(message.uncompressed_bits_per_value, cls.wire_name)
        if bits != values.bits:
            return None
        check_counts(counts, count_max=BLOCK_VALUES, codec=cls.wire_name)
        return kernels.match_packed(
            parts[0], counts, bits, values.unsigned, is_float=values.is_float
        )

    @classmethod
    def select_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        values: ValueRanges,
        codecs: Codecs,
    ) -> tuple[Positions, Block] | None:
        """Compare the values while they are unpacked."""
        del codecs
        bits = validate_bits(message.uncompressed_bits_per_value, cls.wire_name)
        if bits != values.bits:
            return None
        check_counts(counts, count_max=BLOCK_VALUES, codec=cls.wire_name)
        rows, selected = kernels.select_packed(
            parts[0], counts, bits, values.unsigned, is_float=values.is_float
        )
        return rows, from_unsigned(selected)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Unpack the blocks."""
        del codecs
        bits = validate_bits(message.uncompressed_bits_per_value, cls.wire_name)
        check_counts(counts, count_max=BLOCK_VALUES, codec=cls.wire_name)
        return from_unsigned(kernels.unpack_chunks(slices, counts, bits))


def inline_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the encoding of packed values of `bits` bits."""
    return pb21.CompressiveEncoding(
        inline_bitpacking=pb21.InlineBitpacking(uncompressed_bits_per_value=bits)
    )
