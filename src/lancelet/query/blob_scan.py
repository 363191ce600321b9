"""Scans that return the bytes of blobs, or files of them, in the place of where they are.

The scan itself reads descriptors and addresses; what the addresses name is read batch by batch.

    scan      b {position 64, size 3}   _rowaddr 7
    bytes     b b"abc"                  the address is left out again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.query.blobs import BlobPlace, places_of, read_places
from lancelet.query.execute import execute
from lancelet.query.expression import Column
from lancelet.query.plan import ScanPlan, plan_scan

_ADDRESS: Final = "_rowaddr"
_PACKED_KEY: Final = b"lance-encoding:packed"


def blob_columns(plan: ScanPlan) -> dict[str, Field]:
    """Return the blob fields that a scan returns, by the name of the column.

    Raises:
        UnsupportedError: Blobs are part of a column of structs or lists.
    """
    schema = plan.snapshot.schema
    found: dict[str, Field] = {}
    for column in plan.projection.columns:
        if (
            not isinstance(column.expression, Column)
            or column.expression.path[0] not in schema.names
        ):
            continue
        path = format_path(column.expression.path)
        field = schema.field_by_path(path)
        if field.is_blob:
            found[column.field.name] = field
        elif any(node.is_blob for node in field.walk()):
            raise UnsupportedError("blobs within a column cannot be read with it", column=path)
    return found


def bytes_schema(plan: ScanPlan, blobs: Mapping[str, Field]) -> pa.Schema:
    """Return the schema of a scan that returns the bytes of blobs."""
    schema = plan.schema
    for name in blobs:
        number = schema.get_field_index(name)
        field = schema.field(number)
        metadata = {key: own for key, own in (field.metadata or {}).items() if key != _PACKED_KEY}
        own = pa.field(name, pa.large_binary(), field.nullable, metadata)
        schema = schema.set(number, own)
    return schema


def execute_with_bytes(plan: ScanPlan, blobs: Mapping[str, Field]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan with the bytes of blobs."""
    schema = bytes_schema(plan, blobs)
    for batch, places in execute_with_places(plan, blobs):
        columns = [
            pa.array(read_places(places[name]), pa.large_binary())
            if name in places
            else batch.column(name)
            for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def execute_with_places(
    plan: ScanPlan, blobs: Mapping[str, Field]
) -> Iterator[tuple[pa.RecordBatch, dict[str, list[BlobPlace | None]]]]:
    """Yield the rows of a scan, each batch with where its blobs are by column."""
    addressed = plan_scan(plan.snapshot, replace(plan.options, with_row_address=True))
    for batch in execute(addressed):
        addresses = batch.column(_ADDRESS).to_numpy(zero_copy_only=False)
        places = {
            name: places_of(plan.snapshot, field, batch.column(name).to_pylist(), addresses)
            for name, field in blobs.items()
        }
        yield batch.select(plan.schema.names), places
