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

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.encodings.base import Block
from lancelet.encodings.choice.options import Compression
from lancelet.encodings.codecs.base import Codec, MeasuredPages
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.pages.leaf_pages import ChunkedPages, Pages, raw_bytes, sum_by_page
from lancelet.values import dataclass

Number = TypeVar("Number", float, npt.NDArray[np.float64])
IntOrArray = TypeVar("IntOrArray", int, Int64s, int | Int64s)

BYTE_NS: Final = 6.0
"""Cost of a stored byte in ns."""

LOOKUP_NS: Final = 1.5
"""Cost of a dictionary lookup per value in ns."""

PLAIN_DECODE_NS: Final = 0.07
RUN_DECODE_NS: Final = 0.1
"""Time to decode a byte of values in most encodings, and in run-length encoding, in ns."""

FRAME_NS: Final = 1500.0
"""Cost of a value compressed as a separate frame, in ns."""

CHUNK_BYTES: Final = 16
PART_BYTES: Final = 8
"""Overhead of a chunk and of each of its buffers: headers and padding, in bytes."""

_SAVING_MIN: Final = {Compression.LZ4: 0.1, Compression.ZSTD: 0.3}
_SAVING_MIN_CODED: Final = 0.15


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


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Stored bytes and decoding time per value, by page."""

    bytes_per_value: npt.NDArray[np.float64]
    decode_ns: npt.NDArray[np.float64]

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """Return the combined cost of each page in ns."""
        return BYTE_NS * self.bytes_per_value + self.decode_ns

    def page_cost(self, page: int) -> Cost:
        """Return the cost of a value of one page."""
        return Cost(float(self.bytes_per_value[page]), float(self.decode_ns[page]))


@dataclass(frozen=True, slots=True, eq=False)
class RejectedCosts(Mapping[str, str]):
    """Costs of the rejected candidates of a page, formatted on access.

    `trials` has the description, the costs, and the index of each page in these costs, or -1.
    """

    trials: Sequence[tuple[str, Costs, Int64s]]
    chosen: int
    page: int

    def __getitem__(self, description: str) -> str:
        """Return the formatted cost of a candidate."""
        return self._formatted()[description]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the descriptions of the rejected candidates."""
        return iter(self._formatted())

    def __len__(self) -> int:
        """Return the number of rejected candidates."""
        return len(self._formatted())

    def _formatted(self) -> dict[str, str]:
        return {
            description: str(costs.page_cost(index))
            for number, (description, costs, page_to_index) in enumerate(self.trials)
            if number != self.chosen and (index := int(page_to_index[self.page])) >= 0
        }


def costs_of(codec: Codec, encoded: ChunkedPages | MeasuredPages, sample: Pages) -> Costs:
    """Return the cost per value of each page, from encoded samples."""
    count = max(sample.rows, 1)
    num_parts = 1 if isinstance(encoded, MeasuredPages) else len(encoded.values.parts)
    framing = framing_bytes(encoded.num_chunks, num_parts)
    stored = (encoded.encoded_bytes + framing) / count
    return Costs(stored, decode_ns_of(codec, sample.raw_bytes / count))


def costs_of_compressed(
    codec: General, encoded: ChunkedPages, inner: ChunkedPages, inner_costs: Costs, sample: Pages
) -> Costs:
    """Return the costs of general compression of values that cost `inner_costs` without it."""
    count = max(sample.rows, 1)
    plain, packed = (
        sum_by_page([pages.values.parts[0].size], pages.edges) / count for pages in (inner, encoded)
    )
    framing = framing_bytes(encoded.num_chunks, len(encoded.values.parts))
    stored = (encoded.encoded_bytes + framing) / count
    return Costs(stored, inner_costs.decode_ns + _decompress_ns(codec, plain, packed))


def framing_bytes(num_chunks: IntOrArray, num_parts: int) -> IntOrArray:
    """Return the overhead of chunks with `num_parts` buffers each."""
    return (CHUNK_BYTES + PART_BYTES * (num_parts - 1)) * num_chunks


def try_values(codec: Codec, sample: Block) -> Cost:
    """Encode sampled values one by one and return their cost."""
    stored = raw_bytes(codec.encode_values(sample).rows) / max(sample.count, 1)
    plain = raw_bytes(sample) / max(sample.count, 1)
    if isinstance(codec, General):
        return Cost(stored, FRAME_NS + float(_decompress_ns(codec, plain, stored)))
    return Cost(stored, decode_ns_of(codec, plain))


def saving_min(codec: General) -> float:
    """Return the minimum share of bytes to be saved by general compression.

    Higher for Zstandard, whose match search also slows down writing.
    """
    return _SAVING_MIN[codec.compression] if codec.searches else _SAVING_MIN_CODED


def _decompress_ns(codec: General, plain: Number, packed: Number) -> Number:
    """Return the decompression time per value: LZ4 per match, Zstandard per byte.

    Planes of split values are literals or long matches, which are copied. Without a match search,
    only the saved bytes are generated; for multi-byte values these are copied as well, while values
    of at most one byte are all decoded by table.
    """
    is_split = isinstance(codec.inner, ByteStreamSplit)
    saved: Number = np.maximum(plain - packed, 0.0)
    if not codec.searches:
        copied = 3.5 if isinstance(codec.inner, Fsst) else 0.15
        return cast("Number", np.where(plain > 1, 0.15 * plain + copied * saved, 1.3 * plain))
    if codec.compression is Compression.ZSTD:
        return 0.1 * plain + 0.4 * packed if is_split else 0.85 * plain + 1.3 * packed
    return 0.1 * plain if is_split else 0.15 * plain + 0.7 * saved


def decode_ns_of(codec: Codec, value_bytes: Number) -> Number:
    """Return the decoding time of a value of `value_bytes`, without general compression."""
    match codec:
        case Fsst():
            return 0.4 * value_bytes
        case Rle():
            return RUN_DECODE_NS * value_bytes
        case _:
            return PLAIN_DECODE_NS * value_bytes
