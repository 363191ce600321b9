"""The codec interface for the three contexts of compressed values.

A `CompressiveEncoding` message identifies a codec and its parameters; the location of its bytes
depends on the context:

    mini-block   a page is split into chunks of 2^k values; each chunk has `num_buffers` buffers
    block        one buffer and a given count: levels, dictionaries, sparse sets
    per value    each value is encoded separately for random access (full-zip)

All requested chunks of a page are decoded in one call. They are passed as columns of slices, one
column per chunk buffer, so a codec is a few array operations and one kernel:

    counts        [1024, 1024, 313]
    parts[0]      position [16, 4136, 8256]  size [4104, 4104, 1600]

A codec instance represents a *choice*: it has the parameters selected by the writer, and nests
(`General(ByteStreamSplit(), ...)`). Decoding uses class methods, as messages are complete; a nested
codec is decoded through the `Codecs` argument, so that no codec imports the registry. The methods
of every codec are in the order *describe, propose, encode, decode*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.format.protos import encodings23_pb as pb23
from lancelet.values import dataclass

Flags: TypeAlias = npt.NDArray[np.bool_]
Positions: TypeAlias = npt.NDArray[np.integer]
"""The positions of selected values within chunks."""

Encoding: TypeAlias = pb21.CompressiveEncoding | pb23.CompressiveEncoding
"""The stored message of a codec and its parameters; field numbers of both messages agree."""

CHUNK_VALUES_MAX = 32768
"""Maximum number of values per chunk: the exponent of the count has four bits."""

SMALL_CHUNK_BYTES_MAX = 32768
"""Maximum chunk size of 2.1 in bytes, including levels and headers."""


@dataclass(frozen=True, slots=True)
class ChunkLimits:
    """Size limits of chunks.

    `values_max` is a power of two. `bytes_max` limits the total encoded buffers of a chunk, without
    levels and headers; only a larger pair of values exceeds it. `bytes_aim` is the target size of
    uncompressed chunks, since a random read fetches and decodes an entire chunk.
    """

    values_max: int = 4096
    bytes_max: int = 1 << 20
    bytes_aim: int = 8192


@dataclass(frozen=True, slots=True, eq=False)
class ChunkedValues:
    """Values split into chunks; `parts[i]` is buffer i of every chunk.

    All `counts` of a page are the same power of two, except the last one.
    """

    encoding: pb21.CompressiveEncoding
    parts: tuple[ByteSlices, ...]
    counts: Int64s

    @property
    def encoded_bytes(self) -> int:
        """Return the total size of all buffers, without padding and headers."""
        return sum(int(part.size.sum()) for part in self.parts)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBlock:
    """Values in one buffer; the count is stored separately."""

    encoding: Encoding
    data: Bytes


@dataclass(frozen=True, slots=True, eq=False)
class EncodedBlocks:
    """Many blocks with one encoding, such as the levels of every chunk of a page."""

    encoding: Encoding
    slices: ByteSlices


@dataclass(frozen=True, slots=True, eq=False)
class EncodedValues:
    """Values encoded one by one."""

    encoding: pb21.CompressiveEncoding
    rows: FixedWidth | Variable


@dataclass(frozen=True, slots=True, eq=False)
class ValuePositions:
    """Positions of selected values: value `index[i]` of chunk `chunk[i]`."""

    chunk: Int64s
    index: Int64s

    def of(self, slices: ByteSlices) -> ByteSlices:
        """Return the slice of the chunk of every value.

        >>> positions = ValuePositions(np.array([1, 1]), np.array([0, 7]))
        >>> positions.of(ByteSlices(np.zeros(9, np.uint8), np.array([0, 4]), np.array([4, 5]))).size
        array([5, 5])
        """
        return ByteSlices(slices.source, slices.position[self.chunk], slices.size[self.chunk])


@dataclass(frozen=True, slots=True)
class ValueRanges:
    """The numbers of `bits` bits in some ranges, each given by its first and last number.

    Floating point numbers are given by integers of the same order: their bits, inverted if they are
    negative, else with the sign bit set. A range that exceeds the largest integer continues with
    the smallest one.

    >>> ValueRanges(((-1, 2), (9, 9)), bits=8).unsigned.tolist()
    [255, 3, 9, 0]
    >>> numbers = np.array([254, 255, 0, 2, 3, 9], np.uint8)
    >>> ValueRanges(((-1, 2), (9, 9)), bits=8).contains(numbers).tolist()
    [False, True, True, True, False, True]
    """

    ranges: tuple[tuple[int, int], ...]
    bits: int
    is_float: bool = False

    @property
    def unsigned(self) -> npt.NDArray[np.uint64]:
        """The first number of each range as an unsigned integer, and the distance to the last."""
        pairs = [(low % (1 << self.bits), high - low) for low, high in self.ranges]
        return np.array(pairs, np.uint64).reshape(-1)

    def contains(self, values: npt.NDArray[Any]) -> Flags:
        """Return whether values, given as unsigned integers, are in a range."""
        dtype = values.dtype.type
        if self.is_float:
            sign = dtype(1 << (self.bits - 1))
            values = np.where(values & sign, ~values, values | sign)
        found = np.zeros(len(values), np.bool_)
        pairs = self.unsigned.tolist()
        for low, span in zip(pairs[::2], pairs[1::2], strict=True):
            found |= values - dtype(low) <= dtype(span)
        return found


@dataclass(frozen=True, slots=True, eq=False)
class ValueFilter:
    """A filter of the values of a column: ranges of numbers, a test of dictionary items, or both.

    The test returns whether each item passes, followed by whether null passes.
    """

    numbers: ValueRanges | None
    test: Callable[[pa.Array], Flags] | None

    @property
    def is_empty(self) -> bool:
        """Whether there are no numbers, so that no value passes."""
        return self.numbers is not None and not self.numbers.ranges


class Codecs(Protocol):
    """The registry interface for codecs that contain other codecs."""

    def describe(self, encoding: Encoding) -> str:
        """Return the description of an encoding, such as `general(zstd){flat(128)}`."""

    def num_buffers(self, encoding: Encoding) -> int:
        """Return the number of buffers per chunk."""

    def owns_bytes(self, encoding: Encoding) -> bool:
        """Return whether a block needs a buffer; computed sequences do not."""

    def as_plain(
        self, encoding: Encoding, slices: ByteSlices, values_max: Int64s
    ) -> tuple[ByteSlices, int] | None:
        """Return slices of plain values and their bit width, or `None` for other codecs.

        Slice i has at most `values_max[i]` values.
        """

    def bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        """Return the size limit of the first chunk buffer, or `None` if unlimited."""

    def block_bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        """Return the size limit of buffers in block context, or `None` if unlimited."""

    def decode_chunks(
        self, encoding: Encoding, parts: Sequence[ByteSlices], counts: Int64s
    ) -> Block:
        """Decode chunks of a mini-block page, as one block."""

    def take_chunks(
        self,
        encoding: Encoding,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
    ) -> Block:
        """Decode selected values of chunks, as one block."""

    def decode_blocks(self, encoding: Encoding, slices: ByteSlices, counts: Int64s) -> Block:
        """Decode many buffers in block context, as one block."""

    def decode_values(self, encoding: Encoding, rows: FixedWidth | Variable) -> Block:
        """Decode values that were encoded one by one."""


class Codec:
    """Base class of codecs: supports no context and proposes nothing.

    `message` is always the codec's own message within the `CompressiveEncoding`.
    """

    wire_name: ClassVar[str]
    """The field of `CompressiveEncoding` for the codec's message."""

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return the description of the codec and its parameters."""
        del message, codecs
        return cls.wire_name

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return the number of buffers per chunk."""
        del message, codecs
        return 1

    @classmethod
    def owns_bytes(cls, message: Any, codecs: Codecs) -> bool:
        """Return whether a block needs a buffer."""
        del message, codecs
        return True

    @classmethod
    def as_plain(
        cls, message: Any, slices: ByteSlices, values_max: Int64s, codecs: Codecs
    ) -> tuple[ByteSlices, int] | None:
        """Return slices of plain values and their bit width, or None for other codecs.

        Slice i has at most `values_max[i]` values.
        """
        del message, slices, values_max, codecs
        return None

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the size limit of the first buffer of chunks with `counts` values each.

        `None` if the number of values does not determine it, as for strings. Decompression stops at
        the limit (`general`).
        """
        del message, counts, codecs
        return None

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the size limit of buffers in block context.

        Such a buffer contains all parts that a chunk stores in separate buffers.
        """
        del message, counts, codecs
        return None

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Yield codecs worth trying in mini-block context on a sample of a page."""
        del block
        return iter(())

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split values into chunks and encode them."""
        del limits
        raise _no_context(self.wire_name, "mini-block pages", block=type(block).__name__)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Encode values into one buffer per count, all with the same encoding."""
        del counts
        raise _no_context(self.wire_name, "single buffers", block=type(block).__name__)

    def encode_block(self, block: Block) -> EncodedBlock:
        """Encode values into one buffer."""
        encoded = self.encode_blocks(block, np.array([block.count], np.int64))
        return EncodedBlock(encoded.encoding, encoded.slices.slice_bytes(0))

    def encode_values(self, block: Block) -> EncodedValues:
        """Encode each value separately."""
        raise _no_context(self.wire_name, "full-zip pages", block=type(block).__name__)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode chunks with `num_buffers` buffers each."""
        del message, parts, counts, codecs
        raise _no_context(cls.wire_name, "mini-block pages")

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Decode selected values of chunks; `None` if the codec can only decode entire chunks."""
        del message, parts, counts, positions, codecs
        return None

    @classmethod
    def match_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        values: ValueRanges,
        codecs: Codecs,
    ) -> npt.NDArray[np.bool_] | None:
        """Return whether each value of chunks is in the ranges, or None to decode them first."""
        del message, parts, counts, values, codecs
        return None

    @classmethod
    def select_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        values: ValueRanges,
        codecs: Codecs,
    ) -> tuple[Positions, Block] | None:
        """Return the positions of the values in the ranges, and these, or None to decode all."""
        del message, parts, counts, values, codecs
        return None

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Decode many buffers in block context."""
        del message, slices, counts, codecs
        raise _no_context(cls.wire_name, "single buffers")

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Decode values that were encoded one by one."""
        del message, rows, codecs
        raise _no_context(cls.wire_name, "full-zip pages")


def _no_context(codec: str, context: str, **facts: object) -> UnsupportedError:
    return UnsupportedError(
        f"the codec {codec} is not supported in {context}", codec=codec, **facts
    )
