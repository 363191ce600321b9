"""Run-length codec: runs of equal values are stored once, with their length.

    values   7 7 7 2 2 9
    stored   values [7 2 9]   lengths [3 2 1]

A length is one byte, so runs of more than 255 are split. Readers repeat each run, so splits need no
special case. Runs end at the end of their chunk. In block context both arrays share the buffer:
byte size of the values as u64, values, lengths.

Version 2.3 also supports wider lengths, and a block codec for either array.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec, Codecs, EncodedBlocks
from lancelet.encodings.codecs.chunking import chunk_counts, to_slices
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.unsigned import UNSIGNED_TYPES, to_unsigned, validate_bits
from lancelet.encodings.codecs.validate import check_expansion, require_fixed_width
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21

LENGTH_BITS: Final = (8, 16, 32)
"""Bit widths of run lengths; before 2.3 only the first."""


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
        """Return whether values or lengths need a buffer."""
        return codecs.owns_bytes(message.values) or codecs.owns_bytes(message.run_lengths)

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the values if no adjacent values are equal."""
        return codecs.block_bytes_max(message.values, counts)

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of header, values and lengths if every run has one value."""
        values = codecs.block_bytes_max(message.values, counts)
        lengths = codecs.block_bytes_max(message.run_lengths, counts)
        return None if values is None or lengths is None else 8 + values + lengths

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose runs if at least half of the values equal the previous one."""
        if isinstance(block, FixedWidth) and block.bits in UNSIGNED_TYPES and block.count:
            runs, _ = kernels.count_distinct_fixed(block.data, block.bits // 8, 0)
            if runs * 2 <= block.count:
                yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split values into chunks of the maximum size, and encode runs."""
        integers = to_unsigned(block, self.wire_name)
        chunk = limits.values_max
        while chunk > 64 and chunk * (integers.itemsize + 1) > limits.bytes_max:
            chunk //= 2
        counts = chunk_counts(len(integers), chunk)
        values, lengths = _encode(integers, counts)
        return ChunkedValues(run_encoding(integers.itemsize * 8), (values, lengths), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Concatenate values and lengths of each block."""
        integers = to_unsigned(block, self.wire_name)
        values, lengths = _encode(integers, counts)
        sizes = 8 + values.size + lengths.size
        position = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        heads = to_slices(np.full(len(counts), 8), values.size.view(np.uint8))
        kernels.copy_slices(heads, out, position)
        kernels.copy_slices(values, out, position + 8)
        kernels.copy_slices(lengths, out, position + 8 + values.size)
        return EncodedBlocks(run_encoding(integers.itemsize * 8), ByteSlices(out, position, sizes))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Repeat the values."""
        values = codecs.as_plain(message.values, parts[0], counts)
        lengths = codecs.as_plain(message.run_lengths, parts[1], counts)
        if values is not None:
            bits = validate_bits(values[1], cls.wire_name)
            lengths = lengths or _decode_runs(
                message.run_lengths, parts[1], values[0].size // (bits // 8), codecs
            )
        elif lengths is not None:
            runs = lengths[0].size // (validate_bits(lengths[1], cls.wire_name) // 8)
            values = _decode_runs(message.values, parts[0], runs, codecs)
        else:
            raise UnsupportedError("cannot determine the number of runs", codec=cls.wire_name)
        return _repeat(values, lengths, counts)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Split values and lengths of each block and repeat the values."""
        if not cls.owns_bytes(message, codecs):
            return _repeat_computed(message, slices, counts, codecs)
        if (slices.size < 8).any():
            raise CorruptDataError("run-length data is truncated", bytes=int(slices.size.min()))
        heads = slices.source[slices.position[:, None] + np.arange(8)]
        values_bytes = heads.view("<i8").reshape(-1)
        if ((values_bytes < 0) | (values_bytes > slices.size - 8)).any():
            raise CorruptDataError("the values of runs exceed their buffer")
        values = ByteSlices(slices.source, slices.position + 8, values_bytes)
        lengths = ByteSlices(
            slices.source, slices.position + 8 + values_bytes, slices.size - 8 - values_bytes
        )
        return cls.decode_chunks(message, (values, lengths), counts, codecs)


def _encode(integers: npt.NDArray[Any], counts: Int64s) -> tuple[ByteSlices, ByteSlices]:
    values, lengths, runs = kernels.rle_encode_chunks(
        integers.view(np.uint8), integers.itemsize, counts
    )
    return to_slices(runs * integers.itemsize, values), to_slices(runs, lengths)


def run_encoding(bits: int) -> pb21.CompressiveEncoding:
    """Return the encoding of runs of values of `bits` bits."""
    return pb21.CompressiveEncoding(
        rle=pb21.Rle(values=flat_encoding(bits), run_lengths=flat_encoding(8))
    )


def _decode_runs(
    encoding: Any, slices: ByteSlices, runs: Int64s, codecs: Codecs
) -> tuple[ByteSlices, int]:
    """Decode values or lengths of runs, one per run."""
    decoded = require_fixed_width(codecs.decode_blocks(encoding, slices, runs), Rle.wire_name)
    bits = validate_bits(decoded.bits, Rle.wire_name)
    return to_slices(runs * (bits // 8), decoded.data), bits


def _repeat_computed(
    message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
) -> FixedWidth:
    """Repeat values if neither values nor run lengths need a buffer.

    Run lengths are generated until the block is full; a run has at least one value.
    """
    lengths = require_fixed_width(
        codecs.decode_blocks(message.run_lengths, slices, counts), Rle.wire_name
    )
    if lengths.bits not in LENGTH_BITS:
        raise CorruptDataError("run lengths must have 8, 16 or 32 bits", found_bits=lengths.bits)
    ends = np.cumsum(to_unsigned(lengths, Rle.wire_name), dtype=np.int64)
    first = np.cumsum(counts) - counts
    before = np.where(first > 0, ends[first - 1], 0) if len(ends) else np.zeros_like(counts)
    last = np.searchsorted(ends, before + counts)
    filled = counts > 0
    if (last[filled] >= (first + counts)[filled]).any() or (
        ends[last[filled]] != (before + counts)[filled]
    ).any():
        raise CorruptDataError(
            "computed runs do not match the size of their blocks", codec=Rle.wire_name
        )
    runs = np.where(filled, last - first + 1, 0)
    values = _decode_runs(message.values, slices, runs, codecs)
    return _repeat(values, _decode_runs(message.run_lengths, slices, runs, codecs), counts)


def _repeat(
    values: tuple[ByteSlices, int], lengths: tuple[ByteSlices, int], counts: Int64s
) -> FixedWidth:
    value_bits = validate_bits(values[1], Rle.wire_name)
    if lengths[1] not in LENGTH_BITS:
        raise CorruptDataError("run lengths must have 8, 16 or 32 bits", found_bits=lengths[1])
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
