"""Values for new fields within structs that are there, also within lists of structs.

    there    s  {x: 1}   null     {x: 3}        l  [{u: 1}, {u: 2}]   []   null
    given    s  {w: 7}   {w: 8}   null          l  [{v: 5}, {v: 6}]   []   []
    written  s  {w: 7}   null     {w: null}     l  [{v: 5}, {v: 6}]   []   null

What is null or how long a list is, is said by the values that are there; what is given for a
struct that is null is lost. Lists of another length are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InternalError
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.ops.columns.fields import ColumnError
from lancelet.ops.columns.spreading import with_items
from lancelet.query.evaluate import evaluate
from lancelet.query.expression import Expression
from lancelet.values import dataclass


class Given(Protocol):
    """Values that a caller gave for a field, or for fields within it."""

    def child(self, name: str) -> Given:
        """Return what was given for a field of the struct."""

    def items(self, present: pa.Array, name: str) -> Given:
        """Return what was given for the items, called `name`, of the lists in `present`."""

    def array(self) -> pa.Array:
        """Return the values themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class GivenArray:
    """Values given as an array of the same structure."""

    values: pa.Array
    path: str

    def child(self, name: str) -> GivenArray:
        """Return the values of a field; they are null where the struct is."""
        place = self.values.type.get_field_index(name)
        return GivenArray(self.values.flatten()[place], f"{self.path}.{name}")

    def items(self, present: pa.Array, name: str) -> GivenArray:
        """Return the items, if the lists are as long as those that are there."""
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
    """Values given as a batch of columns."""

    rows: pa.RecordBatch

    def child(self, name: str) -> GivenArray:
        """Return the values of a column."""
        return GivenArray(self.rows.column(name), name)

    def items(self, present: pa.Array, name: str) -> Given:
        """Refuse: rows are no lists."""
        raise InternalError("rows of a table have no items", rows=len(present), name=name)

    def array(self) -> pa.Array:
        """Return the rows as structs."""
        return self.rows.to_struct_array()


@dataclass(frozen=True, slots=True, eq=False)
class GivenExpressions:
    """Values given as expressions by path; within a list they name the fields of its items."""

    expressions: Mapping[tuple[str, ...], Expression]
    rows: pa.RecordBatch
    path: tuple[str, ...] = ()

    def child(self, name: str) -> GivenExpressions:
        """Return the expressions below a field; they are computed from the same rows."""
        return GivenExpressions(self.expressions, self.rows, (*self.path, name))

    def items(self, present: pa.Array, name: str) -> GivenExpressions:
        """Return the expressions below the items, whose fields are the columns they name."""
        items = pc.list_flatten(present)
        fields = pa.schema([items.type.field(place) for place in range(items.type.num_fields)])
        rows = pa.RecordBatch.from_arrays(items.flatten(), schema=fields)
        return GivenExpressions(self.expressions, rows, (*self.path, name))

    def array(self) -> pa.Array:
        """Compute the values."""
        return evaluate(self.expressions[self.path], self.rows)


def values_for(field: Field, present: pa.Array | None, given: Given) -> pa.Array:
    """Return values of the new parts of a field, in the shape of the values that are there.

    `field` has only the new parts; `present` is None if all of it is new.
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
        place = present.type.get_field_index(child.name)
        inner = None if place < 0 else present.field(place)
        values = values_for(child, inner, given.child(child.name))
        children.append(values)
        fields.append(pa.field(child.name, values.type, child.nullable))
    mask = present.is_null() if present.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _list(field: Field, present: pa.Array, given: Given) -> pa.Array:
    (item,) = field.children
    values = values_for(item, pc.list_flatten(present), given.items(present, item.name))
    return with_items(present, values, item)
