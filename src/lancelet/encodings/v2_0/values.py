"""Encoding of values as one page: buffers and the message.

    pa.array(["x", None, "xy"])
    buffers    u64 [1, 5, 3]   "xxy"                       5 = 1 + 4: a null that ends at 1
    message    binary { indices: nullable { no_nulls { flat(64) } }, bytes: flat(8),
                        null_adjustment: 4 }

This version never compresses integers. Repetitive strings are dictionary-encoded, and string bytes
are compressed if the field metadata requests it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Bytes
from lancelet.encodings.arrow import bits_per_value, block_from_arrow, validity_bits
from lancelet.encodings.base import FixedSizeList, FixedWidth, Variable
from lancelet.encodings.choice.options import PLAIN_OPTIONS, Compression, EncodingOptions
from lancelet.encodings.codecs.flat import Flat
from lancelet.encodings.codecs.fsst import Fsst
from lancelet.encodings.codecs.general import General
from lancelet.encodings.v2_0.nested import packed_bytes
from lancelet.errors import UnsupportedError
from lancelet.format.protos import encodings20_pb as pb

DICTIONARY_VALUES_MIN: Final = 100
"""Minimum number of strings in a page for a dictionary."""

DICTIONARY_ITEMS_MAX: Final = 99
"""Maximum number of distinct strings for a dictionary."""


class PageBuilder:
    """Collects the buffers of a page during encoding."""

    def __init__(self, options: EncodingOptions) -> None:
        self.buffers: list[Bytes] = []
        self._options = options

    def encode(self, array: pa.Array) -> pb.ArrayEncoding:
        """Add the buffers of the values of a column and return their encoding."""
        if pa.types.is_string(array.type):
            encoded = encode_dictionary(array)
            if encoded is not None:
                return self._dictionary(*encoded)
        if pa.types.is_struct(array.type):
            return self._packed_struct(array)
        return self._values(array, self._options)

    def end_offsets(
        self, ends: npt.NDArray[np.int64], *, null_adjustment: int, valid: pa.Array | None
    ) -> pb.ArrayEncoding:
        """Add end offsets with null flags, and return their encoding."""
        stored = ends.astype("<u8")
        if valid is not None:
            stored[~valid.to_numpy(zero_copy_only=False)] += np.uint64(null_adjustment)
        return _no_nulls(self._flat(64, stored.view(np.uint8)))

    def _values(self, array: pa.Array, options: EncodingOptions) -> pb.ArrayEncoding:
        if pa.types.is_dictionary(array.type):
            return self._dictionary(*_with_null_item(array))
        block = None if pa.types.is_null(array.type) else block_from_arrow(array)
        if isinstance(block, Variable):
            return self._binary(array, block, options)
        if block is None or (len(array) and array.null_count == len(array)):
            return pb.ArrayEncoding(nullable=pb.Nullable(all_nulls=pb.Nullable.AllNull()))
        bitmap = validity_bits(array)
        validity = None if bitmap is None else self._flat(1, bitmap)
        if isinstance(block, FixedSizeList):
            items = array.values.slice(array.offset * block.dimension, len(array) * block.dimension)
            values = pb.ArrayEncoding(
                fixed_size_list=pb.FixedSizeList(
                    dimension=block.dimension, items=self._values(items, PLAIN_OPTIONS)
                )
            )
        else:
            assert isinstance(block, FixedWidth)
            values = self._flat(block.bits, block.data)
        if validity is None:
            return _no_nulls(values)
        nullable_values = pb.Nullable.SomeNull(validity=validity, values=values)
        return pb.ArrayEncoding(nullable=pb.Nullable(some_nulls=nullable_values))

    def _binary(
        self, array: pa.Array, block: Variable, options: EncodingOptions
    ) -> pb.ArrayEncoding:
        symbols = None
        # Readers use 32-bit offsets for FSST codes.
        if options.compression is Compression.FSST and block.offsets.itemsize == 4 and block.count:
            encoded = Fsst().encode_values(block)
            if encoded.encoding.WhichOneof("compression") == "fsst":
                symbols = encoded.encoding.fsst.symbol_table
                assert isinstance(encoded.rows, Variable)
                block = encoded.rows
        start, stop = int(block.offsets[0]), int(block.offsets[-1])
        ends = block.offsets[1:].astype(np.int64) - start
        adjustment = stop - start + 1
        binary = pb.Binary(
            indices=self.end_offsets(
                ends,
                null_adjustment=adjustment,
                valid=array.is_valid() if array.null_count else None,
            ),
            bytes=self._flat(8, block.data[start:stop], options),
            null_adjustment=adjustment,
        )
        if symbols is None:
            return pb.ArrayEncoding(binary=binary)
        inner = pb.ArrayEncoding(binary=binary)
        return pb.ArrayEncoding(fsst=pb.Fsst(binary=inner, symbol_table=symbols))

    def _dictionary(self, indices: pa.Array, items: pa.Array) -> pb.ArrayEncoding:
        return pb.ArrayEncoding(
            dictionary=pb.Dictionary(
                indices=self._values(indices, PLAIN_OPTIONS),
                items=self._values(items, PLAIN_OPTIONS),
                num_dictionary_items=len(items),
            )
        )

    def _packed_struct(self, array: pa.Array) -> pb.ArrayEncoding:
        children = [array.field(index) for index in range(array.type.num_fields)]
        rows = np.empty((len(array), packed_bytes(array.type)), np.uint8)
        start = 0
        for child in children:
            block = block_from_arrow(child)
            while isinstance(block, FixedSizeList):
                block = block.items
            assert isinstance(block, FixedWidth)
            stop = start + packed_bytes(child.type)
            rows[:, start:stop] = block.data.reshape(len(array), stop - start)
            start = stop
        self.buffers.append(rows.reshape(-1))
        buffer = pb.Buffer(buffer_index=len(self.buffers) - 1)
        inner = [_packed_child(child.type) for child in children]
        return pb.ArrayEncoding(packed_struct=pb.PackedStruct(inner=inner, buffer=buffer))

    def _flat(
        self, bits: int, data: Bytes, options: EncodingOptions | None = None
    ) -> pb.ArrayEncoding:
        flat = pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=len(self.buffers)))
        if options and options.compression in (Compression.ZSTD, Compression.LZ4):
            flat.compression.scheme = options.compression.value
            if options.compression_level is not None:
                flat.compression.level = options.compression_level
            codec = General(Flat(), options.compression, options.compression_level)
            data = codec.encode_block(FixedWidth(8, data, len(data))).data
        self.buffers.append(data)
        return pb.ArrayEncoding(flat=flat)


def encode_dictionary(array: pa.Array) -> tuple[pa.Array, pa.Array] | None:
    """Return indices (0 is null, items start at 1) and items; None if not repetitive.

    >>> encode_dictionary(pa.array(["a", None] * 50))[0][:4].to_pylist()
    [1, 0, 1, 0]
    """
    if len(array) < DICTIONARY_VALUES_MIN:
        return None
    # A prefix suffices to reject most columns.
    head = array.slice(0, 4 * DICTIONARY_ITEMS_MAX)
    if len(pc.unique(head).drop_null()) > DICTIONARY_ITEMS_MAX:
        return None
    encoded = pc.dictionary_encode(array)
    if len(encoded.dictionary) > DICTIONARY_ITEMS_MAX:
        return None
    indices = pc.add(pc.fill_null(encoded.indices, -1), 1).cast(pa.uint8())
    items = encoded.dictionary if len(encoded.dictionary) else pa.nulls(1, array.type)
    return indices, items


def _with_null_item(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the indices and items of a dictionary array; nulls become indices of a null item."""
    indices, items = array.indices, array.dictionary
    if not indices.null_count:
        return indices, items
    null_item = pa.scalar(len(items), pa.int64())
    items = pa.concat_arrays([items, pa.nulls(1, items.type)])
    try:
        return pc.fill_null(indices.cast(pa.int64()), null_item).cast(indices.type), items
    except pa.ArrowInvalid as error:
        raise UnsupportedError(
            "the keys of a dictionary column with nulls are too narrow for version 2.0, which "
            "stores a null as an additional item; write version 2.1 or later, or use wider keys",
            key_type=str(indices.type),
            items=len(items) - 1,
        ) from error


def _packed_child(data_type: pa.DataType) -> pb.ArrayEncoding:
    if not pa.types.is_fixed_size_list(data_type):
        bits = bits_per_value(data_type)
        return _no_nulls(
            pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=pb.Buffer(buffer_index=0)))
        )
    fixed = pb.FixedSizeList(
        dimension=data_type.list_size, items=_packed_child(data_type.value_type)
    )
    return _no_nulls(pb.ArrayEncoding(fixed_size_list=fixed))


def _no_nulls(values: pb.ArrayEncoding) -> pb.ArrayEncoding:
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=values)))
