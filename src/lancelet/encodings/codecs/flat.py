"""Flat codec: values as they are, `bits` each.

    int16 values 1 2 3    stored  01 00 02 00 03 00
    bits         1 0 1 1  stored  0d                 (1 bit each, least significant first)

In mini-block pages a chunk begins on a byte, so a chunk of bits that is not the last holds a
multiple of eight values. Two chunks that are neighbours in memory are separated by the header of
the second, so several chunks are copied together, while a single one stays a view.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from lancelet import kernels
from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    EncodedValues,
    MeasuredPages,
    Picks,
)
from lancelet.encodings.codecs.cut import (
    chunk_values,
    every_page,
    joined_bytes,
    page_counts,
    slices_of,
)
from lancelet.encodings.codecs.expect import check_sizes, expect_fixed_rows, expect_fixed_width
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

BITS_MAX = 1 << 24
"""The widest value that is believed: 2 MiB."""


def flat_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the message of plain values of `bits` bits."""
    return pb21.CompressiveEncoding(flat=pb21.Flat(bits_per_value=bits))


def flat_bits(message: Any) -> int:
    """Return the checked width of a `Flat` message."""
    bits = int(message.bits_per_value)
    if not 0 < bits <= BITS_MAX or (bits != 1 and bits % 8):
        raise CorruptDataError("plain values have an impossible width", bits=bits)
    return bits


class Flat(Codec):
    """Values as they are."""

    wire_name: ClassVar[str] = "flat"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `flat(bits)`."""
        del codecs
        return f"flat({message.bits_per_value})"

    @classmethod
    def as_plain(
        cls, message: Any, slices: Slices, most: Int64s, codecs: Codecs
    ) -> tuple[Slices, int] | None:
        """Return the slices."""
        del most, codecs
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
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Propose plain values for all of fixed width."""
        if isinstance(block, FixedWidth):
            yield cls(), every_page(block.count, rows)

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Cut values into chunks of `limits.bytes_aim`."""
        values = expect_fixed_width(block, self.wire_name)
        chunk = chunk_values(rows, values.bits / 8, limits)
        counts = page_counts(values.count // rows if rows else 0, rows, chunk)
        if values.bits == 1 and chunk % 8 == 0:
            slices = slices_of((counts + 7) // 8, align_bits(values.data, values.count, rows))
        else:
            slices = self.encode_blocks(values, counts).slices
        return ChunkedValues(flat_encoding(values.bits), (slices,), counts)

    def measure_pages(self, block: Block, rows: int, limits: ChunkLimits) -> MeasuredPages | None:
        """Return as many bytes as the values have, if no chunk of bits ends within a byte."""
        values = expect_fixed_width(block, self.wire_name)
        chunk = chunk_values(rows, values.bits / 8, limits)
        if not rows or (values.bits == 1 and chunk % 8):
            return None
        sizes = np.full(values.count // rows, (rows * values.bits + 7) // 8)
        return MeasuredPages(flat_encoding(values.bits), sizes, -(-rows // chunk))

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Cut the bytes of the values."""
        values = expect_fixed_width(block, self.wire_name)
        if values.bits == 1:
            return EncodedBlocks(flat_encoding(1), cut_bits(values.data, counts))
        sizes = counts * (values.bits // 8)
        return EncodedBlocks(flat_encoding(values.bits), slices_of(sizes, values.data))

    def encode_values(self, block: Block) -> EncodedValues:
        """Return the values, which are already apart; bits become bytes elsewhere."""
        values = expect_fixed_width(block, self.wire_name)
        return EncodedValues(flat_encoding(values.bits), values)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Join the chunks."""
        return cls.decode_blocks(message, parts[0], counts, codecs)

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Gather values from where they are."""
        del codecs
        bits = flat_bits(message)
        check_sizes(parts[0], (counts * bits + 7) // 8, codec=cls.wire_name)
        start = parts[0].position[picks.chunk]
        if bits > 1:
            data = kernels.take_fixed(parts[0].source, start + picks.index * (bits // 8), bits // 8)
            return FixedWidth(bits, data, len(start))
        held = kernels.take_fixed(parts[0].source, start + picks.index // 8, 1)
        picked = held >> (picks.index % 8).astype(np.uint8) & 1
        return FixedWidth(1, np.packbits(picked, bitorder="little"), len(start))

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Join the buffers."""
        del codecs
        bits = flat_bits(message)
        check_sizes(slices, (counts * bits + 7) // 8, codec=cls.wire_name)
        count = int(counts.sum())
        if bits == 1:
            return FixedWidth(1, join_bits(slices, counts), count)
        return FixedWidth(bits, joined_bytes(slices), count)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Return the rows, whose width must be the one of the encoding."""
        del codecs
        return expect_fixed_rows(rows, flat_bits(message), cls.wire_name)


def align_bits(bits: Bytes, count: int, rows: int) -> Bytes:
    """Return a bitmap in which every `rows` bits begin on a byte.

    >>> align_bits(np.array([0b1101], np.uint8), 4, 2).tolist()
    [1, 3]
    """
    if rows == count or rows % 8 == 0:
        return _cleared(bits, count)
    plain = np.unpackbits(bits, bitorder="little", count=count).reshape(-1, rows)
    return np.packbits(plain, axis=1, bitorder="little").reshape(-1)


def cut_bits(bits: Bytes, counts: Int64s) -> Slices:
    """Cut a bitmap into pieces that each begin on a byte."""
    sizes = (counts + 7) // 8
    if not (counts[:-1] % 8).any():
        return slices_of(sizes, _cleared(bits, int(counts.sum())))
    plain = np.unpackbits(bits, bitorder="little", count=int(counts.sum()))
    starts = (np.cumsum(sizes) - sizes) * 8 - (np.cumsum(counts) - counts)
    spread = np.zeros(int(sizes.sum()) * 8, np.uint8)
    spread[np.repeat(starts, counts) + np.arange(len(plain))] = plain
    return slices_of(sizes, np.packbits(spread, bitorder="little"))


def _cleared(bits: Bytes, count: int) -> Bytes:
    """Return a bitmap without the bits of other columns behind its own."""
    whole, rest = divmod(count, 8)
    if not rest or not bits[whole] >> rest:
        return bits
    cleared: Bytes = bits[: whole + 1].copy()
    cleared[whole] &= (1 << rest) - 1
    return cleared


def join_bits(slices: Slices, counts: Int64s) -> Bytes:
    """Join bitmaps that each begin on a byte; their sizes were checked."""
    if not (counts[:-1] % 8).any():
        return joined_bytes(slices)
    bits = np.unpackbits(joined_bytes(slices), bitorder="little")
    starts = np.cumsum(slices.size * 8) - slices.size * 8
    which = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    return np.packbits(bits[which], bitorder="little")
