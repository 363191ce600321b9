"""General codec: LZ4 or Zstandard compression of another codec.

    zstd   u64 uncompressed length, frame
    lz4    u32 uncompressed length, block

Compresses the first buffer of each chunk in mini-block pages, the entire buffer in block context,
and each value in full-zip pages. Larger chunks compress better, but a random read decompresses
more; the chunk limits decide this trade-off.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.choice.options import Compression
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    EncodedValues,
    ValuePositions,
)
from lancelet.encodings.codecs.validate import validate_variable_rows
from lancelet.errors import InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21

LZ4: Final = 1
ZSTD: Final = 2
_SCHEMES: Final = {Compression.LZ4: LZ4, Compression.ZSTD: ZSTD}
_NAMES: Final = {LZ4: "lz4", ZSTD: "zstd"}
ZSTD_LEVEL: Final = 4
"""Default level if the options request zstd without a level: strings take 8 % fewer bytes than at
level 3, the level selected without a request, but a quarter more time to decode.
"""


class General(Codec):
    """General compression of the output of another codec."""

    wire_name: ClassVar[str] = "general"

    def __init__(
        self,
        inner: Codec,
        compression: Compression,
        level: int | None = None,
        *,
        searches: bool = True,
    ) -> None:
        """Compress the output of `inner`.

        Without `searches`, Zstandard does not search for repetition: it entropy codes strings,
        bytes and bits, and omits the high bytes of integers that equal those of the previous one.
        """
        if compression not in _SCHEMES:
            raise InvalidInputError(
                "not a general compression; use LZ4 or Zstandard", compression=compression.value
            )
        self.inner = inner
        self.compression = compression
        self.scheme = _SCHEMES[compression]
        self.level = level
        self.searches = searches

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `general(scheme){inner}`."""
        scheme = _NAMES.get(message.compression.scheme, "?")
        return f"general({scheme}){{{codecs.describe(message.values)}}}"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return the number of buffers of the inner codec."""
        return codecs.num_buffers(message.values)

    @classmethod
    def as_plain(
        cls, message: Any, slices: ByteSlices, values_max: Int64s, codecs: Codecs
    ) -> tuple[ByteSlices, int] | None:
        """Return the decompressed slices if they are plain values."""
        plain = _decompress(message, slices, codecs.block_bytes_max(message.values, values_max))
        return codecs.as_plain(message.values, plain, values_max)

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Encode chunks and compress the first buffer of each."""
        return self.compress_chunks(self.inner.encode_chunks(block, limits))

    def compress_chunks(self, inner: ChunkedValues) -> ChunkedValues:
        """Compress the first buffer of each chunk."""
        first = inner.parts[0]
        packed = self._compress(first) if self.searches else _entropy_code(first, inner.encoding)
        return self.wrap_chunks(inner, packed)

    def wrap_chunks(self, inner: ChunkedValues, packed: ByteSlices) -> ChunkedValues:
        """Replace the first buffer of each chunk by its compressed bytes."""
        parts = (packed, *inner.parts[1:])
        return ChunkedValues(self._wrap(inner.encoding), parts, inner.counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode blocks and compress each."""
        inner = self.inner.encode_blocks(block, counts)
        return EncodedBlocks(self._wrap(inner.encoding), self._compress(inner.slices))

    def encode_values(self, block: Block) -> EncodedValues:
        """Encode values and compress each separately."""
        inner = self.inner.encode_values(block)
        if not isinstance(inner.rows, Variable):
            raise UnsupportedError("only byte strings can be compressed individually")
        compressed = self._compress(_value_slices(inner.rows))
        return EncodedValues(self._wrap(inner.encoding), _to_strings(compressed, inner.rows))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decompress the first buffer of each chunk and decode."""
        plain = _decompress(message, parts[0], codecs.bytes_max(message.values, counts))
        return codecs.decode_chunks(message.values, (plain, *parts[1:]), counts)

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Decompress each chunk once and select values from it."""
        plain = _decompress(message, parts[0], codecs.bytes_max(message.values, counts))
        return codecs.take_chunks(message.values, (plain, *parts[1:]), counts, positions)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decompress each block and decode."""
        plain = _decompress(message, slices, codecs.block_bytes_max(message.values, counts))
        return codecs.decode_blocks(message.values, plain, counts)

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Decompress each value and decode."""
        values = validate_variable_rows(rows, cls.wire_name)
        plain = _decompress(message, _value_slices(values), None)
        return codecs.decode_values(message.values, _to_strings(plain, values))

    def _compress(self, slices: ByteSlices) -> ByteSlices:
        if self.scheme == ZSTD:
            level = ZSTD_LEVEL if self.level is None else self.level
            return kernels.zstd_compress_chunks(slices, level=level, sized=True)
        return kernels.lz4_compress_chunks(slices, sized=True)

    def _wrap(self, inner: Any) -> pb21.CompressiveEncoding:
        return general_encoding(self.scheme, inner, self.level)


def general_encoding(
    scheme: int, values: Any, level: int | None = None
) -> pb21.CompressiveEncoding:
    """Return the encoding of compressed `values`."""
    compression = pb21.BufferCompression(scheme=scheme, level=level)  # type: ignore[arg-type]  # enums are ints
    return pb21.CompressiveEncoding(general=pb21.General(compression=compression, values=values))


def _entropy_code(chunks: ByteSlices, inner: Any) -> ByteSlices:
    """Entropy code chunks of integers, of bytes, or of strings with leading offsets."""
    if inner.WhichOneof("compression") == "flat":
        bits = int(inner.flat.bits_per_value)
        if bits in (1, 8):
            no_offsets = np.zeros(len(chunks), np.int64)
            return kernels.zstd_encode_prefixes(chunks, no_offsets, word_bytes=4, sized=True)
        return kernels.zstd_encode_prefixes(chunks, chunks.size, word_bytes=bits // 8, sized=True)
    # The first offset, of 32 bits, is the end of the offsets.
    heads = chunks.source[chunks.position[:, None] + np.arange(4)]
    offset_bytes = heads.reshape(-1).view("<u4").astype(np.int64)
    return kernels.zstd_encode_prefixes(chunks, offset_bytes, word_bytes=4, sized=True)


def _decompress(message: Any, slices: ByteSlices, bytes_max: Int64s | None) -> ByteSlices:
    """Decompress slices, limiting the output to the bytes that the values need."""
    if message.values.WhichOneof("compression") == "general":
        # No writer nests compression; each level could expand the data a thousandfold.
        raise UnsupportedError("a page is compressed more than once")
    match message.compression.scheme:
        case 1:
            return kernels.lz4_decompress_chunks(slices, max_sizes=bytes_max)
        case 2:
            return kernels.zstd_decompress_chunks(slices, max_sizes=bytes_max)
        case unknown:
            raise UnsupportedError(
                "unknown general compression in a page; a newer release may support it",
                found=int(unknown),
                supported=_NAMES,
            )


def _value_slices(values: Variable) -> ByteSlices:
    offsets = values.offsets.astype(np.int64)
    return ByteSlices(values.data, offsets[:-1], np.diff(offsets))


def _to_strings(slices: ByteSlices, values: Variable) -> Variable:
    """Return consecutive slices of a source as strings."""
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(slices.size)])
    small = values.offsets.dtype == np.int32 and int(ends[-1]) < 1 << 31
    return Variable(ends.astype(np.int32) if small else ends, slices.source)
