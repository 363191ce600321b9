"""Compute new columns from existing ones with expressions.

    {"b": "a + 1"}          a top-level column
    {"s.w": "a + 1"}        a field of the struct s; the expression refers to columns of the table
    {"l.item.v": "u * 2"}   a field of the structs in l; the expression refers to their fields

Columns with the constant value null are not written if the format permits that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.change.columns.column_file import file_version_of
from lancelet.change.columns.fields import ColumnError, keeps_nullability
from lancelet.change.columns.nested import GivenExpressions
from lancelet.change.columns.plan import (
    ColumnPlan,
    grown_schema,
    guides_of,
    plain_projection,
    shaped,
)
from lancelet.change.columns.rows import read_live
from lancelet.change.columns.sources import Expressions
from lancelet.expr.compile import compile_value
from lancelet.expr.expression import (
    And,
    Bound,
    Call,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    IsTrue,
    Like,
    Literal,
    Not,
    Or,
)
from lancelet.expr.traversal import children
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.field_path import parse_path
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.scan.projection import needed, scan_schema
from lancelet.table.snapshot import Snapshot

Path: TypeAlias = tuple[str, ...]

_LISTS = {*logical_type.LISTS, *logical_type.LARGE_LISTS}

_STRICT: Final = frozenset({"+", "-", "*", "/", "%", "||"})
"""Functions that return null only for null arguments."""


def plan_expressions(snapshot: Snapshot, source: Expressions) -> ColumnPlan:
    """Plan the addition of computed columns to a version."""
    schema = snapshot.schema
    written = {parse_path(name): text for name, text in source.columns.items()}
    names = {path: _names_for(schema, path) for path in written}
    bound = {path: compile_value(text, names[path]) for path, text in written.items()}
    grown = grown_schema(snapshot, _arrow_schema(schema, bound, names))
    stored = grown.added
    if file_version_of(snapshot) is not FileVersion.V0_1:
        existing = {field.id for field in schema.walk()}
        nulls = {path for path, each in bound.items() if _is_null(each)}
        stored = _without(stored, nulls, existing)
    expressions = {path: each.expression for path, each in bound.items()}
    outer = [
        expression for path, expression in expressions.items() if names[path] is scan_schema(schema)
    ]
    guides = guides_of(schema, stored)
    shapes = [Column((field.name,)) for field in guides]
    projection = plain_projection(*needed(schema, [*outer, *shapes]))

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        for rows in read_live(current, fragment, projection, source.batch_size):
            yield shaped(stored, rows, GivenExpressions(expressions, rows))

    return ColumnPlan(
        grown.schema,
        stored,
        values,
        guides,
        keeps_nullability=keeps_nullability(grown.added, schema),
    )


def _names_for(schema: Schema, path: Path) -> pa.Schema:
    """Return the columns that an expression for a path can refer to."""
    names, siblings = scan_schema(schema), schema.fields
    for part in path[:-1]:
        field = next((each for each in siblings if each.name == part), None)
        if field is None:
            raise ColumnError(
                f"Column {'.'.join(path)} would be within {part}, which does not exist; "
                "add the struct as a whole",
                column=".".join(path),
            )
        if field.logical_type in _LISTS:
            item = field.children[0]
            names = pa.schema([child.to_arrow() for child in item.children])
        siblings = field.children
    return names


def _arrow_schema(
    schema: Schema, bound: Mapping[Path, Bound], names: Mapping[Path, pa.Schema]
) -> pa.Schema:
    """Return the fields of the expressions, nested in structs and lists like those of the table."""
    return pa.schema(_fields_below((), schema.fields, bound, names))


def _fields_below(
    prefix: Path,
    siblings: tuple[Field, ...],
    bound: Mapping[Path, Bound],
    names: Mapping[Path, pa.Schema],
) -> list[pa.Field]:
    depth = len(prefix)
    found: dict[str, pa.Field] = {}
    for path, each in bound.items():
        if path[:depth] != prefix or path[depth] in found:
            continue
        name = path[depth]
        if len(path) == depth + 1:
            found[name] = pa.field(name, each.data_type, may_be_null(each.expression, names[path]))
            continue
        present = next(field for field in siblings if field.name == name)
        below = _fields_below((*prefix, name), present.children, bound, names)
        found[name] = pa.field(name, _like(present, below), present.nullable)
    return list(found.values())


def _like(present: Field, below: list[pa.Field]) -> pa.DataType:
    if present.logical_type in logical_type.LISTS:
        return pa.list_(below[0])
    if present.logical_type in logical_type.LARGE_LISTS:
        return pa.large_list(below[0])
    return pa.struct(below)


def _is_null(bound: Bound) -> bool:
    return isinstance(bound.expression, Literal) and not bound.expression.scalar.is_valid


def _without(added: Schema, paths: Collection[Path], existing: Collection[int]) -> Schema:
    """Remove the fields at paths from the added fields."""
    remaining = {
        field.id
        for path, field in _walk((), added.fields)
        if field.id not in existing and not any(path[: len(null)] == null for null in paths)
    }
    return added.project_ids(remaining)


def _walk(prefix: Path, fields: tuple[Field, ...]) -> Iterator[tuple[Path, Field]]:
    for field in fields:
        path = (*prefix, field.name)
        yield path, field
        yield from _walk(path, field.children)


def may_be_null(expression: Expression, names: pa.Schema) -> bool:
    """Return whether a bound expression over columns of `names` may be null.

    For a column `a` that is not nullable, and a nullable column `n`:

        a + 1            never null, since failing computations raise
        a + n            may be null
        n IS NULL        never null
        coalesce(n, 0)   never null
        upper(a)         assumed to be nullable, like all other functions
    """
    match expression:
        case Literal(scalar):
            return not scalar.is_valid
        case Column(path):
            return _column_may_be_null(path, names)
        case IsNull() | IsTrue():
            return False
        case Call("coalesce", arguments):
            return all(may_be_null(argument, names) for argument in arguments)
        case In(operand, values):
            return bool(values.null_count) or may_be_null(operand, names)
        case Call(function, _) if function not in _STRICT:
            return True
        case Cast(_, _, True):
            return True
        case And() | Or() | Not() | Comparison() | Like() | Cast() | Call():
            return any(may_be_null(child, names) for child in children(expression))
        case _:
            return True


def _column_may_be_null(path: tuple[str, ...], names: pa.Schema) -> bool:
    field = names.field(path[0])
    for name in path[1:]:
        if field.nullable or not pa.types.is_struct(field.type):
            return True
        field = field.type.field(name)
    return bool(field.nullable)
