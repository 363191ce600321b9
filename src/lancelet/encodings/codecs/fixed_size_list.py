"""Fixed-size-list codec: lists as wide values, with the validity of their items.

    lists of 3   [1 null 3] [4 5 6]
    mini-block   buffer 0: bits 1 0 1 1 1 1      buffer 1: 1 ? 3 4 5 6
    per value    05 | 1 ? 3      07 | 4 5 6      validity of each list in whole bytes

Lists may be nested. Each level with nullable items has a bitmap, the outer level first, followed by
the innermost items. Null lists are stored as levels, not by this codec.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import (
    ChunkedValues,
    ChunkLimits,
    Codec,
    Codecs,
    EncodedBlocks,
    EncodedValues,
    Encoding,
    ValuePositions,
)
from lancelet.encodings.codecs.chunking import chunk_counts, chunk_values, join_bytes, to_slices
from lancelet.encodings.codecs.flat import BITS_MAX, cut_bits, flat_bits, flat_encoding, join_bits
from lancelet.encodings.codecs.validate import check_sizes, validate_fixed_rows
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21
from lancelet.values import dataclass

NESTING_MAX: Final = 16
"""Maximum nesting depth of fixed-size lists."""


@dataclass(frozen=True, slots=True)
class _Level:
    """One level of lists: list size, and number of items per value at this level."""

    dimension: int
    items: int
    has_validity: bool

    @property
    def validity_bytes(self) -> int:
        """Return the bytes of the item bitmap of one value."""
        return (self.items + 7) // 8 if self.has_validity else 0


class FixedSizeListCodec(Codec):
    """Fixed-size lists."""

    wire_name: ClassVar[str] = "fixed_size_list"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `fixed_size_list(dimension){items}`, with `?` if items are nullable."""
        nulls = "?" if message.has_validity else ""
        items = codecs.describe(message.values)
        return f"fixed_size_list({message.items_per_value}{nulls}){{{items}}}"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return one buffer for the item bitmap, if any, plus those of the items."""
        return int(message.has_validity) + codecs.num_buffers(message.values)

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the item bitmap, which is first, or of the items."""
        items = counts * _validate_dimension(message.items_per_value, before=1)
        return (items + 7) // 8 if message.has_validity else codecs.bytes_max(message.values, items)

    @classmethod
    def block_bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the bytes of the lists, including item bitmaps."""
        del codecs
        levels, bits = _levels(message)
        if any(level.has_validity for level in levels):
            return counts * _value_bytes(levels, bits)
        return (counts * levels[-1].items * bits + 7) // 8

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose this codec for lists; no other codec stores them."""
        if isinstance(block, FixedSizeList):
            yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Split lists into chunks of item bitmaps and items."""
        levels, validities, items = _flatten(block)
        value_bits = levels[-1].items * items.bits
        value_bytes = value_bits / 8 + sum(level.validity_bytes for level in levels)
        counts = chunk_counts(block.count, chunk_values(block.count, value_bytes, limits))
        bits = [
            cut_bits(validity, counts * level.items)
            for level, validity in zip(levels, validities, strict=True)
            if validity is not None
        ]
        if items.bits == 1:
            data = cut_bits(items.data, counts * levels[-1].items)
        else:
            data = to_slices(counts * (value_bits // 8), items.data)
        return ChunkedValues(_encoding(levels, items.bits), (*bits, data), counts)

    def encode_blocks(self, block: Block, counts: Int64s) -> EncodedBlocks:
        """Concatenate the lists of each block, with bitmaps per list if items are nullable."""
        encoded = self.encode_values(block)
        assert isinstance(encoded.rows, FixedWidth)
        sizes = counts * (encoded.rows.bits // 8)
        return EncodedBlocks(encoded.encoding, to_slices(sizes, encoded.rows.data))

    def encode_values(self, block: Block) -> EncodedValues:
        """Interleave the bitmap and the items of each list."""
        levels, validities, items = _flatten(block)
        if items.bits * levels[-1].items % 8:
            raise UnsupportedError(
                "lists of booleans must have a multiple of 8 items for full-zip pages",
                dimension=levels[-1].items,
            )
        encoding = _encoding(levels, items.bits)
        width = items.bits * levels[-1].items // 8
        if all(validity is None for validity in validities):
            return EncodedValues(encoding, FixedWidth(width * 8, items.data, block.count))
        if items.bits == 1:
            raise UnsupportedError(
                "lists of booleans with nulls are not supported in full-zip pages"
            )
        columns = [
            _bits_as_columns(validity, block.count, level.items)
            for level, validity in zip(levels, validities, strict=True)
            if validity is not None
        ]
        rows = np.concatenate([*columns, items.data.reshape(block.count, width)], axis=1)
        return EncodedValues(encoding, FixedWidth(rows.shape[1] * 8, rows.reshape(-1), block.count))

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the bitmaps and items of the chunks."""
        dimension = _validate_dimension(message.items_per_value, before=1)
        item_counts = counts * dimension
        validity = None
        if message.has_validity:
            check_sizes(parts[0], (item_counts + 7) // 8, codec=cls.wire_name)
            validity = join_bits(parts[0], item_counts)
            parts = parts[1:]
        items = codecs.decode_chunks(message.values, parts, item_counts)
        return FixedSizeList(dimension, validity, items, int(counts.sum()))

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Gather selected lists as wide values, unless items are nullable."""
        levels, bits = _levels(message)
        width = bits * levels[-1].items
        if width % 8 or any(level.has_validity for level in levels):
            return None
        wide = flat_encoding(width)
        rows = codecs.take_chunks(wide, parts, counts, positions)
        assert isinstance(rows, FixedWidth)
        return decode_lists(message, rows)

    @classmethod
    def decode_blocks(
        cls, message: Any, slices: ByteSlices, counts: Int64s, codecs: Codecs
    ) -> Block:
        """Concatenate the lists of all blocks and split bitmaps and items."""
        del codecs
        levels, bits = _levels(message)
        if any(level.has_validity for level in levels) or bits % 8 == 0:
            width = _value_bytes(levels, bits)
            check_sizes(slices, counts * width, codec=cls.wire_name)
            rows = FixedWidth(width * 8, join_bytes(slices), int(counts.sum()))
            return decode_lists(message, rows)
        item_counts = counts * levels[-1].items
        check_sizes(slices, (item_counts + 7) // 8, codec=cls.wire_name)
        items = FixedWidth(1, join_bits(slices, item_counts), int(item_counts.sum()))
        return _nest(levels, [None] * len(levels), items, int(counts.sum()))

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Split the bitmap and the items of each list."""
        del codecs
        return decode_lists(message, rows)


def decode_lists(message: Any, rows: FixedWidth | Variable) -> Block:
    """Return the lists encoded by `FixedSizeListCodec.encode_values`."""
    levels, bits = _levels(message)
    if bits == 1 and (levels[-1].items % 8 or any(level.has_validity for level in levels)):
        raise UnsupportedError(
            "lists of booleans must have a multiple of 8 items and no nulls "
            "to be stored individually"
        )
    values = validate_fixed_rows(rows, _value_bytes(levels, bits) * 8, FixedSizeListCodec.wire_name)
    count, item_count = values.count, values.count * levels[-1].items
    if not any(level.has_validity for level in levels):
        items = FixedWidth(bits, values.data, item_count)
        return _nest(levels, [None] * len(levels), items, count)
    table = values.data.reshape(count, values.bits // 8)
    validities: list[Bytes | None] = []
    position = 0
    for level in levels:
        bitmap = table[:, position : position + level.validity_bytes]
        validities.append(_columns_as_bits(bitmap, level) if level.has_validity else None)
        position += level.validity_bytes
    data = np.ascontiguousarray(table[:, position:]).reshape(-1)
    return _nest(levels, validities, FixedWidth(bits, data, item_count), count)


def _flatten(block: Block) -> tuple[list[_Level], list[Bytes | None], FixedWidth]:
    """Return the levels and bitmaps of nested lists, and the innermost items."""
    levels: list[_Level] = []
    validities: list[Bytes | None] = []
    items = 1
    while isinstance(block, FixedSizeList):
        items *= block.dimension
        levels.append(_Level(block.dimension, items, block.validity is not None))
        validities.append(block.validity)
        block = block.items
    if not levels or not isinstance(block, FixedWidth):
        raise UnsupportedError(
            "fixed-size lists require fixed-width items", found=type(block).__name__
        )
    return levels, validities, block


def _encoding(levels: list[_Level], bits: int) -> pb21.CompressiveEncoding:
    nulls = pb21.CompressiveEncoding(constant=pb21.Constant())
    encoding = flat_encoding(bits) if bits else nulls
    for level in reversed(levels):
        encoding = pb21.CompressiveEncoding(
            fixed_size_list=pb21.FixedSizeList(
                items_per_value=level.dimension, values=encoding, has_validity=level.has_validity
            )
        )
    return encoding


def _levels(message: Any) -> tuple[list[_Level], int]:
    """Return the validated levels of an encoding, and the bit width of the innermost items.

    All-null items have only validity bits.
    """
    levels: list[_Level] = []
    items = 1
    while True:
        dimension = _validate_dimension(message.items_per_value, before=items)
        items *= dimension
        levels.append(_Level(dimension, items, message.has_validity))
        inner: Encoding = message.values
        kind = inner.WhichOneof("compression")
        if kind == "flat":
            return levels, flat_bits(inner.flat)
        if kind == "constant" and not inner.constant.HasField("value") and message.has_validity:
            return levels, 0
        if kind != "fixed_size_list" or len(levels) == NESTING_MAX:
            raise UnsupportedError("fixed-size lists require plain values", found=kind)
        message = inner.fixed_size_list


def _validate_dimension(dimension: int, *, before: int) -> int:
    if not 0 < dimension * before <= BITS_MAX:
        raise CorruptDataError("invalid size of a fixed-size list", found=dimension)
    return int(dimension)


def _value_bytes(levels: list[_Level], bits: int) -> int:
    return sum(level.validity_bytes for level in levels) + levels[-1].items * bits // 8


def _bits_as_columns(validity: Bytes, count: int, items: int) -> npt.NDArray[np.uint8]:
    bits = np.unpackbits(validity, bitorder="little", count=count * items)
    return np.packbits(bits.reshape(count, items), axis=1, bitorder="little")


def _columns_as_bits(columns: npt.NDArray[np.uint8], level: _Level) -> Bytes:
    bits = np.unpackbits(columns, axis=1, bitorder="little", count=level.items)
    return np.packbits(bits.reshape(-1), bitorder="little")


def _nest(
    levels: list[_Level], validities: Sequence[Bytes | None], items: Block, count: int
) -> Block:
    block = items
    for level, validity in zip(reversed(levels), reversed(validities), strict=True):
        lists = count * (level.items // level.dimension)
        block = FixedSizeList(level.dimension, validity, block, lists)
    return block
