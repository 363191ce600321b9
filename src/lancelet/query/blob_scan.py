"""Scans that return the bytes of blobs, or files of them, in the place of where they are.

The scan itself reads descriptors and addresses; what the addresses name is read batch by batch.

    scan      b {position 64, size 3}   _rowaddr 7
    bytes     b b"abc"                  the address is left out again

Blobs may lie within structs and lists: their items are of the row that has the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.query.blobs import BlobPlace, places_of, read_places
from lancelet.query.execute import execute
from lancelet.query.expression import Column
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_types import scan_field, with_parts
from lancelet.rowids.address import UInt64s

_ADDRESS: Final = "_rowaddr"
_PACKED_KEY: Final = b"lance-encoding:packed"

Places: TypeAlias = list[BlobPlace | None]


def blob_columns(plan: ScanPlan) -> dict[str, Field]:
    """Return the fields that a scan returns and that are blobs or hold some, by column."""
    schema = plan.snapshot.schema
    found: dict[str, Field] = {}
    for column in plan.projection.columns:
        if (
            not isinstance(column.expression, Column)
            or column.expression.path[0] not in schema.names
        ):
            continue
        field = schema.field_by_path(format_path(column.expression.path))
        if _has_blobs(field):
            found[column.field.name] = field
    return found


def bytes_schema(plan: ScanPlan, blobs: Mapping[str, Field]) -> pa.Schema:
    """Return the schema of a scan that returns the bytes of blobs."""
    schema = plan.schema
    for name, field in blobs.items():
        number = schema.get_field_index(name)
        own = _bytes_field(field)
        schema = schema.set(
            number, own.with_name(name).with_nullable(schema.field(number).nullable)
        )
    return schema


def execute_with_bytes(plan: ScanPlan, blobs: Mapping[str, Field]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan with the bytes of blobs."""
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
    plan: ScanPlan, blobs: Mapping[str, Field], make: Callable[[BlobPlace], Any]
) -> Iterator[tuple[pa.RecordBatch, dict[str, list[Any]]]]:
    """Yield the rows of a scan, each batch with the values of columns that have blobs.

    Args:
        plan: The scan.
        blobs: The columns.
        make: Returns what stands for a blob in the values.
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
    """Return the field that has bytes where scans return where they are."""
    own = scan_field(field)
    if not _has_blobs(field):
        return own
    if not field.is_blob:
        parts = [_bytes_field(child) for child in field.children]
        return own.with_type(with_parts(own.type, parts))
    metadata = {key: value for key, value in (own.metadata or {}).items() if key != _PACKED_KEY}
    return pa.field(field.name, pa.large_binary(), field.nullable, metadata)


def _places(plan: ScanPlan, array: pa.Array, field: Field, addresses: UInt64s) -> Places:
    return places_of(plan.snapshot, field, array.to_pylist(), addresses)


def _with_bytes(plan: ScanPlan, array: pa.Array, field: Field, addresses: UInt64s) -> pa.Array:
    """Return a column with the bytes of its blobs."""
    if field.is_blob:
        return pa.array(read_places(_places(plan, array, field, addresses)), pa.large_binary())
    if not _has_blobs(field):
        return array
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(array.type):
        fields = [_bytes_field(child) for child in field.children]
        parts = [
            _with_bytes(plan, array.field(place), child, addresses)
            for place, child in enumerate(field.children)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    items, lengths, owners = list_items(array, addresses)
    return relisted(array, _with_bytes(plan, items, field.children[0], owners), lengths)


def _values(
    plan: ScanPlan,
    array: pa.Array,
    field: Field,
    addresses: UInt64s,
    make: Callable[[BlobPlace], Any],
) -> list[Any]:
    """Return the values of a column, with what `make` returns for its blobs."""
    if field.is_blob:
        places = _places(plan, array, field, addresses)
        return [None if place is None else make(place) for place in places]
    if not _has_blobs(field):
        found: list[Any] = array.to_pylist()
        return found
    is_there = array.is_valid().to_pylist()
    if pa.types.is_struct(array.type):
        names = [child.name for child in field.children]
        parts = [
            _values(plan, array.field(place), child, addresses, make)
            for place, child in enumerate(field.children)
        ]
        rows = zip(*parts, strict=True)
        return [
            dict(zip(names, row, strict=True)) if there else None
            for there, row in zip(is_there, rows, strict=True)
        ]
    items, lengths, owners = list_items(array, addresses)
    flat = iter(_values(plan, items, field.children[0], owners, make))
    lists = [[next(flat) for _ in range(length)] for length in lengths]
    return [own if there else None for there, own in zip(is_there, lists, strict=True)]


def list_items(array: pa.Array, addresses: UInt64s) -> tuple[pa.Array, list[int], UInt64s]:
    """Return the items of lists, how many each list has, and the address of the row of each."""
    if not (pa.types.is_list(array.type) or pa.types.is_large_list(array.type)):
        raise UnsupportedError(
            "blobs are read within structs and lists, not within others", type=str(array.type)
        )
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    return pc.list_flatten(array), lengths.tolist(), np.repeat(addresses, lengths)


def relisted(array: pa.Array, items: pa.Array, lengths: list[int]) -> pa.Array:
    """Return lists with other items, null where they were."""
    is_large = pa.types.is_large_list(array.type)
    offsets = pa.array(np.cumsum([0, *lengths]), pa.int64() if is_large else pa.int32())
    made = pa.LargeListArray if is_large else pa.ListArray
    return made.from_arrays(offsets, items, mask=array.is_null() if array.null_count else None)
