"""Variable-packed-struct codec (2.2): consecutive fields of a struct, row by row.

    struct<a: int16, s: string>   {1, "ab"}  {2, ""}
    row 0    01 00 | 02 00 00 00 "ab"
    row 1    02 00 | 00 00 00 00

Fixed-width fields are stored plain; strings are preceded by their length in 4 or 8 bytes. The rows
are values of full-zip pages. Each field is decoded for all rows together; its position in every row
results from the preceding fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from lancelet import kernels
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.base import Block, Fields, FixedWidth, Variable
from lancelet.encodings.codecs.base import Codec, Codecs, EncodedValues
from lancelet.encodings.codecs.fixed_size_list import FixedSizeListCodec
from lancelet.encodings.codecs.flat import BITS_MAX, Flat
from lancelet.encodings.codecs.validate import validate_variable_rows
from lancelet.encodings.codecs.variable import VariableCodec, offsets_from_sizes
from lancelet.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lancelet.format.protos import encodings21_pb as pb21

_LENGTH_BITS: Final = (32, 64)


class VariablePackedStruct(Codec):
    """Interleaved fields, including strings."""

    wire_name: ClassVar[str] = "variable_packed_struct"

    @classmethod
    def describe(cls, message: Any, codecs: Codecs) -> str:
        """Return `variable_packed_struct(field, ...)`."""
        fields = ", ".join(codecs.describe(field.value) for field in message.fields)
        return f"variable_packed_struct({fields})"

    def encode_values(self, block: Block) -> EncodedValues:
        """Interleave the fields of every row."""
        if not isinstance(block, Fields):
            raise UnsupportedError("packing requires structs", found=type(block).__name__)
        message = pb21.VariablePackedStruct()
        field_slices = [
            slices for child in block.children for slices in _field_slices(child, message)
        ]
        sizes = np.zeros(block.count, np.int64)
        for slices in field_slices:
            sizes += slices.size
        offsets = offsets_from_sizes(sizes)
        out = np.empty(int(offsets[-1]), np.uint8)
        at = offsets[:-1].astype(np.int64)
        for slices in field_slices:
            kernels.copy_slices(slices, out, at)
            at = at + slices.size
        encoding = pb21.CompressiveEncoding(variable_packed_struct=message)
        return EncodedValues(encoding, Variable(offsets, out))

    @classmethod
    def decode_values(cls, message: Any, rows: FixedWidth | Variable, codecs: Codecs) -> Block:
        """Split every row into fields."""
        values = validate_variable_rows(rows, cls.wire_name)
        at = values.offsets[:-1].astype(np.int64)
        stop = values.offsets[1:].astype(np.int64)
        children = []
        for field in message.fields:
            if field.WhichOneof("layout") == "bits_per_value":
                bits = int(field.bits_per_value)
                if bits % 8 or not 0 < bits <= BITS_MAX:
                    raise CorruptDataError(
                        "a field of a packed struct has an invalid bit width", bits=bits
                    )
                data = _take(values.data, at, stop, bits // 8)
                child = codecs.decode_values(field.value, FixedWidth(bits, data, values.count))
                at = at + bits // 8
            else:
                strings, at = _take_strings(values.data, at, stop, int(field.bits_per_length))
                child = codecs.decode_values(field.value, strings)
            children.append(child)
        if (at != stop).any():
            raise CorruptDataError("the rows of a packed struct are longer than its fields")
        return Fields(tuple(children), values.count)


def _field_slices(child: Block, message: pb21.VariablePackedStruct) -> Iterator[ByteSlices]:
    """Add a field to the message and yield its bytes per row."""
    if isinstance(child, Variable):
        width = child.offsets.itemsize
        encoded = VariableCodec().encode_values(child)
        message.fields.add(value=encoded.encoding, bits_per_length=width * 8)
        offsets = child.offsets.astype(np.int64)
        lengths = np.diff(child.offsets).view(np.uint8)
        yield _fixed_slices(lengths, width, child.count)
        yield ByteSlices(child.data, offsets[:-1], np.diff(offsets))
        return
    codec = Flat() if isinstance(child, FixedWidth) else FixedSizeListCodec()
    encoded = codec.encode_values(child)
    assert isinstance(encoded.rows, FixedWidth)
    if encoded.rows.bits % 8:
        raise InvalidInputError("a packed struct cannot contain booleans; do not pack this struct")
    message.fields.add(value=encoded.encoding, bits_per_value=encoded.rows.bits)
    yield _fixed_slices(encoded.rows.data, encoded.rows.bits // 8, child.count)


def _fixed_slices(data: Bytes, width: int, count: int) -> ByteSlices:
    position = np.arange(count, dtype=np.int64) * width
    return ByteSlices(data, position, np.full(count, width, np.int64))


def _take(data: Bytes, at: Int64s, stop: Int64s, width: int) -> Bytes:
    if (stop - at < width).any():
        raise CorruptDataError("a row of a packed struct is truncated", field_bytes=width)
    taken: Bytes = kernels.take_fixed(data, at, width)
    return taken


def _take_strings(
    data: Bytes, at: Int64s, stop: Int64s, length_bits: int
) -> tuple[Variable, Int64s]:
    """Return the strings with lengths at `at` in each row, and their end positions."""
    if length_bits not in _LENGTH_BITS:
        raise CorruptDataError("string lengths must have 32 or 64 bits", bits=length_bits)
    width = length_bits // 8
    raw: npt.NDArray[Any] = _take(data, at, stop, width).view(f"<u{width}")
    start = at + width
    if (raw > (stop - start).view(np.uint64)).any():
        raise CorruptDataError("a string of a packed struct exceeds its row")
    sizes = raw.astype(np.int64)
    offsets = offsets_from_sizes(sizes)
    out = np.empty(int(offsets[-1]), np.uint8)
    kernels.copy_slices(ByteSlices(data, start, sizes), out, offsets[:-1].astype(np.int64))
    return Variable(offsets, out), start + sizes
