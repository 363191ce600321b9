"""Blobs as callers bring them: bytes become the structs that files of 2.2 and later take.

b"abc"    {data: b"abc", uri: null}
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.query.kinds import is_bytes


def with_blob_structs(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return a batch whose blob columns have the form that the fields are stored in."""
    changed = [field for field in fields if any(node.is_blob_v2 for node in field.walk())]
    for field in changed:
        place = batch.schema.get_field_index(field.name)
        array = _as_stored(batch.column(place), field)
        own = pa.field(field.name, array.type, field.nullable)
        batch = batch.set_column(place, own, array)
    return batch


def _as_stored(array: pa.Array, field: Field) -> pa.Array:
    if field.is_blob_v2:
        return _blob_struct(array)
    if field.logical_type != logical_type.STRUCT:
        return array
    children = [
        _as_stored(array.field(array.type.get_field_index(child.name)), child)
        for child in field.children
    ]
    fields = [
        pa.field(child.name, own.type, child.nullable)
        for child, own in zip(field.children, children, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _blob_struct(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not is_bytes(array.type):
        return array
    data = array.cast(pa.large_binary())
    mask = array.is_null() if array.null_count else None
    uri = pa.nulls(len(array), pa.string())
    return pa.StructArray.from_arrays([data, uri], ["data", "uri"], mask=mask)
