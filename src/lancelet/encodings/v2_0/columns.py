"""Columns of a field in a 2.0 file: one for every field of its tree, including parents.

    points: list<struct<x, y>>      column 0   offsets of the lists
                                    column 1   header of the structs, without data
                                    column 2   x
                                    column 3   y

A packed struct is one column, since its children are interleaved. Types that version 2.0 cannot
represent are rejected before anything is written.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from lancelet.encodings.arrow import (
    NUMBER_BITS,
    has_fixed_width,
    has_no_bytes,
    item_type,
    with_null_items,
)
from lancelet.encodings.base import FileVersion
from lancelet.encodings.levels.nesting import TypeTooNewError
from lancelet.format.field import Field
from lancelet.format.logical_type import LARGE_LISTS, LISTS, MAP, STRUCT

LIST_TYPES: Final = LISTS | LARGE_LISTS


def columns_of(field: Field, version: FileVersion) -> tuple[Field, ...]:
    """Return the fields that have a column each, in column order."""
    if field.logical_type == STRUCT and field.is_packed:
        return (field,)
    children = (column for child in field.children for column in columns_of(child, version))
    return (field, *children)


def check_storable(field: Field, *, path: str = "") -> None:
    """Raise `TypeTooNewError` if version 2.0 cannot store a field of this type."""
    path = f"{path}.{field.name}" if path else field.name
    if field.logical_type == MAP:
        raise _too_new_error(path, "maps", since="2.2")
    if field.is_blob and field.logical_type != "large_binary":
        raise _too_new_error(path, "blobs of this type", since=None)
    if field.logical_type.startswith("fixed_size_list:") and field.children:
        raise _too_new_error(path, "fixed-size lists of structs", since="2.2")
    if field.logical_type == STRUCT and field.is_packed:
        for child in field.children:
            _check_packable(f"{path}.{child.name}", child.storage_type)
        return
    if not field.children and field.logical_type != STRUCT:
        _check_leaf(path, field.storage_type)
    for child in field.children:
        check_storable(child, path=path)


def check_values(field: Field, array: pa.Array, *, path: str = "") -> None:
    """Raise `TypeTooNewError` if version 2.0 cannot store the nulls of the values."""
    if array.type.id in NUMBER_BITS:
        return
    path = f"{path}.{field.name}" if path else field.name
    if field.is_blob:
        return
    if pa.types.is_struct(array.type):
        if array.null_count:
            raise _too_new_error(path, "null structs", since="2.1", nulls=array.null_count)
        for index, child in enumerate(field.children):
            check_values(child, array.field(index), path=path)
            if field.is_packed and _has_nulls(array.field(index)):
                raise _too_new_error(path, "nulls in packed structs", since=None, child=child.name)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        check_values(field.children[0], array.flatten(), path=path)
    elif has_no_bytes(array.type) and array.null_count < len(array):
        raise _too_new_error(path, "non-null zero-length binary", since="2.2")
    elif has_no_bytes(item_type(array.type)) and with_null_items(array) is None:
        raise _too_new_error(path, "lists of non-null zero-length binary", since=None)


def _has_nulls(array: pa.Array) -> bool:
    if pa.types.is_fixed_size_list(array.type) and not array.null_count:
        return _has_nulls(array.flatten())
    return bool(array.null_count)


def _check_leaf(path: str, data_type: pa.DataType) -> None:
    if pa.types.is_dictionary(data_type) and pa.types.is_nested(data_type.value_type):
        raise _too_new_error(path, "dictionaries of nested values", since=None)
    if not pa.types.is_fixed_size_list(data_type):
        return
    if not data_type.list_size:
        raise _too_new_error(path, "fixed-size lists of size 0", since=None)
    item = data_type.value_type
    if pa.types.is_fixed_size_list(item):
        _check_leaf(path, item)
    elif not has_fixed_width(item) and not pa.types.is_null(item) and not has_no_bytes(item):
        raise _too_new_error(path, f"fixed-size lists of {item}", since=None)


def _check_packable(path: str, data_type: pa.DataType) -> None:
    if pa.types.is_fixed_size_list(data_type):
        _check_packable(path, data_type.value_type)
    elif not has_fixed_width(data_type) or pa.types.is_boolean(data_type):
        raise _too_new_error(path, f"packed structs with {data_type}", since="2.2")


def _too_new_error(
    path: str, feature: str, *, since: str | None, **facts: object
) -> TypeTooNewError:
    advice = f"; write version {since} or later" if since else ""
    return TypeTooNewError(
        f"files of version 2.0 cannot store {feature}{advice}", column=path, **facts
    )
