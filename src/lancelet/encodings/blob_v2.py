"""Blobs of 2.2 and later: small ones in the data file, larger ones in files beside it.

    {data: 100 B}      kind 0 inline      position and size in this file
    {data: 1 MB}       kind 1 packed      position and size in a shared sidecar, by its blob id
    {data: 5 MB}       kind 2 dedicated   a sidecar of its own, by its blob id
    {uri: "s3://..."}  kind 3 external    position and size in that object, 0 and 0 for all of it

The writer is given the values, the column holds the descriptors.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancelet.encodings.base import BlobSink
from lancelet.encodings.levels import BLOB_V2_DESCRIPTOR, ShreddedLeaf
from lancelet.encodings.options import EncodingOptions
from lancelet.errors import InvalidInputError

_Flags: TypeAlias = npt.NDArray[np.bool_]
_Numbers: TypeAlias = npt.NDArray[np.uint64]

INLINE_BYTES_MAX: Final = 64 * 1024
PACKED_BYTES_MAX: Final = 4 * 1024 * 1024


class BlobKind(IntEnum):
    """Where the bytes of a blob are."""

    INLINE = 0
    PACKED = 1
    DEDICATED = 2
    EXTERNAL = 3


def with_placed_blobs(leaf: ShreddedLeaf, options: EncodingOptions, sink: BlobSink) -> ShreddedLeaf:
    """Write the bytes of blobs where they belong and return the leaf of their descriptors.

    The values are structs of `data` and `uri`, of which each valid row has just one; `position`
    and `size` may say which part of a `uri` is meant. What is null stays null.
    """
    values = leaf.values
    data, uri = values.field("data"), values.field("uri")
    is_valid = leaf.valid_slots()
    has_data = is_valid & data.is_valid().to_numpy(zero_copy_only=False)
    has_uri = is_valid & uri.is_valid().to_numpy(zero_copy_only=False)
    unclear = np.flatnonzero(is_valid & (has_data == has_uri))
    if len(unclear):
        raise InvalidInputError(
            "a blob needs either data or a uri", field=leaf.field.name, row=int(unclear[0])
        )
    inline_max = _or(options.blob_inline_size_threshold, INLINE_BYTES_MAX)
    packed_max = _or(options.blob_dedicated_size_threshold, PACKED_BYTES_MAX)
    count = len(values)
    kind = np.zeros(count, np.uint8)
    position, size = _external_ranges(values, has_uri)
    blob_id = np.zeros(count, np.uint32)
    kind[has_uri] = BlobKind.EXTERNAL
    for row in np.flatnonzero(has_data).tolist():
        value = np.frombuffer(data[row].as_buffer(), np.uint8)
        size[row] = len(value)
        if len(value) > packed_max:
            kind[row], blob_id[row] = BlobKind.DEDICATED, sink.write_dedicated(value)
        elif len(value) > inline_max:
            kind[row] = BlobKind.PACKED
            blob_id[row], position[row] = sink.write_packed(value)
        elif len(value):
            position[row] = sink.write_inline(value)
    children = [
        pa.array(kind),
        pa.array(position),
        pa.array(size),
        pa.array(blob_id),
        uri.cast(pa.string()).fill_null(""),
    ]
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    described = pa.Array.from_buffers(BLOB_V2_DESCRIPTOR, count, [validity], children=children)
    return replace(leaf, values=described)


def _external_ranges(values: pa.Array, has_uri: _Flags) -> tuple[_Numbers, _Numbers]:
    """Return position and size, filled in for the rows that have a uri and say so."""
    columns = []
    for name in ("position", "size"):
        column = np.zeros(len(values), np.uint64)
        if values.type.get_field_index(name) >= 0:
            given = values.field(name).cast(pa.uint64()).fill_null(0).to_numpy()
            column[has_uri] = given[has_uri]
        columns.append(column)
    return columns[0], columns[1]


def _or(wish: int | None, default: int) -> int:
    return default if wish is None else wish
