"""Add fields to schemas, assigning positions and field ids.

    schema    a 0, s 1 {x 2}          highest id of schema and files: 4
    added     s{y}, b
    after     a 0, s 1 {x 2, y 5}, b 6
    new file  s 1 {y 5}, b 6          the schema of the file with the new columns

Field ids in existing files are never reused; otherwise a dropped column would reappear under
another name.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from lancelet.change.mem_wal_guard import used_field_id
from lancelet.errors import FieldNotFoundError, InvalidInputError, UnsupportedError, similar_names
from lancelet.expr.data_types import print_arrow_type
from lancelet.format import logical_type
from lancelet.format.field import NO_ID, Field, FieldId, check_primary_key
from lancelet.format.fragment import Fragment
from lancelet.format.schema import Schema, check_names
from lancelet.format.version import FileVersion
from lancelet.scan.row_columns import ROW_FIELDS
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_EXTENSIBLE = {logical_type.STRUCT, *logical_type.LISTS, *logical_type.LARGE_LISTS}


class ColumnError(InvalidInputError, OSError):
    """A change to the columns of a table is invalid."""


class ColumnSourceError(ColumnError, RuntimeError):
    """The source of new columns failed; its error is the cause of this one."""


class ColumnNotFoundError(FieldNotFoundError, OSError):
    """The column to change does not exist."""


class ColumnUnsupportedError(UnsupportedError, OSError):
    """The file version of the table does not support the change."""


@dataclass(frozen=True, slots=True)
class Grown:
    """A schema with added columns, and the schema of only the new fields."""

    schema: Schema
    added: Schema


def next_field_id(snapshot: Snapshot) -> int:
    """Return the first field id that the schema and the files do not use."""
    in_files = max(_ids_in_files(snapshot.fragments), default=-1)
    used = used_field_id(snapshot.schema)
    return max(snapshot.manifest.max_field_id, in_files, used) + 1


def find_chain(schema: Schema, path: str) -> tuple[Field, ...]:
    """Return the fields from the root to a path; names are case-sensitive."""
    try:
        return schema.fields_on_path(path)
    except FieldNotFoundError as error:
        hint = similar_names(
            str(error.facts.get("missing", path)), _names(error.facts["available"])
        )
        raise ColumnNotFoundError(
            f'Column "{path}" does not exist in the dataset{hint}', **error.facts
        ) from None


def grow(schema: Schema, new: pa.Schema, *, first_id: int, version: FileVersion) -> Grown:
    """Add columns to a schema, or fields to its structs."""
    with _as_column_error():
        brought = Schema.from_arrow(new, blob_v2=version >= FileVersion.V2_2)
    for name in brought.names:
        if name in ROW_FIELDS:
            raise ColumnError("a column must not have the name of a row column", column=name)
    merged = tuple(_merged(schema.fields, brought.fields, version, prefix=""))
    ids = itertools.count(first_id)
    fields = tuple(_numbered(field, ids, field.parent_id) for field in merged)
    check_fields(fields)
    grown = Schema(fields, schema.metadata)
    existing = {field.id for field in schema.walk()}
    added = grown.project_ids({field.id for field in grown.walk()} - existing)
    return Grown(grown, added)


def check_fields(fields: Sequence[Field]) -> None:
    """Raise if column names are duplicated or the primary key is invalid."""
    with _as_column_error():
        check_names(fields)
        check_primary_key(fields)
    for field in fields:
        _check_children(field)


def keeps_nullability(added: Schema, before: Schema) -> bool:
    """Return whether all added fields are nullable, so that rows without them remain valid."""
    existing = {field.id for field in before.walk()}
    return all(field.nullable for field in added.walk() if field.id not in existing)


@contextmanager
def _as_column_error() -> Iterator[None]:
    """Convert schema errors to column errors."""
    try:
        yield
    except InvalidInputError as error:
        raise ColumnError(error.message, **error.facts) from error


def _check_children(field: Field) -> None:
    names = [child.name for child in field.children]
    if len(set(names)) < len(names):
        raise ColumnError("a struct has duplicate field names", column=field.name, names=names)
    for child in field.children:
        _check_children(child)


def _ids_in_files(fragments: Iterable[Fragment]) -> Iterator[int]:
    for fragment in fragments:
        for file in fragment.files:
            yield from file.fields


def _names(names: object) -> list[str]:
    return [str(name) for name in names] if isinstance(names, Iterable) else []


def _merged(
    present: Sequence[Field], brought: Sequence[Field], version: FileVersion, *, prefix: str
) -> Iterator[Field]:
    """Yield the existing fields of a level, extended by their new children, then new fields."""
    by_name = {field.name: field for field in brought}
    for field in present:
        own = by_name.pop(field.name, None)
        yield field if own is None else _extended(field, own, version, path=prefix + field.name)
    for field in by_name.values():
        yield _without_ids(field)


def _extended(present: Field, brought: Field, version: FileVersion, *, path: str) -> Field:
    kind = present.logical_type
    if kind != brought.logical_type or kind not in _EXTENSIBLE or present.is_blob:
        raise ColumnError(
            f"Column {path} already exists in the dataset. Type conflicts between "
            f"{path}({print_arrow_type(present.arrow_type)}) and "
            f"{path}({print_arrow_type(brought.arrow_type)}); pass only new columns, a data frame "
            "as frame.reset_index(drop=True), and change existing ones with update or merge_insert",
            column=path,
        )
    if present.is_packed:
        raise ColumnError(
            f"Column {path} is packed struct and already exists in the dataset", column=path
        )
    if kind == logical_type.STRUCT:
        if version < FileVersion.V2_1:
            raise ColumnUnsupportedError(
                f"Column {path} is a struct col, add sub column is not supported in Lance file "
                f"version {version.value}",
                column=path,
                version=version.value,
            )
        children = tuple(_merged(present.children, brought.children, version, prefix=f"{path}."))
    else:
        item, own = present.children[0], brought.children[0]
        children = (_extended(item, own, version, path=f"{path}.{item.name}"),)
    return present.with_children(children)


def _without_ids(field: Field) -> Field:
    return replace(field, id=NO_ID, children=tuple(_without_ids(child) for child in field.children))


def _numbered(field: Field, ids: Iterator[int], parent_id: FieldId) -> Field:
    """Assign ids to fields without one, parents first."""
    own = FieldId(next(ids)) if field.id == NO_ID else field.id
    children = tuple(_numbered(child, ids, own) for child in field.children)
    return replace(field, id=own, parent_id=parent_id, children=children)
