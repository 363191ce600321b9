"""Interface of version 2.3 for the file layer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lancelet.encodings.base import BlobSink, EncodedPages, FileVersion, HeaderCache, StoredColumn
from lancelet.encodings.choice.options import PLAIN_OPTIONS, EncodingOptions
from lancelet.encodings.levels import nest
from lancelet.encodings.pages.encode_field import (
    column_leaves,
    columns_of,
    encode_column,
)
from lancelet.encodings.pages.structural import StructuralReader
from lancelet.encodings.v2_3.messages import pack_page
from lancelet.encodings.v2_3.open_page import open_page
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field

__all__ = ["columns_of", "encode_field", "open_field", "pack_page"]


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
            raise UnsupportedError(
                "version 2.3 requires the blob format of 2.2; use a blob struct field",
                field=column_leaf.leaf.field.name,
            )
        pages += encode_column(column_leaf, version, pack_page, defaults, blobs=blobs)
    return pages


def open_field(
    field: Field,
    columns: Sequence[StoredColumn],
    version: FileVersion,
    header_cache: HeaderCache | None = None,
) -> StructuralReader:
    """Open a (projected) field with its columns in the order of `columns_of`."""
    return StructuralReader(nest(field, version), columns, open_page, header_cache=header_cache)
