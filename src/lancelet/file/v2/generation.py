"""Selection of encodings by file version.

    2.0          every field owns a column, parents included
    2.1, 2.2     a column per leaf; structure is encoded as repetition and definition levels
    2.3          a column per leaf; structure and values are encoded as separate planes

Columns are numbered in the order of the fields that own them:

    schema   a: int32, s: struct<x: string>
    2.0      a -> 0, s -> 1, x -> 2
    2.1      a -> 0,         x -> 1
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, Protocol

import pyarrow as pa

from lancelet import encodings
from lancelet.encodings.base import (
    BlobSink,
    EncodedPages,
    FieldReader,
    FileVersion,
    HeaderCache,
    StoredColumn,
)
from lancelet.encodings.choice.options import EncodingOptions
from lancelet.errors import InternalError
from lancelet.file.v2.column_metadata import PLAIN_COLUMN_ENCODING
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema

_CACHED_FIELDS: Final = 4096
_CACHED_SCHEMAS: Final = 64


class Generation(Protocol):
    """The encodings of a file version; see `encodings.base`."""

    def columns_of(self, field: Field, version: FileVersion, /) -> tuple[Field, ...]:
        """Return the descendants of a field (or the field) that own columns, in order."""

    def encode_field(
        self,
        array: pa.Array,
        field: Field,
        version: FileVersion,
        /,
        *,
        blobs: BlobSink | None,
        defaults: EncodingOptions,
    ) -> Sequence[EncodedPages]:
        """Encode values as pages of the columns of a field."""

    def open_field(
        self,
        field: Field,
        columns: Sequence[StoredColumn],
        version: FileVersion,
        /,
        header_cache: HeaderCache | None,
    ) -> FieldReader:
        """Return a reader of a field, given its columns in the order of `columns_of`."""


def generation_of(version: FileVersion) -> Generation:
    """Return the encodings of a 2.x version."""
    match version:
        case FileVersion.V2_0:
            return encodings.v2_0
        case FileVersion.V2_1 | FileVersion.V2_2:
            return encodings.v2_1
        case FileVersion.V2_3:
            return encodings.v2_3
        case FileVersion.V0_1:
            raise InternalError("files of version 0.1 have no columns", version=version.value)


def is_plain(field: Field, version: FileVersion) -> bool:
    """Return whether a field can be encoded together with others."""
    return version > FileVersion.V2_0 and encodings.pages.encode_field.is_plain(field)


def encode_fields(
    arrays: Sequence[pa.Array],
    fields: Sequence[Field],
    version: FileVersion,
    *,
    defaults: EncodingOptions,
    blobs: BlobSink | None,
) -> Sequence[EncodedPages]:
    """Encode the values of one field, or of several plain fields of equal length.

    `defaults` are the options of fields without encoding metadata.
    """
    if not is_plain(fields[0], version):
        (array,), (field,) = arrays, fields
        return generation_of(version).encode_field(
            array, field, version, blobs=blobs, defaults=defaults
        )
    is_2_3 = version is FileVersion.V2_3
    pack = encodings.v2_3.pack_page if is_2_3 else encodings.v2_1.pack_page
    encode_plain = encodings.pages.encode_field.encode_plain
    return [*encode_plain(arrays, fields, version, defaults, pack)]


def check_storable(schema: Schema, version: FileVersion) -> None:
    """Raise if a file version does not support the types or encoding options of the fields."""
    _check_fields(schema, version)


# Cached because many files are written with the same schema.


@lru_cache(_CACHED_SCHEMAS)
def _check_fields(schema: Schema, version: FileVersion) -> None:
    for field in schema.fields:
        is_simple = logical_type.simple_type_of(field.logical_type) is not None
        if field.children or field.metadata or not is_simple:
            _check_type(field, version)
        for node in field.walk():
            if node.metadata:
                EncodingOptions.from_metadata(node.name, node.metadata)


@lru_cache(_CACHED_FIELDS)
def _check_type(field: Field, version: FileVersion) -> None:
    if version is FileVersion.V2_0:
        encodings.v2_0.check_storable(field)
    else:
        encodings.pages.encode_field.check_storable(field, version)


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the descendants of a field (or the field) that own columns, in order."""
    if not field.children and logical_type.simple_type_of(field.logical_type) is not None:
        return (field,)
    return _columns_of(field, version)


@lru_cache(_CACHED_FIELDS)
def _columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    return generation_of(version).columns_of(field, version)


def assign_columns(fields: Iterable[Field], version: FileVersion) -> Mapping[int, int]:
    """Return column indices by field id, for fields that own a column."""
    owners = (owner for field in fields for owner in columns_of(field, version))
    return {owner.id: index for index, owner in enumerate(owners)}


def column_encodings(field: Field, version: FileVersion) -> tuple[bytes, ...]:
    """Return the column encoding of each column of a field."""
    if version is FileVersion.V2_0:
        return encodings.v2_0.column_encodings(field, version)
    return (PLAIN_COLUMN_ENCODING,) * len(columns_of(field, version))
