"""Blobs as callers bring them: bytes become the structs that files of 2.2 and later take.

b"abc"                     {data: b"abc", uri: null}
{uri: "s3://cold/x.mp4"}   stays where it is: x.mp4 in the base path s3://cold
                           or its bytes are copied, if the caller asks for that

What lies in no base path is refused, unless the caller says that others may keep what the table
needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.blob_v2 import BASE_SCHEME
from lancelet.errors import InvalidInputError
from lancelet.format import logical_type
from lancelet.format.base_paths import BasePath
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.io.open import open_store
from lancelet.io.store import StorageOptions
from lancelet.query.blobs import BlobExtent, read_blobs
from lancelet.query.data_types import is_bytes
from lancelet.values import dataclass

_SCHEMAS_KEPT: Final = 16
_THRESHOLD: Final = re.compile(r"lance-encoding:blob-.*-size-threshold")


class BlobInputError(InvalidInputError, OSError):
    """Blobs cannot be written in the way that is asked for."""


class ExternalBlobError(BlobInputError):
    """A blob lies where nobody said that it will stay."""


@lru_cache(_SCHEMAS_KEPT)
def blob_columns(schema: Schema) -> tuple[Field, ...]:
    """Return the fields of a schema that are blobs or hold some."""
    return tuple(each for each in schema.fields if any(node.is_blob_v2 for node in each.walk()))


def with_blob_structs(batch: pa.RecordBatch, schema: Schema) -> pa.RecordBatch:
    """Return a batch whose blob columns have the form that the fields are stored in."""
    for each in blob_columns(schema):
        place = batch.schema.get_field_index(each.name)
        array = _as_stored(batch.column(place), each)
        own = pa.field(each.name, array.type, each.nullable)
        batch = batch.set_column(place, own, array)
    return batch


@dataclass(frozen=True, slots=True)
class BlobPolicy:
    """What becomes of blobs that are given by URI.

    Attributes:
        bases: The base paths of the table.
        allows_outside: Whether they may lie outside of these.
        ingests: Whether their bytes are copied into the table.
        storage_options: The options of the stores that are read then.
    """

    bases: tuple[BasePath, ...] = ()
    allows_outside: bool = True
    ingests: bool = False
    storage_options: StorageOptions = field(default_factory=dict, repr=False)


def resolved_blobs(
    batches: Iterator[pa.RecordBatch], schema: Schema, policy: BlobPolicy
) -> Iterator[pa.RecordBatch]:
    """Return batches whose blobs that are given by URI were treated as a policy says."""
    blobs = blob_columns(schema)
    return _with_resolved(batches, blobs, policy) if blobs else batches


def _with_resolved(
    batches: Iterable[pa.RecordBatch], blobs: Sequence[Field], policy: BlobPolicy
) -> Iterator[pa.RecordBatch]:
    for given in batches:
        batch = given
        for each in blobs:
            place = batch.schema.get_field_index(each.name)
            if place < 0:
                continue  # refused by name where batches are written
            array = _resolved(batch.column(place), each, policy)
            if array is not batch.column(place):
                own = batch.schema.field(place).with_type(array.type)
                batch = batch.set_column(place, own, array)
        yield batch


def _resolved(array: pa.Array, field: Field, policy: BlobPolicy) -> pa.Array:
    if not any(node.is_blob_v2 for node in field.walk()):
        return array
    plain = array.storage if isinstance(array, pa.ExtensionArray) else array
    if field.is_blob_v2:
        is_struct = pa.types.is_struct(plain.type) and plain.type.get_field_index("uri") >= 0
        if not is_struct or _uris(plain).null_count == len(plain):
            return array
        return _ingested(plain, policy) if policy.ingests else _located(plain, field, policy)
    mask = plain.is_null() if plain.null_count else None
    if pa.types.is_struct(plain.type):
        given = [plain.field(place) for place in range(plain.type.num_fields)]
        parts = [
            _resolved(own, child, policy) for own, child in zip(given, field.children, strict=True)
        ]
        if all(own is before for own, before in zip(parts, given, strict=True)):
            return array
        kinds = [part.with_type(own.type) for part, own in zip(plain.type, parts, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=kinds, mask=mask)
    if not (pa.types.is_list(plain.type) or pa.types.is_large_list(plain.type)):
        return array
    items = _resolved(plain.values, field.children[0], policy)
    return type(plain).from_arrays(plain.offsets, items, mask=mask)


def _uris(blobs: pa.StructArray) -> pa.Array:
    """Return the URIs, null where the blob is."""
    return pc.struct_field(blobs, "uri")


def _located(blobs: pa.StructArray, field: Field, policy: BlobPolicy) -> pa.StructArray:
    """Return blobs by URI as objects in base paths, where they are in one that is no table."""
    known: dict[str, str] = {}
    uris = _uris(blobs)
    for uri in pc.unique(uris).drop_null().to_pylist():
        known[uri] = _located_uri(uri, policy.bases)
        if known[uri] == uri and not policy.allows_outside:
            raise ExternalBlobError(
                "External blob URI is outside registered external bases. Register its "
                "base path, or set allow_external_blob_outside_bases",
                uri=uri,
                column=field.name,
            )
    if all(uri == found for uri, found in known.items()):
        return blobs
    located = [None if uri is None else known[uri] for uri in uris.to_pylist()]
    return _with_columns(blobs, uri=pa.array(located, pa.string()))


def _located_uri(uri: str, bases: Iterable[BasePath]) -> str:
    for base in bases:
        folder = base.path.rstrip("/") + "/"
        for name in (uri, uri.removeprefix("file://")):
            for start in (folder, folder.removeprefix("file://")):
                if not base.is_dataset_root and name.startswith(start):
                    return f"{BASE_SCHEME}{base.id}/{name.removeprefix(start)}"
    return uri


def _ingested(blobs: pa.StructArray, policy: BlobPolicy) -> pa.StructArray:
    """Return blobs with the bytes of those that are given by URI."""
    rows = blobs.to_pylist()
    away = [None if row is None or row["uri"] is None else _place_of(row, policy) for row in rows]
    data = [
        found if place is not None else None if row is None else row["data"]
        for row, place, found in zip(rows, away, read_blobs(away), strict=True)
    ]
    nothing = {
        part.name: pa.nulls(len(blobs), part.type) for part in blobs.type if part.name != "data"
    }
    return _with_columns(blobs, data=pa.array(data, pa.large_binary()), **nothing)


def _place_of(row: Mapping[str, Any], policy: BlobPolicy) -> BlobExtent:
    store, path = open_store(row["uri"], policy.storage_options)
    return BlobExtent(store, path, row.get("position") or 0, row.get("size"))


def _with_columns(blobs: pa.StructArray, **columns: pa.Array) -> pa.StructArray:
    parts = [columns.get(part.name, blobs.field(part.name)) for part in blobs.type]
    mask = blobs.is_null() if blobs.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(blobs.type), mask=mask)


def check_thresholds(table: Schema, rows: pa.Schema) -> None:
    """Raise if rows ask for other sizes of blobs than the table has; files are written alike."""
    if rows.equals(table.to_arrow(), check_metadata=True):
        return
    known = {field.name: field for field in table.fields}
    for own in rows:
        field = known.get(own.name)
        for key, value in (own.metadata or {}).items():
            name = key.decode()
            if field is None or not _THRESHOLD.fullmatch(name):
                continue
            stored = field.metadata.get(name)
            if stored != value.decode():
                raise BlobInputError(
                    "Cannot append data with blob threshold metadata other than that of the table",
                    column=own.name,
                    key=name,
                    found=value.decode(),
                    stored=stored,
                )


def _as_stored(array: pa.Array, field: Field) -> pa.Array:
    if field.is_blob_v2:
        return _blob_struct(array, field)
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


def _blob_struct(array: pa.Array, field: Field) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if not is_bytes(array.type):
        return array
    mask = array.is_null() if array.null_count else None
    columns = {child.name: pa.nulls(len(array), child.arrow_type) for child in field.children}
    columns |= {"data": array.cast(pa.large_binary())}
    columns.setdefault("uri", pa.nulls(len(array), pa.string()))
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)
