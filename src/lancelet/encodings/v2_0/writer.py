"""Encoding of a field into pages of all its columns.

A struct is a header with the number of rows, followed by its children. A list is its offsets,
followed by the items of all lists as one column. Only leaves and offsets have bytes:

    [[{x: 1}, {x: 2}], [], [{x: 3}]]
    column 0   list    offsets 2 2 3
    column 1   struct  3 rows
    column 2   x       1 2 3
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import ByteSlices
from lancelet.encodings.base import BlobSink, ColumnChoice, EncodedPages, FileVersion
from lancelet.encodings.blobs.v1 import DESCRIPTOR_TYPE, write_blobs
from lancelet.encodings.choice.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.encodings.v2_0.columns import LIST_TYPES, check_storable, check_values, columns_of
from lancelet.encodings.v2_0.page import ARRAY_ENCODING_URL, COLUMN_ENCODING_URL, envelope
from lancelet.encodings.v2_0.values import PageBuilder
from lancelet.errors import InternalError
from lancelet.format.field import Field
from lancelet.format.logical_type import STRUCT
from lancelet.format.protos import encodings20_pb as pb

PAGE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Target page size in bytes; a page has at least one row."""

NULL_BLOB_POSITION: Final = 1
"""An invalid position for values, which are aligned."""


def encode_field(
    array: pa.Array,
    field: Field,
    version: FileVersion,
    *,
    blobs: BlobSink | None = None,
    defaults: EncodingOptions = PLAIN_OPTIONS,
) -> list[EncodedPages]:
    """Encode the values of a field as pages of each of its columns."""
    del version
    check_storable(field)
    check_values(field, array)
    writer = _FieldWriter(blobs, defaults)
    writer.write(field, array, in_list=False)
    return writer.pages


def column_encodings(field: Field, version: FileVersion) -> tuple[bytes, ...]:
    """Return the enveloped encoding of each column of a field."""
    values = pb.ColumnEncoding(values=pb.ColumnValues())
    blob = pb.ColumnEncoding(blob=pb.Blob(inner=values))
    return tuple(
        envelope(COLUMN_ENCODING_URL, blob if owner.is_blob else values)
        for owner in columns_of(field, version)
    )


class _FieldWriter:
    """Encodes a field and its children, column by column."""

    def __init__(self, blobs: BlobSink | None, defaults: EncodingOptions) -> None:
        self.pages: list[EncodedPages] = []
        self._blobs = blobs
        self._defaults = defaults
        self._column = -1

    def write(self, field: Field, array: pa.Array, *, in_list: bool) -> None:
        self._column += 1
        if field.is_blob:
            self._write_leaf(field, self._write_blobs(field, array), in_list=in_list)
        elif field.logical_type in LIST_TYPES:
            self._write_offsets(field, array, in_list=in_list)
            self.write(field.children[0], array.flatten(), in_list=True)
        elif field.logical_type == STRUCT and not field.is_packed:
            # The reference requires a header even without rows.
            encoding = pb.ArrayEncoding(struct=pb.SimpleStruct())
            self._add(field, 0, array, PageBuilder(PLAIN_OPTIONS), encoding)
            for index, child in enumerate(field.children):
                self.write(child, array.field(index), in_list=in_list)
        else:
            self._write_leaf(field, array, in_list=in_list)

    def _write_leaf(self, field: Field, array: pa.Array, *, in_list: bool) -> None:
        options = self._defaults
        if field.metadata:
            options = EncodingOptions.from_metadata(field.name, field.metadata)
        for first_row, part in _split_rows(array, array.nbytes):
            page = PageBuilder(options)
            self._add(field, 0 if in_list else first_row, part, page, page.encode(part))

    def _write_offsets(self, field: Field, array: pa.Array, *, in_list: bool) -> None:
        for first_row, part in _split_rows(array, 8 * len(array)):
            page = PageBuilder(PLAIN_OPTIONS)
            lengths = pc.fill_null(pc.list_value_length(part), 0)
            ends = np.cumsum(lengths.to_numpy(), dtype=np.int64)
            num_items = int(ends[-1])
            offsets = page.end_offsets(
                ends,
                null_adjustment=num_items + 1,
                valid=part.is_valid() if part.null_count else None,
            )
            encoding = pb.ArrayEncoding(
                list=pb.List(
                    offsets=offsets, null_offset_adjustment=num_items + 1, num_items=num_items
                )
            )
            self._add(field, 0 if in_list else first_row, part, page, encoding)

    def _write_blobs(self, field: Field, array: pa.Array) -> pa.Array:
        """Write values out of line and return descriptors."""
        if self._blobs is None:
            raise InternalError("a blob column is written without a blob writer", column=field.name)
        descriptors = write_blobs(array, self._blobs)
        if not descriptors.null_count:
            return descriptors
        position = descriptors.field("position").to_numpy().copy()
        position[descriptors.is_null().to_numpy(zero_copy_only=False)] = NULL_BLOB_POSITION
        return pa.StructArray.from_arrays(
            [pa.array(position), descriptors.field("size")], fields=list(DESCRIPTOR_TYPE)
        )

    def _add(
        self,
        field: Field,
        first_row: int,
        values: pa.Array,
        page: PageBuilder,
        encoding: pb.ArrayEncoding,
    ) -> None:
        stored_bytes = sum([buffer.nbytes for buffer in page.buffers])
        self.pages.append(
            EncodedPages(
                fields=[0],
                column=self._column,
                first_row=first_row,
                length=len(values),
                buffers=tuple(map(ByteSlices.whole, page.buffers)),
                encoding=envelope(ARRAY_ENCODING_URL, encoding),
                report=partial(_report, field.name, encoding, values.nbytes, stored_bytes),
            )
        )


