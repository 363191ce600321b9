"""Cost model of encodings: bytes to fetch plus time to decode.

    URLs of 66 bytes       fsst 21.2 B, 27 ns           zstd{fsst} 13.4 B, 62 ns
    cost of a value        6 x 21.2 + 27 = 154          6 x 13.4 + 62 = 142        zstd
    64-bit times, rising   zstd{split} 3.2 B, 3 ns      inline bit-packing 6.4 B, 1 ns

`BYTE_NS` is the time per byte for one core with two connections to an object store (about 170
MB/s). Bytes from a page cache are almost free, so general compression, the slowest to decode, must
additionally save a minimum share of the bytes (`saving_min`). Vectors and random numbers therefore
remain uncompressed, and are read without copies.

Rates are those of the kernels on one core; only their ratios matter. They are constants, not
measurements, so that equal data always produces equal files.
"""

from __future__ import annotations

from typing import Final

from lancelet.encodings.base import Block
from lancelet.encodings.choice.options import Compression
from lancelet.encodings.codecs.base import ChunkedValues, Codec
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.pages.leaf import raw_bytes
from lancelet.values import dataclass

BYTE_NS: Final = 6.0
"""Cost of a stored byte in ns."""

LOOKUP_NS: Final = 1.5
"""Cost of a dictionary lookup per value in ns."""

PLAIN_DECODE_NS: Final = 0.07
RUN_DECODE_NS: Final = 0.1
"""Time to decode a byte of values in most encodings, and in run-length encoding, in ns."""

LZ4_BYTE_NS: Final = 0.15
LZ4_SAVED_NS: Final = 0.7
LZ4_SPLIT_NS: Final = 0.1
"""Time to decompress a byte with LZ4, additionally for a byte that is copied, and a byte of split
values, in ns. Planes of split values are literals or long matches.
"""

ZSTD_NS: Final = (0.85, 1.3)
ZSTD_SPLIT_NS: Final = (0.1, 0.4)
"""Time to decompress with Zstandard: for a byte of values and a stored byte, in ns."""

CODED_BYTE_NS: Final = 0.15
CODED_SAVED_NS: Final = 0.15
CODED_STRING_NS: Final = 3.5
CODED_TABLE_NS: Final = 1.3
"""Time to decode a byte without a match search: of numbers, additionally for a byte that is copied,
the same for codes of strings, and of values of at most one byte, which are all decoded by table.
"""

FRAME_NS: Final = 1500.0
"""Cost of a value compressed as a separate frame, in ns."""

CHUNK_BYTES: Final = 16
PART_BYTES: Final = 8
"""Overhead of a chunk and of each of its buffers: headers and padding, in bytes."""

LZ4_SAVING_MIN: Final = 0.1
ZSTD_SAVING_MIN: Final = 0.3
CODED_SAVING_MIN: Final = 0.15


@dataclass(frozen=True, slots=True)
class Cost:
    """Stored bytes and decoding time per value."""

    bytes_per_value: float
    decode_ns: float

    @property
    def total(self) -> float:
        """Return the combined cost in ns."""
        return BYTE_NS * self.bytes_per_value + self.decode_ns

    def __str__(self) -> str:
        """Return the cost as shown in reports."""
        return f"{self.bytes_per_value:.2f} B, {self.decode_ns:.1f} ns a value"

    def plus(self, bytes_per_value: float, decode_ns: float) -> Cost:
        """Return the cost with the given amounts added."""
        return Cost(self.bytes_per_value + bytes_per_value, self.decode_ns + decode_ns)


def cost_of(codec: Codec, encoded: ChunkedValues, sample: Block) -> Cost:
    """Return the cost of an encoded sample, without general compression."""
    return Cost(_stored(encoded, sample), decode_ns_of(codec, _plain_bytes(sample)))


def cost_of_compressed(
    codec: General, encoded: ChunkedValues, inner: ChunkedValues, sample: Block
) -> Cost:
    """Return the cost of general compression of `inner`."""
    plain, packed = (
        int(values.parts[0].size.sum()) / max(sample.count, 1) for values in (inner, encoded)
    )
    decode_ns = decode_ns_of(codec.inner, _plain_bytes(sample))
    return Cost(_stored(encoded, sample), decode_ns + _decompress_ns(codec, plain, packed))


def least_cost_of_compressed(codec: General, bytes_per_value: float, sample: Block) -> Cost:
    """Return the cost of general compression to a number of bytes per value."""
    plain = _plain_bytes(sample)
    decode_ns = decode_ns_of(codec.inner, plain)
    return Cost(bytes_per_value, decode_ns + _decompress_ns(codec, plain, bytes_per_value))


def _stored(encoded: ChunkedValues, sample: Block) -> float:
    """Return the bytes per value, including the headers of chunks and buffers."""
    framing = (CHUNK_BYTES + PART_BYTES * (len(encoded.parts) - 1)) * len(encoded.counts)
    return (encoded.encoded_bytes + framing) / max(sample.count, 1)


def _plain_bytes(block: Block) -> float:
    return raw_bytes(block) / max(block.count, 1)


def try_values(codec: Codec, sample: Block) -> Cost:
    """Encode sampled values one by one and return their cost."""
    stored = raw_bytes(codec.encode_values(sample).rows) / max(sample.count, 1)
    plain = _plain_bytes(sample)
    if isinstance(codec, General):
        return Cost(stored, FRAME_NS + _decompress_ns(codec, plain, stored))
    return Cost(stored, decode_ns_of(codec, plain))


def saving_min(codec: General) -> float:
    """Return the minimum share of bytes to be saved by general compression.

    Higher for Zstandard, whose match search also slows down writing.
    """
    if codec.compression is Compression.LZ4:
        return LZ4_SAVING_MIN
    return ZSTD_SAVING_MIN if codec.searches else CODED_SAVING_MIN


def _decompress_ns(codec: General, plain: float, packed: float) -> float:
    """Return the decompression time per value: LZ4 per match, Zstandard per byte.

    Without a match search, only the saved bytes are generated.
    """
    is_split = isinstance(codec.inner, ByteStreamSplit)
    saved = max(plain - packed, 0.0)
    if not codec.searches:
        copied = CODED_STRING_NS if isinstance(codec.inner, Fsst) else CODED_SAVED_NS
        is_wide = plain > 1
        return CODED_BYTE_NS * plain + copied * saved if is_wide else CODED_TABLE_NS * plain
    if codec.compression is Compression.ZSTD:
        plain_ns, packed_ns = ZSTD_SPLIT_NS if is_split else ZSTD_NS
        return plain_ns * plain + packed_ns * packed
    return LZ4_SPLIT_NS * plain if is_split else LZ4_BYTE_NS * plain + LZ4_SAVED_NS * saved


def decode_ns_of(codec: Codec, value_bytes: float) -> float:
    """Return the decoding time of a value of `value_bytes`, without general compression."""
    match codec:
        case Fsst():
            return 0.4 * value_bytes
        case Rle():
            return RUN_DECODE_NS * value_bytes
        case _:
            return PLAIN_DECODE_NS * value_bytes
