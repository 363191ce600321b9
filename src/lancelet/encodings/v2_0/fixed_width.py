"""Fixed-width values: flat, compressed flat, and two kinds of bit-packing.

    flat                     contiguous values; one bit each for booleans and validity
    flat, compressed         the same as one zstd or lz4 stream, which is read entirely
    bitpacked                w bits each, contiguous, lowest bit first
    bitpacked_for_non_neg    chunks of 1024 values in FastLanes order, the last one padded

Every decoder validates on opening that its buffer contains the claimed values, so reads need no
further checks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import ByteRanges, Bytes, Int64s, ReadCoroutine
from lancelet.encodings.arrow import arrow_from_block, bits_per_value
from lancelet.encodings.base import FixedWidth
from lancelet.encodings.codecs import registry
from lancelet.encodings.gather import gather, gather_bits
from lancelet.encodings.row_ranges import RowRanges
from lancelet.encodings.v2_0.page import PageCache, StoredBuffer
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb as pb
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass

_CHUNK = 1024


@dataclass(frozen=True, slots=True)
class Flat:
    """Contiguous values."""

    data_type: pa.DataType
    bits: int
    buffer: StoredBuffer

    @staticmethod
    def open(data_type: pa.DataType, bits: int, buffer: StoredBuffer, *, count: int) -> Flat:
        """Validate that the buffer contains `count` values of the type."""
        _check_width(data_type, bits)
        buffer.check_size(count * bits, count=count)
        return Flat(data_type, bits, buffer)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read values; a single range of a mapped file is not copied."""
        position = self.buffer.position
        if self.bits == 1:
            slices = yield ranges.bit_ranges(position, 1)
            data = gather_bits(slices, ranges)
        else:
            slices = yield ranges.byte_ranges(position, self.bits // 8)
            data = gather(slices)
        return _array(self.data_type, data, ranges.num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Decompressed:
    position: int
    data: Bytes


@dataclass(frozen=True, slots=True)
class CompressedFlat:
    """Contiguous values, compressed as one stream."""

    data_type: pa.DataType
    bits: int
    buffer: StoredBuffer
    scheme: str
    count: int
    cache: PageCache

    @staticmethod
    def open(
        data_type: pa.DataType,
        bits: int,
        buffer: StoredBuffer,
        *,
        scheme: str,
        count: int,
        cache: PageCache,
    ) -> CompressedFlat:
        """Validate the compression scheme."""
        _check_width(data_type, bits)
        if scheme not in _SCHEMES:
            raise UnsupportedError(
                "unknown compression scheme of a page",
                scheme=scheme,
                supported=sorted(_SCHEMES),
            )
        return CompressedFlat(data_type, bits, buffer, scheme, count, cache)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read values; the first read decompresses and caches the entire page."""
        decompressed = self.cache.get(_Decompressed)
        if decompressed is None or decompressed.position != self.buffer.position:
            slices = yield ByteRanges.of((self.buffer.position, self.buffer.size))
            decompressed = _Decompressed(
                self.buffer.position, self._decompress(slices.slice_bytes(0))
            )
            self.cache.put(decompressed, value_bytes=decompressed.data.nbytes)
        width = self.bits // 8
        rows = decompressed.data.reshape(-1, width)
        if len(ranges) == 1:
            start = int(ranges.start[0])
            data = rows[start : start + ranges.num_rows]
        else:
            data = rows[ranges.indices()]
        return _array(self.data_type, data.reshape(-1), ranges.num_rows)

    def _decompress(self, data: Bytes) -> Bytes:
        encoding = pb21.CompressiveEncoding()
        encoding.general.compression.scheme = _SCHEMES[self.scheme]
        encoding.general.values.flat.bits_per_value = self.bits
        block = registry.decode_block(encoding, data, self.count)
        assert isinstance(block, FixedWidth)
        return block.data


@dataclass(frozen=True, slots=True)
class Bitpacked:
    """Integers of `width` bits, contiguous, lowest bit first."""

    data_type: pa.DataType
    width: int
    signed: bool
    buffer: StoredBuffer

    @staticmethod
    def open(
        data_type: pa.DataType, message: pb.Bitpacked, buffer: StoredBuffer, *, count: int
    ) -> Bitpacked:
        """Validate the widths, and that the buffer contains `count` values."""
        width = message.compressed_bits_per_value
        _check_packed(data_type, width, message.uncompressed_bits_per_value)
        buffer.check_size(count * width, count=count)
        return Bitpacked(data_type, width, message.signed, buffer)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read values."""
        slices = yield ranges.bit_ranges(self.buffer.position, self.width)
        first_bit = (np.cumsum(slices.size) - slices.size) * 8 + ((ranges.start * self.width) & 7)
        ordinal = np.arange(ranges.num_rows, dtype=np.int64)
        before = np.cumsum(ranges.count) - ranges.count
        bit = np.repeat(first_bit - before * self.width, ranges.count) + ordinal * self.width
        values = _unpack(gather(slices), bit, self.width)
        if self.signed:
            # Sign extension: shift the highest packed bit to the top and back.
            shift = np.int64(64 - self.width)
            values = ((values.view(np.int64) << shift) >> shift).view(np.uint64)
        narrow = values.astype(f"u{bits_per_value(self.data_type) // 8}")
        return _array(self.data_type, narrow.view(np.uint8), ranges.num_rows)


@dataclass(frozen=True, slots=True)
class BitpackedForNonNeg:
    """Integers of `width` bits in padded chunks of 1024, in FastLanes order."""

    data_type: pa.DataType
    width: int
    buffer: StoredBuffer

    @staticmethod
    def open(
        data_type: pa.DataType, message: pb.BitpackedForNonNeg, buffer: StoredBuffer, *, count: int
    ) -> BitpackedForNonNeg:
        """Validate the widths, and that the buffer contains the chunks of `count` values."""
        width = message.compressed_bits_per_value
        _check_packed(data_type, width, message.uncompressed_bits_per_value)
        buffer.check_size(-(-count // _CHUNK) * _CHUNK * width, count=count)
        return BitpackedForNonNeg(data_type, width, buffer)

    def read(self, ranges: RowRanges) -> ReadCoroutine[pa.Array]:
        """Read the chunks that contain the values."""
        last = -(-(ranges.start + ranges.count) // _CHUNK)
        first = np.maximum(ranges.start // _CHUNK, np.concatenate(([0], last[:-1])))
        chunks = RowRanges.merged(first, last - first)
        slices = yield chunks.byte_ranges(self.buffer.position, _CHUNK * self.width // 8)
        bits = bits_per_value(self.data_type)
        encoding = pb21.CompressiveEncoding()
        encoding.out_of_line_bitpacking.uncompressed_bits_per_value = bits
        encoding.out_of_line_bitpacking.values.flat.bits_per_value = self.width
        block = registry.decode_block(encoding, gather(slices), chunks.num_rows * _CHUNK)
        assert isinstance(block, FixedWidth)
        values = block.data.view(f"u{bits // 8}")
        if len(chunks) == 1:
            skipped = int(ranges.start[0]) - int(chunks.start[0]) * _CHUNK
        if len(ranges) == 1:
            selected = values[skipped : skipped + ranges.num_rows]
        else:
            rows = ranges.indices()
            ordinal = np.searchsorted(chunks.indices(), rows // _CHUNK)
            selected = values[ordinal * _CHUNK + rows % _CHUNK]
        return _array(self.data_type, selected.view(np.uint8), ranges.num_rows)


_SCHEMES = {"zstd": pb21.BufferCompression.ZSTD, "lz4": pb21.BufferCompression.LZ4}


def _array(data_type: pa.DataType, data: Bytes, count: int) -> pa.Array:
    return arrow_from_block(FixedWidth(bits_per_value(data_type), data, count), data_type, None)


def _check_width(data_type: pa.DataType, bits: int) -> None:
    if bits != bits_per_value(data_type):
        raise CorruptDataError(
            "the stored bit width of a page does not match the column type",
            type=str(data_type),
            expected_bits=bits_per_value(data_type),
            found_bits=bits,
        )


def _check_packed(data_type: pa.DataType, width: int, unpacked: int) -> None:
    _check_width(data_type, unpacked)
    if unpacked not in (8, 16, 32, 64) or not 1 <= width <= unpacked:
        raise CorruptDataError(
            "a page has an invalid packed bit width",
            packed_bits=width,
            unpacked_bits=unpacked,
        )


def _unpack(data: Bytes, bit: Int64s, width: int) -> npt.NDArray[np.uint64]:
    """Return the `width` bits at each bit position, lowest first."""
    padded = np.concatenate((data, np.zeros(9, np.uint8)))
    byte = bit >> 3
    shift = (bit & 7).astype(np.uint64)
    low = np.zeros(len(bit), np.uint64)
    for part in range(8):
        low |= padded[byte + part].astype(np.uint64) << np.uint64(8 * part)
    # Shifting by 64 is undefined, so the ninth byte is shifted in two steps.
    high = (padded[byte + 8].astype(np.uint64) << np.uint64(1)) << (np.uint64(63) - shift)
    values: npt.NDArray[np.uint64] = ((low >> shift) | high) & np.uint64((1 << width) - 1)
    return values