def _report(
    name: str, encoding: pb.ArrayEncoding, raw_bytes: int, stored_bytes: int
) -> tuple[ColumnChoice]:
    """Return the report of a page; formatted on demand."""
    return (ColumnChoice(name, "array", describe(encoding), raw_bytes, stored_bytes),)


def _split_rows(array: pa.Array, num_bytes: int) -> list[tuple[int, pa.Array]]:
    """Split values into parts with equal row counts of about the page size."""
    if num_bytes <= PAGE_BYTES_MAX and len(array):
        return [(0, array)]
    parts = min(-(-num_bytes // PAGE_BYTES_MAX), len(array))
    step = -(-len(array) // max(1, parts))
    return [(start, array.slice(start, step)) for start in range(0, len(array), max(1, step))]


def describe(encoding: pb.ArrayEncoding) -> str:
    """Return the description of an encoding, such as `nullable(flat(64))`.

    >>> flat = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64))
    >>> describe(pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNull(values=flat))))
    'flat(64)'
    """
    kind = encoding.WhichOneof("array_encoding")
    match kind:
        case "flat":
            flat = encoding.flat
            scheme = f", {flat.compression.scheme}" if flat.HasField("compression") else ""
            return f"flat({flat.bits_per_value}{scheme})"
        case "nullable":
            return _describe_nullable(encoding.nullable)
        case "fixed_size_list":
            fixed = encoding.fixed_size_list
            return f"fixed_size_list({fixed.dimension}, {describe(fixed.items)})"
        case "list":
            return f"list({describe(encoding.list.offsets)})"
        case "binary":
            return f"binary({describe(encoding.binary.indices)}, {describe(encoding.binary.bytes)})"
        case "dictionary":
            indices, items = encoding.dictionary.indices, encoding.dictionary.items
            return f"dictionary({describe(indices)}, {describe(items)})"
        case "fsst":
            return f"fsst({describe(encoding.fsst.binary)})"
        case "packed_struct":
            inner = ", ".join(describe(child) for child in encoding.packed_struct.inner)
            return f"packed_struct({inner})"
        case _:
            return kind or "unknown"


def _describe_nullable(nullable: pb.Nullable) -> str:
    match nullable.WhichOneof("nullability"):
        case "no_nulls":
            return describe(nullable.no_nulls.values)
        case "some_nulls":
            return f"nullable({describe(nullable.some_nulls.values)})"
        case _:
            return "all_nulls"
