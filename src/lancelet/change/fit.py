"""Match the schema of input rows against the schema of a table.

For example:

    table   id int64, name string, s{x, y}
    rows    name string, s{y}                   match: id and s.x will be null
    rows    id int32, nam string                do not match:
              `id` should have type int64 but type was int32
              unexpected: nam (did you mean name?)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.errors import InvalidInputError, SchemaMismatchError, similar_names
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.scan.row_columns import ROW_FIELDS

_SCHEMA_CACHE_SIZE: Final = 64
_HINT_COLUMNS_MAX: Final = 3
_FRAME_INDEX: Final = re.compile(r"__index_level_[0-9]+__")
"""The column of an index without a name, or with the name of a column."""
_TYPE_FUNCTIONS: Final = {
    "double": "float64",
    "float": "float32",
    "halffloat": "float16",
    "bool": "bool_",
}

_Needs: TypeAlias = Callable[[Field], bool]


class ReservedNameError(InvalidInputError, OSError):
    """A column has a name that is reserved for row ids or row versions."""


class AppendMismatchError(SchemaMismatchError, OSError):
    """Rows to append do not match the schema of the table."""


def fit_to_table(table: Schema, rows: pa.Schema, *, may_lack_required: bool = False) -> Schema:
    """Return the part of the table schema that the rows contain, in table order.

    Rows must contain all non-nullable fields, unless `may_lack_required` is set, as for updates of
    other columns. Other fields may be missing, also within structs.
    """
    if rows.equals(table.to_arrow()):
        return table
    row_fields = [Field.from_arrow(field, count()) for field in rows]
    needs = _is_optional if may_lack_required else _is_required
    differences = list(_differences(table.fields, row_fields, prefix="", needs=needs))
    if differences:
        raise AppendMismatchError(
            f"Append with different schema: {'; '.join(differences)}{_append_hint(table, rows)}",
            expected=str(table.names),
            found=str(rows.names),
        )
    return Schema(tuple(_select_fields(table.fields, row_fields)), table.metadata)


def _append_hint(table: Schema, rows: pa.Schema) -> str:
    """Return how to add the new columns to the table first, if there are any."""
    new = [field for field in rows if field.name not in table.names]
    if not new:
        return ""
    indices = [field.name for field in new if _FRAME_INDEX.fullmatch(field.name)]
    if len(indices) == len(new):
        return (
            f"; {', '.join(indices)} is the index of a pandas frame, which the table does not "
            "have; append frame.reset_index(drop=True)"
        )
    calls = [_type_call(field.type) for field in new]
    schema = ", ".join(f"({field.name!r}, {call})" for field, call in zip(new, calls, strict=True))
    is_short = len(new) <= _HINT_COLUMNS_MAX and all(calls)
    argument = f"pa.schema([{schema}])" if is_short else "schema"
    return f"; to add columns, call dataset.add_columns({argument}) before the append"


def _type_call(data_type: pa.DataType) -> str:
    """Return the call that creates a type without parameters, or an empty string."""
    name = _TYPE_FUNCTIONS.get(str(data_type), str(data_type))
    return f"pa.{name}()" if name.isidentifier() and hasattr(pa, name) else ""


def check_new_schema(schema: pa.Schema) -> None:
    """Raise for reserved column names and metadata that is not valid UTF-8.

    Other readers could not open such a table, and its row ids could not be selected.
    """
    for name in schema.names:
        if name in ROW_FIELDS:
            raise ReservedNameError(
                "the name is reserved for a column of row ids or versions; rename the column",
                column=name,
            )
    for key, value in (schema.metadata or {}).items():
        try:
            key.decode()
            value.decode()
        except UnicodeDecodeError as error:
            raise InvalidInputError(
                "schema metadata must be valid UTF-8; encode binary values as text",
                key=key,
            ) from error


def _select_fields(table: Sequence[Field], rows: Sequence[Field]) -> Iterator[Field]:
    row_fields = {field.name: field for field in rows}
    for field in table:
        row_field = row_fields.get(field.name)
        if row_field is None:
            continue
        if field.logical_type == logical_type.STRUCT and not field.is_blob:
            yield field.with_children(_select_fields(field.children, row_field.children))
        else:
            yield field


def _differences(
    table: Sequence[Field], rows: Sequence[Field], *, prefix: str, needs: _Needs
) -> Iterator[str]:
    """Yield the schema differences; fields accepted by `needs` must not be missing."""
    row_fields = {field.name: field for field in rows}
    table_names = {field.name for field in table}
    missing = [field.name for field in table if field.name not in row_fields]
    required = [field.name for field in table if field.name in missing and needs(field)]
    unexpected = [field.name for field in rows if field.name not in table_names]
    if unexpected or required:
        where = f" in {prefix[:-1]}" if prefix else ""
        hint = similar_names(unexpected[0], missing) if unexpected else ""
        yield (
            f"fields did not match{where}, missing=[{', '.join(required)}], "
            f"unexpected=[{', '.join(unexpected)}]{hint}"
        )
    for field in table:
        row_field = row_fields.get(field.name)
        if row_field is not None:
            yield from _difference(field, row_field, prefix + field.name, needs=needs)


def _difference(table: Field, rows: Field, path: str, *, needs: _Needs) -> Iterator[str]:
    if table.is_blob and (rows.is_blob or _is_binary(rows)):
        return
    if table.logical_type != rows.logical_type:
        yield f"`{path}` should have type {table.arrow_type} but type was {rows.arrow_type}"
    elif table.logical_type == logical_type.STRUCT:
        children = table.children, rows.children
        yield from _differences(*children, prefix=f"{path}.", needs=needs)
    else:
        for child, row_child in zip(table.children, rows.children, strict=True):
            yield from _difference(
                child, row_child, f"{path}.{child.name}", needs=_is_always_required
            )


def _is_required(field: Field) -> bool:
    return not field.nullable


def _is_always_required(field: Field) -> bool:  # noqa: ARG001 - within lists no field may be missing
    return True


def _is_optional(field: Field) -> bool:  # noqa: ARG001 - any field may be missing
    return False


def _is_binary(field: Field) -> bool:
    return field.logical_type in {"binary", "large_binary"}
