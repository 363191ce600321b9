"""Conversion between user types and storage types of arrays.

    user type                        storage type
    extension<arrow.uuid>            fixed_size_binary[16]
    extension<arrow.json>            large_binary, as JSONB
    string_view                      string
    list<element: ...>               list<item: ...>      names of the schema

All conversions except JSON are Arrow casts at any depth, mostly without copies. Arrays of a
different logical type are rejected, never converted.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.encodings.arrow import validity_bits
from lancelet.encodings.jsonb import documents_from_storage, documents_to_storage
from lancelet.errors import InternalError, InvalidInputError, SchemaMismatchError
from lancelet.format import logical_type
from lancelet.format.field import Field


class UnexpectedNullError(InvalidInputError, OSError):
    """A non-nullable field contains a null value."""


def to_storage(array: pa.Array, field: Field) -> pa.Array:
    """Convert an array to the storage type of a field, or raise if the types differ."""
    stored = field.storage_type
    if array.type == stored and not has_json(field):
        return array
    shape = _shape_of_type(array.type)
    if shape != _shape(field):
        raise SchemaMismatchError(
            "the values do not have the type of the field in the file",
            field=field.name,
            expected=str(field.arrow_type),
            found=str(array.type),
        )
    if has_json(field):
        array = _map_json(array, field, _json_to_storage)
    return cast_values(array, stored)


def from_storage(array: pa.Array, field: Field) -> pa.Array:
    """Convert a stored array to the user type; the inverse of `to_storage`."""
    if has_json(field):
        array = _map_json(array, field, documents_from_storage)
    if any(node.is_blob for node in field.walk()):
        return cast_values(array, _type_with_descriptors(field, array.type))
    return cast_values(array, user_type(field))


def cast_values(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast an array to a type with the same structure.

    Types with null columns are cast recursively: Arrow gives a null column below a struct the
    length of the struct, even if lists are in between.
    """
    if array.type == target:
        return array
    if isinstance(array, pa.ExtensionArray):
        return cast_values(array.storage, target)
    if isinstance(target, pa.BaseExtensionType):
        storage = cast_values(array, target.storage_type)
        return pa.ExtensionArray.from_storage(target, storage)
    if not target.num_fields or not _holds_null(target):
        return array.cast(target)
    if pa.types.is_struct(target):
        children = [
            cast_values(array.field(index), target.field(index).type)
            for index in range(target.num_fields)
        ]
        bits = validity_bits(array)
        nulls = None if bits is None else pa.py_buffer(bits)
        return pa.Array.from_buffers(target, len(array), [nulls], children=children)
    num_buffers = 1 if pa.types.is_fixed_size_list(target) else 2
    items = cast_values(array.values, target.field(0).type)
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:num_buffers], offset=array.offset, children=[items]
    )


