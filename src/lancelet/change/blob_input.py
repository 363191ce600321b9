"""Blob columns in input rows, converted to the structs of file version 2.2 and later.

    b"abc"                     {data: b"abc", uri: null}
    {uri: "s3://cold/x.mp4"}   stays at its URI: x.mp4 in the base path s3://cold
                               or is copied into the table, if the caller requests that

URIs outside of all base paths are rejected unless the caller allows them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.blobs.v2 import BASE_SCHEME
from lancelet.errors import InvalidInputError
from lancelet.expr.data_types import is_bytes
from lancelet.format import logical_type
from lancelet.format.base_paths import BasePath
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.io.open import open_store
from lancelet.io.store import StorageOptions
from lancelet.scan.blobs import BlobExtent, read_blobs
from lancelet.values import dataclass

_SCHEMA_CACHE_SIZE: Final = 16
_THRESHOLD: Final = re.compile(r"lance-encoding:blob-.*-size-threshold")


class BlobInputError(InvalidInputError, OSError):
    """Blobs cannot be written as requested."""


class ExternalBlobError(BlobInputError):
    """A blob URI lies outside of the registered base paths."""


@lru_cache(_SCHEMA_CACHE_SIZE)
def blob_columns(schema: Schema) -> tuple[Field, ...]:
    """Return the top-level fields that are blobs or contain blobs."""
    return tuple(field for field in schema.fields if any(node.is_blob_v2 for node in field.walk()))


def with_blob_structs(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return a batch whose blob columns have the storage type of their fields."""
    for column in blob_columns(schema):
        column_index = batch.schema.get_field_index(column.name)
        array = _to_storage(batch.column(column_index), column)
        stored = pa.field(column.name, array.type, column.nullable)
        batch = batch.set_column(column_index, stored, array)
    return batch


@dataclass(frozen=True, slots=True)
class BlobPolicy:
    """The treatment of blobs given by URI.

    Attributes:
        bases: The base paths of the table.
        allows_outside: Whether URIs outside of the base paths are allowed.
        ingests: Whether the bytes are copied into the table.
        storage_options: The storage options for reading the URIs.
    """

    bases: tuple[BasePath, ...] = ()
    allows_outside: bool = True
    ingests: bool = False
    storage_options: StorageOptions = field(default_factory=dict, repr=False)


def resolve_blobs(
    batches: Iterator[pa.RecordBatch], schema: Schema, policy: BlobPolicy
) -> Iterator[pa.RecordBatch]:
    """Return batches whose blob URIs are resolved according to a policy."""
    blobs = blob_columns(schema)
    return _resolve_batches(batches, blobs, policy) if blobs else batches


def _resolve_batches(
    batches: Iterable[pa.RecordBatch], blobs: Sequence[Field], policy: BlobPolicy
) -> Iterator[pa.RecordBatch]:
    for source in batches:
        batch = source
        for column in blobs:
            column_index = batch.schema.get_field_index(column.name)
            if column_index < 0:
                continue  # Batches with missing columns are rejected when they are written.
            array = _resolve(batch.column(column_index), column, policy)
            if array is not batch.column(column_index):
                resolved = batch.schema.field(column_index).with_type(array.type)
                batch = batch.set_column(column_index, resolved, array)
        yield batch


