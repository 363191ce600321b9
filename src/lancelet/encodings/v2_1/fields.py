"""Interface of versions 2.1 and 2.2 for the file layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet.buffers import ByteSlices
from lancelet.encodings.base import (
    BlobSink,
    ColumnChoice,
    EncodedPages,
    FileVersion,
    HeaderCache,
    StoredColumn,
)
from lancelet.encodings.choice.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.encodings.levels import Path, nest
from lancelet.encodings.pages.encode_field import (
    ColumnLeaf,
    column_leaves,
    columns_of,
    encode_column,
    name_of,
    sink_of,
)
from lancelet.encodings.pages.layout import Layout, PageBody
from lancelet.encodings.pages.structural import StructuralReader
from lancelet.encodings.v2_1.blob import build_blob
from lancelet.encodings.v2_1.messages import message_of, pack_layout
from lancelet.encodings.v2_1.open_page import (
    open_pages,
    page_key,
)
from lancelet.format.field import Field

__all__ = ["columns_of", "encode_field", "open_field", "pack_page"]

_LAYOUTS_CACHED: Final = 1024


def encode_field(
    array: pa.Array,
    field: Field,
    version: FileVersion,
    *,
    blobs: BlobSink | None,
    defaults: EncodingOptions = PLAIN_OPTIONS,
) -> Sequence[EncodedPages]:
    """Encode the values of a field as pages of its columns."""
    pages: list[EncodedPages] = []
    for column_leaf in column_leaves(array, field, version):
        if column_leaf.is_blob_v1:
            pages.append(_encode_blobs(column_leaf, version, blobs))
        else:
            pages += encode_column(column_leaf, version, pack_page, defaults, blobs=blobs)
    return pages


def _encode_blobs(column: ColumnLeaf, version: FileVersion, blobs: BlobSink | None) -> EncodedPages:
    leaf = column.leaf
    message, body, num_bytes = build_blob(leaf, sink_of(blobs, leaf.field), version=version)
    stored = num_bytes + sum(int(buffer.size[0]) for buffer in body.buffers)
    choice = ColumnChoice(name_of(column.path), "blob", body.encodings[0], num_bytes, stored)
    return EncodedPages(
        [0], column.column, 0, leaf.num_rows, body.buffers, pack_layout(message), lambda: (choice,)
    )


def open_field(
    field: Field,
    columns: Sequence[StoredColumn],
    version: FileVersion,
    header_cache: HeaderCache | None = None,
) -> StructuralReader:
    """Open a (projected) field with its columns in the order of `columns_of`."""
    return StructuralReader(
        nest(field, version), columns, open_pages, header_cache=header_cache, page_key=page_key
    )


def pack_page(path: Path, page: PageBody) -> tuple[bytes, tuple[ByteSlices, ...]]:
    """Return the enveloped message of pages, and their buffers."""
    del path
    return _message(page.body.layout), page.body.buffers


@lru_cache(_LAYOUTS_CACHED)
def _message(layout: Layout) -> bytes:
    """Return the enveloped message of a layout; cached, as pages share layouts."""
    return pack_layout(message_of(layout))
