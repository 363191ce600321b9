"""Scans that return blob contents or blob files instead of descriptors.

The scan itself reads descriptors and row addresses; the blobs are then read batch by batch.

    scan      b {position 64, size 3}   _rowaddr 7
    bytes     b b"abc"                  without the address

Blobs may be nested in structs and lists; the items of a list belong to its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.expr.expression import Column
from lancelet.expr.scan_types import scan_field, with_parts
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.rowids.address import UInt64s
from lancelet.scan.blobs import BlobExtent, read_blobs, resolve_descriptors
from lancelet.scan.execute import execute
from lancelet.scan.plan import ScanPlan, plan_scan

_ADDRESS: Final = "_rowaddr"
_PACKED_KEY: Final = b"lance-encoding:packed"

BlobExtents: TypeAlias = list[BlobExtent | None]


def blob_columns(plan: ScanPlan) -> dict[str, Field]:
    """Return the fields of a scan that are blobs or contain blobs, by column name."""
    schema = plan.snapshot.schema
    fields: dict[str, Field] = {}
    for column in plan.projection.columns:
        if (
            not isinstance(column.expression, Column)
            or column.expression.path[0] not in schema.names
        ):
            continue
        field = schema.field_by_path(format_path(column.expression.path))
        if _has_blobs(field):
            fields[column.field.name] = field
    return fields


def bytes_schema(plan: ScanPlan, blobs: Mapping[str, Field]) -> pa.Schema:
    """Return the schema of a scan that returns blob contents."""
    schema = plan.schema
    for name, field in blobs.items():
        number = schema.get_field_index(name)
        blob_field = _bytes_field(field)
        schema = schema.set(
            number, blob_field.with_name(name).with_nullable(schema.field(number).nullable)
        )
    return schema


def execute_with_bytes(plan: ScanPlan, blobs: Mapping[str, Field]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of a scan with blob contents."""
    schema = bytes_schema(plan, blobs)
    for batch, addresses in _execute_with_addresses(plan):
        columns = [
            _with_bytes(plan, batch.column(name), blobs[name], addresses)
            if name in blobs
            else batch.column(name)
            for name in schema.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def execute_with_files(
    plan: ScanPlan, blobs: Mapping[str, Field], make: Callable[[BlobExtent], Any]
) -> Iterator[tuple[pa.RecordBatch, dict[str, list[Any]]]]:
    """Yield the batches of a scan, each with the values of its blob columns.

    Args:
        plan: The scan.
        blobs: The blob columns.
        make: Creates the value of a blob from its byte range.
    """
    for batch, addresses in _execute_with_addresses(plan):
        yield (
            batch,
            {
                name: _values(plan, batch.column(name), field, addresses, make)
                for name, field in blobs.items()
            },
        )


def _execute_with_addresses(plan: ScanPlan) -> Iterator[tuple[pa.RecordBatch, UInt64s]]:
    addressed = plan_scan(plan.snapshot, replace(plan.options, with_row_address=True))
    for batch in execute(addressed):
        addresses = batch.column(_ADDRESS).to_numpy(zero_copy_only=False)
        yield batch.select(plan.schema.names), addresses


def _has_blobs(field: Field) -> bool:
    return any(node.is_blob for node in field.walk())


def _bytes_field(field: Field) -> pa.Field:
    """Return the field with the type of blob contents instead of descriptors."""
    arrow_field = scan_field(field)
    if not _has_blobs(field):
        return arrow_field
    if not field.is_blob:
        parts = [_bytes_field(child) for child in field.children]
        return arrow_field.with_type(with_parts(arrow_field.type, parts))
    metadata = {
        key: value for key, value in (arrow_field.metadata or {}).items() if key != _PACKED_KEY
    }
    return pa.field(field.name, pa.large_binary(), field.nullable, metadata)


def _blob_extents(plan: ScanPlan, array: pa.Array, field: Field, addresses: UInt64s) -> BlobExtents:
    return resolve_descriptors(plan.snapshot, field, array.to_pylist(), addresses)


def _with_bytes(plan: ScanPlan, array: pa.Array, field: Field, addresses: UInt64s) -> pa.Array:
    """Return a column with its descriptors replaced by blob contents."""
    if field.is_blob:
        return pa.array(read_blobs(_blob_extents(plan, array, field, addresses)), pa.large_binary())
    if not _has_blobs(field):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        fields = [_bytes_field(child) for child in field.children]
        parts = [
            _with_bytes(plan, array.field(index), child, addresses)
            for index, child in enumerate(field.children)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    items, lengths, owners = list_items(array, addresses)
    return with_items(array, _with_bytes(plan, items, field.children[0], owners), lengths)


def _values(
    plan: ScanPlan,
    array: pa.Array,
    field: Field,
    addresses: UInt64s,
    make: Callable[[BlobExtent], Any],
) -> list[Any]:
    """Return the values of a column, with blobs replaced by the results of `make`."""
    if field.is_blob:
        extents = _blob_extents(plan, array, field, addresses)
        return [None if extent is None else make(extent) for extent in extents]
    if not _has_blobs(field):
        values: list[Any] = array.to_pylist()
        return values
    validity = array.is_valid().to_pylist()
    if pa.types.is_struct(array.type):
        names = [child.name for child in field.children]
        parts = [
            _values(plan, array.field(extent), child, addresses, make)
            for extent, child in enumerate(field.children)
        ]
        rows = zip(*parts, strict=True)
        return [
            dict(zip(names, row, strict=True)) if is_valid else None
            for is_valid, row in zip(validity, rows, strict=True)
        ]
    items, lengths, owners = list_items(array, addresses)
    flat = iter(_values(plan, items, field.children[0], owners, make))
    lists = [[next(flat) for _ in range(length)] for length in lengths]
    return [value if is_valid else None for is_valid, value in zip(validity, lists, strict=True)]


def list_items(array: pa.Array, addresses: UInt64s) -> tuple[pa.Array, list[int], UInt64s]:
    """Return the flattened items of lists, the list lengths and the row address of each item."""
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise UnsupportedError(
            "blobs can only be read within structs and lists", type=str(array.type)
        )
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pc.list_flatten(array), lengths.tolist(), np.repeat(addresses, lengths)


def with_items(array: pa.Array, items: pa.Array, lengths: list[int]) -> pa.Array:
    """Rebuild lists from replaced items, with the original validity."""
    is_large = pa.types.is_large_list(array.type)
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int64() if is_large else pa.int32())
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(offsets, items, mask=array.is_null() if array.null_count else None)
