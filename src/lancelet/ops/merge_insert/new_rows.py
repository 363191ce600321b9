"""The rows that a merge writes: what the source brings, over what the table has.

table   id 7, name "a", s{x 1, y 2}
source  id 7, s{y 9}
row     id 7, name "a", s{x 1, y 9}        inserted rows have null where the table has nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.take import keep_of_batch
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.ops.compact.blobs import with_blob_values
from lancelet.ops.merge_insert.decide import batches_of_matches
from lancelet.ops.merge_insert.join import Matches
from lancelet.ops.merge_insert.key_bytes import Bools
from lancelet.ops.merge_insert.prepared_source import Source
from lancelet.query.plan import projection_of
from lancelet.query.scan_types import scan_type
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot

_ROWS_AT_ONCE: Final = 65536


def updated_rows(
    snapshot: Snapshot, source: Source, updates: Matches
) -> Iterator[tuple[pa.RecordBatch, UInt64s]]:
    """Yield rows as they are after the update, and the addresses they have now.

    Rows that need values of the table come in the order of the table, if the source can be read
    in any order; others come in the order of the source.
    """
    missing = tuple(_not_brought(snapshot.schema, source.part))
    for rows, own in _ordered(source, updates, by_address=bool(missing)):
        start = 0
        for base in _stored(snapshot, missing, own.addresses):
            stop = len(own) if base is None else start + base.num_rows
            part = rows.slice(start, stop - start)
            yield complete(snapshot.schema, source.part, part, base), own.addresses[start:stop]
            start = stop


def inserted_rows(
    snapshot: Snapshot, source: Source, inserted: Bools
) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
    """Yield rows that are inserted: as they are written, and as the source has them."""
    for placed in source.rows.batches():
        own = inserted[placed.first : placed.stop]
        if not own.any():
            continue
        rows = placed.batch if own.all() else keep_of_batch(placed.batch, own)
        yield complete(snapshot.schema, source.part, rows, None), rows


def complete(
    schema: Schema, part: Schema, rows: pa.RecordBatch, base: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Return rows with all fields of a schema: their own, else those of `base`, else null."""
    brought = {field.id: field for field in part.fields}
    columns = []
    for field in schema.fields:
        own = brought.get(field.id)
        array = None if own is None else rows.column(field.name)
        under = None
        if base is not None and own != field:
            under = base.column(field.name)
        columns.append(_overlaid(field, own, array, under, rows.num_rows))
    return pa.RecordBatch.from_arrays(columns, list(schema.names))


def _ordered(
    source: Source, updates: Matches, *, by_address: bool
) -> Iterator[tuple[pa.RecordBatch, Matches]]:
    if not by_address or source.rows.is_spilled:
        yield from batches_of_matches(source, updates)
        return
    order = np.argsort(updates.addresses, kind="stable")
    for first in range(0, len(order), _ROWS_AT_ONCE):
        chosen = order[first : first + _ROWS_AT_ONCE]
        start = 0
        # Texts of more than 2 GiB come as several batches.
        for rows in source.rows.take(updates.rows[chosen]).combine_chunks().to_batches():
            own = chosen[start : start + rows.num_rows]
            start += rows.num_rows
            yield rows, Matches(updates.rows[own], updates.addresses[own])


def _stored(
    snapshot: Snapshot, fields: Sequence[Field], addresses: UInt64s
) -> Iterator[pa.RecordBatch | None]:
    """Yield columns of rows as they would be written again; None if there are none."""
    if not fields:
        yield None
        return
    holds_blobs = any(node.is_blob for field in fields for node in field.walk())
    projection = projection_of(snapshot, tuple(field.name for field in fields))
    start = 0
    for batch in take_addresses(snapshot, addresses, projection).combine_chunks().to_batches():
        own = addresses[start : start + batch.num_rows]
        start += batch.num_rows
        if holds_blobs:
            yield from with_blob_values(snapshot, batch, own, fields)
        else:
            yield batch


def _not_brought(schema: Schema, part: Schema) -> Iterator[Field]:
    """Yield the columns of which the table's values are needed."""
    brought = {field.id: field for field in part.fields}
    for field in schema.fields:
        if brought.get(field.id) != field:
            yield field


def _overlaid(
    field: Field,
    part: Field | None,
    own: pa.Array | None,
    base: pa.Array | None,
    num_rows: int,
) -> pa.Array:
    if part is None or own is None:
        return pa.nulls(num_rows, _written_type(field)) if base is None else base
    if part == field:
        return own
    parts = {child.id: child for child in part.children}
    children = []
    for place, child in enumerate(field.children):
        known = parts.get(child.id)
        array = None if known is None else pc.struct_field(own, [child.name])
        under = None if base is None else pc.struct_field(base, [place])
        children.append(_overlaid(child, known, array, under, num_rows))
    fields = [
        pa.field(child.name, array.type, child.nullable)
        for child, array in zip(field.children, children, strict=True)
    ]
    mask = own.is_null() if own.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _written_type(field: Field) -> pa.DataType:
    """Return the type in which values of a field are written: blobs by their bytes."""
    if field.is_blob:
        return pa.large_binary()
    if field.logical_type == logical_type.STRUCT:
        return pa.struct(
            [pa.field(each.name, _written_type(each), each.nullable) for each in field.children]
        )
    return scan_type(field)
