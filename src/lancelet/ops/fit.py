"""Whether rows fit a table: which of its fields they bring, or how the schemas differ.

table   id int64, name string, s{x, y}
rows    name string, s{y}                   fit: id and s.x will be null
rows    id int32, nam string                do not:
          `id` should have type int64 but type was int32
          unexpected: nam (did you mean name?)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, TypeAlias

import pyarrow as pa

from lancelet.errors import InvalidInputError, SchemaMismatchError, similar_names
from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.format.schema import Schema
from lancelet.query.row_columns import ROW_FIELDS

_SCHEMAS_KEPT: Final = 64

_Needs: TypeAlias = Callable[[Field], bool]


class ReservedNameError(InvalidInputError, OSError):
    """A column has a name that scans use for something else."""


class AppendMismatchError(SchemaMismatchError, OSError):
    """Rows to append do not fit the schema of the table."""


def fit_to_table(table: Schema, rows: pa.Schema, *, may_lack_required: bool = False) -> Schema:
    """Return the part of a table's schema that rows bring, in the order of the table.

    Fields that must not be null have to be brought, unless the rows only change others; the rest
    may be missing, within structs too.
    """
    if rows.equals(table.to_arrow()):
        return table
    found = [Field.from_arrow(field, count()) for field in rows]
    needs = _is_nothing if may_lack_required else _is_required
    differences = list(_differences(table.fields, found, prefix="", needs=needs))
    if differences:
        raise AppendMismatchError(
            "Append with different schema: " + "; ".join(differences),
            expected=str(table.names),
            found=str(rows.names),
        )
    return Schema(tuple(_parts(table.fields, found)), table.metadata)


def check_new_schema(schema: pa.Schema) -> None:
    """Refuse what a table must not begin with: names of row columns, metadata that are no text.

    Other readers could not open the table, and nobody could ask for its row ids.
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
                "the metadata of a schema must be text in UTF-8; encode other bytes as text",
                key=key,
            ) from error


def _parts(table: Sequence[Field], rows: Sequence[Field]) -> Iterator[Field]:
    brought = {field.name: field for field in rows}
    for field in table:
        own = brought.get(field.name)
        if own is None:
            continue
        if field.logical_type == logical_type.STRUCT and not field.is_blob:
            yield field.with_children(_parts(field.children, own.children))
        else:
            yield field


def _differences(
    table: Sequence[Field], rows: Sequence[Field], *, prefix: str, needs: _Needs
) -> Iterator[str]:
    """Yield what keeps rows from fitting; they must bring the fields that `needs` says."""
    brought = {field.name: field for field in rows}
    known = {field.name for field in table}
    missing = [field.name for field in table if field.name not in brought]
    required = [field.name for field in table if field.name in missing and needs(field)]
    unexpected = [field.name for field in rows if field.name not in known]
    if unexpected or required:
        where = f" in {prefix[:-1]}" if prefix else ""
        hint = similar_names(unexpected[0], missing) if unexpected else ""
        yield (
            f"fields did not match{where}, missing=[{', '.join(required)}], "
            f"unexpected=[{', '.join(unexpected)}]{hint}"
        )
    for field in table:
        own = brought.get(field.name)
        if own is not None:
            yield from _difference(field, own, prefix + field.name, needs=needs)


def _difference(table: Field, rows: Field, path: str, *, needs: _Needs) -> Iterator[str]:
    if table.is_blob and (rows.is_blob or _is_binary(rows)):
        return
    if table.logical_type != rows.logical_type:
        yield f"`{path}` should have type {table.arrow_type} but type was {rows.arrow_type}"
    elif table.logical_type == logical_type.STRUCT:
        children = table.children, rows.children
        yield from _differences(*children, prefix=f"{path}.", needs=needs)
    else:
        for child, own in zip(table.children, rows.children, strict=True):
            yield from _difference(child, own, f"{path}.{child.name}", needs=_is_field)


def _is_required(field: Field) -> bool:
    return not field.nullable


def _is_field(field: Field) -> bool:  # noqa: ARG001 - within lists no field may be missing
    return True


def _is_nothing(field: Field) -> bool:  # noqa: ARG001 - any field may be missing
    return False


def _is_binary(field: Field) -> bool:
    return field.logical_type in {"binary", "large_binary"}
