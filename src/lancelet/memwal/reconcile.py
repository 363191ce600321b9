"""Convert rows of a shard to the current schema of the table.

Rows of a shard were written with an earlier schema of the table. Columns are matched by field id,
since ids survive renames. Names are not reliable: a dropped column and a new column may share one:

    written as      id 0   x 2
    table now       id 0   y 2   x 3
    read as         y has the values of the old x, x is null

Only rows without any field ids are matched by name. `_tombstone` is always identified by its name,
since a column of the table may have received its id later.

Rows that cannot be converted are an error: the type of a column changed, a key or non-nullable
column is missing in the rows, or the rows contain deletions and the table lost its primary key.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.errors import SchemaMismatchError
from lancelet.format.field import NO_PARENT, Field, FieldId
from lancelet.format.schema import Schema
from lancelet.format.shard_manifest import TOMBSTONE
from lancelet.format.wire import parse_number

_FIELD_ID: Final = b"lance:field_id"
_TOMBSTONE_FIELD: Final = pa.field(TOMBSTONE, pa.bool_(), nullable=False)


class IrreconcilableError(SchemaMismatchError, OSError):
    """Rows of a shard cannot be converted to the current schema of the table."""


def stored_schema(base: Schema) -> Schema:
    """Return the schema of rows of a shard: the columns of the table, and a deletion mark.

    A deleted row contains only its key, so that all other columns are nullable.
    """
    if not base.primary_key:
        return base
    fields = [each if each.primary_key is not None else _nullable(each) for each in base.fields]
    tombstone = Field.from_arrow(_TOMBSTONE_FIELD, iter([base.max_field_id + 1]))
    return replace(base, fields=(*fields, tombstone))


def logged_schema(base: Schema) -> pa.Schema:
    """Return the schema of log entries: the schema of rows, with field ids.

    It includes the metadata of the table, which the reference implementation requires for replay.
    """
    return pa.schema(
        [
            _TOMBSTONE_FIELD if field.name == TOMBSTONE else _with_ids(field.to_arrow(), field)
            for field in stored_schema(base).fields
        ],
        base.to_arrow().metadata,
    )


def plain_schema(base: Schema) -> pa.Schema:
    """Return the schema of rows in memory, without field metadata."""
    return pa.schema([field.remove_metadata() for field in stored_schema(base).to_arrow()])


def logged_ids(schema: pa.Schema) -> set[int]:
    """Return the field ids of an entry, including nested fields."""
    found = set()
    pending = [field for field in schema if field.name != TOMBSTONE]
    while pending:
        field = pending.pop()
        if (own := _id_of(field)) is not None:
            found.add(own)
        if pa.types.is_nested(field.type):
            pending += [field.type.field(at) for at in range(field.type.num_fields)]
    return found


def reconcile_batch(batch: pa.RecordBatch, base: Schema) -> pa.RecordBatch:
    """Return the rows of an entry with the schema of `plain_schema`.

    Raises:
        IrreconcilableError: The rows cannot be converted to the current schema of the table.
    """
    target, source = plain_schema(base), batch.schema
    has_ids = any(_id_of(each) is not None for each in source)
    deletions = _deletions(batch)
    if not base.primary_key and deletions.any():
        raise IrreconcilableError(
            "the shard deleted rows by a primary key, which the table has no more; restore a "
            "version that has the key"
        )
    columns = []
    for field, arrow in zip(stored_schema(base).fields, target, strict=True):
        if field.name == TOMBSTONE:
            columns.append(pa.array(deletions))
            continue
        at = _find(source, field, has_ids)
        of_base = next(each for each in base.fields if each.id == field.id)
        if at is None:
            _check_may_be_absent(of_base)
            columns.append(pa.nulls(len(batch), arrow.type))
            continue
        column = _fitted(batch.column(at), source.field(at), field, has_ids)
        if not of_base.nullable and column.null_count:
            _check_without_nulls(column, deletions, of_base)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


def reconcile_schema(stored: Schema, base: Schema) -> Schema:
    """Return a schema that reads a flushed table with the columns of the base table.

    It has the names and order of the base table, and the ids of the flushed table. A field that is
    missing in the flushed table gets an unused id, so that it is read as null.
    """
    tombstone = next((each for each in stored.fields if each.name == TOMBSTONE), None)
    stored_fields = {
        node.id: node for field in stored.fields if field is not tombstone for node in field.walk()
    }
    if tombstone is not None and not base.primary_key:
        raise IrreconcilableError(
            "the flushed table deleted rows by a primary key, which the table has no more"
        )
    free = itertools.count(max(stored.max_field_id, base.max_field_id) + 1)
    fields = []
    for field in base.fields:
        if field.id not in stored_fields:
            _check_may_be_absent(field)
        fields.append(_read_as(_nullable(field), stored_fields, free, NO_PARENT))
    return Schema((*fields, *(() if tombstone is None else (tombstone,))), base.metadata)


def _read_as(
    field: Field, stored_fields: dict[FieldId, Field], free: Iterator[int], parent: FieldId
) -> Field:
    stored = stored_fields.get(field.id)
    own = FieldId(next(free)) if stored is None else field.id
    if stored is not None and stored.logical_type != field.logical_type:
        raise _other_type(field.name, stored.logical_type, field.logical_type)
    children = tuple(_read_as(child, stored_fields, free, own) for child in field.children)
    return replace(field, id=own, parent_id=parent, children=children)


def _deletions(batch: pa.RecordBatch) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return the deletion mask of an entry."""
    at = batch.schema.get_field_index(TOMBSTONE)
    if at < 0:
        return np.zeros(len(batch), np.bool_)
    mask = batch.column(at)
    if not pa.types.is_boolean(mask.type) or mask.null_count:
        raise IrreconcilableError("deletions must be non-null booleans", type=str(mask.type))
    found: np.ndarray[tuple[int], np.dtype[np.bool_]] = mask.to_numpy(zero_copy_only=False)
    return found


