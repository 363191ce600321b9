"""Global buffer 0: what a file says of its own schema, and how many rows it has.

A file describes what is stored, a table what is meant. They differ in blob columns, of which the
file has a packed struct of places, whose parts have no ids:

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

_SCHEMAS_KEPT: Final = 64

_PACKED_KEY: Final = "lance-encoding:packed"


def descriptor_bytes(schema: Schema, metadata: Mapping[str, str], num_rows: int) -> bytes:
    """Return the descriptor of a file as it is stored, with these metadata of its schema."""
    descriptor = file_pb.FileDescriptor(schema=_message_of(schema), length=num_rows)
    for key, value in metadata.items():
        descriptor.schema.metadata[key] = encode_text(value)
    return descriptor.SerializeToString()


@lru_cache(_SCHEMAS_KEPT)
def _message_of(schema: Schema) -> file_pb.Schema:
    """Return the message of fields, which is copied by whoever makes it a part of another."""
    stored = Schema(tuple(_stored_field(field) for field in schema.fields))
    return file_pb.Schema(fields=stored.to_protos())


def _stored_field(field: Field) -> Field:
    if not field.is_blob_v2:
        return field.with_children(_stored_field(child) for child in field.children)
    own = (extension.NAME_KEY, extension.METADATA_KEY)
    metadata = {key: value for key, value in field.metadata.items() if key not in own}
    parts = (Field.from_arrow(part, itertools.repeat(NO_ID)) for part in BLOB_V2_DESCRIPTOR)
    return field.with_metadata({**metadata, _PACKED_KEY: "true", BLOB_KEY: "true"}).with_children(
        parts
    )
