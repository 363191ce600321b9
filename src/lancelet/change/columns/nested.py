"""Values of new fields in existing structs, also in lists of structs.

    existing s  {x: 1}   null     {x: 3}        l  [{u: 1}, {u: 2}]   []   null
    input    s  {w: 7}   {w: 8}   null          l  [{v: 5}, {v: 6}]   []   []
    written  s  {w: 7}   null     {w: null}     l  [{v: 5}, {v: 6}]   []   null

The existing values determine validity and list lengths. Values for null structs are discarded, and
lists with different lengths are rejected.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.columns.expand import with_items
from lancelet.change.columns.fields import ColumnError
from lancelet.errors import InternalError
from lancelet.expr.evaluate import evaluate
from lancelet.expr.expression import Expression
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.values import dataclass


class Given(Protocol):
    """Input values of a field or of its child fields."""

    def child(self, name: str) -> Given:
        """Return the input of a child field."""

    def items(self, present: pa.Array, name: str) -> Given:
        """Return the input of the items, named `name`, of the lists in `present`."""

    def array(self) -> pa.Array:
        """Return the input as an array."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenArray:
    """Input given as an array with the structure of the field."""

    values: pa.Array
    path: str

    def child(self, name: str) -> GivenArray:
        """Return the values of a child field, null for null structs."""
        index = self.values.type.get_field_index(name)
        return GivenArray(self.values.flatten()[index], f"{self.path}.{name}")

    def items(self, present: pa.Array, name: str) -> GivenArray:
        """Return the items; raise if the list lengths differ from those in `present`."""
        expected = pc.fill_null(pc.list_value_length(present), 0)
        found = pc.fill_null(pc.list_value_length(self.values), 0)
        if not found.cast(pa.int64()).equals(expected.cast(pa.int64())):
            raise ColumnError(
                "lists with new fields must be as long as those in the table", column=self.path
            )
        return GivenArray(pc.list_flatten(self.values), f"{self.path}.{name}")

    def array(self) -> pa.Array:
        """Return the values."""
        return self.values


@dataclass(frozen=True, slots=True, eq=False)
class GivenRows:
    """Input given as a record batch."""

    rows: pa.RecordBatch

    def child(self, name: str) -> GivenArray:
        """Return the values of a column."""
        return GivenArray(self.rows.column(name), name)

    def items(self, present: pa.Array, name: str) -> Given:
        """Raise, since rows are not lists."""
        raise InternalError("rows of a table have no items", rows=len(present), name=name)

    def array(self) -> pa.Array:
        """Return the rows as a struct array."""
        return self.rows.to_struct_array()


@dataclass(frozen=True, slots=True, eq=False)
class GivenExpressions:
    """Input given as expressions by path; in lists they refer to fields of the items."""

    expressions: Mapping[tuple[str, ...], Expression]
    rows: pa.RecordBatch
    path: tuple[str, ...] = ()

    def child(self, name: str) -> GivenExpressions:
        """Return the expressions for descendants of a field, evaluated on the same rows."""
        return GivenExpressions(self.expressions, self.rows, (*self.path, name))

    def items(self, present: pa.Array, name: str) -> GivenExpressions:
        """Return the expressions for the items, evaluated on the fields of the items."""
        items = pc.list_flatten(present)
        fields = pa.schema([items.type.field(index) for index in range(items.type.num_fields)])
        rows = pa.RecordBatch.from_arrays(items.flatten(), schema=fields)
        return GivenExpressions(self.expressions, rows, (*self.path, name))

    def array(self) -> pa.Array:
        """Compute the values."""
        return evaluate(self.expressions[self.path], self.rows)


def values_for(field: Field, present: pa.Array | None, given: Given) -> pa.Array:
    """Return the values of new fields, with the validity and list lengths of existing values.

    `field` contains only new descendants; `present` is None if the field itself is new.
    """
    if present is None:
        return given.array()
    if isinstance(present, pa.ExtensionArray):
        present = present.storage
    if field.logical_type == logical_type.STRUCT:
        return _struct(field, present, given)
    return _list(field, present, given)


def _struct(field: Field, present: pa.StructArray, given: Given) -> pa.StructArray:
    children, fields = [], []
    for child in field.children:
        index = present.type.get_field_index(child.name)
        inner = None if index < 0 else present.field(index)
        values = values_for(child, inner, given.child(child.name))
        children.append(values)
        fields.append(pa.field(child.name, values.type, child.nullable))
    mask = present.is_null() if present.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list(field: Field, present: pa.Array, given: Given) -> pa.Array:
    (item,) = field.children
    values = values_for(item, pc.list_flatten(present), given.items(present, item.name))
    return with_items(present, values, item)
