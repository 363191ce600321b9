"""Update columns of one fragment for the rows that match a key.

    fragment   a: 1 2 3   b: x y z        input  a: 2, b: new
    written    b: x new z                 a new file, which replaces b
    changed    row 1, field b

The caller commits the result as part of an update that rewrites columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.change.blob_copies import blob_values
from lancelet.change.blob_input import BlobPolicy, resolve_blobs, with_blob_structs
from lancelet.change.columns.column_file import write_column_file
from lancelet.change.columns.fields import ColumnError
from lancelet.change.columns.from_given import Joined, key_projection
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_from_table, take_rows
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.scan.nodes.source import FragmentSource
from lancelet.scan.projection import Projection
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.table.apply.state import with_column_file
from lancelet.table.commit import check_table_exists
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class UpdatedColumns:
    """The updated fragment, with the updated fields and rows."""

    fragment: Fragment
    field_ids: tuple[int, ...]
    offsets: Int64s


def update_fragment_columns(
    snapshot: Snapshot, fragment: Fragment, left: str, joined: Joined
) -> UpdatedColumns:
    """Write new values for the rows of a fragment that match an input key."""
    check_table_exists(snapshot)
    stored = _updated_fields(snapshot.schema, joined.columns.schema)
    projection = key_projection(snapshot.schema, left, joined.keys.type)
    changed: list[Int64s] = []
    values = _merged(snapshot, fragment, projection, stored, joined, changed)
    file = write_column_file(snapshot, fragment, stored, values)
    offsets = np.concatenate(changed) if changed else np.empty(0, np.int64)
    return UpdatedColumns(with_column_file(fragment, file), file.fields, offsets)


def _updated_fields(schema: Schema, given: pa.Schema) -> Schema:
    fields_by_name = {field.name: field for field in schema.fields}
    if not given.names:
        raise ColumnError("no columns to update other than the key")
    for own in given:
        field = fields_by_name.get(own.name)
        if own.name in ROW_FIELDS:
            raise ColumnError(
                f"{own.name} is a metadata column, which cannot be updated", column=own.name
            )
        if field is None:
            raise ColumnError(
                f"Column {own.name} in right side fragment does not exist in left side fragment",
                column=own.name,
            )
        if field.arrow_type != own.type and not any(node.is_blob for node in field.walk()):
            raise ColumnError(
                "the values do not have the type of the column",
                column=own.name,
                expected=str(field.arrow_type),
                found=str(own.type),
            )
    names = set(given.names)
    return Schema(tuple(field for field in schema.fields if field.name in names), schema.metadata)


def _merged(
    snapshot: Snapshot,
    fragment: Fragment,
    projection: Projection,
    stored: Schema,
    joined: Joined,
    changed: list[Int64s],
) -> Iterator[pa.RecordBatch]:
    """Yield the updated values of all rows; deleted rows are not matched."""
    source = FragmentSource(snapshot, fragment, with_deleted=True)
    deleted = snapshot.deletions(fragment)
    everything = RowRange(0, source.num_rows)
    start = 0
    given = {field.name: _given(snapshot, joined.columns, field) for field in stored.fields}
    fields: Sequence[Field] = (*projection.fields, *stored.fields)
    for batch in source.reader.iter_batches(tuple(dict.fromkeys(fields)), everything):
        rows = RowRange(start, start + batch.num_rows)
        start = rows.stop
        keys = _keys(source, projection, batch, rows)
        indices = joined.row_indices(keys)
        found = np.asarray(pc.is_valid(indices)) & deleted.live_within(rows.start, rows.stop)
        changed.append(np.flatnonzero(found) + rows.start)
        addresses = source.addresses(np.arange(rows.start, rows.stop))
        arrays = [
            _replaced(
                blob_values(snapshot, field, batch.column(field.name), addresses),
                given[field.name],
                indices,
                found,
            )
            for field in stored.fields
        ]
        yield pa.RecordBatch.from_arrays(arrays, names=list(stored.names))


def _given(snapshot: Snapshot, columns: pa.Table, field: Field) -> pa.ChunkedArray:
    """Convert new values to the type of the field in data files."""
    whole = columns.select([field.name]).combine_chunks()
    policy = BlobPolicy(
        tuple(snapshot.manifest.bases.values()),
        allows_outside=False,
        storage_options=snapshot.location.storage_options,
    )
    schema = Schema((field,))
    resolved = resolve_blobs(iter(whole.to_batches()), schema, policy)
    stored = [with_blob_structs(batch, schema) for batch in resolved]
    return pa.Table.from_batches(stored).column(0) if stored else whole.column(0)


def _keys(
    source: FragmentSource, projection: Projection, batch: pa.RecordBatch, rows: RowRange
) -> pa.Array:
    if projection.row_columns:
        (keys,) = source.row_columns(projection.row_columns, rows, None).values()
        return keys
    return batch.column(projection.fields[0].name)


def _replaced(
    before: pa.Array, given: pa.ChunkedArray, indices: pa.Array, found: np.ndarray
) -> pa.Array:
    """Replace the values of the matching rows."""
    rows = take_from_table(pa.table({"given": given}), indices.filter(pa.array(found)))
    new = rows["given"].combine_chunks()
    chosen = np.arange(len(before))
    chosen[found] = len(before) + np.arange(len(new))
    return take_rows(pa.concat_arrays([before, new]), chosen)
