"""Add columns from input rows, in the order of the table or joined by a key.

    table  a: 1 2 3      stream   [7 8] [9]          added  b: 7 8 9
                         joined   k: 3 1 9           added  c: y null x
                                  c: x y z           on a = k

If several input rows have the same key, the last one is used. Null keys are equal to each other.
The joined rows must fit in memory; the table is streamed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.columns.fields import ColumnError, keeps_nullability
from lancelet.change.columns.nested import GivenRows
from lancelet.change.columns.plan import (
    ColumnPlan,
    grown_schema,
    guides_of,
    plain_projection,
    shaped,
)
from lancelet.change.columns.rows import RowSupply, read_live
from lancelet.change.columns.sources import Rows
from lancelet.change.lossless import convertible_types, fit_columns
from lancelet.change.rows import RowStream, without_views
from lancelet.encodings.take import take_from_table, take_rows
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.scan.projection import Projection, project
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.table.snapshot import Snapshot
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, eq=False)
class Joined:
    """The keys and the added columns of rows to join."""

    keys: pa.Array
    columns: pa.Table

    @staticmethod
    def of(stream: RowStream, key: str, table: Schema, left: str) -> Joined:
        """Read all rows of a stream; the keys are cast to the type of the column `left`."""
        if key not in stream.schema.names:
            raise ColumnError(f"Column {key} does not exist in the right side dataset", column=key)
        types = convertible_types(table)
        if left in table.names or left in ROW_FIELDS:
            types[key] = project(table, (left,)).schema.field(0).type
        stream = without_views(fit_columns(stream, types))
        rows = pa.Table.from_batches(stream.batches, stream.schema)
        keys = rows.column(key).combine_chunks()
        return Joined(keys, rows.drop_columns([key]))

    def row_indices(self, keys: pa.Array) -> pa.Array:
        """Return the row index of each key, or null if no row has it."""
        last = len(self.keys) - 1
        try:
            # `index_in` finds the first match; reversing the rows finds the last.
            found = pc.index_in(keys, value_set=self._reversed)
        except pa.ArrowNotImplementedError as error:
            raise ColumnError(
                f"columns of type {keys.type} cannot be joined on", type=str(keys.type)
            ) from error
        return pc.subtract(pa.scalar(last, pa.int64()), found.cast(pa.int64()))

    @cached_property
    def _reversed(self) -> pa.Array:
        return take_rows(self.keys, np.arange(len(self.keys))[::-1])

    def values(self, keys: pa.Array) -> pa.RecordBatch:
        """Return the added columns for each key, with nulls for missing keys."""
        found = take_from_table(self.columns, self.row_indices(keys)).combine_chunks()
        if not found.num_rows:
            return pa.RecordBatch.from_pylist([], schema=self.columns.schema)
        (batch,) = found.to_batches()
        return batch


def plan_join(snapshot: Snapshot, left: str, joined: Joined) -> ColumnPlan:
    """Plan the addition of columns that are joined on `left`."""
    clash = next(
        (name for name in joined.columns.schema.names if name in snapshot.schema.names), None
    )
    if clash is not None:
        raise ColumnError(f"Column {clash} exists in both sides of the dataset", column=clash)
    projection = key_projection(snapshot.schema, left, joined.keys.type)
    grown = grown_schema(snapshot, joined.columns.schema)

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        for rows in read_live(current, fragment, projection):
            yield _checked(joined.values(rows.column(0)))

    return ColumnPlan(
        grown.schema,
        grown.added,
        values,
        keeps_nullability=keeps_nullability(grown.added, snapshot.schema),
    )


def key_projection(schema: Schema, left: str, key_type: pa.DataType) -> Projection:
    """Return the projection that reads the join column."""
    if left not in schema.names and left not in ROW_FIELDS:
        raise ColumnError(f"Column {left} does not exist in the left side dataset", column=left)
    projection = project(schema, (left,))
    found = projection.schema.field(0).type
    if found != key_type:
        raise ColumnError(
            f"Index column type mismatch: expected {key_type}, got {found}", column=left
        )
    return projection


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ColumnError(
                f"Column '{field.name}' is declared as non-nullable but contains null values",
                column=field.name,
                rows=column.null_count,
            )
    return batch


def plan_rows(snapshot: Snapshot, source: Rows) -> ColumnPlan:
    """Plan the addition of the columns of a stream."""
    supply = RowSupply(source.stream.batches, source.stream.schema.names)
    grown = grown_schema(snapshot, source.stream.schema)
    guides = guides_of(snapshot.schema, grown.added)
    projection = plain_projection(guides)

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        if not guides:
            yield from supply.take(current.live_rows(fragment))
            return
        for present in read_live(current, fragment, projection):
            yield shaped(grown.added, present, GivenRows(supply.take_batch(present.num_rows)))

    return ColumnPlan(
        grown.schema,
        grown.added,
        values,
        keeps_nullability=keeps_nullability(grown.added, snapshot.schema),
        is_repeatable=False,
        is_sequential=True,
        check_ended=supply.check_ended,
        guides=guides,
    )
