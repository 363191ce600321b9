"""What a change of columns does: the schema it leads to, and what it writes for each fragment.

    {"b": "a + 1"}    schema   a, b
                      writes   b, for every fragment

A plan is made for one version. Another commit in between makes another plan, and where that
writes the same columns of the same rows, the files that are written already still serve.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from lancelet.format.field import Field
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.ops.columns.checkpoint import BatchUDFCheckpoint
from lancelet.ops.columns.column_file import file_version_of
from lancelet.ops.columns.fields import Grown, grow, next_field_id
from lancelet.ops.columns.nested import Given, values_for
from lancelet.query.expression import Column
from lancelet.query.projection import OutputColumn, Projection
from lancelet.query.scan_types import scan_field
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

Values = Callable[[Snapshot, Fragment], Iterator[pa.RecordBatch]]
"""Yields values of the stored fields for the live rows of a fragment."""


def no_values(snapshot: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
    """Yield nothing, for plans that write nothing."""
    del snapshot, fragment
    return iter(())


def _nothing() -> None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class ColumnPlan:
    """A change of columns, worked out for one version.

    Attributes:
        schema: The schema of the table afterwards.
        stored: The fields of the files to be written; without any, nothing is.
        values: What to write.
        guides: The columns of the table within which stored fields are.
        keeps_nullability: Whether rows that others add meanwhile are sure to fit.
        is_repeatable: Whether values of more fragments can be had later.
        is_sequential: Whether fragments must be worked on in order, one at a time.
        check_ended: Called when all fragments have their values.
        checkpoint: Where to keep what is done.
    """

    schema: Schema
    stored: Schema
    values: Values
    guides: tuple[Field, ...] = ()
    keeps_nullability: bool = True
    is_repeatable: bool = True
    is_sequential: bool = False
    check_ended: Callable[[], None] = _nothing
    checkpoint: BatchUDFCheckpoint | None = None


def grown_schema(snapshot: Snapshot, new: pa.Schema) -> Grown:
    """Return the schema of a version after columns were added."""
    return grow(
        snapshot.schema,
        new,
        first_id=next_field_id(snapshot),
        version=file_version_of(snapshot),
    )


def guides_of(schema: Schema, added: Schema) -> tuple[Field, ...]:
    """Return the columns of a table within which fields are added.

    Their values say which of the structs are null, and how long the lists are.
    """
    present = {field.name: field for field in schema.fields}
    return tuple(present[field.name] for field in added.fields if field.name in present)


def plain_projection(fields: Sequence[Field], row_columns: Sequence[str] = ()) -> Projection:
    """Return the projection that reads fields as they are."""
    columns = tuple(OutputColumn(scan_field(field), Column((field.name,))) for field in fields)
    return Projection(columns, tuple(fields), tuple(row_columns))


def shaped(added: Schema, present: pa.RecordBatch, given: Given) -> pa.RecordBatch:
    """Return values of the added fields, in the shape of the rows that are there."""
    arrays, fields = [], []
    for field in added.fields:
        place = present.schema.get_field_index(field.name)
        inner = None if place < 0 else present.column(place)
        values = values_for(field, inner, given.child(field.name))
        arrays.append(values)
        fields.append(pa.field(field.name, values.type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
