"""Blobs of 2.0 and 2.1: binary values that lie in the data file, outside of pages.

    values     b"abc"   b""   null   b"defg"
    position     64      0      0     128        of the bytes, which are aligned
    size          3      0      0       4

Values are written as they come, so that only these numbers wait for a page to fill: a column of
a hundred megabyte-sized values is one small page. Each version has its own way to mark nulls in
the numbers that it stores.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.base import BlobSink
from lancelet.format.field import Field

DESCRIPTOR_TYPE: Final = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
"""Where the bytes of a value are: what a page of blobs holds, and what a scan shows of them."""


def is_blob_v1(field: Field) -> bool:
    """Say whether the values of a field are binary that lies outside of pages."""
    return field.is_blob and not field.is_blob_v2 and not field.children


def place_blobs(
    array: pa.Array, sink: BlobSink, *, unseen: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Write binary values to the file and return where they are; nulls stay null.

    Values that were placed before are returned as they are. `unseen` ones, which lie under a
    null, are not written.
    """
    if array.type == DESCRIPTOR_TYPE:
        return array
    size = pc.fill_null(pc.binary_length(array), 0).to_numpy(zero_copy_only=False)
    size = size.astype(np.uint64)
    if unseen is not None:
        size[unseen] = 0
    position = np.zeros(len(array), np.uint64)
    for row in np.flatnonzero(size).tolist():
        position[row] = sink.write_inline(np.frombuffer(array[row].as_buffer(), np.uint8))
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(
        [pa.array(position), pa.array(size)], fields=list(DESCRIPTOR_TYPE), mask=mask
    )
