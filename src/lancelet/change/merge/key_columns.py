"""The key columns of a merge, in the table and in the source.

For example:

    on ["s.k", "DAY"]      table   s{k, x}, day         s.k, day      field ids 1, 3
                           source  day, s{k}            the same names, spelled as in the table
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import FieldNotFoundError, InvalidInputError, similar_names
from lancelet.expr.coercion import CoercionError
from lancelet.expr.names import resolve
from lancelet.format.field import Field
from lancelet.format.field_path import format_path
from lancelet.format.schema import Schema
from lancelet.scan.projection import scan_schema
from lancelet.values import dataclass


class UnknownKeyError(FieldNotFoundError, InvalidInputError):
    """A key column is missing in the table."""


class MissingKeyError(FieldNotFoundError, InvalidInputError, OSError):
    """A key column is missing in the source."""


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """Paths of key columns, and their fields."""

    paths: tuple[tuple[str, ...], ...]
    leaves: tuple[Field, ...]

    @staticmethod
    def of(schema: Schema, on: Sequence[str]) -> KeyColumns:
        """Resolve key column names, ignoring case if the result is unambiguous."""
        paths, leaves = [], []
        for name in on:
            chain = _chain(schema, name)
            paths.append(tuple(field.name for field in chain))
            leaves.append(chain[-1])
        return KeyColumns(tuple(paths), tuple(leaves))

    @property
    def names(self) -> tuple[str, ...]:
        """The formatted paths."""
        return tuple(map(format_path, self.paths))

    @property
    def field_ids(self) -> tuple[int, ...]:
        """The field ids of the key columns."""
        return tuple(int(leaf.id) for leaf in self.leaves)

    def of_rows(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """Return the key columns of a batch that uses the names of the table."""
        return [_column(rows, path) for path in self.paths]


def _chain(schema: Schema, name: str) -> tuple[Field, ...]:
    if name in schema.names:
        return tuple(field for field in schema.fields if field.name == name)
    try:
        return tuple(schema.fields_on_path(name))
    except FieldNotFoundError:
        pass
    try:
        found = resolve(tuple(name.split(".")), scan_schema(schema)).path
        return tuple(schema.fields_on_path(format_path(found)))
    except (CoercionError, FieldNotFoundError) as error:
        raise UnknownKeyError(
            f"Merge insert key column '{name}' does not exist in schema"
            f"{similar_names(name, schema.names)}",
            available=schema.names[:100],
        ) from error


def _column(rows: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    index = rows.schema.get_field_index(path[0])
    if index < 0:
        raise MissingKeyError(
            "the source lacks a key column",
            column=path[0],
            available=rows.schema.names[:100],
        )
    array = rows.column(index)
    for name in path[1:]:
        array = pc.struct_field(array, [name])
    return array
