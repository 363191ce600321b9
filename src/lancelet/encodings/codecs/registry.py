"""The codec registry: resolves encoding messages for the page layouts.

The format has a fixed set of codecs, so the registry is a literal tuple. The field set in an
encoding message identifies the codec:

    general { compression: ZSTD  values { flat { bits_per_value: 64 } } }
    -> General.decode_chunks(...)  -> this registry again, for the inner encoding

`decode_chunks`, `decode_blocks` (`decode_block` for one) and `decode_values` are the three contexts
of `codecs.base`. Stored bytes are untrusted: decoding returns a block of exactly the requested
number of values or raises `CorruptDataError` or `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    CHUNK_VALUES_MAX,
    Codec,
    Encoding,
    Positions,
    ValuePositions,
    ValueRanges,
)
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import Dictionary, take_items
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.codecs.range import Range
from lancelet.encodings.codecs.rle import Rle
from lancelet.encodings.codecs.unsigned import to_unsigned
from lancelet.encodings.codecs.variable import VariableCodec
from lancelet.encodings.codecs.variable_packed_struct import VariablePackedStruct
from lancelet.errors import CorruptDataError, InternalError, UnsupportedError

CODECS: Final[tuple[type[Codec], ...]] = (
    Flat,
    VariableCodec,
    Constant,
    OutOfLineBitpacking,
    InlineBitpacking,
    Fsst,
    Dictionary,
    Rle,
    ByteStreamSplit,
    General,
    FixedSizeListCodec,
    PackedStruct,
    VariablePackedStruct,
    Range,
    Delta,
)
_BY_WIRE_NAME: Final = {codec.wire_name: codec for codec in CODECS}
assert len(_BY_WIRE_NAME) == len(CODECS), "two codecs claim one wire name"

DEPTH_MAX: Final = 16
"""Maximum nesting depth of encodings; writers stay below five."""


class _Registry:
    """The registry passed to codecs; limits the nesting depth."""

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth

    def describe(self, encoding: Encoding) -> str:
        codec, message, inner = self.resolve(encoding)
        return codec.describe(message, inner)

    def num_buffers(self, encoding: Encoding) -> int:
        codec, message, inner = self.resolve(encoding)
        return codec.num_buffers(message, inner)

    def owns_bytes(self, encoding: Encoding) -> bool:
        codec, message, inner = self.resolve(encoding)
        return codec.owns_bytes(message, inner)

    def as_plain(
        self, encoding: Encoding, slices: ByteSlices, bytes_max: Int64s
    ) -> tuple[ByteSlices, int] | None:
        codec, message, inner = self.resolve(encoding)
        return codec.as_plain(message, slices, bytes_max, inner)

    def bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        codec, message, inner = self.resolve(encoding)
        return codec.bytes_max(message, counts, inner)

    def block_bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        codec, message, inner = self.resolve(encoding)
        return codec.block_bytes_max(message, counts, inner)

    def decode_chunks(
        self, encoding: Encoding, parts: Sequence[ByteSlices], counts: Int64s
    ) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_chunks(message, parts, counts, inner)

    def take_chunks(
        self,
        encoding: Encoding,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
    ) -> Block:
        return ChunkDecoder(encoding, self).take(parts, counts, positions)

    def decode_blocks(self, encoding: Encoding, slices: ByteSlices, counts: Int64s) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_blocks(message, slices, counts, inner)

    def decode_values(self, encoding: Encoding, rows: FixedWidth | Variable) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_values(message, rows, inner)

    def resolve(self, encoding: Encoding) -> tuple[type[Codec], Any, _Registry]:
        if self._depth >= DEPTH_MAX:
            raise CorruptDataError("encodings are nested too deeply", depth=DEPTH_MAX)
        name = encoding.WhichOneof("compression")
        if name is None:
            raise UnsupportedError(
                "unknown codec in a page; a newer release may support it",
                supported=sorted(_BY_WIRE_NAME),
            )
        return _BY_WIRE_NAME[name], getattr(encoding, name), _Registry(self._depth + 1)


_REGISTRY: Final = _Registry()


def describe(encoding: Encoding) -> str:
    """Return the description of an encoding.

    >>> from lancelet.encodings.codecs.flat import flat_encoding
    >>> describe(flat_encoding(64))
    'flat(64)'
    """
    return _REGISTRY.describe(encoding)


def num_buffers(encoding: Encoding) -> int:
    """Return the number of buffers per chunk of a mini-block page with this encoding."""
    return _REGISTRY.num_buffers(encoding)


def owns_bytes(encoding: Encoding) -> bool:
    """Return whether a block with this encoding needs a buffer."""
    return _REGISTRY.owns_bytes(encoding)


def decode_chunks(encoding: Encoding, parts: Sequence[ByteSlices], counts: Int64s) -> Block:
    """Decode chunks of a mini-block page.

    `parts[i]` is the i-th buffer of every chunk and `counts` the numbers of values. The block has
    `counts.sum()` values and is a view where possible.
    """
    check_parts(encoding, parts, counts)
    return _REGISTRY.decode_chunks(encoding, parts, counts)


def take_chunks(
    encoding: Encoding, parts: Sequence[ByteSlices], counts: Int64s, positions: ValuePositions
) -> Block:
    """Decode selected values of chunks, in the requested order.

    `parts` and `counts` describe chunks as in `decode_chunks`; each chunk appears once.
    """
    check_parts(encoding, parts, counts)
    if (positions.index.view(np.uint64) >= counts[positions.chunk].view(np.uint64)).any():
        raise InternalError("a selected value index exceeds its chunk")
    return _REGISTRY.take_chunks(encoding, parts, counts, positions)


class ChunkDecoder:
    """Decodes chunks of one encoding, resolved and validated once.

    The caller must have validated the number of buffers and values of each chunk.
    """

    def __init__(self, encoding: Encoding, registry: _Registry | None = None) -> None:
        """Resolve the codec; `num_buffers` is the number of buffers per chunk."""
        self._codec, self._message, self._inner = (registry or _REGISTRY).resolve(encoding)
        self.num_buffers = self._codec.num_buffers(self._message, self._inner)
        self.word_bits = int(getattr(self._message, "uncompressed_bits_per_value", 0))
        """The size of the values that bit-packed chunks contain; 0 for other encodings."""

    def decode(self, parts: Sequence[ByteSlices], counts: Int64s) -> Block:
        """Decode all values of chunks."""
        return self._codec.decode_chunks(self._message, parts, counts, self._inner)

    def match(
        self, parts: Sequence[ByteSlices], counts: Int64s, values: ValueRanges
    ) -> npt.NDArray[np.bool_]:
        """Return whether each number of chunks is in ranges, of which there must be one."""
        found = self._codec.match_chunks(self._message, parts, counts, values, self._inner)
        if found is not None:
            return found
        return _contained(self.decode(parts, counts), values)

    def select(
        self, parts: Sequence[ByteSlices], counts: Int64s, values: ValueRanges
    ) -> tuple[Positions, Block]:
        """Return the positions of the numbers in ranges, of which there must be one, and these."""
        found = self._codec.select_chunks(self._message, parts, counts, values, self._inner)
        if found is not None:
            return found
        block = self.decode(parts, counts)
        rows = np.flatnonzero(_contained(block, values))
        return rows, take_items(block, rows)

    def take(self, parts: Sequence[ByteSlices], counts: Int64s, positions: ValuePositions) -> Block:
        """Decode selected values; the indices must be valid."""
        taken = self._codec.take_chunks(self._message, parts, counts, positions, self._inner)
        if taken is not None:
            return taken
        starts = np.cumsum(counts) - counts
        return take_items(self.decode(parts, counts), starts[positions.chunk] + positions.index)


def _contained(block: Block, values: ValueRanges) -> npt.NDArray[np.bool_]:
    """Return whether each number of a block is in the ranges."""
    integers = to_unsigned(block, "match")
    if integers.itemsize * 8 != values.bits:
        raise CorruptDataError(
            "the stored values of a page do not match the schema type",
            expected_bits=values.bits,
            found_bits=integers.itemsize * 8,
        )
    return values.contains(integers)


def decode_blocks(encoding: Encoding, slices: ByteSlices, counts: Int64s) -> Block:
    """Decode many buffers in block context, such as the levels of every chunk.

    The values of all buffers are concatenated in one block.
    """
    _check_counts(counts, limit=1 << 32)
    if len(slices) != len(counts):
        raise CorruptDataError(
            "the buffers and their counts differ in number",
            buffers=len(slices),
            counts=len(counts),
        )
    return _REGISTRY.decode_blocks(encoding, slices, counts)


def decode_block(encoding: Encoding, data: Bytes, count: int) -> Block:
    """Decode one buffer in block context, such as a dictionary or a sparse set."""
    if count >> 32:
        raise CorruptDataError("a buffer claims more values than a page can contain", count=count)
    return decode_blocks(encoding, ByteSlices.whole(data), np.array([count], np.int64))


def decode_values(encoding: Encoding, rows: FixedWidth | Variable) -> Block:
    """Decode values that were encoded one by one, as in full-zip pages."""
    return _REGISTRY.decode_values(encoding, rows)


def check_parts(encoding: Encoding, parts: Sequence[ByteSlices], counts: Int64s) -> None:
    """Raise unless every chunk has the number of buffers required by the encoding."""
    _check_counts(counts, limit=CHUNK_VALUES_MAX)
    required = num_buffers(encoding)
    if len(parts) != required or any(len(part) != len(counts) for part in parts):
        raise CorruptDataError(
            "the chunks do not have the buffers that the encoding requires",
            encoding=describe(encoding),
            expected_buffers=required,
            found_buffers=len(parts),
            chunks=len(counts),
        )


def _check_counts(counts: Int64s, *, limit: int) -> None:
    if len(counts) and not (int(counts.min()) >= 0 and int(counts.max()) <= limit):
        raise CorruptDataError(
            "a chunk claims an impossible number of values",
            min=int(counts.min()),
            max=int(counts.max()),
            limit=limit,
        )
