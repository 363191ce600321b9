"""Variable codec: byte strings as offsets and bytes.

    values      "ab" "" "c"
    mini-block  offsets [16 18 18 19] as u32, then "abc"; relative to the start of the buffer
    block       32, 24, offsets [0 2 2 3], then "abc": width of the offsets, start of the bytes
    per value   the values themselves; the layout stores their lengths

Offsets have 32 or 64 bits, as in the written Arrow array; readers convert them to the requested
type. Version 2.3 may encode the offsets of a mini-block chunk with another codec: they then start
at 0, and the bytes are a second buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

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
    NO_BYTES,
    VALUES_MIN,
    chunk_counts,
    join_bytes,
    to_slices,
)
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.unsigned import to_unsigned
from lancelet.encodings.codecs.validate import require_variable, validate_variable_rows
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

INT32_MAX = (1 << 31) - 1

PAD_BYTE = 72
"""Padding byte to align chunks to the offset size."""


def variable_encoding(offset_bits: int) -> pb21.CompressiveEncoding:
    """Return the encoding of byte strings with plain offsets."""
    return pb21.CompressiveEncoding(variable=pb21.Variable(offsets=flat_encoding(offset_bits)))


class VariableCodec(Codec):
    """Plain byte strings."""

    wire_name: ClassVar[str] = "variable"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `variable(offsets)`."""
        return f"variable({codecs.describe(message.offsets)})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return 1, or 2 if the offsets are encoded and need a buffer."""
        if message.offsets.WhichOneof("compression") == "flat":
            return 1
        return 1 + codecs.owns_bytes(message.offsets)

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose plain strings for all strings."""
        if isinstance(block, Variable):
            yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split strings into chunks of equal count within the limits."""
        values = require_variable(block, self.wire_name)
        width = values.offsets.itemsize
        counts = chunk_counts(values.count, _chunk_values(values, limits))
        chunks = kernels.split_variable(values.offsets, values.data, counts, PAD_BYTE)
        return ChunkedValues(variable_encoding(width * 8), (chunks,), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Serialize each block: a header of two integers, offsets, bytes."""
        values = require_variable(block, self.wire_name)
        stops = np.cumsum(counts).tolist()
        blocks = [
            _encode_block(Variable(values.offsets[stop - count : stop + 1], values.data))
            for count, stop in zip(counts.tolist(), stops, strict=True)
        ]
        sizes = np.array([len(data) for data in blocks], np.int64)
        encoding = variable_encoding(values.offsets.itemsize * 8)
        return EncodedBlocks(encoding, to_slices(sizes, np.concatenate([NO_BYTES, *blocks])))

    def encode_values(self, block: Block) -> EncodedValues:
        """Return the strings unchanged."""
        values = require_variable(block, self.wire_name)
        return EncodedValues(variable_encoding(values.offsets.itemsize * 8), values)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the chunks and their offsets."""
        if message.offsets.WhichOneof("compression") == "flat":
            bits = plain_offset_bits(message.offsets)
            return join_chunks(parts[0], counts, bits)
        empty = ByteSlices(NO_BYTES, np.zeros_like(counts), np.zeros_like(counts))
        lengths = parts[0] if len(parts) == 2 else empty
        ends = to_unsigned(
            codecs.decode_blocks(message.offsets, lengths, counts + 1), cls.wire_name
        )
        return _join_parts(ends.astype(np.int64), parts[-1], counts)

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Copy selected strings."""
        del codecs
        if message.offsets.WhichOneof("compression") != "flat":
            return None
        bits = plain_offset_bits(message.offsets)
        slices = positions.of(parts[0])
        take = partial(
            kernels.pick_variable, slices, counts[positions.chunk], positions.index, bits // 8
        )
        return with_offsets(take, bits)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the buffers, with the offset width from their headers."""
        del message, codecs
        blocks = [_decode_block(slices.slice_bytes(i), int(counts[i])) for i in range(len(slices))]
        return blocks[0] if len(blocks) == 1 else _join(blocks)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Return the rows."""
        del message, codecs
        return validate_variable_rows(rows, cls.wire_name)


def _chunk_values(values: Variable, limits: ChunkLimits) -> int:
    """Return the largest power of two of strings per chunk within the limits."""
    count = values.count
    total = int(values.offsets[-1]) - int(values.offsets[0])
    chunk = limits.values_max
    while chunk > VALUES_MIN:
        head = (min(chunk, count) + 1) * values.offsets.itemsize
        if chunk // 2 < count and total / -(-count // chunk) + head <= limits.bytes_aim:
            if total + head <= limits.bytes_max:
                return chunk
            ends = values.offsets[np.append(np.arange(0, count, chunk), count)]
            if int(np.diff(ends).max()) + head <= limits.bytes_max:
                return chunk
        chunk //= 2
    return chunk


def plain_offset_bits(offsets: Any) -> int:
    """Return the width of plain offsets."""
    return _validate_offset_bits(int(offsets.flat.bits_per_value))


def with_offsets(decode: Callable[[int], tuple[kernels.Offsets, Bytes]], bits: int) -> Variable:
    """Decode with offsets of the stored width, or 64 bits if they overflow."""
    try:
        return Variable(*decode(bits))
    except kernels.OffsetOverflowError:
        return Variable(*decode(64))


def join_chunks(slices: ByteSlices, counts: Int64s, bits: int) -> Variable:
    """Concatenate chunks with plain offsets; uses 64-bit offsets if required."""
    return with_offsets(partial(kernels.concat_variable, slices, counts, bits // 8), bits)


def _validate_offset_bits(bits: int) -> int:
    if bits not in (32, 64):
        raise CorruptDataError("string offsets must have 32 or 64 bits", found_bits=int(bits))
    return int(bits)


def _encode_block(values: Variable) -> Bytes:
    offset_type = np.dtype(f"<u{values.offsets.itemsize}")
    head = np.array(
        [offset_type.itemsize * 8, offset_type.itemsize * (3 + values.count)], offset_type
    )
    start, stop = int(values.offsets[0]), int(values.offsets[-1])
    offsets = (values.offsets - start).astype(offset_type)
    return np.concatenate([head.view(np.uint8), offsets.view(np.uint8), values.data[start:stop]])


def _decode_block(data: Bytes, count: int) -> Variable:
    """Parse the header of a block, in the current form or that of early writers."""
    head = data[:17].tobytes()
    if len(head) < 4:
        raise CorruptDataError("a block of strings is truncated", bytes=len(head))
    bits = _validate_offset_bits(head[0])
    # Early writers stored a byte of width and then the count, unaligned; only counts that are
    # multiples of 2^24 are ambiguous.
    first = 1 if any(head[1:4]) else bits // 8
    width = bits // 8
    offsets_start = first + width * (1 if first > 1 else 2)
    start = int.from_bytes(head[offsets_start - width : offsets_start], "little")
    offsets_stop = offsets_start + (count + 1) * width
    if len(head) < offsets_start or not offsets_stop <= start <= len(data):
        if count == 0 and len(head) >= offsets_start:
            return Variable(np.zeros(1, f"<i{width}"), NO_BYTES)
        raise CorruptDataError(
            "a block of strings is shorter than its offsets claim",
            values=count,
            bytes_start=start,
            bytes=len(data),
        )
    raw = data[offsets_start:offsets_stop]
    offsets = np.frombuffer(raw.tobytes() if raw.ctypes.data % width else raw, f"<i{width}")
    values = data[start:]
    if int(offsets[0]) < 0 or int(offsets[-1]) > len(values) or (offsets[1:] < offsets[:-1]).any():
        raise CorruptDataError("string offsets decrease or exceed the buffer", values=count)
    return Variable(offsets, values)


def offsets_from_sizes(sizes: Int64s) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    """Return the offsets of values of the given sizes, with 32 bits if sufficient.

    >>> offsets_from_sizes(np.array([2, 0, 1]))
    array([0, 2, 2, 3], dtype=int32)
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return offsets.astype(np.int32) if int(offsets[-1]) <= INT32_MAX else offsets


def _join(blocks: list[Variable]) -> Variable:
    sizes = [np.diff(block.offsets).astype(np.int64) for block in blocks]
    data = [block.data[int(block.offsets[0]) : int(block.offsets[-1])] for block in blocks]
    offsets = offsets_from_sizes(np.concatenate([np.empty(0, np.int64), *sizes]))
    return Variable(offsets, np.concatenate([NO_BYTES, *data]))


def _join_parts(ends: Int64s, bytes_: ByteSlices, counts: Int64s) -> Variable:
    """Concatenate chunks with separate offsets, `count + 1` per chunk starting at 0."""
    firsts = np.cumsum(counts + 1) - (counts + 1)
    lengths = np.delete(np.diff(ends, append=0), firsts + counts)
    # Compared before subtraction, as a decrease by more than 63 bits would overflow.
    falls = np.delete(np.append(ends[1:] < ends[:-1], False), firsts + counts)
    totals = ends[firsts + counts]
    if falls.any() or ends[firsts].any() or (totals > bytes_.size).any():
        raise CorruptDataError("string offsets decrease or exceed their chunk")
    data = join_bytes(ByteSlices(bytes_.source, bytes_.position, totals))
    return Variable(offsets_from_sizes(lengths), data)
