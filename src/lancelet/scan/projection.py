"""Output columns of a scan: the fields to read, and the expressions to compute.

    requested   ["s.x", "_rowid"]            {"twice": "a * 2"}
    read        s (only its field x)         a
    row columns _rowid
    computed    s.x -> "s.x"                 a * 2 -> "twice"

Columns of the table take precedence over row columns of the same name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.expr.compile import ExpressionLike, compile_value
from lancelet.expr.evaluate import evaluate
from lancelet.expr.expression import Bound, Column, Expression
from lancelet.expr.scan_types import scan_field
from lancelet.expr.traversal import columns_of
from lancelet.format.field import Field
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.schema import Schema
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.scan.scan_options import Columns
from lancelet.values import cached_property, dataclass

_COLUMN_BYTES: Final = 1024
"""Approximate memory of a column or field of a projection, in bytes."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """An output column and the bound expression that computes it."""

    field: pa.Field
    expression: Expression

    def compute(self, rows: pa.RecordBatch) -> pa.Array:
        """Compute the column from a batch with the columns of its expression."""
        values = evaluate(self.expression, rows)
        return values if values.type == self.field.type else values.cast(self.field.type)


@dataclass(frozen=True, eq=False)
class Projection:
    """The fields to read and the columns to return.

    `fields` are read from files, pruned to the required children; `row_columns` are computed.
    `metadata` is the schema metadata of the table and of the output.
    """

    columns: tuple[OutputColumn, ...]
    fields: tuple[Field, ...]
    row_columns: tuple[str, ...]
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use; an exact count would cost more than the projection."""
        return _COLUMN_BYTES * (len(self.columns) + len(self.fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """The output schema."""
        fields = [column.field for column in self.columns]
        return pa.schema(fields, metadata=dict(self.metadata) or None)

    @cached_property
    def is_plain(self) -> bool:
        """Whether the output equals the fields read, followed by the row columns."""
        names = [*(field.name for field in self.fields), *self.row_columns]
        return bool(names) and [column.expression for column in self.columns] == [
            Column((name,)) for name in names
        ]

    def without(self, names: Collection[str]) -> Projection:
        """Return a plain projection without some of its fields."""
        return Projection(
            tuple(column for column in self.columns if column.field.name not in names),
            tuple(field for field in self.fields if field.name not in names),
            self.row_columns,
            self.metadata,
        )

    def compute(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Compute the output from a batch of the fields read, followed by the row columns."""
        if self.is_plain:
            return pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)
        arrays = [column.compute(rows) for column in self.columns]
        if not arrays:
            return without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@lru_cache(maxsize=64)
def scan_schema(schema: Schema) -> pa.Schema:
    """Return the columns that expressions can refer to, including row columns."""
    fields = [scan_field(field) for field in schema.fields]
    taken = set(schema.names)
    extra = [field for name, field in ROW_FIELDS.items() if name not in taken]
    return pa.schema([*fields, *extra])


def project(schema: Schema, columns: Columns, *, trailing: Sequence[str] = ()) -> Projection:
    """Return the projection of columns, with `trailing` row columns appended."""
    names = scan_schema(schema)
    if columns is None:
        found = [OutputColumn(scan_field(field), Column((field.name,))) for field in schema.fields]
    elif isinstance(columns, Mapping):
        found = [computed_column(name, written, names) for name, written in columns.items()]
    else:
        found = [_named(path, schema, names) for path in columns]
    present = {column.field.name for column in found}
    found += [
        OutputColumn(ROW_FIELDS[name], Column((name,))) for name in trailing if name not in present
    ]
    _check_distinct(found)
    fields, row_columns = needed(schema, (column.expression for column in found))
    return Projection(tuple(found), fields, row_columns, schema.metadata)


def computed_column(name: str, written: ExpressionLike, names: pa.Schema) -> OutputColumn:
    """Compile a computed column against the schema `names`."""
    bound: Bound = compile_value(written, names)
    if isinstance(bound.expression, Column) and len(bound.expression.path) == 1:
        return OutputColumn(names.field(bound.expression.path[0]).with_name(name), bound.expression)
    return OutputColumn(pa.field(name, bound.data_type), bound.expression)


def project_parts(schema: Schema, columns: Columns) -> Projection:
    """Return the projection of a take: struct fields remain nested, without duplicates.

    For example:

        requested   ["s.y", "a", "s.x", "a", "_rowid", "_rowid"]
        returned    s{x, y}, a, _rowid, _rowid
    """
    if columns is None or isinstance(columns, Mapping):
        return project(schema, columns)
    own = set(schema.names)
    row_columns = dict.fromkeys(name for name in columns if name in ROW_FIELDS.keys() - own)
    paths = [
        format_path([path]) if path in own else path for path in columns if path not in row_columns
    ]
    whole = {field.name: field for field in schema.fields}
    parts = {
        part.name: _in_schema_order(whole[part.name], part) for part in schema.project(paths).fields
    }
    tops = [path if path in own or path in row_columns else parse_path(path)[0] for path in columns]
    first = {name: index for index, name in reversed([*enumerate(tops)])}
    found = tuple(
        OutputColumn(
            ROW_FIELDS[name] if name in row_columns else scan_field(parts[name]), Column((name,))
        )
        for index, name in enumerate(tops)
        if name in row_columns or first[name] == index
    )
    return Projection(found, tuple(parts.values()), tuple(row_columns), schema.metadata)


def _in_schema_order(whole: Field, part: Field) -> Field:
    children = {child.id: child for child in part.children}
    return part.with_children(
        _in_schema_order(child, children[child.id])
        for child in whole.children
        if child.id in children
    )


def needed(
    schema: Schema, expressions: Iterable[Expression]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Return the pruned fields and the row columns that expressions read."""
    paths: dict[str, None] = {}
    row_columns: dict[str, None] = {}
    top = set(schema.names)
    for expression in expressions:
        for path in sorted(columns_of(expression)):
            if path[0] in ROW_FIELDS and path[0] not in top:
                row_columns[path[0]] = None
            else:
                paths[stored_path(schema, path)] = None
    return schema.project(list(paths)).fields, tuple(row_columns)


def stored_path(schema: Schema, path: tuple[str, ...]) -> str:
    """Return the prefix of a path that is in the schema; map keys are not fields."""
    named, depth = schema.by_name, 0
    for name in path:
        node = named.get(name)
        if node is None or node.is_blob:
            break
        depth += 1
        children = node.children if node.logical_type == "struct" else ()
        named = {child.name: child for child in reversed(children)}
    return format_path(path[: max(depth, 1)])


def _named(path: str, schema: Schema, names: pa.Schema) -> OutputColumn:
    if path in schema.names:
        return OutputColumn(scan_field(schema.field_by_path(format_path([path]))), Column((path,)))
    if path in ROW_FIELDS:
        return OutputColumn(ROW_FIELDS[path], Column((path,)))
    try:
        chain = schema.fields_on_path(path)
    except FieldNotFoundError as error:
        raise error.with_facts(column=path) from error
    bound = compile_value(Column(tuple(parse_path(path))), names)
    nullable = any(node.nullable for node in chain)
    leaf = scan_field(chain[-1])
    return OutputColumn(leaf.with_name(path).with_nullable(nullable), bound.expression)


def _check_distinct(columns: Sequence[OutputColumn]) -> None:
    names = [column.field.name for column in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidInputError("Duplicate column name", column=twice)


def without_columns(num_rows: int) -> pa.RecordBatch:
    """Return a batch with rows but no columns, which Arrow only creates from structs."""
    rows = pa.StructArray.from_buffers(pa.struct([]), num_rows, [None])
    return pa.RecordBatch.from_struct_array(rows)
