"""Conformance checks for codecs, run over every codec and context.

    decode(encode(block)) == block          for any chunks and any alignment of the bytes
    take(encode(block), rows) == block[rows]
    decode(changed bytes)                   a valid block of the given length, or an error

`CODEC_CASES` lists every choice of the registry with the blocks it accepts; to test a new codec,
add a line. Bytes are moved to an odd position before they are decoded, since buffers in a file
may be unaligned.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.choice.options import Compression
from lancelet.encodings.codecs import registry
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Encoding,
    ValuePositions,
)
from lancelet.encodings.codecs.byte_stream_split import ByteStreamSplit
from lancelet.encodings.codecs.constant import Constant
from lancelet.encodings.codecs.delta import Delta
from lancelet.encodings.codecs.dictionary import take_items
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
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.values import dataclass
from tests.kit.blocks import (
    FEW,
    Blocks,
    constants,
    fixed_width,
    lists,
    plain_lists,
    runs,
    sequences,
    strings,
    structs,
)


@dataclass(frozen=True)
class CodecCase:
    """A codec choice and the blocks that it accepts in each context."""

    name: str
    codec: Codec
    chunks: Blocks | None = None
    blocks: Blocks | None = None
    values: Blocks | None = None
    has_many_blocks: bool = True

    def __str__(self) -> str:
        """Return the name for pytest."""
        return self.name


def _case(codec: Codec, name: str | None = None, **contexts: Any) -> CodecCase:
    return CodecCase(name or codec.wire_name, codec, **contexts)


def _zstd(codec: Codec) -> Codec:
    return General(codec, Compression.ZSTD)


_ANY_WIDTH: Final = fixed_width((1, 8, 16, 24, 32, 64, 128, 256))
_SMALL_BLOCK: Final = fixed_width(most=1024)

CODEC_CASES: Final = (
    _case(Flat(), chunks=_ANY_WIDTH, blocks=_ANY_WIDTH, values=fixed_width((8, 64, 128))),
    _case(VariableCodec(), chunks=strings(), blocks=strings(FEW), values=strings()),
    _case(OutOfLineBitpacking(), blocks=fixed_width()),
    _case(InlineBitpacking(), chunks=fixed_width(), blocks=_SMALL_BLOCK, has_many_blocks=False),
    _case(Fsst(), chunks=strings(), values=strings()),
    _case(Rle(), chunks=runs(), blocks=runs()),
    _case(ByteStreamSplit(), chunks=fixed_width((32, 64))),
    _case(FixedSizeListCodec(), chunks=lists(), blocks=plain_lists(), values=lists((16, 32))),
    _case(PackedStruct(), chunks=structs(with_strings=False)),
    _case(VariablePackedStruct(), values=structs(with_strings=True)),
    _case(Constant(), blocks=constants()),
    _case(Range(), blocks=sequences(), has_many_blocks=False),
    _case(Delta(), blocks=fixed_width().filter(lambda b: b.count > 0), has_many_blocks=False),
    _case(
        Delta(OutOfLineBitpacking()),
        "delta{out_of_line_bitpacking}",
        blocks=sequences().filter(lambda b: b.count > 0),
        has_many_blocks=False,
    ),
    _case(
        General(Flat(), Compression.LZ4),
        "lz4{flat}",
        chunks=_ANY_WIDTH,
        blocks=_ANY_WIDTH,
    ),
    _case(
        _zstd(VariableCodec()),
        "zstd{variable}",
        chunks=strings(),
        blocks=strings(FEW),
        values=strings(FEW),
    ),
    _case(_zstd(Fsst()), "zstd{fsst}", chunks=strings()),
    _case(_zstd(ByteStreamSplit()), "zstd{byte_stream_split}", chunks=fixed_width((32, 64))),
    _case(_zstd(Rle()), "zstd{rle}", chunks=runs()),
    _case(_zstd(FixedSizeListCodec()), "zstd{fixed_size_list}", chunks=lists()),
)


def check_chunks(case: CodecCase, block: Block, limits: ChunkLimits) -> None:
    """Check that chunks respect the limits and decode to the original values."""
    encoded = case.codec.encode_chunks(block, limits)
    check_counts(encoded, block.count, limits)
    parts = tuple(moved(part) for part in encoded.parts)
    assert_equal(registry.decode_chunks(encoded.encoding, parts, encoded.counts), block)


def check_counts(encoded: ChunkedValues, count: int, limits: ChunkLimits) -> None:
    """Check that all counts but the last are the same power of two."""
    assert int(encoded.counts.sum()) == count
    assert len(set(encoded.counts[:-1].tolist())) <= 1
    for chunk in encoded.counts[:1].tolist():
        assert len(encoded.counts) == 1 or chunk & (chunk - 1) == 0
        assert chunk <= limits.values_max
    assert len(encoded.parts) == registry.num_buffers(encoded.encoding)
    for part in encoded.parts:
        assert len(part) == len(encoded.counts)


def check_takes(case: CodecCase, block: Block, rows: Int64s, limits: ChunkLimits) -> None:
    """Check a take of rows; each chunk is passed once."""
    encoded = case.codec.encode_chunks(block, limits)
    starts = np.cumsum(encoded.counts) - encoded.counts
    chunk = np.searchsorted(starts, rows, side="right") - 1
    chunk_indices, index = np.unique(chunk, return_inverse=True)
    parts = [
        moved(ByteSlices(part.source, part.position[chunk_indices], part.size[chunk_indices]))
        for part in encoded.parts
    ]
    positions = ValuePositions(index.astype(np.int64), rows - starts[chunk])
    picked = registry.take_chunks(encoded.encoding, parts, encoded.counts[chunk_indices], positions)
    assert_equal(picked, take_items(block, rows))


def check_blocks(case: CodecCase, block: Block, counts: Int64s) -> None:
    """Check that blocks of these lengths decode to the original values."""
    encoded = case.codec.encode_blocks(block, counts)
    assert len(encoded.slices) == len(counts)
    assert_equal(registry.decode_blocks(encoded.encoding, moved(encoded.slices), counts), block)


def check_values(case: CodecCase, block: Block) -> None:
    """Check that values encoded one by one decode to the original values."""
    encoded = case.codec.encode_values(block)
    assert encoded.rows.count == block.count
    assert_equal(registry.decode_values(encoded.encoding, encoded.rows), block)


def check_damaged_chunks(case: CodecCase, block: Block, damage: Damage) -> None:
    """Check that damaged chunks raise an error or decode to valid blocks."""
    encoded = case.codec.encode_chunks(block, ChunkLimits())
    encoding, counts = damage.message(encoded.encoding), damage.counts(encoded.counts)
    parts = [damage.slices(part) for part in encoded.parts]
    _refused_or_valid(lambda: registry.decode_chunks(encoding, parts, counts), counts)


def check_damaged_blocks(case: CodecCase, block: Block, damage: Damage) -> None:
    """Check that a damaged block raises an error or decodes to a valid block."""
    whole = np.array([block.count], np.int64)
    encoded = case.codec.encode_blocks(block, whole)
    encoding, counts = damage.message(encoded.encoding), damage.counts(whole)
    slices = damage.slices(encoded.slices)
    _refused_or_valid(lambda: registry.decode_blocks(encoding, slices, counts), counts)


def check_damaged_values(case: CodecCase, block: Block, damage: Damage) -> None:
    """Check that damaged values raise an error or decode to a valid block."""
    encoded = case.codec.encode_values(block)
    encoding = damage.message(encoded.encoding)
    rows = replace(encoded.rows, data=damage.bytes_of(encoded.rows.data))
    counts = np.array([block.count], np.int64)
    _refused_or_valid(lambda: registry.decode_values(encoding, rows), counts)


@dataclass(frozen=True)
class Damage:
    """Seeded random changes of encoded values; `kinds` selects what is changed."""

    seed: int
    kinds: frozenset[str]

    def bytes_of(self, data: Bytes) -> Bytes:
        """Change some bytes."""
        if "bytes" not in self.kinds or not data.nbytes:
            return data
        rng = np.random.default_rng(self.seed)
        changed = data.copy()
        for index in rng.integers(0, data.nbytes, 1 + data.nbytes // 200):
            changed[index] = rng.choice(np.array([0, 1, 127, 128, 255, rng.integers(0, 256)]))
        return changed

    def slices(self, slices: ByteSlices) -> ByteSlices:
        """Change some bytes and truncate some slices."""
        source = self.bytes_of(slices.source)
        size = slices.size.copy()
        if "sizes" in self.kinds and len(size):
            rng = np.random.default_rng(self.seed + 1)
            size[rng.integers(0, len(size))] = rng.integers(0, int(size.max()) + 1)
            size = np.minimum(size, source.nbytes - slices.position)
        return ByteSlices(source, slices.position, size)

    def counts(self, counts: Int64s) -> Int64s:
        """Change a count."""
        if "counts" not in self.kinds or not len(counts):
            return counts
        rng = np.random.default_rng(self.seed + 2)
        changed = counts.copy()
        changed[rng.integers(0, len(counts))] = rng.choice([0, 1, 1024, 4096, 32768])
        return changed

    def message(self, encoding: Encoding) -> Encoding:
        """Change a byte of the message if the result still parses."""
        if "message" not in self.kinds:
            return encoding
        rng = np.random.default_rng(self.seed + 3)
        data = bytearray(encoding.SerializeToString())
        data[rng.integers(0, len(data))] = rng.integers(0, 256)
        try:
            return type(encoding).FromString(bytes(data))
        except DecodeError:
            return encoding


def _refused_or_valid(decode: Callable[[], Block], counts: Int64s) -> None:
    try:
        block = decode()
    except (CorruptDataError, UnsupportedError):
        return
    assert block.count == int(counts.sum())
    assert_valid(block)


# --- blocks as values -------------------------------------------------------------------------


def moved(slices: ByteSlices) -> ByteSlices:
    """Return the same bytes at an odd position in a larger buffer."""
    noise = np.full(3, 0xAA, np.uint8)
    source = np.concatenate([noise, slices.source, noise])
    return ByteSlices(source, slices.position + len(noise), slices.size)


def assert_valid(block: Block) -> None:
    """Check that the buffers of a block have the claimed sizes."""
    match block:
        case FixedWidth():
            assert block.data.nbytes == (block.count * block.bits + 7) // 8
        case Variable():
            assert int(block.offsets[0]) >= 0
            assert (np.diff(block.offsets) >= 0).all()
            assert int(block.offsets[-1]) <= block.data.nbytes
        case FixedSizeList():
            assert block.items.count == block.count * block.dimension
            if block.validity is not None:
                assert block.validity.nbytes == (block.items.count + 7) // 8
            assert_valid(block.items)
        case Fields():
            for child in block.children:
                assert child.count == block.count
                assert_valid(child)


def assert_equal(found: Block, expected: Block) -> None:
    """Check that two blocks have the same values; a list may be decoded as one wide value."""
    assert_valid(found)
    assert found.count == expected.count
    match found, expected:
        case FixedWidth(), FixedSizeList():
            assert_equal(found, _as_wide(expected))
        case FixedWidth(), FixedWidth():
            assert found.bits == expected.bits
            assert bits_of(found.data, found) == bits_of(expected.data, expected)
        case Variable(), Variable():
            assert (np.diff(found.offsets) == np.diff(expected.offsets)).all()
            assert _text(found) == _text(expected)
        case FixedSizeList(), FixedSizeList():
            assert found.dimension == expected.dimension
            assert (found.validity is None) == (expected.validity is None)
            if found.validity is not None and expected.validity is not None:
                bits = FixedWidth(1, expected.validity, expected.items.count)
                assert bits_of(found.validity, bits) == bits_of(expected.validity, bits)
            assert_equal(found.items, expected.items)
        case Fields(), Fields():
            assert len(found.children) == len(expected.children)
            for mine, theirs in zip(found.children, expected.children, strict=True):
                assert_equal(mine, theirs)
        case _:
            raise AssertionError(f"{type(found).__name__} is not {type(expected).__name__}")


def bits_of(data: Bytes, block: FixedWidth) -> bytes:
    """Return the bytes of values, without trailing bytes."""
    if block.bits > 1:
        return data.tobytes()
    return np.unpackbits(data, bitorder="little", count=block.count).tobytes()


def _text(strings: Variable) -> bytes:
    return strings.data[int(strings.offsets[0]) : int(strings.offsets[-1])].tobytes()


def _as_wide(block: Block) -> FixedWidth:
    if isinstance(block, FixedSizeList):
        items = _as_wide(block.items)
        return FixedWidth(items.bits * block.dimension, items.data, block.count)
    assert isinstance(block, FixedWidth)
    return block
