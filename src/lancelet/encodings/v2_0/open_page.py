"""Conversion of page messages to decoders.

    nullable { some_nulls { validity { flat 1 bit }  values { flat 64 bits } } }
    ->  SomeNull(Flat(bool), Flat(int64))

The format has a fixed set of encodings: unsupported ones are rejected by name.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from google.protobuf.unknown_fields import UnknownFieldSet

from lancelet.encodings.v2_0.fixed_width import (
    Bitpacked,
    BitpackedForNonNeg,
    CompressedFlat,
    Flat,
)
from lancelet.encodings.v2_0.nested import (
    AllNull,
    Dictionary,
    FixedSizeListItems,
    PackedStruct,
    SomeNull,
)
from lancelet.encodings.v2_0.page import Decoder, PageBuffers
from lancelet.encodings.v2_0.variable import Binary, EndOffsets, FixedSizeBinary, Fsst
from lancelet.errors import CorruptDataError, UnsupportedError
from lancelet.format.protos import encodings20_pb as pb

_NEVER_RELEASED: Final = {
    14: "inline_bitpacking",
    15: "out_of_line_bitpacking",
    16: "variable",
    17: "packed_struct_fixed_width_mini_block",
    18: "block",
    19: "rle",
    20: "general_mini_block",
    21: "byte_stream_split",
}
"""Encodings drafted for this message, but only written as version 2.1."""


def open_encoding(
    encoding: pb.ArrayEncoding, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    """Return the decoder of an encoding with `count` values of a type."""
    match encoding.WhichOneof("array_encoding"):
        case "flat":
            return _open_flat(encoding.flat, data_type, count=count, buffers=buffers)
        case "nullable":
            return _open_nullable(encoding.nullable, data_type, count=count, buffers=buffers)
        case "fixed_size_list":
            return _open_list(encoding.fixed_size_list, data_type, count=count, buffers=buffers)
        case "binary":
            return _open_binary(encoding.binary, data_type, count=count, buffers=buffers)
        case "dictionary":
            return _open_dictionary(encoding.dictionary, data_type, count=count, buffers=buffers)
        case "fsst":
            codes = open_encoding(
                encoding.fsst.binary, pa.large_binary(), count=count, buffers=buffers
            )
            return Fsst(data_type, codes, encoding.fsst.symbol_table)
        case "packed_struct":
            if not pa.types.is_struct(data_type):
                raise _mismatch("packed_struct", data_type)
            if len(encoding.packed_struct.inner) != data_type.num_fields:
                raise CorruptDataError(
                    "the children of a packed struct do not match the schema",
                    type=str(data_type),
                    children=len(encoding.packed_struct.inner),
                )
            buffer = buffers.find(encoding.packed_struct.buffer)
            return PackedStruct.open(data_type, buffer, count=count)
        case "bitpacked":
            buffer = buffers.find(encoding.bitpacked.buffer)
            return Bitpacked.open(data_type, encoding.bitpacked, buffer, count=count)
        case "bitpacked_for_non_neg":
            packed = encoding.bitpacked_for_non_neg
            return BitpackedForNonNeg.open(
                data_type, packed, buffers.find(packed.buffer), count=count
            )
        case "fixed_size_binary":
            width = encoding.fixed_size_binary.byte_width
            data = open_encoding(
                encoding.fixed_size_binary.bytes, pa.uint8(), count=count * width, buffers=buffers
            )
            return FixedSizeBinary(data_type, data, width)
        case other:
            raise _unknown(encoding, other, buffers)


def open_end_offsets(
    indices: pb.ArrayEncoding,
    null_adjustment: int,
    *,
    limit: int,
    count: int,
    buffers: PageBuffers,
) -> EndOffsets:
    """Return the reader of end offsets that include null flags; ends must not exceed `limit`."""
    if count and not 0 < null_adjustment < 1 << 62:
        raise CorruptDataError(
            "invalid null adjustment of the offsets of a page",
            column=buffers.column.index,
            null_adjustment=null_adjustment,
        )
    decoder = open_encoding(indices, pa.uint64(), count=count, buffers=buffers)
    return EndOffsets(decoder, null_adjustment, limit)


def _open_flat(
    flat: pb.Flat, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    buffer = buffers.find(flat.buffer)
    scheme = flat.compression.scheme
    if scheme in ("", "none"):
        return Flat.open(data_type, flat.bits_per_value, buffer, count=count)
    return CompressedFlat.open(
        data_type,
        flat.bits_per_value,
        buffer,
        scheme=scheme,
        count=count,
        cache=buffers.cache,
    )


def _open_nullable(
    nullable: pb.Nullable, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    match nullable.WhichOneof("nullability"):
        case "no_nulls":
            return open_encoding(nullable.no_nulls.values, data_type, count=count, buffers=buffers)
        case "some_nulls":
            nullable_values = nullable.some_nulls
            return SomeNull(
                open_encoding(nullable_values.validity, pa.bool_(), count=count, buffers=buffers),
                open_encoding(nullable_values.values, data_type, count=count, buffers=buffers),
            )
        case "all_nulls":
            return AllNull(data_type)
        case _:
            raise CorruptDataError(
                "the nullable encoding of a page is empty", column=buffers.column.index
            )


def _open_list(
    fixed: pb.FixedSizeList, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    if not pa.types.is_fixed_size_list(data_type) or data_type.list_size != fixed.dimension:
        raise _mismatch("fixed_size_list", data_type, found_dimension=fixed.dimension)
    items = open_encoding(
        fixed.items, data_type.value_type, count=count * fixed.dimension, buffers=buffers
    )
    return FixedSizeListItems(data_type, items)


def _open_binary(
    binary: pb.Binary, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    # The writer stores one more than the number of bytes; compressed buffers have no other size.
    data_bytes = max(0, binary.null_adjustment - 1)
    data = open_encoding(binary.bytes, pa.uint8(), count=data_bytes, buffers=buffers)
    ends = open_end_offsets(
        binary.indices, binary.null_adjustment, limit=data_bytes, count=count, buffers=buffers
    )
    return Binary(data_type, ends, data)


def _open_dictionary(
    dictionary: pb.Dictionary, data_type: pa.DataType, *, count: int, buffers: PageBuffers
) -> Decoder:
    index_type, value_type = pa.uint8(), data_type
    if pa.types.is_dictionary(data_type):
        index_type, value_type = data_type.index_type, data_type.value_type
    num_items = dictionary.num_dictionary_items
    indices = open_encoding(dictionary.indices, index_type, count=count, buffers=buffers)
    items = open_encoding(dictionary.items, value_type, count=num_items, buffers=buffers)
    if isinstance(items, AllNull):
        # The number of items is not backed by stored bytes; all-null items make every value null.
        return AllNull(data_type)
    return Dictionary(data_type, indices, items, num_items, buffers.cache)


def _unknown(
    encoding: pb.ArrayEncoding, kind: str | None, buffers: PageBuffers
) -> UnsupportedError | CorruptDataError:
    column = buffers.column.index
    if kind is not None:
        return UnsupportedError(
            "this encoding is not supported in this context",
            encoding=kind,
            column=column,
        )
    unknown = UnknownFieldSet(encoding)
    if not len(unknown):
        return CorruptDataError("a page has no encoding", column=column)
    number = unknown[0].field_number
    return UnsupportedError(
        "unsupported encoding in a page of version 2.0; no released writer used it",
        encoding=_NEVER_RELEASED.get(number, f"number {number}"),
        column=column,
    )


def _mismatch(encoding: str, data_type: pa.DataType, **facts: object) -> CorruptDataError:
    return CorruptDataError(
        "the stored values of a page do not match the schema type",
        encoding=encoding,
        type=str(data_type),
        **facts,
    )
