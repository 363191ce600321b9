"""Global buffer 0: what a file says of its own schema, and how many rows it has.

A file describes what is stored, a table what is meant. They differ in blob columns, of which the
file has a packed struct of places, whose parts have no ids:

    table   id 4  b: lance.blob.v2    id 5  data, id 6  uri
    file    id 4  b: struct, packed   no id kind, position, size, blob_id, blob_uri
"""

from __future__ import annotations

import itertools
from typing import Final

from lancelet.encodings.levels import BLOB_V2_DESCRIPTOR
from lancelet.format import extension
from lancelet.format.field import BLOB_KEY, NO_ID, Field
from lancelet.format.protos import file_pb
from lancelet.format.schema import Schema

_PACKED_KEY: Final = "lance-encoding:packed"


def descriptor_bytes(schema: Schema, num_rows: int) -> bytes:
    """Return the descriptor of a file as it is stored."""
    stored = Schema(tuple(_stored_field(field) for field in schema.fields), schema.metadata)
    return file_pb.FileDescriptor(
        schema=file_pb.Schema(fields=stored.to_protos(), metadata=stored.metadata_bytes()),
        length=num_rows,
    ).SerializeToString()


def _stored_field(field: Field) -> Field:
    if not field.is_blob_v2:
        return field.with_children(_stored_field(child) for child in field.children)
    own = (extension.NAME_KEY, extension.METADATA_KEY)
    metadata = {key: value for key, value in field.metadata.items() if key not in own}
    parts = (Field.from_arrow(part, itertools.repeat(NO_ID)) for part in BLOB_V2_DESCRIPTOR)
    return field.with_metadata({**metadata, _PACKED_KEY: "true", BLOB_KEY: "true"}).with_children(
        parts
    )