def _find(source: Sequence[pa.Field] | pa.Schema, field: Field, has_ids: bool) -> int | None:
    for at, each in enumerate(source):
        if each.name == TOMBSTONE and field.parent_id == NO_PARENT:
            continue
        if (_id_of(each) == field.id) if has_ids else (each.name == field.name):
            return at
    return None


def _fitted(column: pa.Array, source: pa.Field, field: Field, has_ids: bool) -> pa.Array:
    """Convert a column to a field of the table."""
    target = field.to_arrow().remove_metadata().type
    stored = source.type
    if pa.types.is_struct(stored) and field.logical_type == "struct":
        inner = [stored.field(at) for at in range(stored.num_fields)]
        # Entries of early writers only contain the ids of top-level columns, so that renamed and
        # dropped nested fields cannot be distinguished.
        by_id = has_ids and any(_id_of(each) is not None for each in inner)
        if has_ids and not by_id and {x.name for x in inner} - {x.name for x in field.children}:
            raise _other_type(field.name, str(stored), str(target))
        parts = []
        for child in field.children:
            at = _find(inner, child, by_id)
            if at is None:
                parts.append(pa.nulls(len(column), child.to_arrow().type))
            else:
                parts.append(_fitted(column.field(at), inner[at], child, has_ids))
        fields = [child.to_arrow() for child in field.children]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask).cast(target)
    if isinstance(stored, pa.ListType | pa.LargeListType) and field.is_list and field.children:
        column = _without_offset(column)
        values = _fitted(column.values, stored.value_field, field.children[0], has_ids)
        kind = pa.ListArray if isinstance(stored, pa.ListType) else pa.LargeListArray
        mask = column.is_null() if column.null_count else None
        return kind.from_arrays(column.offsets, values, mask=mask).cast(target)
    if column.type.equals(target) or _storage(column.type).equals(_storage(target)):
        return column.cast(target)
    if pa.types.is_nested(stored) and str(stored) == str(target):
        return column.cast(target)
    raise _other_type(field.name, str(stored), str(target))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind


def _without_offset(column: pa.Array) -> pa.Array:
    return pa.concat_arrays([column, column[:0]]) if column.offset else column


def _check_may_be_absent(field: Field) -> None:
    if field.primary_key is not None:
        raise IrreconcilableError(
            f"rows of the shard lack the primary key column {field.name!r} of the table",
            column=field.name,
        )
    if not field.nullable:
        raise IrreconcilableError(
            f"rows of the shard lack the column {field.name!r}, which must not be null",
            column=field.name,
        )


def _check_without_nulls(
    column: pa.Array, deletions: np.ndarray[tuple[int], np.dtype[np.bool_]], field: Field
) -> None:
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    if field.primary_key is not None or (is_null & ~deletions).any():
        raise IrreconcilableError(
            f"rows of the shard have nulls in the column {field.name!r}, which must not be null",
            column=field.name,
        )


def _other_type(name: str, stored: str, now: str) -> IrreconcilableError:
    return IrreconcilableError(
        f"the shard has the column {name!r} as {stored}, the table as {now}; the type of a column "
        "cannot change while a shard has rows of it",
        column=name,
    )


def _nullable(field: Field) -> Field:
    return field if field.nullable else replace(field, nullable=True)


def _id_of(field: pa.Field) -> int | None:
    return parse_number((field.metadata or {}).get(_FIELD_ID))


def _with_ids(arrow: pa.Field, field: Field) -> pa.Field:
    """Return an Arrow field with the ids of a field and its children."""
    kind = arrow.type
    if pa.types.is_struct(kind):
        parts = zip((kind.field(at) for at in range(kind.num_fields)), field.children, strict=True)
        arrow = arrow.with_type(pa.struct([_with_ids(*part) for part in parts]))
    elif isinstance(kind, pa.ListType) and field.children:
        arrow = arrow.with_type(pa.list_(_with_ids(kind.value_field, field.children[0])))
    elif isinstance(kind, pa.LargeListType) and field.children:
        arrow = arrow.with_type(pa.large_list(_with_ids(kind.value_field, field.children[0])))
    metadata = {**(arrow.metadata or {}), _FIELD_ID: str(field.id).encode()}
    return arrow.with_metadata(metadata)
