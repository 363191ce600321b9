"""Which columns a scan returns, what it must read for them, and how to compute them.

    asked for   ["s.x", "_rowid"]            {"twice": "a * 2"}
    read        s (only its field x)         a
    row columns _rowid
    computed    s.x -> "s.x"                 a * 2 -> "twice"

The names of row columns mean these columns, unless the table has columns of the same name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

import pyarrow as pa

from lancelet.errors import FieldNotFoundError, InvalidInputError
from lancelet.format.field import Field
from lancelet.format.field_path import format_path, parse_path
from lancelet.format.schema import Schema
from lancelet.query.compile import ExpressionLike, compile_value
from lancelet.query.evaluate import evaluate
from lancelet.query.expression import Bound, Column, Expression
from lancelet.query.row_columns import ROW_FIELDS
from lancelet.query.scan_options import Columns
from lancelet.query.scan_types import scan_field
from lancelet.query.traversal import columns_of
from lancelet.values import cached_property, dataclass

_COLUMN_BYTES: Final = 1024
"""What a column or a field of a projection weighs, about."""


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column that is returned, and the bound expression that computes it."""

    field: pa.Field
    expression: Expression

    def compute(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the column, given a batch of what its expression names."""
        values = evaluate(self.expression, rows)
        return values if values.type == self.field.type else values.cast(self.field.type)


@dataclass(frozen=True, eq=False)
class Projection:
    """What is read and what is returned.

    `fields` are read from files, pruned to what is needed of each; `row_columns` are computed.
    `metadata` are those of the table's schema, which what is returned has too.
    """

    columns: tuple[OutputColumn, ...]
    fields: tuple[Field, ...]
    row_columns: tuple[str, ...]
    metadata: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def memory_bytes(self) -> int:
        """How much memory it takes, about; to look at every column costs more than to project."""
        return _COLUMN_BYTES * (len(self.columns) + len(self.fields))

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of what is returned."""
        fields = [column.field for column in self.columns]
        return pa.schema(fields, metadata=dict(self.metadata) or None)

    @cached_property
    def is_plain(self) -> bool:
        """Whether what is returned is just what is read, row columns behind."""
        names = [*(field.name for field in self.fields), *self.row_columns]
        return bool(names) and [column.expression for column in self.columns] == [
            Column((name,)) for name in names
        ]

    def compute(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns, given a batch of what was read, row columns behind."""
        if self.is_plain:
            return pa.RecordBatch.from_arrays(rows.columns, schema=self.schema)
        arrays = [column.compute(rows) for column in self.columns]
        if not arrays:
            return without_columns(rows.num_rows)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


@lru_cache(maxsize=64)
def scan_schema(schema: Schema) -> pa.Schema:
    """Return the columns that filters and expressions may name, row columns included."""
    fields = [scan_field(field) for field in schema.fields]
    taken = set(schema.names)
    extra = [field for name, field in ROW_FIELDS.items() if name not in taken]
    return pa.schema([*fields, *extra])


def project(schema: Schema, columns: Columns, *, behind: Sequence[str] = ()) -> Projection:
    """Return how to compute the columns asked for, with some row columns behind them."""
    names = scan_schema(schema)
    if columns is None:
        found = [OutputColumn(scan_field(field), Column((field.name,))) for field in schema.fields]
    elif isinstance(columns, Mapping):
        found = [computed_column(name, written, names) for name, written in columns.items()]
    else:
        found = [_named(path, schema, names) for path in columns]
    present = {column.field.name for column in found}
    found += [
        OutputColumn(ROW_FIELDS[name], Column((name,))) for name in behind if name not in present
    ]
    _check_distinct(found)
    fields, row_columns = needed(schema, (column.expression for column in found))
    return Projection(tuple(found), fields, row_columns, schema.metadata)


def computed_column(name: str, written: ExpressionLike, names: pa.Schema) -> OutputColumn:
    """Return the column of an expression over columns that it may name."""
    bound: Bound = compile_value(written, names)
    if isinstance(bound.expression, Column) and len(bound.expression.path) == 1:
        return OutputColumn(names.field(bound.expression.path[0]).with_name(name), bound.expression)
    return OutputColumn(pa.field(name, bound.data_type), bound.expression)


def project_parts(schema: Schema, columns: Columns) -> Projection:
    """Return how takes read columns: fields of a struct stay in it, each there once.

    asked for   ["s.y", "a", "s.x", "a", "_rowid", "_rowid"]
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
    first = {name: place for place, name in reversed([*enumerate(tops)])}
    found = tuple(
        OutputColumn(
            ROW_FIELDS[name] if name in row_columns else scan_field(parts[name]), Column((name,))
        )
        for place, name in enumerate(tops)
        if name in row_columns or first[name] == place
    )
    return Projection(found, tuple(parts.values()), tuple(row_columns), schema.metadata)


def _in_schema_order(whole: Field, part: Field) -> Field:
    kept = {child.id: child for child in part.children}
    return part.with_children(
        _in_schema_order(child, kept[child.id]) for child in whole.children if child.id in kept
    )


def needed(
    schema: Schema, expressions: Iterable[Expression]
) -> tuple[tuple[Field, ...], tuple[str, ...]]:
    """Return the fields, pruned, and the row columns that expressions read."""
    paths: dict[str, None] = {}
    row_columns: dict[str, None] = {}
    top = set(schema.names)
    for expression in expressions:
        for path in sorted(columns_of(expression)):
            if path[0] in ROW_FIELDS and path[0] not in top:
                row_columns[path[0]] = None
            else:
                paths[_stored_path(schema, path)] = None
    return schema.project(list(paths)).fields, tuple(row_columns)


def _stored_path(schema: Schema, path: tuple[str, ...]) -> str:
    """Return the part of a path that the schema has: keys of maps are no fields."""
    named, kept = schema.by_name, 0
    for name in path:
        node = named.get(name)
        if node is None or node.is_blob:
            break
        kept += 1
        children = node.children if node.logical_type == "struct" else ()
        named = {child.name: child for child in reversed(children)}
    return format_path(path[: max(kept, 1)])


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
    """Return a batch of rows without any column, which Arrow makes of structs alone."""
    rows = pa.StructArray.from_buffers(pa.struct([]), num_rows, [None])
    return pa.RecordBatch.from_struct_array(rows)
