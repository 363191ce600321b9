"""The Arrow types of scan results: the types of the schema, except for blobs.

Blob columns return descriptors with the location of their bytes, which are cheap to read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet.encodings.blobs.v1 import DESCRIPTOR_TYPE
from lancelet.encodings.levels import BLOB_V2_DESCRIPTOR
from lancelet.format.field import BLOB_KEY, Field

_PACKED_KEY: Final = "lance-encoding:packed"


def scan_field(field: Field) -> pa.Field:
    """Return the Arrow field of a scan result; blobs become descriptors."""
    if not any(node.is_blob for node in field.walk()):
        return field.to_arrow()
    arrow = field.to_arrow()
    if field.is_blob_v2:
        metadata = {BLOB_KEY: "true", _PACKED_KEY: "true"}
        return pa.field(field.name, BLOB_V2_DESCRIPTOR, field.nullable, metadata)
    if field.is_blob:
        return arrow.with_type(DESCRIPTOR_TYPE)
    parts = [scan_field(child) for child in field.children]
    return arrow.with_type(with_parts(arrow.type, parts))


@lru_cache(maxsize=4096)
def scan_type(field: Field) -> pa.DataType:
    """Return the Arrow type of a field in a scan result."""
    return scan_field(field).type


def read_as(field: Field) -> Field:
    """Return the field to request from a file to read blobs as descriptors.

    Files before version 2.2 return the bytes of blobs unless a struct is requested.
    """
    if field.is_blob_v2 or not any(node.is_blob for node in field.walk()):
        return field
    if not field.is_blob:
        return field.with_children(read_as(child) for child in field.children)
    descriptor = Field.from_arrow(pa.field(field.name, DESCRIPTOR_TYPE), itertools.repeat(field.id))
    return replace(descriptor, parent_id=field.parent_id, metadata={_PACKED_KEY: "true"})


def with_parts(data_type: pa.DataType, parts: Sequence[pa.Field]) -> pa.DataType:
    """Return a nested type with replaced children."""
    if pa.types.is_struct(data_type):
        return pa.struct(parts)
    if pa.types.is_large_list(data_type):
        return pa.large_list(parts[0])
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(parts[0], data_type.list_size)
    if pa.types.is_map(data_type):
        entries = parts[0].type
        return pa.map_(entries.field(0), entries.field(1))
    return pa.list_(parts[0])
