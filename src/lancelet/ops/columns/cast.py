"""Casting columns: which types may become which, and the values within structs and lists.

    int32 -> int64, int64 -> int8      within integers, if every value fits
    float32 -> double, string -> large_string, list<int32> -> large_list<int64>
    int32 -> string                    refused: a column keeps what kind of thing it holds

A cast never changes a value in silence: one that the new type cannot hold is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.format import logical_type
from lancelet.format.field import Field
from lancelet.ops.columns.fields import ColumnError
from lancelet.ops.columns.spreading import with_items
from lancelet.query.data_types import print_arrow_type

_T = pa.types
_FAMILIES: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    _T.is_integer,
    _T.is_floating,
    _T.is_temporal,
    _T.is_boolean,
    lambda kind: _T.is_string(kind) or _T.is_large_string(kind),
    lambda kind: _T.is_binary(kind) or _T.is_large_binary(kind),
    _T.is_decimal,
)
_LISTS: Final = (_T.is_list, _T.is_large_list, _T.is_fixed_size_list)


def check_castable(path: str, before: pa.DataType, after: pa.DataType) -> None:
    """Refuse types that a column cannot become."""
    stored = _without_tensor(before), _without_tensor(after)
    if not _is_same_kind(*stored) or not _has_kernel(*stored):
        raise ColumnError(
            f'Cannot cast column "{path}" from {print_arrow_type(before)} '
            f"to {print_arrow_type(after)}",
            column=path,
            found=str(before),
            wanted=str(after),
        )


def cast_values(array: pa.Array, before: Field, after: Field, path: str) -> pa.Array:
    """Return values of a field after parts of it were cast; the same ids mean the same values.

    `before` and `after` have the same structure down to the fields that were cast.
    """
    if before.id != after.id:
        return _cast(array, after.arrow_type, path)
    if before == after or not before.children:
        return array
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if before.logical_type == logical_type.STRUCT:
        return _cast_struct(array, before, after, path)
    (old,), (new,) = before.children, after.children
    inner = f"{path}.{old.name}"
    if before.logical_type == logical_type.MAP:
        return _cast_map(array, old, new, inner)
    if isinstance(array, pa.FixedSizeListArray):
        size = array.type.list_size
        items = array.values.slice(array.offset * size, len(array) * size)
        kind = pa.list_(new.to_arrow(), size)
        values = cast_values(items, old, new, inner)
        return pa.FixedSizeListArray.from_arrays(values, type=kind, mask=_nulls_of(array))
    items = cast_values(pc.list_flatten(array), old, new, inner)
    return with_items(array, items, new)


def _cast_struct(array: pa.StructArray, before: Field, after: Field, path: str) -> pa.StructArray:
    children, fields = [], []
    for place, (old, new) in enumerate(zip(before.children, after.children, strict=True)):
        values = cast_values(array.field(place), old, new, f"{path}.{old.name}")
        children.append(values)
        fields.append(pa.field(new.name, values.type, new.nullable))
    return pa.StructArray.from_arrays(children, fields=fields, mask=_nulls_of(array))


def _cast_map(array: pa.MapArray, before: Field, after: Field, path: str) -> pa.MapArray:
    """Return maps with other keys or values; `before` and `after` are their entries."""
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    offsets = pc.subtract(array.offsets, start)
    key, value = (
        cast_values(own.slice(start, stop - start), old, new, f"{path}.{old.name}")
        for own, old, new in zip(
            (array.keys, array.items), before.children, after.children, strict=True
        )
    )
    kind = pa.map_(key.type, after.children[1].to_arrow().with_type(value.type))
    return pa.MapArray.from_arrays(offsets, key, value, type=kind, mask=_nulls_of(array))


def _nulls_of(array: pa.Array) -> pa.Array | None:
    return array.is_null() if array.null_count else None


def _without_tensor(data_type: pa.DataType) -> pa.DataType:
    """Return the lists that tensors of one shape are stored as; other types stay."""
    is_tensor = isinstance(data_type, pa.FixedShapeTensorType)
    return data_type.storage_type if is_tensor else data_type


def _cast(array: pa.Array, wanted: pa.DataType, path: str) -> pa.Array:
    if isinstance(wanted, pa.FixedShapeTensorType):
        stored = _cast(array, wanted.storage_type, path)
        return pa.ExtensionArray.from_storage(wanted, stored)
    if isinstance(array, pa.FixedShapeTensorArray):
        array = array.storage
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise ColumnError(
            f"Can't cast value {_first_refused(array, wanted)} to type "
            f"{print_arrow_type(wanted)}: {error}",
            column=path,
            wanted=str(wanted),
        ) from error


def _first_refused(array: pa.Array, wanted: pa.DataType) -> object:
    """Return the first value that cannot be cast, of an array that has one."""
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            half.cast(wanted)
        except pa.ArrowInvalid:
            array = half
        else:
            array = array.slice(len(half))
    return array[0].as_py()


def _is_same_kind(before: pa.DataType, after: pa.DataType) -> bool:
    if any(is_kind(before) for is_kind in _LISTS):
        is_list = any(is_kind(after) for is_kind in _LISTS)
        return is_list and _is_same_kind(before.value_type, after.value_type)
    return any(is_kind(before) and is_kind(after) for is_kind in _FAMILIES)


def _has_kernel(before: pa.DataType, after: pa.DataType) -> bool:
    try:
        pa.array([], before).cast(after)
    except pa.ArrowNotImplementedError:
        return False
    return True
