"""Out-of-line bit-packing codec: one width for all values, stored in the encoding.

    2000 levels of 2 bits   1024 packed (256 bytes), then 976 packed with zero padding
    1030 levels of 2 bits   1024 packed (256 bytes), then the remaining six, plain

The format does not store whether the tail is packed: it is plain if its size is that of plain
values. The writer packs the tail if that takes fewer bytes.

Many buffers, such as the levels of every chunk, are split into packed blocks, unpacked together,
and plain tails.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.chunking import join_bytes, to_slices
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.unsigned import (
    UNSIGNED_TYPES,
    from_unsigned,
    to_unsigned,
    validate_bits,
)
from lancelet.encodings.codecs.validate import check_sizes, check_virtual
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass

BLOCK_VALUES: Final = 1024
"""Number of values per packed block."""


LEVEL_BITS = 16
"""Bit width of levels, which have many short buffers and a separate kernel."""


class OutOfLineBitpacking(Codec):
    """Bit-packed values of one width."""

    wire_name: ClassVar[str] = "out_of_line_bitpacking"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `out_of_line_bitpacking(bits -> width)`."""
        del codecs
        width = message.values.flat.bits_per_value
        return f"out_of_line_bitpacking({message.uncompressed_bits_per_value} -> {width})"

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Pack every block with the width of the largest value."""
        integers = to_unsigned(block, self.wire_name)
        width = int(integers.max(initial=0)).bit_length()
        tails = counts % BLOCK_VALUES
        tails[width * BLOCK_VALUES < integers.itemsize * 8 * tails] = 0
        shape = _Shape(counts, tails, width, integers.itemsize)
        values = to_slices(counts * integers.itemsize, integers.view(np.uint8))
        padded = np.zeros(int(shape.blocks.sum()) * BLOCK_VALUES, integers.dtype)
        kernels.copy_slices(shape.plain_heads(values), padded.view(np.uint8), shape.plain_starts())
        packed = to_slices(shape.packed_bytes(), kernels.pack_blocks(padded, width))
        sizes = packed.size + tails * integers.itemsize
        starts = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        kernels.copy_slices(packed, out, starts)
        kernels.copy_slices(shape.take_tails(values), out, starts + packed.size)
        encoding = packed_encoding(integers.itemsize * 8, width)
        return EncodedBlocks(encoding, ByteSlices(out, starts, sizes))

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Unpack the blocks."""
        del codecs
        bits = validate_bits(message.uncompressed_bits_per_value, cls.wire_name)
        if message.values.WhichOneof("compression") != "flat":
            raise UnsupportedError(
                "bit-packed values of one width require a flat encoding", codec=cls.wire_name
            )
        width = int(message.values.flat.bits_per_value)
        if width > bits:
            raise CorruptDataError(
                "packed values are wider than unpacked values", width=width, bits=bits
            )
        if width == 0:
            check_virtual(counts, value_bytes=bits // 8, codec=cls.wire_name)
        if bits == LEVEL_BITS:
            return from_unsigned(kernels.unpack_levels(slices, counts, width))
        shape = _stored_shape(slices, counts, width, bits // 8)
        packed = join_bytes(ByteSlices(slices.source, slices.position, shape.packed_bytes()))
        total = int(shape.blocks.sum()) * BLOCK_VALUES
        unpacked = kernels.unpack_blocks(packed, width, total, bits)
        if not (shape.packed_counts[:-1] % BLOCK_VALUES).any() and not shape.tails.any():
            return from_unsigned(unpacked[: int(counts.sum())])
        out = np.empty(int(counts.sum()), UNSIGNED_TYPES[bits])
        starts = (np.cumsum(counts) - counts) * out.itemsize
        heads = ByteSlices(
            unpacked.view(np.uint8), shape.plain_starts(), shape.packed_counts * out.itemsize
        )
        kernels.copy_slices(heads, out.view(np.uint8), starts)
        tails = shape.take_tails(slices)
        kernels.copy_slices(tails, out.view(np.uint8), starts + heads.size)
        return from_unsigned(out)


def packed_encoding(bits: int, width: int) -> pb21.CompressiveEncoding:
    """Return the encoding of values of `bits` bits packed to `width`."""
    packed = pb21.OutOfLineBitpacking(uncompressed_bits_per_value=bits, values=flat_encoding(width))
    return pb21.CompressiveEncoding(out_of_line_bitpacking=packed)


@dataclass(frozen=True, slots=True, eq=False)
class _Shape:
    """The division of buffers into packed blocks and a plain tail."""

    counts: Int64s
    tails: Int64s
    width: int
    integer_bytes: int

    @property
    def packed_counts(self) -> Int64s:
        """Return the number of packed values of each buffer."""
        return self.counts - self.tails

    @property
    def blocks(self) -> Int64s:
        """Return the number of packed blocks of each buffer."""
        return -(-self.packed_counts // BLOCK_VALUES)

    def packed_bytes(self) -> Int64s:
        """Return the size of the packed blocks of each buffer."""
        return self.blocks * (self.width * BLOCK_VALUES // 8)

    def plain_starts(self) -> Int64s:
        """Return the position of the values of each buffer among unpacked blocks, in bytes."""
        return (np.cumsum(self.blocks) - self.blocks) * (BLOCK_VALUES * self.integer_bytes)

    def plain_heads(self, values: ByteSlices) -> ByteSlices:
        """Return the values of each buffer to be packed."""
        return ByteSlices(values.source, values.position, self.packed_counts * self.integer_bytes)

    def take_tails(self, slices: ByteSlices) -> ByteSlices:
        """Return the plain tail of each buffer."""
        size = self.tails * self.integer_bytes
        return ByteSlices(slices.source, slices.position + slices.size - size, size)


def _stored_shape(slices: ByteSlices, counts: Int64s, width: int, integer_bytes: int) -> _Shape:
    """Distinguish plain from packed tails by the exact buffer sizes."""
    tails = counts % BLOCK_VALUES
    with_tail = _Shape(counts, tails, width, integer_bytes)
    is_plain = slices.size == with_tail.packed_bytes() + tails * integer_bytes
    shape = _Shape(counts, np.where(is_plain, tails, 0), width, integer_bytes)
    required = shape.packed_bytes() + shape.tails * integer_bytes
    check_sizes(slices, required, codec=OutOfLineBitpacking.wire_name)
    return shape
