"""What an encoding costs a reader: bytes to fetch, and time to decode them.

    comments of 33 bytes     fsst 18.9 B, 20 ns     zstd around it 13.3 B, 45 ns
    cost of a value          6 x 18.9 + 20 = 133    6 x 13.3 + 45 = 125     zstd wins

One byte is priced at `BYTE_NS`: what a core waits for it when data come from a network disk or
an object store (about 170 MB/s for each core). A file in the page cache is faster than that, so
the price of time is not rounded down: an encoding that halves the bytes but decodes ten times
slower loses. The rates are those of the kernels, measured on one core (`docs/kernels.md`); only
their ratios matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.options import Compression

BYTE_NS: Final = 6.0
"""The price of a stored byte."""

LOOK_UP_NS: Final = 1.5
"""The price of a value that is looked up in a dictionary."""

_CHUNK_BYTES: Final = 16
_PART_BYTES: Final = 8
"""What a chunk and each of its buffers cost in headers and padding."""

_ZSTD_NS: Final = 0.9
_LZ4_NS: Final = 0.3


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
        first = int(inner.parts[0].size.sum())
        rate = _LZ4_NS if codec.compression is Compression.LZ4 else _ZSTD_NS
        decode_ns = cost.decode_ns + rate * first / max(sample.count, 1)
    else:
        encoded = codec.encode_chunks(sample, limits)
        decode_ns = _decode_ns(codec, raw_bytes(sample) / max(sample.count, 1))
    chunk_bytes = _CHUNK_BYTES + _PART_BYTES * (len(encoded.parts) - 1)
    stored = encoded.encoded_bytes + chunk_bytes * len(encoded.counts)
    return encoded, Cost(stored / max(sample.count, 1), decode_ns)


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


def _decode_ns(codec: Codec, value_bytes: float) -> float:
    match codec:
        case InlineBitpacking():
            return 0.15 * value_bytes
        case Rle() | ByteStreamSplit():
            return 0.3 * value_bytes
        case VariableCodec():
            return 1.5 + 0.1 * value_bytes
        case Fsst():
            return 1.5 + 0.5 * value_bytes
        case _:
            return 0.1 * value_bytes
