"""Between the arrays that users have and the arrays that encodings store.

    what users have                  what is stored
    extension<arrow.uuid>            fixed_size_binary[16]
    extension<arrow.json> over text  large_binary, the document in binary form
    string_view                      string
    list<element: ...>               list<item: ...>      the names that the schema gives

Arrow casts all of it but JSON, at any depth and mostly without touching the values. Arrays that
mean something else than the field says are refused, never converted.
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
    """A value is null in a field that must not be."""


def to_storage(array: pa.Array, field: Field) -> pa.Array:
    """Return an array as it is stored under a field, or refuse it by the name of the field."""
    stored = field.storage_type
    if array.type == stored and not has_json(field):
        return array
    found = _shape_of_type(array.type)
    if found != _shape(field):
        raise SchemaMismatchError(
            "values are not of the type that the field has in the file",
            field=field.name,
            expected=str(field.arrow_type),
            found=str(array.type),
        )
    if has_json(field):
        array = _map_json(array, field, _json_to_storage)
    return cast_values(array, stored)


def from_storage(array: pa.Array, field: Field) -> pa.Array:
    """Return a stored array as users see it; the inverse of `to_storage`."""
    if has_json(field):
        array = _map_json(array, field, documents_from_storage)
    if any(node.is_blob for node in field.walk()):
        return cast_values(array, _type_with_places(field, array.type))
    return cast_values(array, user_type(field))


def cast_values(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array as one of a type of the same shape.

    Arrow makes a null column below a struct as long as the struct, whatever lists are in between,
    so what has one is cast piece by piece.
    """
    if array.type == wanted:
        return array
    if isinstance(array, pa.ExtensionArray):
        return cast_values(array.storage, wanted)
    if isinstance(wanted, pa.BaseExtensionType):
        storage = cast_values(array, wanted.storage_type)
        return pa.ExtensionArray.from_storage(wanted, storage)
    if not wanted.num_fields or not _holds_null(wanted):
        return array.cast(wanted)
    if pa.types.is_struct(wanted):
        children = [
            cast_values(array.field(place), wanted.field(place).type)
            for place in range(wanted.num_fields)
        ]
        bits = validity_bits(array)
        nulls = None if bits is None else pa.py_buffer(bits)
        return pa.Array.from_buffers(wanted, len(array), [nulls], children=children)
    own = 1 if pa.types.is_fixed_size_list(wanted) else 2
    items = cast_values(array.values, wanted.field(0).type)
    return pa.Array.from_buffers(
        wanted, len(array), array.buffers()[:own], offset=array.offset, children=[items]
    )


def _holds_null(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _holds_null(data_type.storage_type)
    children = (data_type.field(place).type for place in range(data_type.num_fields))
    return pa.types.is_null(data_type) or any(map(_holds_null, children))


def stored_columns(
    batch: pa.RecordBatch | pa.Table, fields: Sequence[Field]
) -> list[list[pa.Array]]:
    """Return the values of fields, found by name, as they are stored and known to fit."""
    if batch.schema.names == [field.name for field in fields]:
        return [_stored(column, field) for column, field in zip(batch.columns, fields, strict=True)]
    return [stored_column(batch, field) for field in fields]


def stored_column(batch: pa.RecordBatch | pa.Table, field: Field) -> list[pa.Array]:
    """Return the values of a field, found by its name, as they are stored and known to fit."""
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise InvalidInputError(
            "the batch lacks a column of the file",
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
    """Raise unless values that must not be null are not; what lies under a null is nobody's.

    >>> field = Field.from_arrow(pa.field("x", pa.int8(), nullable=False), iter(range(1)))
    >>> check_nulls(pa.array([1, None], pa.int8()), field)
    Traceback (most recent call last):
    lancelet.file.storage.UnexpectedNullError: ... (field='x', nulls=1)
    """
    if all(node.nullable for node in field.walk()):
        return
    if not field.nullable and array.null_count:
        raise UnexpectedNullError(
            "a field that must not be null contained null values",
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
    """Return the same for most fields, in less time than it takes to look them up."""
    if field.children or not field.nullable:
        return None
    return logical_type.simple_type_of(field.logical_type)


@lru_cache(maxsize=4096)
def _plain_type(field: Field) -> pa.DataType | None:
    """Return the type of arrays that are stored as they come, or None if some have to be seen."""
    is_plain = not field.children and field.nullable and not has_json(field)
    return field.storage_type if is_plain else None


@lru_cache(maxsize=4096)
def has_json(field: Field) -> bool:
    """Say whether a field is JSON or holds it somewhere."""
    return any(node.logical_type == logical_type.JSON for node in field.walk())


def _type_with_places(field: Field, found: pa.DataType) -> pa.DataType:
    """Return the type of users, but for blobs that were read as where their bytes are."""
    if field.is_blob:
        return user_type(field) if found == field.storage_type else found
    if pa.types.is_struct(found):
        return pa.struct(
            [
                pa.field(child.name, _type_with_places(child, part.type), child.nullable)
                for child, part in zip(field.children, found, strict=True)
            ]
        )
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        (item,) = field.children
        own = pa.field(item.name, _type_with_places(item, found.value_type), item.nullable)
        return pa.large_list(own) if pa.types.is_large_list(found) else pa.list_(own)
    return user_type(field)


@lru_cache(maxsize=4096)
def user_type(field: Field) -> pa.DataType:
    """Return the type in which users see the values of a field."""
    return field.arrow_type


def _map_as_list(array: pa.MapArray) -> pa.ListArray:
    """Return a map as the list of structs that it is; Arrow's own cast fails on slices."""
    return _around(array, pa.list_(array.values.type), array.values)


def _shape_of_type(data_type: pa.DataType) -> tuple[object, ...]:
    """Return what a type means: its logical types, and the names of struct fields."""
    return _shape(Field.from_arrow(pa.field("", data_type), itertools.count()))


def _shape(field: Field) -> tuple[object, ...]:
    is_struct = field.logical_type == logical_type.STRUCT
    return (
        _plain_kind(field.logical_type),
        tuple((child.name if is_struct else "", _shape(child)) for child in field.children),
    )


def _plain_kind(kind: str) -> str:
    """Return the logical type of the storage, so that storage may be given for an extension."""
    return kind.replace(logical_type.BFLOAT16, "fixed_size_binary:2")


def _json_to_storage(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    return documents_to_storage(array)


def _map_json(array: pa.Array, field: Field, convert: Callable[[pa.Array], pa.Array]) -> pa.Array:
    """Convert the JSON values of an array, wherever they are in it."""
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
        return _around(array, pa.map_(key, value), entries)
    items = _map_json(array.values, field.children[0], convert)
    item = field.children[0]
    make = {pa.ListArray: pa.list_, pa.LargeListArray: pa.large_list}.get(type(array))
    if make is None:
        raise InternalError("JSON values are in a type that cannot hold them", type=str(array.type))
    return _around(array, make(pa.field(item.name, items.type, item.nullable)), items)


def _around(lists: pa.Array, data_type: pa.DataType, items: pa.Array) -> pa.Array:
    """Return lists of a type with other items, as many as there are now."""
    return pa.Array.from_buffers(
        data_type, len(lists), lists.buffers()[:2], offset=lists.offset, children=[items]
    )
