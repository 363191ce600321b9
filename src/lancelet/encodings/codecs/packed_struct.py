"""Packed-struct codec: interleaved fields of a struct, row by row.

    struct<a: int16, b: int32>   {1, 2} {3, 4}
    stored                       01 00 02 00 00 00 | 03 00 04 00 00 00

A row is contiguous, but reading one field reads all fields. Fields must have a fixed width in
whole bytes; `variable_packed_struct` supports strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar

import numpy as np

from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.base import Block, Fields, FixedSizeList, FixedWidth, Variable
from lancelet.encodings.codecs.base import ChunkedValues, ChunkLimits, Codec, Codecs, ValuePositions
from lancelet.encodings.codecs.flat import Flat
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21


class PackedStruct(Codec):
    """Interleaved fixed-width fields."""

    wire_name: ClassVar[str] = "packed_struct"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `packed_struct(bits, ...)`."""
        del codecs
        return f"packed_struct({', '.join(str(bits) for bits in message.bits_per_value)})"

    @classmethod
    def num_buffers(cls, message: Any, codecs: Codecs) -> int:
        """Return the number of buffers of the rows as plain values."""
        return codecs.num_buffers(message.values)

    @classmethod
    def bytes_max(cls, message: Any, counts: Int64s, codecs: Codecs) -> Int64s | None:
        """Return the maximum bytes of the rows as plain values."""
        return codecs.bytes_max(message.values, counts)

    @classmethod
    def propose(cls, block: Block) -> Iterator[Codec]:
        """Propose packing for structs of fixed width; no other codec stores them."""
        if isinstance(block, Fields):
            yield cls()

    def encode_chunks(self, block: Block, limits: ChunkLimits) -> ChunkedValues:
        """Interleave the fields and split the rows into chunks."""
        if not isinstance(block, Fields):
            raise UnsupportedError("packing requires structs", found=type(block).__name__)
        columns = [as_columns(child) for child in block.children]
        zipped = np.concatenate(columns, axis=1)
        values = FixedWidth(zipped.shape[1] * 8, zipped.reshape(-1), block.count)
        chunked = Flat().encode_chunks(values, limits)
        encoding = pb21.CompressiveEncoding(
            packed_struct=pb21.PackedStruct(
                bits_per_value=[column.shape[1] * 8 for column in columns],
                values=chunked.encoding,
            )
        )
        return ChunkedValues(encoding, chunked.parts, chunked.counts)

    @classmethod
    def decode_chunks(
        cls, message: Any, parts: Sequence[ByteSlices], counts: Int64s, codecs: Codecs
    ) -> Block:
        """Split the rows into fields."""
        return _unzip(message, codecs.decode_chunks(message.values, parts, counts))

    @classmethod
    def take_chunks(
        cls,
        message: Any,
        parts: Sequence[ByteSlices],
        counts: Int64s,
        positions: ValuePositions,
        codecs: Codecs,
    ) -> Block | None:
        """Split selected rows into fields."""
        return _unzip(message, codecs.take_chunks(message.values, parts, counts, positions))

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Split the rows into fields."""
        return _unzip(message, codecs.decode_values(message.values, rows))


def _unzip(message: Any, rows: Block) -> Fields:
    widths = [int(bits) for bits in message.bits_per_value]
    if any(bits % 8 or bits == 0 for bits in widths):
        raise CorruptDataError("a field of a packed struct has an invalid bit width", bits=widths)
    if not isinstance(rows, FixedWidth) or rows.bits != sum(widths):
        raise CorruptDataError(
            "the fields of a packed struct do not match the row size", bits=widths
        )
    table = rows.data.reshape(rows.count, rows.bits // 8)
    stops = list(accumulate(bits // 8 for bits in widths))
    children = tuple(
        FixedWidth(
            bits,
            np.ascontiguousarray(table[:, stop - bits // 8 : stop]).reshape(-1),
            rows.count,
        )
        for bits, stop in zip(widths, stops, strict=True)
    )
    return Fields(children, rows.count)


def as_columns(child: Block) -> Any:
    """Return a field as a matrix of bytes, a row per value; fixed-size lists are flattened."""
    if isinstance(child, FixedSizeList) and child.validity is None:
        items = as_columns(child.items)
        return items.reshape(child.count, child.dimension * items.shape[1])
    if not isinstance(child, FixedWidth) or child.bits % 8:
        raise InvalidInputError(
            "a packed struct requires non-null fields of whole bytes; do not pack this struct",
            found=type(child).__name__ if not isinstance(child, FixedWidth) else "boolean",
        )
    return child.data.reshape(child.count, child.bits // 8)
