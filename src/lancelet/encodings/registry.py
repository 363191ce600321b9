"""The codecs there are, and the seam by which page layouts reach them.

A format is a closed set, so the registry is a literal tuple. An encoding message finds its
codec by the field that is set:

    general { compression: ZSTD  values { flat { bits_per_value: 64 } } }
    -> General.decode_chunks(...)  -> this registry again, for what is inside

`decode_chunks`, `decode_blocks` (`decode_block` for one) and `decode_values` are the three
contexts of `codecs.base`. Bytes come from storage: whatever they hold, decoding returns a block
of exactly the counted values or raises `CorruptDataError` or `UnsupportedError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from lancelet.buffers import Bytes, Int64s, Slices
from lancelet.encodings.base import Block, FixedWidth, Variable
from lancelet.encodings.codecs.base import CHUNK_VALUES_MAX, Codec, Encoding, Picks
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import Dictionary, look_up
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.codecs.inline_bitpacking import InlineBitpacking
from lancelet.encodings.codecs.out_of_line_bitpacking import OutOfLineBitpacking
from lancelet.encodings.codecs.packed_struct import PackedStruct
from lancelet.encodings.codecs.range import Range
from lancelet.encodings.codecs.rle import Rle
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
"""The deepest nesting of encodings that is followed; writers stay below five."""


class _Registry:
    """The registry as codecs see it, counting how deep they nest."""

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
        self, encoding: Encoding, slices: Slices, most: Int64s
    ) -> tuple[Slices, int] | None:
        codec, message, inner = self.resolve(encoding)
        return codec.as_plain(message, slices, most, inner)

    def bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        codec, message, inner = self.resolve(encoding)
        return codec.bytes_max(message, counts, inner)

    def block_bytes_max(self, encoding: Encoding, counts: Int64s) -> Int64s | None:
        codec, message, inner = self.resolve(encoding)
        return codec.block_bytes_max(message, counts, inner)

    def decode_chunks(self, encoding: Encoding, parts: Sequence[Slices], counts: Int64s) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_chunks(message, parts, counts, inner)

    def pick_chunks(
        self, encoding: Encoding, parts: Sequence[Slices], counts: Int64s, picks: Picks
    ) -> Block:
        return ChunkDecoder(encoding, self).pick(parts, counts, picks)

    def decode_blocks(self, encoding: Encoding, slices: Slices, counts: Int64s) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_blocks(message, slices, counts, inner)

    def decode_values(self, encoding: Encoding, rows: FixedWidth | Variable) -> Block:
        codec, message, inner = self.resolve(encoding)
        return codec.decode_values(message, rows, inner)

    def resolve(self, encoding: Encoding) -> tuple[type[Codec], Any, _Registry]:
        if self._depth >= DEPTH_MAX:
            raise CorruptDataError("encodings nest deeper than any writer would", depth=DEPTH_MAX)
        name = encoding.WhichOneof("compression")
        if name is None:
            raise UnsupportedError(
                "a page uses a codec that this release does not know", known=sorted(_BY_WIRE_NAME)
            )
        return _BY_WIRE_NAME[name], getattr(encoding, name), _Registry(self._depth + 1)


_REGISTRY: Final = _Registry()


def describe(encoding: Encoding) -> str:
    """Return an encoding in words.

    >>> from lancelet.encodings.codecs.flat import flat_encoding
    >>> describe(flat_encoding(64))
    'flat(64)'
    """
    return _REGISTRY.describe(encoding)


def num_buffers(encoding: Encoding) -> int:
    """Return how many buffers each chunk of a mini-block page with this encoding has."""
    return _REGISTRY.num_buffers(encoding)


def owns_bytes(encoding: Encoding) -> bool:
    """Return whether a block with this encoding needs a buffer at all."""
    return _REGISTRY.owns_bytes(encoding)


def decode_chunks(encoding: Encoding, parts: Sequence[Slices], counts: Int64s) -> Block:
    """Decode chunks of a mini-block page in one go.

    `parts[i]` is the i-th buffer of every chunk and `counts` their values. The block has
    `counts.sum()` values; where the bytes allow, it is a view of them.
    """
    check_parts(encoding, parts, counts)
    return _REGISTRY.decode_chunks(encoding, parts, counts)


def pick_chunks(encoding: Encoding, parts: Sequence[Slices], counts: Int64s, picks: Picks) -> Block:
    """Decode single values of chunks, in the order asked for, and no more than the codec must.

    `parts` and `counts` describe chunks as in `decode_chunks`, each chunk once.
    """
    check_parts(encoding, parts, counts)
    if (picks.index.view(np.uint64) >= counts[picks.chunk].view(np.uint64)).any():
        raise InternalError("a value was picked that its chunk does not have")
    return _REGISTRY.pick_chunks(encoding, parts, counts, picks)


class ChunkDecoder:
    """Decodes chunks of one encoding, of which the codec was looked up and checked once.

    Its methods are those of the module, for callers who know that every chunk has the buffers
    and no more values than it may.
    """

    def __init__(self, encoding: Encoding, registry: _Registry | None = None) -> None:
        """Look the codec up; `num_buffers` is how many buffers each chunk has."""
        self._codec, self._message, self._inner = (registry or _REGISTRY).resolve(encoding)
        self.num_buffers = self._codec.num_buffers(self._message, self._inner)

    def decode(self, parts: Sequence[Slices], counts: Int64s) -> Block:
        """Decode all values of chunks."""
        return self._codec.decode_chunks(self._message, parts, counts, self._inner)

    def pick(self, parts: Sequence[Slices], counts: Int64s, picks: Picks) -> Block:
        """Decode single values, each of which its chunk has."""
        picked = self._codec.pick_chunks(self._message, parts, counts, picks, self._inner)
        if picked is not None:
            return picked
        starts = np.cumsum(counts) - counts
        return look_up(self.decode(parts, counts), starts[picks.chunk] + picks.index)


def decode_blocks(encoding: Encoding, slices: Slices, counts: Int64s) -> Block:
    """Decode many buffers of block context at once, such as the levels of every chunk.

    The values of all buffers follow each other in one block.
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
    """Decode one buffer of block context, such as a dictionary or a sparse set."""
    if count >> 32:
        raise CorruptDataError("a buffer claims more values than a page can hold", count=count)
    return decode_blocks(encoding, Slices.whole(data), np.array([count], np.int64))


def decode_values(encoding: Encoding, rows: FixedWidth | Variable) -> Block:
    """Decode values that were encoded one by one, as full-zip pages hold them."""
    return _REGISTRY.decode_values(encoding, rows)


def check_parts(encoding: Encoding, parts: Sequence[Slices], counts: Int64s) -> None:
    """Raise unless there are as many buffers as the encoding needs, and of every chunk."""
    _check_counts(counts, limit=CHUNK_VALUES_MAX)
    expected = num_buffers(encoding)
    if len(parts) != expected or any(len(part) != len(counts) for part in parts):
        raise CorruptDataError(
            "the chunks do not have the buffers that their encoding needs",
            encoding=describe(encoding),
            expected_buffers=expected,
            found_buffers=len(parts),
            chunks=len(counts),
        )


def _check_counts(counts: Int64s, *, limit: int) -> None:
    if len(counts) and not (int(counts.min()) >= 0 and int(counts.max()) <= limit):
        raise CorruptDataError(
            "a chunk claims an impossible number of values",
            least=int(counts.min()),
            most=int(counts.max()),
            limit=limit,
        )
