"""Global buffer 0: the descriptor with the schema and the number of rows of a file.

The descriptor contains storage types, and the table contains logical types. They differ for blob
columns, which are stored as packed structs of descriptors, with children without ids:

    table   id 4  b: lance.blob.v2    id 5  data, id 6  uri
    file    id 4  b: struct, packed   no id kind, position, size, blob_id, blob_uri
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from lancelet.encodings.levels import BLOB_V2_DESCRIPTOR
from lancelet.format import extension
from lancelet.format.field import BLOB_KEY, NO_ID, Field, encode_text
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema

_CACHED_SCHEMAS: Final = 64

_PACKED_KEY: Final = "lance-encoding:packed"


def descriptor_bytes(schema: Schema, metadata: Mapping[str, str], num_rows: int) -> bytes:
    """Return the serialized descriptor, with the given schema metadata."""
    descriptor = file_pb.FileDescriptor(schema=_message_of(schema), length=num_rows)
    for key, value in metadata.items():
        descriptor.schema.metadata[key] = encode_text(value)
    return descriptor.SerializeToString()


@lru_cache(_CACHED_SCHEMAS)
def _message_of(schema: Schema) -> file_pb.Schema:
    """Return the schema message; cached, so callers must copy it."""
    stored = Schema(tuple(_stored_field(field) for field in schema.fields))
    return file_pb.Schema(fields=stored.to_protos())


def _stored_field(field: Field) -> Field:
    if not field.is_blob_v2:
        return field.with_children(_stored_field(child) for child in field.children)
    extension_keys = (extension.NAME_KEY, extension.METADATA_KEY)
    metadata = {key: value for key, value in field.metadata.items() if key not in extension_keys}
    parts = (Field.from_arrow(part, itertools.repeat(NO_ID)) for part in BLOB_V2_DESCRIPTOR)
    return field.with_metadata({**metadata, _PACKED_KEY: "true", BLOB_KEY: "true"}).with_children(
        parts
    )
