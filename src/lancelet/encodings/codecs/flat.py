"""Flat codec: plain values of `bits` bits each.

    int16 values 1 2 3    stored  01 00 02 00 03 00
    bits         1 0 1 1  stored  0d                 (1 bit each, least significant first)

Mini-block chunks start at a byte boundary, so chunks of bits have a multiple of eight values,
except the last. Adjacent chunks are separated by the header of the second, so several chunks are
copied together, while a single chunk is a view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    EncodedValues,
    ValuePositions,
)
from lancelet.encodings.codecs.chunking import (
    chunk_counts,
    chunk_values,
    join_bytes,
    to_slices,
)
from lancelet.encodings.codecs.validate import check_sizes, require_fixed_width, validate_fixed_rows
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

BITS_MAX = 1 << 24
"""Maximum accepted bit width of a value: 2 MiB."""


def flat_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the encoding of plain values of `bits` bits."""
    return pb21.CompressiveEncoding(flat=pb21.Flat(bits_per_value=bits))


def flat_bits(message: Any) -> int:
    """Return the validated bit width of a `Flat` message."""
    bits = int(message.bits_per_value)
    if not 0 < bits <= BITS_MAX or (bits != 1 and bits % 8):
        raise CorruptDataError("invalid bit width of plain values", bits=bits)
    return bits


class Flat(Codec):
    """Plain values."""

    wire_name: ClassVar[str] = "flat"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `flat(bits)`."""
        del codecs
        return f"flat({message.bits_per_value})"

    @classmethod
    def as_plain(
        cls, message: Any, slices: ByteSlices, values_max: Int64s, codecs: Codecs
    ) -> tuple[ByteSlices, int] | None:
        """Return the slices."""
        del values_max, codecs
        return slices, flat_bits(message)

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values."""
        del codecs
        return (counts * flat_bits(message) + 7) // 8

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values."""
        return cls.bytes_max(message, counts, codecs)

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose plain values for fixed-width blocks."""
        if isinstance(block, FixedWidth):
            yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split values into chunks of `limits.bytes_aim`."""
        values = require_fixed_width(block, self.wire_name)
        counts = chunk_counts(values.count, chunk_values(values.count, values.bits / 8, limits))
        encoded = self.encode_blocks(values, counts)
        return ChunkedValues(flat_encoding(values.bits), (encoded.slices,), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Slice the bytes of the values."""
        values = require_fixed_width(block, self.wire_name)
        if values.bits == 1:
            return EncodedBlocks(flat_encoding(1), cut_bits(values.data, counts))
        sizes = counts * (values.bits // 8)
        return EncodedBlocks(flat_encoding(values.bits), to_slices(sizes, values.data))

    def encode_values(self, block: Block) -> EncodedValues:
        """Return the values; the layout expands bits to bytes."""
        values = require_fixed_width(block, self.wire_name)
        return EncodedValues(flat_encoding(values.bits), values)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the chunks."""
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
        """Gather values from the chunks."""
        del codecs
        bits = flat_bits(message)
        check_sizes(parts[0], (counts * bits + 7) // 8, codec=cls.wire_name)
        start = parts[0].position[positions.chunk]
        if bits > 1:
            data = kernels.take_fixed(
                parts[0].source, start + positions.index * (bits // 8), bits // 8
            )
            return FixedWidth(bits, data, len(start))
        bytes_ = kernels.take_fixed(parts[0].source, start + positions.index // 8, 1)
        taken = bytes_ >> (positions.index % 8).astype(np.uint8) & 1
        return FixedWidth(1, np.packbits(taken, bitorder="little"), len(start))

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the buffers."""
        del codecs
        bits = flat_bits(message)
        check_sizes(slices, (counts * bits + 7) // 8, codec=cls.wire_name)
        count = int(counts.sum())
        if bits == 1:
            return FixedWidth(1, join_bits(slices, counts), count)
        return FixedWidth(bits, join_bytes(slices), count)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Return the rows after checking their width."""
        del codecs
        return validate_fixed_rows(rows, flat_bits(message), cls.wire_name)


def cut_bits(bits: Bytes, counts: Int64s) -> ByteSlices:
    """Split a bitmap into byte-aligned slices."""
    sizes = (counts + 7) // 8
    if not (counts[:-1] % 8).any():
        return to_slices(sizes, _clear_trailing_bits(bits, int(counts.sum())))
    plain = np.unpackbits(bits, bitorder="little", count=int(counts.sum()))
    starts = (np.cumsum(sizes) - sizes) * 8 - (np.cumsum(counts) - counts)
    expanded = np.zeros(int(sizes.sum()) * 8, np.uint8)
    expanded[np.repeat(starts, counts) + np.arange(len(plain))] = plain
    return to_slices(sizes, np.packbits(expanded, bitorder="little"))


def _clear_trailing_bits(bits: Bytes, count: int) -> Bytes:
    """Return a bitmap with trailing bits of other columns cleared."""
    whole, rest = divmod(count, 8)
    if not rest or not bits[whole] >> rest:
        return bits
    cleared: Bytes = bits[: whole + 1].copy()
    cleared[whole] &= (1 << rest) - 1
    return cleared


def join_bits(slices: ByteSlices, counts: Int64s) -> Bytes:
    """Concatenate byte-aligned bitmaps with validated sizes."""
    if not (counts[:-1] % 8).any():
        return join_bytes(slices)
    bits = np.unpackbits(join_bytes(slices), bitorder="little")
    starts = np.cumsum(slices.size * 8) - slices.size * 8
    bit_indices = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.packbits(bits[bit_indices], bitorder="little")
