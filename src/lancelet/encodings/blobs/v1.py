"""Blobs of 2.0 and 2.1: binary values stored in the data file, outside of pages.

    values     b"abc"   b""   null   b"defg"
    position     64      0      0     128        of the bytes, which are aligned
    size          3      0      0       4

Values are written immediately, and only positions and sizes are buffered until a page is full: a
column of a hundred megabyte-sized values is one small page. The encoding of nulls in these numbers
depends on the version.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import value_views
from lancelet.encodings.base import BlobSink
from lancelet.format.field import Field

DESCRIPTOR_TYPE: Final = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
"""Position and size of a blob in the data file; the content of blob pages and scan results."""


def is_blob_v1(field: Field) -> bool:
    """Return whether a field stores binary values outside of pages."""
    return field.is_blob and not field.is_blob_v2 and not field.children


def write_blobs(
    array: pa.Array, sink: BlobSink, *, is_hidden: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Write binary values to the file and return their descriptors; nulls stay null.

    Descriptors are returned unchanged. Values masked by `is_hidden` have a null parent and are not
    written.
    """
    if array.type == DESCRIPTOR_TYPE:
        return array
    size = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    size = size.astype(np.uint64)
    if is_hidden is not None:
        size[is_hidden] = 0
    position = np.zeros(len(array), np.uint64)
    rows = np.flatnonzero(size).tolist()
    for row, value in zip(rows, value_views(array, rows), strict=True):
        position[row] = sink.write_inline(value)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(
        [pa.array(position), pa.array(size)], fields=list(DESCRIPTOR_TYPE), mask=mask
    )
