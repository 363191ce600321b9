"""What every codec promises, in the three places where compressed values live.

A `CompressiveEncoding` message names a codec and its parameters; where its bytes are depends on
the context:

    mini-block   a page is cut into chunks of 2^k values; each chunk has `num_buffers` buffers
    block        one buffer and a known count: levels, dictionaries, sparse sets
    per value    each value is transformed alone, so that it can be read alone (full zip)

All chunks of a range of a page are decoded in one call. They arrive as columns of slices, one
column per buffer of the chunk, so a codec is a few array operations and one kernel:

    counts        [1024, 1024, 313]
    parts[0]      position [16, 4136, 8256]  size [4104, 4104, 1600]

An instance of a codec is a *choice*: its parameters are those the writer picked, and it nests
(`General(ByteStreamSplit(), ...)`). Decoding needs no instance, as the message says everything;
a codec that contains others decodes them through the `Codecs` it is handed, so that no codec
imports the registry. Every codec reads in the order *describe, propose, encode, decode*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.format.protos import encodings23_pb as pb23
from lancelet.values import dataclass

Encoding: TypeAlias = pb21.CompressiveEncoding | pb23.CompressiveEncoding
"""A codec with its parameters, as a page stores it; the numbers of both messages agree."""

CHUNK_VALUES_MAX = 32768
"""The most values of a chunk: four bits hold the exponent of its count."""

SMALL_CHUNK_BYTES_MAX = 32768
"""The most bytes of a whole chunk of 2.1, levels and headers included."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """How large a chunk may become.

    `values_max` is a power of two. `bytes_max` bounds the encoded buffers of a chunk together,
    without levels and headers, and is kept except by a pair of values that is larger.
    `bytes_aim` is what uncompressed chunks are cut to, since a random read fetches and decodes
    a whole one.
    """

    values_max: int = 4096
    bytes_max: int = 1 << 20
    bytes_aim: int = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedValues:
    """Values cut into chunks; `parts[i]` is buffer i of every chunk.

    All `counts` of a page are the same power of two, except the last, which is what remains.
    """

    encoding: pb21.CompressiveEncoding
    parts: tuple[Slices, ...]
    counts: Int64s

    @property
    def encoded_bytes(self) -> int:
        """Return the bytes of all buffers, without padding and headers."""
        return sum(int(part.size.sum()) for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBlock:
    """Values in one buffer; the count is kept by whoever stores it."""

    encoding: Encoding
    data: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredPages:
    """What encoding pages would make: of each the bytes of its one part, in so many chunks."""

    encoding: pb21.CompressiveEncoding
    encoded_bytes: Int64s
    num_chunks: int


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBlocks:
    """Many blocks with one encoding, such as the levels of every chunk of a page."""

    encoding: Encoding
    slices: Slices


@dataclass(frozen=True, slots=True, eq=False)
class EncodedValues:
    """Values encoded one by one."""

    encoding: pb21.CompressiveEncoding
    rows: FixedWidth | Variable


@dataclass(frozen=True, slots=True, eq=False)
class Picks:
    """Single values of chunks: value `index[i]` of chunk `chunk[i]`."""

    chunk: Int64s
    index: Int64s

    def of(self, slices: Slices) -> Slices:
        """Return the slice of the chunk of every value.

        >>> picks = Picks(np.array([1, 1]), np.array([0, 7]))
        >>> picks.of(Slices(np.zeros(9, np.uint8), np.array([0, 4]), np.array([4, 5]))).size
        array([5, 5])
        """
        return Slices(slices.source, slices.position[self.chunk], slices.size[self.chunk])


class Codecs(Protocol):
    """The registry, as seen by a codec that contains others."""

    def describe(self, encoding: Encoding) -> str:
        """Return the encoding in words, such as `general(zstd){flat(128)}`."""

    def num_buffers(self, encoding: Encoding) -> int:
        """Return how many buffers each chunk has."""

    def owns_bytes(self, encoding: Encoding) -> bool:
        """Return whether a block needs a buffer at all; sequences made of rules do not."""

    def as_plain(
        self, encoding: Encoding, slices: Slices, most: Int64s
    ) -> tuple[Slices, int] | None:
        """Return slices of plain values and their bits, or `None` if the codec is another.

        Slice i has `most[i]` values at most.
        """

    def bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        """Return the size limit of the first buffer of chunks, or `None` if there is none."""

    def block_bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        """Return the size limit of the buffers of block context, or `None` if there is none."""

    def decode_chunks(self, encoding: Encoding, parts: Sequence[Slices], counts: Int64s) -> Block:
        """Decode chunks of a mini-block page, as one block."""

    def pick_chunks(
        self, encoding: Encoding, parts: Sequence[Slices], counts: Int64s, picks: Picks
    ) -> Block:
        """Decode single values of chunks, as one block."""

    def decode_blocks(self, encoding: Encoding, slices: Slices, counts: Int64s) -> Block:
        """Decode many buffers of block context, as one block."""

    def decode_values(self, encoding: Encoding, rows: FixedWidth | Variable) -> Block:
        """Decode values that were encoded one by one."""


class Codec:
    """The defaults of a codec: no context is supported, nothing is proposed.

    `message` is always the codec's own message inside of the `CompressiveEncoding`.
    """

    wire_name: ClassVar[str]
    """The field of `CompressiveEncoding` that holds the codec's message."""

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return the codec and its parameters in words."""
        del message, codecs
        return cls.wire_name

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return how many buffers each chunk has."""
        del message, codecs
        return 1

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return whether a block needs a buffer at all."""
        del message, codecs
        return True

    @classmethod
    def as_plain(
        cls, message: Any, slices: Slices, most: Int64s, codecs: Codecs
    ) -> tuple[Slices, int] | None:
        """Return slices of plain values and their bits, if that is what the codec stores.

        Slice i has `most[i]` values at most.
        """
        del message, slices, most, codecs
        return None

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the size limit of the first buffer of chunks with `counts` values each.

        `None` if the number of values does not limit it, as for strings. Decompression stops
        at the limit (`general`).
        """
        del message, counts, codecs
        return None

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the size limit of the single buffers of block context, likewise.

        Such a buffer holds everything that a chunk spreads over several buffers.
        """
        del message, counts, codecs
        return None

    @classmethod
    def propose(cls, block: Block, rows: int) -> Iterator[tuple[Codec, Int64s]]:
        """Yield the choices worth trying in mini-block context, each with the pages it is for.

        The block holds samples of pages, of `rows` values each.
        """
        del block, rows
        return iter(())

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Cut values into chunks and encode each."""
        return self.encode_pages(block, block.count, limits)

    def encode_pages(self, block: Block, rows: int, limits: ChunkLimits) -> ChunkedValues:
        """Do the same for pages of `rows` values each, whose chunks follow one another."""
        del rows, limits
        raise _no_context(self.wire_name, "mini-block pages", block=type(block).__name__)

    def measure_pages(self, block: Block, rows: int, limits: ChunkLimits) -> MeasuredPages | None:
        """Return what `encode_pages` would make, or `None` if only doing it tells."""
        del block, rows, limits
        return None

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode values into one buffer for each count, all with one encoding."""
        del counts
        raise _no_context(self.wire_name, "single buffers", block=type(block).__name__)

    def encode_block(self, block: Block) -> EncodedBlock:
        """Encode values into one buffer."""
        encoded = self.encode_blocks(block, np.array([block.count], np.int64))
        return EncodedBlock(encoded.encoding, encoded.slices.slice_bytes(0))

    def encode_values(self, block: Block) -> EncodedValues:
        """Encode each value alone."""
        raise _no_context(self.wire_name, "full-zip pages", block=type(block).__name__)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode chunks, whose buffers are as many as `num_buffers`."""
        del message, parts, counts, codecs
        raise _no_context(cls.wire_name, "mini-block pages")

    @classmethod
    def pick_chunks(
        cls, message: Any, parts: Sequence[Slices], counts: Int64s, picks: Picks, codecs: Codecs
    ) -> Block | None:
        """Decode single values of chunks, or return `None` if only whole chunks can be decoded."""
        del message, parts, counts, picks, codecs
        return None

    @classmethod
    def decode_blocks(cls, message: Any, slices: Slices, counts: Int64s, codecs: Codecs) -> Block:
        """Decode many buffers of block context."""
        del message, slices, counts, codecs
        raise _no_context(cls.wire_name, "single buffers")

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Decode values that were encoded one by one."""
        del message, rows, codecs
        raise _no_context(cls.wire_name, "full-zip pages")


def _no_context(codec: str, context: str, **facts: object) -> UnsupportedError:
    return UnsupportedError(f"the codec {codec} is not known in {context}", codec=codec, **facts)
