"""The three functions by which the file layer knows versions 2.1 and 2.2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lancelet.encodings.base import BlobSink, EncodedPage, FileVersion, Memo, StoredColumn
from lancelet.encodings.blob_v2 import with_placed_blobs
from lancelet.encodings.encode_leaf import check_writable, choice_of, encode_leaf
from lancelet.encodings.levels import nest, paths, rows_multiple, shred
from lancelet.encodings.options import EncodingOptions
from lancelet.encodings.structural import StructuralReader
from lancelet.encodings.v2_1.blob import build_blob
from lancelet.encodings.v2_1.messages import message_of, sealed
from lancelet.encodings.v2_1.open_page import open_page
from lancelet.errors import InternalError
from lancelet.format.field import Field


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the fields within `field` that own a column each, in order: its leaves."""
    return tuple(path[-1].field for path in paths(nest(field, version)))


def encode_field(
    array: pa.Array, field: Field, version: FileVersion, *, blobs: BlobSink | None
) -> Sequence[EncodedPage]:
    """Encode values as pages of each of the columns of the field."""
    return tuple(_pages(array, field, version, blobs)) if len(array) else ()


def open_field(
    field: Field,
    columns: Sequence[StoredColumn],
    version: FileVersion,
    memo: Memo | None = None,
) -> StructuralReader:
    """Prepare to read a (projected) field from its columns, in the order of `columns_of`."""
    return StructuralReader(nest(field, version), columns, open_page, memo=memo)


def _pages(
    array: pa.Array, field: Field, version: FileVersion, blobs: BlobSink | None
) -> Iterator[EncodedPage]:
    node = nest(field, version)
    for path in paths(node):
        check_writable(path)
    for column, (path, shredded) in enumerate(zip(paths(node), shred(node, array), strict=True)):
        leaf = shredded
        if _is_blob_v1(leaf.field):
            message, buffers = build_blob(leaf, _sink(blobs, leaf.field), version=version)
            yield EncodedPage(column, 0, leaf.num_entries, buffers, sealed(message))
            continue
        options = EncodingOptions.from_metadata(leaf.field.name, leaf.field.metadata)
        if leaf.field.is_blob_v2:
            leaf = with_placed_blobs(leaf, options, _sink(blobs, leaf.field))
        multiple = rows_multiple(path)
        for page in encode_leaf(leaf, version, options, multiple=multiple):
            yield EncodedPage(
                column=column,
                first_row=page.first_row // multiple,
                length=page.num_rows,
                buffers=page.body.buffers,
                encoding=sealed(message_of(page.body.layout)),
                report=(choice_of(path, leaf, page.body),),
            )


def _is_blob_v1(field: Field) -> bool:
    return field.is_blob and not field.is_blob_v2 and not field.children


def _sink(blobs: BlobSink | None, field: Field) -> BlobSink:
    if blobs is None:
        raise InternalError("blobs are written without a place for them", field=field.name)
    return blobs
