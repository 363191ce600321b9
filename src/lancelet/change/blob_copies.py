"""Convert blob columns from their read format to their write format while rows are rewritten.

    read      {kind 1, position 9, size 2, blob_id 1}     {kind 3, blob_uri "s3://b/x.mp4"}
    written   {data: b"..", uri: null}                    {data: null, uri: "s3://b/x.mp4"}

Blobs stored in the old file or in sibling files are copied to the new file; external objects stay
at their URI. Batches are split to limit the blob bytes in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.blobs.v2 import BlobKind
from lancelet.encodings.v2_0.writer import NULL_BLOB_POSITION
from lancelet.format import logical_type
from lancelet.format.base_paths import get_base
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.io.uri import join
from lancelet.rowids.address import UInt64s
from lancelet.scan.blob_scan import list_items, with_items
from lancelet.scan.blobs import BlobExtent, read_blobs, resolve_descriptors
from lancelet.table.snapshot import Snapshot

BLOB_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of blobs in memory, unless a single blob is larger."""

_NULLS_OF_2_0: Final = ({"position": NULL_BLOB_POSITION, "size": 0},)
"""The values that represent null in files of version 2.0; blobs begin at aligned positions."""


def has_blobs(schema: Schema) -> bool:
    """Return whether a schema has blob columns."""
    return any(field.is_blob for field in schema.walk())


def with_blob_values(
    snapshot: Snapshot,
    batch: pa.RecordBatch,
    addresses: UInt64s,
    fields: Sequence[Field] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a batch with blobs in their write format.

    The batch has the columns of `fields`, by default all columns of the version.
    """
    fields = snapshot.schema.fields if fields is None else fields
    sizes = np.zeros(batch.num_rows, np.int64)
    for field, array in zip(fields, batch.columns, strict=True):
        sizes += _blob_bytes(field, array)
    group = (np.cumsum(sizes) - sizes) // BLOB_BYTES
    starts = np.flatnonzero(np.append(True, np.diff(group) > 0)[: len(group)])
    for start, stop in zip(starts, np.append(starts[1:], batch.num_rows), strict=True):
        part, part_addresses = batch.slice(start, stop - start), addresses[start:stop]
        columns = [
            blob_values(snapshot, field, array, part_addresses)
            for field, array in zip(fields, part.columns, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _blob_bytes(field: Field, array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the bytes of blobs to copy for each row."""
    total = np.zeros(len(array), np.int64)
    if field.is_blob and pa.types.is_struct(array.type):
        size = pc.fill_null(array.field(array.type.get_field_index("size")), 0)
        total += size.to_numpy(zero_copy_only=False).astype(np.int64)
    elif field.logical_type == logical_type.STRUCT:
        for index, child in enumerate(field.children):
            total += _blob_bytes(child, array.field(index))
    return total


def blob_values(snapshot: Snapshot, field: Field, array: pa.Array, addresses: UInt64s) -> pa.Array:
    """Return a column with its blobs in their write format."""
    if not any(node.is_blob for node in field.walk()):
        return array
    if field.is_blob:
        rows = [None if row in _NULLS_OF_2_0 else row for row in array.to_pylist()]
        extents = resolve_descriptors(snapshot, field, rows, addresses)
        if field.is_blob_v2:
            return _blob_structs(snapshot, field, rows, extents)
        return pa.array(read_blobs(extents), pa.large_binary())
    if field.logical_type != logical_type.STRUCT:
        items, lengths, owners = list_items(array, addresses)
        return with_items(array, blob_values(snapshot, field.children[0], items, owners), lengths)
    children = [
        blob_values(snapshot, child, array.field(index), addresses)
        for index, child in enumerate(field.children)
    ]
    fields = [
        pa.field(child.name, values.type, child.nullable)
        for child, values in zip(field.children, children, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _blob_structs(
    snapshot: Snapshot,
    field: Field,
    rows: Sequence[dict[str, Any] | None],
    extents: Sequence[BlobExtent | None],
) -> pa.Array:
    is_external = [row is not None and row["kind"] == BlobKind.EXTERNAL for row in rows]
    inner = [
        None if external else extent for external, extent in zip(is_external, extents, strict=True)
    ]
    columns = {
        "data": pa.array(read_blobs(inner), pa.large_binary()),
        "uri": pa.array(
            [
                _external_uri(snapshot, row) if external and row is not None else None
                for external, row in zip(is_external, rows, strict=True)
            ],
            pa.string(),
        ),
    }
    for name in (child.name for child in field.children if child.name in {"position", "size"}):
        ranges = [
            row[name] if external and row is not None and row["size"] else None
            for external, row in zip(is_external, rows, strict=True)
        ]
        columns[name] = pa.array(ranges, pa.uint64())
    mask = pa.array([row is None for row in rows], pa.bool_())
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)


def _external_uri(snapshot: Snapshot, row: dict[str, Any]) -> str:
    uri: str = row["blob_uri"]
    if "://" in uri or uri.startswith("/"):
        return uri
    return join(get_base(snapshot.manifest.bases, row["blob_id"]).path, uri)