def _resolve(array: pa.Array, field: Field, policy: BlobPolicy) -> pa.Array:
    if not any(node.is_blob_v2 for node in field.walk()):
        return array
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if field.is_blob_v2:
        is_struct = pa.types.is_struct(plain.type) and plain.type.get_field_index("uri") >= 0
        if not is_struct or _uris(plain).null_count == len(plain):
            return array
        return _ingest(plain, policy) if policy.ingests else _with_base_uris(plain, field, policy)
    mask = plain.is_null() if plain.null_count else None
    if pa.types.is_struct(plain.type):
        children = [plain.field(position) for position in range(plain.type.num_fields)]
        parts = [
            _resolve(resolved, child, policy)
            for resolved, child in zip(children, field.children, strict=True)
        ]
        if all(resolved is before for resolved, before in zip(parts, children, strict=True)):
            return array
        kinds = [
            part.with_type(resolved.type) for part, resolved in zip(plain.type, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=kinds, mask=mask)
    if not (pa.types.is_list(plain.type) or pa.types.is_large_list(plain.type)):
        return array
    items = _resolve(plain.values, field.children[0], policy)
    return type(plain).from_arrays(plain.offsets, items, mask=mask)


def _uris(blobs: pa.StructArray) -> pa.Array:
    return pc.struct_field(blobs, "uri")


def _with_base_uris(blobs: pa.StructArray, field: Field, policy: BlobPolicy) -> pa.StructArray:
    """Replace blob URIs inside of base paths by base ids and relative paths."""
    base_uris: dict[str, str] = {}
    uris = _uris(blobs)
    for uri in pc.unique(uris).drop_null().to_pylist():
        base_uris[uri] = _to_base_uri(uri, policy.bases)
        if base_uris[uri] == uri and not policy.allows_outside:
            raise ExternalBlobError(
                "External blob URI is outside registered external bases. Register its "
                "base path, or set allow_external_blob_outside_bases",
                uri=uri,
                column=field.name,
            )
    if all(uri == base_uri for uri, base_uri in base_uris.items()):
        return blobs
    resolved = [None if uri is None else base_uris[uri] for uri in uris.to_pylist()]
    return _with_columns(blobs, uri=pa.array(resolved, pa.string()))


def _to_base_uri(uri: str, bases: Iterable[BasePath]) -> str:
    for base in bases:
        folder = base.path.rstrip("/") + "/"
        for name in (uri, uri.removeprefix("file://")):
            for start in (folder, folder.removeprefix("file://")):
                if not base.is_dataset_root and name.startswith(start):
                    return f"{BASE_SCHEME}{base.id}/{name.removeprefix(start)}"
    return uri


def _ingest(blobs: pa.StructArray, policy: BlobPolicy) -> pa.StructArray:
    """Replace blob URIs by the bytes that they refer to."""
    rows = blobs.to_pylist()
    extents = [
        None if row is None or row["uri"] is None else _blob_extent(row, policy) for row in rows
    ]
    data = [
        blob if extent is not None else None if row is None else row["data"]
        for row, extent, blob in zip(rows, extents, read_blobs(extents), strict=True)
    ]
    nulls = {
        part.name: pa.nulls(len(blobs), part.type) for part in blobs.type if part.name != "data"
    }
    return _with_columns(blobs, data=pa.array(data, pa.large_binary()), **nulls)


def _blob_extent(row: Mapping[str, Any], policy: BlobPolicy) -> BlobExtent:
    store, path = open_store(row["uri"], policy.storage_options)
    return BlobExtent(store, path, row.get("position") or 0, row.get("size"))


def _with_columns(blobs: pa.StructArray, **columns: pa.Array) -> pa.StructArray:
    parts = [columns.get(part.name, blobs.field(part.name)) for part in blobs.type]
    mask = blobs.is_null() if blobs.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(blobs.type), mask=mask)


def check_thresholds(table: Schema, rows: pa.Schema) -> None:
    """Raise if blob size thresholds differ from those of the table, which all files share."""
    if rows.equals(table.to_arrow(), check_metadata=True):
        return
    table_fields = {field.name: field for field in table.fields}
    for row_field in rows:
        field = table_fields.get(row_field.name)
        for key, value in (row_field.metadata or {}).items():
            name = key.decode()
            if field is None or not _THRESHOLD.fullmatch(name):
                continue
            stored = field.metadata.get(name)
            if stored != value.decode():
                raise BlobInputError(
                    "Cannot append data with blob threshold metadata other than that of the table",
                    column=row_field.name,
                    key=name,
                    found=value.decode(),
                    stored=stored,
                )


def _to_storage(array: pa.Array, field: Field) -> pa.Array:
    if field.is_blob_v2:
        return _blob_struct(array, field)
    if field.logical_type != logical_type.STRUCT:
        return array
    children = [
        _to_storage(array.field(array.type.get_field_index(child.name)), child)
        for child in field.children
    ]
    fields = [
        pa.field(child.name, child_array.type, child.nullable)
        for child, child_array in zip(field.children, children, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _blob_struct(array: pa.Array, field: Field) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not is_bytes(array.type):
        return array
    mask = array.is_null() if array.null_count else None
    children = {child.name: pa.nulls(len(array), child.arrow_type) for child in field.children}
    children |= {"data": array.cast(pa.large_binary())}
    children.setdefault("uri", pa.nulls(len(array), pa.string()))
    return pa.StructArray.from_arrays(list(children.values()), list(children), mask=mask)
