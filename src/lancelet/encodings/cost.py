"""What an encoding costs a reader: bytes to fetch, and time to decode them.

    URLs of 66 bytes       fsst 21.2 B, 27 ns           zstd{fsst} 13.4 B, 62 ns
    cost of a value        8 x 21.2 + 27 = 197          8 x 13.4 + 62 = 169        zstd
    64-bit times, rising   zstd{split} 3.2 B, 3 ns      inline bit-packing 6.4 B, 1 ns

One byte is priced at `BYTE_NS`: what a core waits for it when data come over two connections from
an object store (about 120 MB/s). From a page cache bytes cost next to nothing, so a general
compression, the slowest there is to decode, must also save a good part of them (`saving_min`):
vectors and random numbers stay as they are, and are read without being copied.

The rates are those of the kernels on one core; only their ratios matter. They are constants, not
measurements of the day, so that the same data always make the same file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.options import Compression

BYTE_NS: Final = 8.0
"""The price of a stored byte."""

LOOK_UP_NS: Final = 1.5
"""The price of a value that is looked up in a dictionary."""

FRAME_NS: Final = 1500.0
"""The price of a value that has a compressed frame of its own."""

_CHUNK_BYTES: Final = 16
_PART_BYTES: Final = 8
"""What a chunk and each of its buffers cost in headers and padding."""

_SAVING_MIN: Final = {Compression.LZ4: 0.1, Compression.ZSTD: 0.3}
_SAVING_MIN_CODED: Final = 0.15


@dataclass(frozen=True, slots=True)
class Cost:
    """What a value costs in bytes and in time to decode."""

    bytes_per_value: float
    decode_ns: float

    @property
    def total(self) -> float:
        """Return both in one number."""
        return BYTE_NS * self.bytes_per_value + self.decode_ns

    def __str__(self) -> str:
        """Return the words for a report."""
        return f"{self.bytes_per_value:.2f} B, {self.decode_ns:.1f} ns a value"

    def plus(self, bytes_per_value: float, decode_ns: float) -> Cost:
        """Return the cost with something added to each value."""
        return Cost(self.bytes_per_value + bytes_per_value, self.decode_ns + decode_ns)


def try_codec(codec: Codec, sample: Block, limits: ChunkLimits) -> tuple[ChunkedValues, Cost]:
    """Encode a sample; return what came out and what it costs a reader."""
    if isinstance(codec, General):
        inner, cost = try_codec(codec.inner, sample, limits)
        encoded = codec.compress_chunks(inner)
        plain = int(inner.parts[0].size.sum()) / max(sample.count, 1)
        packed = int(encoded.parts[0].size.sum()) / max(sample.count, 1)
        decode_ns = cost.decode_ns + _decompress_ns(codec, plain, packed)
    else:
        encoded = codec.encode_chunks(sample, limits)
        decode_ns = decode_ns_of(codec, raw_bytes(sample) / max(sample.count, 1))
    stored = encoded.encoded_bytes + framing_bytes(len(encoded.counts), len(encoded.parts))
    return encoded, Cost(stored / max(sample.count, 1), decode_ns)


def framing_bytes(num_chunks: int, num_parts: int) -> int:
    """Return what chunks cost besides their values, if each has so many parts."""
    return (_CHUNK_BYTES + _PART_BYTES * (num_parts - 1)) * num_chunks


def try_values(codec: Codec, sample: Block) -> Cost:
    """Encode values of a sample one by one; return what they cost a reader."""
    stored = raw_bytes(codec.encode_values(sample).rows) / max(sample.count, 1)
    plain = raw_bytes(sample) / max(sample.count, 1)
    if isinstance(codec, General):
        return Cost(stored, FRAME_NS + _decompress_ns(codec, plain, stored))
    return Cost(stored, decode_ns_of(codec, plain))


def saving_min(codec: General) -> float:
    """Return the share of the bytes that a general compression must save to be worth a thought.

    Of Zstandard more, because its search for repetition is also what makes writing slow.
    """
    return _SAVING_MIN[codec.compression] if codec.searches else _SAVING_MIN_CODED


def raw_bytes(block: Block) -> int:
    """Return the bytes of a block in memory.

    >>> import numpy as np
    >>> raw_bytes(FixedWidth(16, np.zeros(6, np.uint8), 3))
    6
    """
    match block:
        case FixedWidth():
            return (block.count * block.bits + 7) // 8
        case Variable():
            size = int(block.offsets[-1]) - int(block.offsets[0])
            return size + block.count * block.offsets.itemsize
        case FixedSizeList():
            bits = 0 if block.validity is None else (block.count * block.dimension + 7) // 8
            return bits + raw_bytes(block.items)
        case Fields():
            return sum(raw_bytes(child) for child in block.children)


def _decompress_ns(codec: General, plain: float, packed: float) -> float:
    """Return the time for a value: LZ4 pays for matches, zstd for every byte in and out.

    The planes of split values are literals or long matches, and those are just copied. Without a
    search only what was saved has to be made again, and of words that is copied, too.
    """
    is_split = isinstance(codec.inner, ByteStreamSplit)
    if not codec.searches:
        copied = 3.5 if isinstance(codec.inner, Fsst) else 0.15
        return 0.15 * plain + copied * max(plain - packed, 0.0)
    if codec.compression is Compression.ZSTD:
        return 0.1 * plain + 0.4 * packed if is_split else 0.85 * plain + 1.3 * packed
    return 0.1 * plain if is_split else 0.15 * plain + 0.7 * max(plain - packed, 0.0)


def decode_ns_of(codec: Codec, value_bytes: float) -> float:
    """Return the time to decode a value of so many bytes, without a general compression."""
    match codec:
        case Fsst():
            return 0.4 * value_bytes
        case Rle():
            return 0.1 * value_bytes
        case _:
            return 0.07 * value_bytes
