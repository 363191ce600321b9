"""Run-length codec: a run of equal values is stored once, with its length.

    values   7 7 7 2 2 9
    stored   values [7 2 9]   lengths [3 2 1]

A length is one byte, so a run of more than 255 is stored as several runs. Readers add the
lengths up and never need to know where a long run was split. Runs end at the end of their chunk.
In block context both arrays share the buffer: byte size of the values as u64, values, lengths.

Version 2.3 also allows wider lengths, and a block codec around either array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.cut import page_counts, slices_of
from lancelet.encodings.codecs.expect import check_expansion, expect_fixed_width
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.words import WORDS, as_words, checked_word_bits
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21

LENGTH_BITS: Final = (8, 16, 32)
"""The widths of lengths; before 2.3 there was only the first."""


class Rle(Codec):
    """Runs of equal values."""

    wire_name: ClassVar[str] = "rle"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `rle(values, lengths)`."""
        values = codecs.describe(message.values)
        return f"rle({values}, {codecs.describe(message.run_lengths)})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return 2: values and lengths."""
        del message, codecs
        return 2

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return whether values or lengths need bytes; else the runs are made of rules."""
        return codecs.owns_bytes(message.values) or codecs.owns_bytes(message.run_lengths)

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values if no two beside each other are equal."""
        return codecs.block_bytes_max(message.values, counts)

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the head, the values and the lengths if all runs have one value."""
        values = codecs.block_bytes_max(message.values, counts)
        lengths = codecs.block_bytes_max(message.run_lengths, counts)
        return None if values is None or lengths is None else 8 + values + lengths

    @classmethod
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Propose runs for pages of which half of the values or more repeat the one before."""
        if isinstance(block, FixedWidth) and block.bits in WORDS and rows:
            runs, _ = kernels.survey_words(block.data, block.bits // 8, rows, 0)
            yield cls(), (runs * 2 <= rows).nonzero()[0]

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Cut values into chunks of the most values that are allowed, and these into runs."""
        words = as_words(block, self.wire_name)
        chunk = limits.values_max
        while chunk > 64 and chunk * (words.itemsize + 1) > limits.bytes_max:
            chunk //= 2
        counts = page_counts(len(words) // rows if rows else 0, rows, chunk)
        values, lengths = _encode(words, counts)
        return ChunkedValues(run_encoding(words.itemsize * 8), (values, lengths), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Put values and lengths of each block behind each other."""
        words = as_words(block, self.wire_name)
        values, lengths = _encode(words, counts)
        sizes = 8 + values.size + lengths.size
        position = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        heads = slices_of(np.full(len(counts), 8), values.size.view(np.uint8))
        kernels.copy_slices(heads, out, position)
        kernels.copy_slices(values, out, position + 8)
        kernels.copy_slices(lengths, out, position + 8 + values.size)
        return EncodedBlocks(run_encoding(words.itemsize * 8), Slices(out, position, sizes))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Repeat the values."""
        values = codecs.as_plain(message.values, parts[0], counts)
        lengths = codecs.as_plain(message.run_lengths, parts[1], counts)
        if values is not None:
            bits = checked_word_bits(values[1], cls.wire_name)
            lengths = lengths or _decoded(
                message.run_lengths, parts[1], values[0].size // (bits // 8), codecs
            )
        elif lengths is not None:
            runs = lengths[0].size // (checked_word_bits(lengths[1], cls.wire_name) // 8)
            values = _decoded(message.values, parts[0], runs, codecs)
        else:
            raise UnsupportedError("the number of runs is not stored", codec=cls.wire_name)
        return _repeat(values, lengths, counts)

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Take values and lengths of each block apart and repeat the values."""
        if not cls.owns_bytes(message, codecs):
            return _repeat_by_rule(message, slices, counts, codecs)
        if (slices.size < 8).any():
            raise CorruptDataError("runs are cut short", bytes=int(slices.size.min()))
        heads = slices.source[slices.position[:, None] + np.arange(8)]
        values_bytes = heads.view("<i8").reshape(-1)
        if ((values_bytes < 0) | (values_bytes > slices.size - 8)).any():
            raise CorruptDataError("the values of runs exceed their buffer")
        values = Slices(slices.source, slices.position + 8, values_bytes)
        lengths = Slices(
            slices.source, slices.position + 8 + values_bytes, slices.size - 8 - values_bytes
        )
        return cls.decode_chunks(message, (values, lengths), counts, codecs)


def _encode(words: npt.NDArray[Any], counts: Int64s) -> tuple[Slices, Slices]:
    values, lengths, runs = kernels.rle_encode_chunks(words.view(np.uint8), words.itemsize, counts)
    return slices_of(runs * words.itemsize, values), slices_of(runs, lengths)


def run_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the message of runs of words of `bits` bits."""
    return pb21.CompressiveEncoding(
        rle=pb21.Rle(values=flat_encoding(bits), run_lengths=flat_encoding(8))
    )


def _decoded(encoding: Any, slices: Slices, runs: Int64s, codecs: Codecs) -> tuple[Slices, int]:
    """Decode values or lengths that have a codec of their own, one of each for every run."""
    decoded = expect_fixed_width(codecs.decode_blocks(encoding, slices, runs), Rle.wire_name)
    bits = checked_word_bits(decoded.bits, Rle.wire_name)
    return slices_of(runs * (bits // 8), decoded.data), bits


def _repeat_by_rule(message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> FixedWidth:
    """Repeat values that need no bytes, and neither do the lengths of their runs.

    So many lengths are taken from their rule as fill the block; a run has one value at least.
    """
    lengths = expect_fixed_width(
        codecs.decode_blocks(message.run_lengths, slices, counts), Rle.wire_name
    )
    if lengths.bits not in LENGTH_BITS:
        raise CorruptDataError("lengths of runs have 8, 16 or 32 bits", found_bits=lengths.bits)
    ends = np.cumsum(as_words(lengths, Rle.wire_name), dtype=np.int64)
    first = np.cumsum(counts) - counts
    before = np.where(first > 0, ends[first - 1], 0) if len(ends) else np.zeros_like(counts)
    last = np.searchsorted(ends, before + counts)
    filled = counts > 0
    if (last[filled] >= (first + counts)[filled]).any() or (
        ends[last[filled]] != (before + counts)[filled]
    ).any():
        raise CorruptDataError("runs by a rule do not fill their blocks", codec=Rle.wire_name)
    runs = np.where(filled, last - first + 1, 0)
    values = _decoded(message.values, slices, runs, codecs)
    return _repeat(values, _decoded(message.run_lengths, slices, runs, codecs), counts)


def _repeat(values: tuple[Slices, int], lengths: tuple[Slices, int], counts: Int64s) -> FixedWidth:
    value_bits = checked_word_bits(values[1], Rle.wire_name)
    if lengths[1] not in LENGTH_BITS:
        raise CorruptDataError("lengths of runs have 8, 16 or 32 bits", found_bits=lengths[1])
    check_expansion(
        counts,
        value_bytes=value_bits // 8,
        stored_bytes=int(values[0].size.sum() + lengths[0].size.sum()),
        codec=Rle.wire_name,
    )
    data = kernels.rle_decode_chunks(
        values[0], lengths[0], counts, value_bits // 8, lengths[1] // 8
    )
    return FixedWidth(value_bits, data, int(counts.sum()))
