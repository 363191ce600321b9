"""Variable codec: byte strings as offsets and bytes.

    values      "ab" "" "c"
    mini-block  offsets [16 18 18 19] as u32, then "abc"; measured from the start of the buffer
    block       32, 24, offsets [0 2 2 3], then "abc": width of the offsets, start of the bytes
    per value   the values themselves; their lengths are the layout's

Offsets are 32 or 64 bits wide, as in the Arrow array that was written; readers convert to the
type they were asked for. Version 2.3 may store the offsets of a mini-block chunk in a codec of
their own: they begin at 0 then, and the bytes are a second buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

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
    Picks,
)
from lancelet.encodings.codecs.cut import (
    NO_BYTES,
    VALUES_MIN,
    chunk_counts,
    every_page,
    joined_bytes,
    slices_of,
)
from lancelet.encodings.codecs.expect import expect_variable, expect_variable_rows
from lancelet.encodings.codecs.flat import flat_encoding
from lancelet.encodings.codecs.words import as_words
from lancelet.errors import CorruptDataError
from lancelet.format.protos import encodings21_pb as pb21

INT32_MAX = (1 << 31) - 1

PAD_BYTE = 72
"""What fills a chunk up to whole offsets."""


def variable_encoding(offset_bits: int) -> pb21.CompressiveEncoding:
    """Return the message of byte strings with plain offsets."""
    return pb21.CompressiveEncoding(variable=pb21.Variable(offsets=flat_encoding(offset_bits)))


class VariableCodec(Codec):
    """Byte strings as they are."""

    wire_name: ClassVar[str] = "variable"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `variable(offsets)`."""
        return f"variable({codecs.describe(message.offsets)})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return 1, or 2 if the offsets have a codec of their own that needs bytes."""
        if message.offsets.WhichOneof("compression") == "flat":
            return 1
        return 1 + codecs.owns_bytes(message.offsets)

    @classmethod
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Propose plain strings for all strings."""
        if isinstance(block, Variable):
            yield cls(), every_page(block.count, rows)

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Cut strings into chunks of one count in a page, so large that none exceeds the limits."""
        values = expect_variable(block, self.wire_name)
        width = values.offsets.itemsize
        each = _chunk_values(values, rows, limits)
        counts = np.concatenate([chunk_counts(rows, chunk) for chunk in each])
        chunks = kernels.cut_variable(values.offsets, values.data, counts, PAD_BYTE)
        return ChunkedValues(variable_encoding(width * 8), (chunks,), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Put offsets and bytes of each block behind a head of two words."""
        values = expect_variable(block, self.wire_name)
        stops = np.cumsum(counts).tolist()
        blocks = [
            _encode_block(Variable(values.offsets[stop - count : stop + 1], values.data))
            for count, stop in zip(counts.tolist(), stops, strict=True)
        ]
        sizes = np.array([len(data) for data in blocks], np.int64)
        encoding = variable_encoding(values.offsets.itemsize * 8)
        return EncodedBlocks(encoding, slices_of(sizes, np.concatenate([NO_BYTES, *blocks])))

    def encode_values(self, block: Block) -> EncodedValues:
        """Return the strings, which are already apart."""
        values = expect_variable(block, self.wire_name)
        return EncodedValues(variable_encoding(values.offsets.itemsize * 8), values)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Join the chunks, their offsets made to follow each other."""
        if message.offsets.WhichOneof("compression") == "flat":
            bits = plain_offset_bits(message.offsets)
            return join_chunks(parts[0], counts, bits)
        nothing = Slices(NO_BYTES, np.zeros_like(counts), np.zeros_like(counts))
        lengths = parts[0] if len(parts) == 2 else nothing
        ends = as_words(codecs.decode_blocks(message.offsets, lengths, counts + 1), cls.wire_name)
        return _join_parts(ends.astype(np.int64), parts[-1], counts)

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Copy single strings from between their offsets."""
        del codecs
        if message.offsets.WhichOneof("compression") != "flat":
            return None
        bits = plain_offset_bits(message.offsets)
        slices = picks.of(parts[0])
        pick = partial(kernels.pick_variable, slices, counts[picks.chunk], picks.index, bits // 8)
        return with_offsets(pick, bits)

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Join the buffers, reading the width of their offsets from their heads."""
        del message, codecs
        blocks = [_decode_block(slices.slice_bytes(i), int(counts[i])) for i in range(len(slices))]
        return blocks[0] if len(blocks) == 1 else _join(blocks)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Return the rows."""
        del message, codecs
        return expect_variable_rows(rows, cls.wire_name)


def _chunk_values(values: Variable, rows: int, limits: ChunkLimits) -> list[int]:
    """Return the largest power of two of strings whose chunks stay within the limits, per page."""
    if not rows:
        return [VALUES_MIN]
    ends = values.offsets[::rows].astype(np.int64)
    total = ends[1:] - ends[:-1]
    found, waiting = np.full(len(total), VALUES_MIN), np.arange(len(total))
    chunk = limits.values_max
    while chunk > VALUES_MIN and len(waiting):
        if chunk // 2 < rows:
            head = (min(chunk, rows) + 1) * values.offsets.itemsize
            fits = total[waiting] / -(-rows // chunk) + head <= limits.bytes_aim
            if fits.any():
                which = waiting[fits]
                if int(total[which].max()) + head > limits.bytes_max:
                    longest = _longest_chunks(values, which, rows, chunk)
                    which = which[longest + head <= limits.bytes_max]
                found[which] = chunk
                waiting = waiting[found[waiting] != chunk]
        chunk //= 2
    return found.tolist()


def _longest_chunks(values: Variable, pages: Int64s, rows: int, chunk: int) -> Int64s:
    """Return the bytes of the longest chunk of some pages of `rows` strings."""
    edges = np.append(np.arange(0, rows, chunk), rows)
    ends = values.offsets[pages[:, None] * rows + edges]
    found: Int64s = (ends[:, 1:] - ends[:, :-1]).max(axis=1).astype(np.int64)
    return found


def plain_offset_bits(offsets: Any) -> int:
    """Return the width of plain offsets."""
    return _checked_offset_bits(int(offsets.flat.bits_per_value))


def with_offsets(decode: Callable[[int], tuple[kernels.Offsets, Bytes]], bits: int) -> Variable:
    """Decode to offsets of the stored width, or of 64 bits if what comes out needs them."""
    try:
        return Variable(*decode(bits))
    except kernels.OffsetOverflowError:
        return Variable(*decode(64))


def join_chunks(slices: Slices, counts: Int64s, bits: int) -> Variable:
    """Join chunks with plain offsets; the result has offsets of 64 bits if it needs them."""
    return with_offsets(partial(kernels.concat_variable, slices, counts, bits // 8), bits)


def _checked_offset_bits(bits: int) -> int:
    if bits not in (32, 64):
        raise CorruptDataError("offsets of strings have 32 or 64 bits", found_bits=int(bits))
    return int(bits)


def _encode_block(values: Variable) -> Bytes:
    word = np.dtype(f"<u{values.offsets.itemsize}")
    head = np.array([word.itemsize * 8, word.itemsize * (3 + values.count)], word)
    start, stop = int(values.offsets[0]), int(values.offsets[-1])
    offsets = (values.offsets - start).astype(word)
    return np.concatenate([head.view(np.uint8), offsets.view(np.uint8), values.data[start:stop]])


def _decode_block(data: Bytes, count: int) -> Variable:
    """Read the head of a block, in its form or the one of early writers, and cut the rest."""
    head = data[:17].tobytes()
    if len(head) < 4:
        raise CorruptDataError("a block of strings is cut short", bytes=len(head))
    bits = _checked_offset_bits(head[0])
    # Early writers put a byte of width and then the count, unaligned; only counts that are
    # multiples of 2^24 would look the same.
    first = 1 if any(head[1:4]) else bits // 8
    words = bits // 8
    offsets_start = first + words * (1 if first > 1 else 2)
    start = int.from_bytes(head[offsets_start - words : offsets_start], "little")
    offsets_stop = offsets_start + (count + 1) * words
    if len(head) < offsets_start or not offsets_stop <= start <= len(data):
        if count == 0 and len(head) >= offsets_start:
            return Variable(np.zeros(1, f"<i{words}"), NO_BYTES)
        raise CorruptDataError(
            "a block of strings claims more than it holds",
            values=count,
            bytes_start=start,
            bytes=len(data),
        )
    raw = data[offsets_start:offsets_stop]
    offsets = np.frombuffer(raw.tobytes() if raw.ctypes.data % words else raw, f"<i{words}")
    values = data[start:]
    if int(offsets[0]) < 0 or int(offsets[-1]) > len(values) or (offsets[1:] < offsets[:-1]).any():
        raise CorruptDataError("offsets of strings go backwards or past the end", values=count)
    return Variable(offsets, values)


def offsets_from_sizes(sizes: Int64s) -> npt.NDArray[np.int32] | npt.NDArray[np.int64]:
    """Return the offsets of values of these sizes, of 32 bits if they suffice.

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


def _join_parts(ends: Int64s, bytes_: Slices, counts: Int64s) -> Variable:
    """Join chunks whose offsets, `count + 1` from 0 on for each, are apart from their bytes."""
    firsts = np.cumsum(counts + 1) - (counts + 1)
    lengths = np.delete(np.diff(ends, append=0), firsts + counts)
    # Compared as well as subtracted, for a fall of more than 63 bits is a rise when subtracted.
    falls = np.delete(np.append(ends[1:] < ends[:-1], False), firsts + counts)
    totals = ends[firsts + counts]
    if falls.any() or ends[firsts].any() or (totals > bytes_.size).any():
        raise CorruptDataError("offsets of strings go backwards or past the end of their chunk")
    data = joined_bytes(Slices(bytes_.source, bytes_.position, totals))
    return Variable(offsets_from_sizes(lengths), data)
