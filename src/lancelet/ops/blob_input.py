"""Blobs as callers bring them: bytes become the structs that files of 2.2 and later take.

b"abc"                     {data: b"abc", uri: null}
{uri: "s3://cold/x.mp4"}   stays where it is; s3://cold has to be a base of the table, unless
the caller says that others may keep what the table needs
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.format import logical_type
from lancelet.format.base_paths import BasePath
from lancelet.format.field import Field
from lancelet.query.kinds import is_bytes


class ExternalBlobError(InvalidInputError, OSError):
    """A blob lies where nobody said that it will stay."""


def with_blob_structs(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    """Return a batch whose blob columns have the form that the fields are stored in."""
    changed = [field for field in fields if any(node.is_blob_v2 for node in field.walk())]
    for field in changed:
        place = batch.schema.get_field_index(field.name)
        array = _as_stored(batch.column(place), field)
        own = pa.field(field.name, array.type, field.nullable)
        batch = batch.set_column(place, own, array)
    return batch


def checked_uris(
    batches: Iterable[pa.RecordBatch], fields: Sequence[Field], bases: Iterable[BasePath]
) -> Iterator[pa.RecordBatch]:
    """Yield batches, whose blobs that are given by URI lie in base paths that are no tables."""
    folders = [base.path.rstrip("/") + "/" for base in bases if not base.is_dataset_root]
    blobs = [field for field in fields if any(node.is_blob_v2 for node in field.walk())]
    for batch in batches:
        for field in blobs:
            for uri in _uris(batch.column(field.name), field):
                names = uri, uri.removeprefix("file://")
                if not any(name.startswith(folder) for folder in folders for name in names):
                    raise ExternalBlobError(
                        "External blob URI is outside registered external bases. Register its "
                        "base path, or set allow_external_blob_outside_bases",
                        uri=uri,
                        column=field.name,
                    )
        yield batch


def _uris(array: pa.Array, field: Field) -> Iterator[str]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not pa.types.is_struct(array.type):
        return
    if field.is_blob_v2:
        if array.type.get_field_index("uri") >= 0:
            yield from pc.unique(pc.struct_field(array, "uri")).drop_null().to_pylist()
        return
    for child in field.children:
        number = array.type.get_field_index(child.name)
        if number >= 0:
            yield from _uris(array.field(number), child)


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
