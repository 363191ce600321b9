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

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Int64s
from lancelet.encodings.base import Block
from lancelet.encodings.codecs.base import Codec, MeasuredPages
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.options import Compression
from lancelet.encodings.pages import ChunkedPages, Pages, raw_bytes, sum_of
from lancelet.values import dataclass

Number = TypeVar("Number", float, npt.NDArray[np.float64])
Whole = TypeVar("Whole", int, Int64s, int | Int64s)

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


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What a value costs in each of some pages."""

    bytes_per_value: npt.NDArray[np.float64]
    decode_ns: npt.NDArray[np.float64]

    @property
    def totals(self) -> npt.NDArray[np.float64]:
        """Return both in one number a page."""
        return BYTE_NS * self.bytes_per_value + self.decode_ns

    def of(self, page: int) -> Cost:
        """Return what a value costs in one page."""
        return Cost(float(self.bytes_per_value[page]), float(self.decode_ns[page]))


@dataclass(frozen=True, slots=True, eq=False)
class Refused(Mapping[str, str]):
    """What a page would have cost by the choices that were not taken; in words when asked for.

    `trials` gives the description of each, its costs, and where pages are among those, if at all.
    """

    trials: Sequence[tuple[str, Costs, Int64s]]
    taken: int
    page: int

    def __getitem__(self, description: str) -> str:
        """Return what a value would have cost by a choice."""
        return self._words()[description]

    def __iter__(self) -> Iterator[str]:
        """Go through the choices that were tried."""
        return iter(self._words())

    def __len__(self) -> int:
        """Return how many choices were tried and not taken."""
        return len(self._words())

    def _words(self) -> dict[str, str]:
        return {
            description: str(costs.of(place))
            for number, (description, costs, places) in enumerate(self.trials)
            if number != self.taken and (place := int(places[self.page])) >= 0
        }


def costs_of(codec: Codec, encoded: ChunkedPages | MeasuredPages, sample: Pages) -> Costs:
    """Return what a value of each page costs a reader, by what samples are encoded to."""
    count = max(sample.rows, 1)
    num_parts = 1 if isinstance(encoded, MeasuredPages) else len(encoded.values.parts)
    framing = framing_bytes(encoded.num_chunks, num_parts)
    stored = (encoded.encoded_bytes + framing) / count
    return Costs(stored, decode_ns_of(codec, sample.raw_bytes / count))


def costs_of_compressed(
    codec: General, encoded: ChunkedPages, inner: ChunkedPages, around: Costs, sample: Pages
) -> Costs:
    """Return the same for a general compression of what costs `around` without it."""
    count = max(sample.rows, 1)
    plain, packed = (
        sum_of([each.values.parts[0].size], each.edges) / count for each in (inner, encoded)
    )
    framing = framing_bytes(encoded.num_chunks, len(encoded.values.parts))
    stored = (encoded.encoded_bytes + framing) / count
    return Costs(stored, around.decode_ns + _decompress_ns(codec, plain, packed))


def framing_bytes(num_chunks: Whole, num_parts: int) -> Whole:
    """Return what chunks cost besides their values, if each has so many parts."""
    return (_CHUNK_BYTES + _PART_BYTES * (num_parts - 1)) * num_chunks


def try_values(codec: Codec, sample: Block) -> Cost:
    """Encode values of a sample one by one; return what they cost a reader."""
    stored = raw_bytes(codec.encode_values(sample).rows) / max(sample.count, 1)
    plain = raw_bytes(sample) / max(sample.count, 1)
    if isinstance(codec, General):
        return Cost(stored, FRAME_NS + float(_decompress_ns(codec, plain, stored)))
    return Cost(stored, decode_ns_of(codec, plain))


def saving_min(codec: General) -> float:
    """Return the share of the bytes that a general compression must save to be worth a thought.

    Of Zstandard more, because its search for repetition is also what makes writing slow.
    """
    return _SAVING_MIN[codec.compression] if codec.searches else _SAVING_MIN_CODED


def _decompress_ns(codec: General, plain: Number, packed: Number) -> Number:
    """Return the time for a value: LZ4 pays for matches, zstd for every byte in and out.

    The planes of split values are literals or long matches, and those are just copied. Without a
    search only what was saved has to be made again, and of words that is copied, too; bytes, of
    which a value has one at most, are all looked up.
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
    """Return the time to decode a value of so many bytes, without a general compression."""
    match codec:
        case Fsst():
            return 0.4 * value_bytes
        case Rle():
            return 0.1 * value_bytes
        case _:
            return 0.07 * value_bytes