def _holds_null(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _holds_null(data_type.storage_type)
    children = (data_type.field(child_index).type for child_index in range(data_type.num_fields))
    return pa.types.is_null(data_type) or any(map(_holds_null, children))


def stored_columns(
    batch: pa.RecordBatch | pa.Table, fields: Sequence[Field]
) -> list[list[pa.Array]]:
    """Return the columns of a batch by field, converted to storage types and validated."""
    if batch.schema.names == [field.name for field in fields]:
        return [_stored(column, field) for column, field in zip(batch.columns, fields, strict=True)]
    return [stored_column(batch, field) for field in fields]


def stored_column(batch: pa.RecordBatch | pa.Table, field: Field) -> list[pa.Array]:
    """Return the column of a field, converted to its storage type and validated."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise InvalidInputError(
            "the batch does not contain a column of the file",
            field=field.name,
            found=batch.schema.names[:100],
        )
    return _stored(batch.column(index), field)


def _stored(column: pa.Array | pa.ChunkedArray, field: Field) -> list[pa.Array]:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if column.type == (_simple_type(field) or _plain_type(field)):
        return chunks
    arrays = [to_storage(chunk, field) for chunk in chunks]
    for array in arrays:
        check_nulls(array, field)
    return arrays


def check_nulls(array: pa.Array, field: Field) -> None:
    """Raise if a non-nullable field is null where its parents are valid.

    >>> field = Field.from_arrow(pa.field("x", pa.int8(), nullable=False), iter(range(1)))
    >>> check_nulls(pa.array([1, None], pa.int8()), field)
    Traceback (most recent call last):
    lancelet.file.storage.UnexpectedNullError: ... (field='x', nulls=1)
    """
    if all(node.nullable for node in field.walk()):
        return
    if not field.nullable and array.null_count:
        raise UnexpectedNullError(
            "a non-nullable field contains null values",
            field=field.name,
            nulls=array.null_count,
        )
    if not field.children:
        return
    if isinstance(array, pa.StructArray):
        present = array.filter(array.is_valid()) if array.null_count else array
        for index, child in enumerate(field.children):
            check_nulls(present.field(index), child)
    elif isinstance(array, pa.MapArray):
        check_nulls(pc.list_flatten(_map_as_list(array)), field.children[0])
    else:
        check_nulls(pc.list_flatten(array), field.children[0])


def _simple_type(field: Field) -> pa.DataType | None:
    """Return the plain type of most fields, faster than the cached lookup below."""
    if field.children or not field.nullable:
        return None
    return logical_type.simple_type_of(field.logical_type)


@lru_cache(maxsize=4096)
def _plain_type(field: Field) -> pa.DataType | None:
    """Return the type of arrays that need no validation, or None if all need it."""
    is_plain = not field.children and field.nullable and not has_json(field)
    return field.storage_type if is_plain else None


@lru_cache(maxsize=4096)
def has_json(field: Field) -> bool:
    """Return whether a field or a descendant is JSON."""
    return any(node.logical_type == logical_type.JSON for node in field.walk())


def _type_with_descriptors(field: Field, stored_type: pa.DataType) -> pa.DataType:
    """Return the user type; blobs that were read as descriptors retain that type."""
    if field.is_blob:
        return user_type(field) if stored_type == field.storage_type else stored_type
    if pa.types.is_struct(stored_type):
        return pa.struct(
            [
                pa.field(child.name, _type_with_descriptors(child, part.type), child.nullable)
                for child, part in zip(field.children, stored_type, strict=True)
            ]
        )
    if pa.types.is_list(stored_type) or pa.types.is_large_list(stored_type):
        (item,) = field.children
        item_field = pa.field(
            item.name, _type_with_descriptors(item, stored_type.value_type), item.nullable
        )
        return (
            pa.large_list(item_field)
            if pa.types.is_large_list(stored_type)
            else pa.list_(item_field)
        )
    return user_type(field)


@lru_cache(maxsize=4096)
def user_type(field: Field) -> pa.DataType:
    """Return the user type of a field."""
    return field.arrow_type


def _map_as_list(array: pa.MapArray) -> pa.ListArray:
    """Return a map as a list of structs; Arrow's cast fails on slices."""
    return _with_items(array, pa.list_(array.values.type), array.values)


def _shape_of_type(data_type: pa.DataType) -> tuple[object, ...]:
    """Return the logical types of a type, and the names of its struct fields."""
    return _shape(Field.from_arrow(pa.field("", data_type), itertools.count()))


def _shape(field: Field) -> tuple[object, ...]:
    is_struct = field.logical_type == logical_type.STRUCT
    return (
        _plain_kind(field.logical_type),
        tuple((child.name if is_struct else "", _shape(child)) for child in field.children),
    )


def _plain_kind(kind: str) -> str:
    """Return the logical type of the storage; extension types accept storage arrays."""
    return kind.replace(logical_type.BFLOAT16, "fixed_size_binary:2")


def _json_to_storage(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return documents_to_storage(array)


def _map_json(array: pa.Array, field: Field, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Convert the JSON values of an array at any depth."""
    if field.logical_type == logical_type.JSON:
        return convert(array)
    if not has_json(field):
        return array
    if isinstance(array, pa.StructArray):
        children = [
            _map_json(array.field(index), child, convert)
            for index, child in enumerate(field.children)
        ]
        fields = [
            pa.field(child.name, values.type, child.nullable)
            for child, values in zip(field.children, children, strict=True)
        ]
        return pa.StructArray.from_arrays(
            children, fields=fields, mask=array.is_null() if array.null_count else None
        )
    if isinstance(array, pa.MapArray):
        entries = _map_json(array.values, field.children[0], convert)
        key, value = entries.type.field(0), entries.type.field(1)
        return _with_items(array, pa.map_(key, value), entries)
    items = _map_json(array.values, field.children[0], convert)
    item = field.children[0]
    make = {pa.ListArray: pa.list_, pa.LargeListArray: pa.large_list}.get(type(array))
    if make is None:
        raise InternalError("unsupported parent type of JSON values", type=str(array.type))
    return _with_items(array, make(pa.field(item.name, items.type, item.nullable)), items)


def _with_items(lists: pa.Array, data_type: pa.DataType, items: pa.Array) -> pa.Array:
    """Return lists with the same offsets and validity, and new items."""
    return pa.Array.from_buffers(
        data_type, len(lists), lists.buffers()[:2], offset=lists.offset, children=[items]
    )
