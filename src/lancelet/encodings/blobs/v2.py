"""Blobs of 2.2 and later: small ones in the data file, larger ones in sidecar files.

    {data: 100 B}      kind 0 inline      position and size in this file
    {data: 1 MB}       kind 1 packed      position and size in a shared sidecar, by its blob id
    {data: 5 MB}       kind 2 dedicated   a separate sidecar, by its blob id
    {uri: "s3://..."}  kind 3 external    position and size in that object, 0 and 0 for all of it
    {uri: "lance-base:4/x.mp4"}           the same, for x.mp4 in the base path with id 4

Writers accept values; the column stores descriptors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import value_views
from lancelet.encodings.base import BlobSink
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.encodings.levels import BLOB_V2_DESCRIPTOR, ShreddedLeaf
from lancelet.errors import InvalidInputError

_Flags: TypeAlias = npt.NDArray[np.bool_]
_Numbers: TypeAlias = npt.NDArray[np.uint64]

BASE_SCHEME: Final = "lance-base:"
"""URI scheme of objects in base paths, for writers only; files store the base id and the path."""

INLINE_BYTES_MAX: Final = 64 * 1024
PACKED_BYTES_MAX: Final = 4 * 1024 * 1024
_DESCRIPTOR_TYPES: Final = {
    "kind": pa.uint8(),
    "position": pa.uint64(),
    "blob_size": pa.uint64(),
    "blob_id": pa.uint32(),
}
"""Types of the descriptor columns besides the path, by field name of input values."""


class BlobRowError(InvalidInputError, OSError):
    """Raised for a row that is not a blob or has an ambiguous data source."""


class BlobKind(IntEnum):
    """Storage location of blob data."""

    INLINE = 0
    PACKED = 1
    DEDICATED = 2
    EXTERNAL = 3


def write_blob_data(leaf: ShreddedLeaf, options: EncodingOptions, sink: BlobSink) -> ShreddedLeaf:
    """Write blob data to its storage location and return the leaf with descriptors.

    Values are structs of `data` and `uri`; each valid row must set exactly one of them. `position`
    and `size` select a byte range of a `uri`. Nulls stay null. Values with a `kind` are already
    descriptors; only those of kind inline are written.
    """
    values = leaf.values
    if values.type.get_field_index("kind") >= 0:
        return _write_inline_blobs(leaf, sink)
    data, uri = values.field("data"), values.field("uri")
    is_valid = leaf.valid_slots()
    has_data = is_valid & data.is_valid().to_numpy(zero_copy_only=False)
    has_uri = is_valid & uri.is_valid().to_numpy(zero_copy_only=False)
    for problem, is_invalid in _invalid_rows(values, is_valid, has_data, has_uri):
        if is_invalid.any():
            row = int(np.flatnonzero(is_invalid)[0])
            raise BlobRowError(problem, field=leaf.field.name, row=row)
    inline_max = _or(options.blob_inline_size_threshold, INLINE_BYTES_MAX)
    packed_max = _or(options.blob_dedicated_size_threshold, PACKED_BYTES_MAX)
    count = len(values)
    kind = np.zeros(count, np.uint8)
    position, size = _external_ranges(values, has_uri)
    blob_id = np.zeros(count, np.uint32)
    kind[has_uri] = BlobKind.EXTERNAL
    rows = np.flatnonzero(has_data).tolist()
    for row, value in zip(rows, value_views(data, rows), strict=True):
        size[row] = len(value)
        if len(value) > packed_max:
            kind[row], blob_id[row] = BlobKind.DEDICATED, sink.write_dedicated(value)
        elif len(value) > inline_max:
            kind[row] = BlobKind.PACKED
            blob_id[row], position[row] = sink.write_packed(value)
        elif len(value):
            position[row] = sink.write_inline(value)
    paths = _paths(uri.cast(pa.string()).fill_null(""), blob_id)
    return _with_descriptors(leaf, (kind, position, size, blob_id), paths)


def _invalid_rows(
    values: pa.Array, is_valid: _Flags, has_data: _Flags, has_uri: _Flags
) -> Iterator[tuple[str, _Flags]]:
    """Yield an error message and the mask of rows it applies to."""
    yield "a blob must set exactly one of `data` and `uri`", is_valid & (has_data == has_uri)
    is_empty = pc.equal(values.field("uri"), "").fill_null(False)
    yield "the `uri` of a blob is empty", has_uri & is_empty.to_numpy(zero_copy_only=False)
    if values.type.get_field_index("position") < 0 or values.type.get_field_index("size") < 0:
        return
    size = values.field("size")
    has_position, has_size = (
        is_valid & values.field(name).is_valid().to_numpy(zero_copy_only=False)
        for name in ("position", "size")
    )
    problem = "a blob must set both `position` and `size`, or neither"
    yield problem, has_position != has_size
    yield "a blob sets `position` and `size`, but its `uri` is null", has_size & ~has_uri
    is_zero = pc.equal(size, 0).fill_null(False).to_numpy(zero_copy_only=False)
    yield "the `size` of a byte range of a `uri` must be greater than zero", has_size & is_zero


def _write_inline_blobs(leaf: ShreddedLeaf, sink: BlobSink) -> ShreddedLeaf:
    """Write the inline data of values that are already descriptors."""
    values, is_valid = leaf.values, leaf.valid_slots()
    kind, position, size, blob_id = (
        values.field(name).cast(dtype).fill_null(0).to_numpy(zero_copy_only=False).copy()
        for name, dtype in _DESCRIPTOR_TYPES.items()
    )
    data, is_inline = values.field("data"), is_valid & (kind == BlobKind.INLINE)
    missing = np.flatnonzero(is_inline & data.is_null().to_numpy(zero_copy_only=False))
    if len(missing):
        raise InvalidInputError(
            "an inline blob needs data", field=leaf.field.name, row=int(missing[0])
        )
    rows = np.flatnonzero(is_inline).tolist()
    for row, value in zip(rows, value_views(data, rows), strict=True):
        size[row] = len(value)
        position[row] = sink.write_inline(value) if len(value) else 0
    paths = values.field("uri").cast(pa.string()).fill_null("")
    return _with_descriptors(leaf, (kind, position, size, blob_id), paths)


def _with_descriptors(
    leaf: ShreddedLeaf, columns: tuple[npt.NDArray[Any], ...], paths: pa.StringArray
) -> ShreddedLeaf:
    is_valid = leaf.valid_slots()
    children = [*(pa.array(column) for column in columns), paths]
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    count = len(leaf.values)
    descriptors = pa.Array.from_buffers(BLOB_V2_DESCRIPTOR, count, [validity], children=children)
    return replace(leaf, values=descriptors)


def _paths(uri: pa.StringArray, blob_id: npt.NDArray[np.uint32]) -> pa.StringArray:
    """Return stored URIs: `lance-base:` URIs become paths, and their ids are set in `blob_id`."""
    in_base = np.asarray(pc.starts_with(uri, BASE_SCHEME))
    if not in_base.any():
        return uri
    parts = pc.extract_regex(uri.filter(pa.array(in_base)), r"lance-base:(?P<id>\d+)/(?P<path>.*)")
    blob_id[in_base] = parts.field("id").cast(pa.uint32()).to_numpy(zero_copy_only=False)
    return pc.replace_with_mask(uri, pa.array(in_base), parts.field("path"))


def _external_ranges(values: pa.Array, has_uri: _Flags) -> tuple[_Numbers, _Numbers]:
    """Return position and size of external blobs, 0 where not given."""
    columns = []
    for name in ("position", "size"):
        column = np.zeros(len(values), np.uint64)
        if values.type.get_field_index(name) >= 0:
            given = values.field(name).cast(pa.uint64()).fill_null(0).to_numpy()
            column[has_uri] = given[has_uri]
        columns.append(column)
    return columns[0], columns[1]


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
