"""Which columns a field owns in a 2.0 file: one for every field of its tree, parents included.

    points: list<struct<x, y>>      column 0   offsets of the lists
                                    column 1   header of the structs, without data
                                    column 2   x
                                    column 3   y

A packed struct is one column, since its children lie row by row. What version 2.0 has no place
for is refused before a byte is written.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lancelet.encodings.base import FileVersion
from lancelet.errors import UnsupportedError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, MAP, STRUCT

LIST_TYPES: Final = LISTS | LARGE_LISTS


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the fields that own a column each, in the order of the columns."""
    if field.logical_type == STRUCT and field.is_packed:
        return (field,)
    below = (column for child in field.children for column in columns_of(child, version))
    return (field, *below)


def check_storable(field: Field) -> None:
    """Raise `UnsupportedError` if version 2.0 cannot store a field of this type."""
    if field.logical_type == MAP:
        raise _refusal(field, "maps", since="2.2")
    if field.is_blob and field.logical_type != "large_binary":
        raise _refusal(field, "blobs of this type", since="2.2")
    if field.logical_type.startswith("fixed_size_list:") and field.children:
        raise _refusal(field, "fixed-size lists of structs", since="2.2")
    if field.logical_type == STRUCT and field.is_packed:
        for child in field.children:
            _check_packable(child, child.storage_type)
    elif not field.children and field.logical_type != STRUCT:
        _check_leaf(field, field.storage_type)
    for child in field.children:
        check_storable(child)


def check_values(field: Field, array: pa.Array) -> None:
    """Raise `UnsupportedError` if the values hold null structs, for which there is no place."""
    if pa.types.is_struct(array.type):
        if array.null_count:
            raise _refusal(field, "null structs", since="2.1", nulls=array.null_count)
        for index, child in enumerate(field.children):
            check_values(child, array.field(index))
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        check_values(field.children[0], array.flatten())


def _check_leaf(field: Field, data_type: pa.DataType) -> None:
    if pa.types.is_dictionary(data_type) and pa.types.is_nested(data_type.value_type):
        raise _refusal(field, "dictionaries of nested values", since=None)
    if not pa.types.is_fixed_size_list(data_type):
        return
    item = data_type.value_type
    if pa.types.is_fixed_size_list(item):
        _check_leaf(field, item)
    elif not _is_fixed_width(item):
        raise _refusal(field, f"fixed-size lists of {item}", since=None)


def _check_packable(field: Field, data_type: pa.DataType) -> None:
    if pa.types.is_fixed_size_list(data_type):
        _check_packable(field, data_type.value_type)
    elif not _is_fixed_width(data_type) or pa.types.is_boolean(data_type):
        raise _refusal(field, f"packed structs with {data_type}", since="2.2")


def _is_fixed_width(data_type: pa.DataType) -> bool:
    return bool(
        pa.types.is_primitive(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def _refusal(field: Field, what: str, *, since: str | None, **facts: object) -> UnsupportedError:
    advice = f"; write version {since} or later" if since else ""
    return UnsupportedError(
        f"files of version 2.0 cannot store {what}{advice}", column=field.name, **facts
    )
