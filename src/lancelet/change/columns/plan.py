"""Plans of column changes: the new schema, and the values to write for each fragment.

    {"b": "a + 1"}    schema   a, b
                      writes   b, for every fragment

A plan is valid for one version. After a conflicting commit a new plan is made, which reuses files
with the same columns and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lancelet.change.columns.checkpoint import BatchUDFCheckpoint
from lancelet.change.columns.column_file import file_version_of
from lancelet.change.columns.fields import Grown, grow, next_field_id
from lancelet.change.columns.nested import Given, values_for
from lancelet.expr.expression import Column
from lancelet.expr.scan_types import scan_field
from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.scan.projection import OutputColumn, Projection
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Values = Callable[[Snapshot, Fragment], Iterator[pa.RecordBatch]]
"""Yields the values of stored fields for the live rows of a fragment."""


def no_values(snapshot: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
    """Yield no batches, for plans that only change the schema."""
    del snapshot, fragment
    return iter(())


def _do_nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlan:
    """A change of the columns of one version.

    Attributes:
        schema: The new schema of the table.
        stored: The fields of the new files; if empty, no files are written.
        values: Returns the values of a fragment.
        guides: The existing columns that contain stored fields.
        keeps_nullability: Whether concurrently appended rows remain valid.
        is_repeatable: Whether values can be computed again for additional fragments.
        is_sequential: Whether fragments must be processed in order, one at a time.
        check_ended: Called after the values of all fragments are written.
        checkpoint: The checkpoint for completed work.
    """

    schema: Schema
    stored: Schema
    values: Values
    guides: tuple[Field, ...] = ()
    keeps_nullability: bool = True
    is_repeatable: bool = True
    is_sequential: bool = False
    check_ended: Callable[[], None] = _do_nothing
    checkpoint: BatchUDFCheckpoint | None = None


def grown_schema(snapshot: Snapshot, new: pa.Schema) -> Grown:
    """Return the schema of a version with added columns."""
    return grow(
        snapshot.schema,
        new,
        first_id=next_field_id(snapshot),
        version=file_version_of(snapshot),
    )


def guides_of(schema: Schema, added: Schema) -> tuple[Field, ...]:
    """Return the existing columns that contain added fields.

    Their values determine the validity of structs and the lengths of lists.
    """
    present = {field.name: field for field in schema.fields}
    return tuple(present[field.name] for field in added.fields if field.name in present)


def plain_projection(fields: Sequence[Field], row_columns: Sequence[str] = ()) -> Projection:
    """Return the projection that reads fields without expressions."""
    columns = tuple(OutputColumn(scan_field(field), Column((field.name,))) for field in fields)
    return Projection(columns, tuple(fields), tuple(row_columns))


def shaped(added: Schema, present: pa.RecordBatch, given: Given) -> pa.RecordBatch:
    """Return the added fields, with the validity and list lengths of existing rows."""
    arrays, fields = [], []
    for field in added.fields:
        index = present.schema.get_field_index(field.name)
        inner = None if index < 0 else present.column(index)
        values = values_for(field, inner, given.child(field.name))
        arrays.append(values)
        fields.append(pa.field(field.name, values.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
