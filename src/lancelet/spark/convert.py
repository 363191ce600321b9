"""Conversion of arrays between the types of a table and those of Spark.

    fixed_size_list<float16>[2]   [[1, 2], null]     ->  list<element: float>   [[1, 2], null]
    list<element: float>          [[1, 2], [3]]      ->  fixed_size_list[2]     refused: 3 items...

Spark checks types, names and nullability of the first batch only, so every batch is converted to
one exact schema. Nothing is copied if only names or nullability differ. A value that the target
type cannot represent is an error that names the column.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from pyspark.sql.variant_utils import VariantUtils

from lancelet.errors import InvalidInputError, SchemaMismatchError
from lancelet.format.blob_values import BlobType
from lancelet.spark.types import VARIANT, is_json_type, is_list, length_of

_DECIMAL_DIGITS_MAX: Final = 38
_INTEGER_DIGITS: Final = 20


def convert_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema by name, cast to its types; missing columns are null.

    Names that differ only by case are the same column if there is no other.
    """
    if batch.schema.equals(schema):
        return batch
    names = batch.schema.names
    by_case = {name.lower(): name for name in names if name not in schema.names}
    columns = []
    for field in schema:
        name = field.name if field.name in names else by_case.get(field.name.lower())
        values = pa.nulls(batch.num_rows) if name is None else batch.column(name)
        columns.append(convert_column(values, field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fit_lengths(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with its CHAR columns padded; raises for texts that exceed their length.

    As in Spark, spaces at the end do not count.
    """
    lengths = {index: length_of(field) for index, field in enumerate(schema)}
    if not any(lengths.values()):
        return batch
    columns = [
        column if (length := lengths[index]) is None else _fit_length(column, schema[index], length)
        for index, column in enumerate(batch.columns)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _fit_length(array: pa.Array, field: pa.Field, length: tuple[int, bool]) -> pa.Array:
    size, is_padded = length
    beyond = pc.utf8_rtrim(pc.utf8_slice_codeunits(array, size, None), characters=" ")
    if pc.any(pc.not_equal(beyond, "")).as_py():
        raise InvalidInputError(
            "a text is longer than its column allows",
            column=field.name,
            characters=pc.max(pc.utf8_length(array)).as_py(),
            allowed=size,
        )
    array = pc.utf8_slice_codeunits(array, 0, size)
    return pc.utf8_rpad(array, size, padding=" ") if is_padded else array


def convert_column(array: pa.Array, field: pa.Field, *, path: str | None = None) -> pa.Array:
    """Convert the values of a column to the type of a field.

    Raises:
        SchemaMismatchError: The column contains nulls and the field is not nullable.
        InvalidInputError: A value does not fit the type.
    """
    path = path or field.name
    if not field.nullable and array.null_count:
        raise SchemaMismatchError(
            "a non-nullable column contains nulls", column=path, nulls=array.null_count
        )
    return _convert(array, field.type, path)


def _convert(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if array.type == target:
        return array
    if is_json_type(target) and kinds.is_struct(array.type):
        return pa.ExtensionArray.from_storage(target, _json_of_variant(array))
    if is_json_type(array.type) and kinds.is_struct(target):
        return _variant_of_json(array.storage)
    if isinstance(target, BlobType) and kinds.is_string(array.type):
        return _blobs_by_uri(array, target)
    if isinstance(target, pa.BaseExtensionType):
        storage = _convert(array, target.storage_type, path)
        return pa.ExtensionArray.from_storage(target, storage)
    if isinstance(array.type, pa.BaseExtensionType):
        return _convert(array.storage, target, path)
    if kinds.is_dictionary(array.type) and not kinds.is_dictionary(target):
        return _convert(array.dictionary_decode(), target, path)
    if kinds.is_struct(target) and kinds.is_struct(array.type):
        return _convert_struct(array, target, path)
    if kinds.is_map(target) and kinds.is_map(array.type):
        return _convert_map(array, target, path)
    if kinds.is_fixed_size_list(target) and is_list(array.type):
        return _convert_to_fixed(array, target, path)
    if is_list(target) and is_list(array.type):
        return _convert_list(array, target, path)
    return _cast(array, target, path)


def _blobs_by_uri(array: pa.Array, target: BlobType) -> pa.Array:
    parts = {field.name: pa.nulls(len(array), field.type) for field in target.storage_type}
    parts["uri"] = array
    mask = array.is_null() if array.null_count else None
    fields = list(target.storage_type)
    storage = pa.StructArray.from_arrays(list(parts.values()), fields=fields, mask=mask)
    return pa.ExtensionArray.from_storage(target, storage)


def _convert_struct(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    children = []
    by_case = {each.name.lower(): index for index, each in enumerate(array.type)}
    for field in target:
        index = array.type.get_field_index(field.name)
        if index < 0:
            index = by_case.get(field.name.lower(), -1)
        if index < 0:
            raise SchemaMismatchError("a struct has no such field", column=f"{path}.{field.name}")
        # Values beneath a null struct are undefined, so they are not checked.
        children.append(_convert(array.field(index), field.type, f"{path}.{field.name}"))
    mask = array.is_null() if array.null_count else None
    if not children:
        return _cast(array, target, path)
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _json_of_variant(array: pa.Array) -> pa.Array:
    """Return VARIANT values as JSON; Spark has no vectorized conversion."""
    texts = [
        VariantUtils.to_json(value["value"], value["metadata"]) if value is not None else None
        for value in array.to_pylist()
    ]
    return pa.array(texts, pa.string())


def _variant_of_json(array: pa.Array) -> pa.Array:
    """Return JSON as VARIANT values, converted one at a time like in Spark itself."""
    pairs = [
        VariantUtils.parse_json(text) if text is not None else None for text in array.to_pylist()
    ]
    names = VARIANT.names
    values = [pair and dict(zip(names, pair, strict=True)) for pair in pairs]
    return pa.array(values, VARIANT)


def _convert_map(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    first, stop, offsets = _bounds(array)
    keys = _convert(array.keys.slice(first, stop - first), target.key_type, f"{path}.key")
    values = array.items.slice(first, stop - first)
    items = _convert(values, target.item_type, f"{path}.value")
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, items, target, mask=mask)


def _convert_list(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    if kinds.is_fixed_size_list(array.type):
        lengths = np.full(len(array), array.type.list_size, np.int64)
        if array.null_count:
            lengths[array.is_null().to_numpy(zero_copy_only=False)] = 0
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        values = array.flatten()
    else:
        first, stop, offsets = _bounds(array)
        values = array.values.slice(first, stop - first)
    items = _convert(values, target.value_type, f"{path}.item")
    is_large = kinds.is_large_list(target)
    kind = pa.LargeListArray if is_large else pa.ListArray
    # Arrays are created from a buffer, because creating them from Python values imports pandas.
    number = pa.int64() if is_large else pa.int32()
    buffer = pa.py_buffer(np.ascontiguousarray(offsets, number.to_pandas_dtype()))
    numbers = pa.Array.from_buffers(number, len(offsets), [None, buffer])
    mask = array.is_null() if array.null_count else None
    return kind.from_arrays(numbers, items, target, mask=mask)


def _convert_to_fixed(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    size = target.list_size
    if kinds.is_fixed_size_list(array.type):
        found = {array.type.list_size} - {size}
    else:
        found = _lengths(array) - {size}
    if found:
        raise InvalidInputError(
            "the length of a list differs from the dimension of the column",
            column=path,
            dimension=size,
            found=sorted(found)[:5],
        )
    if array.null_count:
        indices = pc.subtract(pc.cumulative_sum(pc.cast(array.is_valid(), pa.int64())), 1)
        whole = _convert_to_fixed(array.drop_null(), target, path)
        return whole.take(pc.if_else(array.is_valid(), indices, None))
    items = _convert(array.flatten(), target.value_type, f"{path}.item")
    return pa.FixedSizeListArray.from_arrays(items, type=target)


def _lengths(array: pa.Array) -> set[int]:
    lengths = pc.unique(pc.list_value_length(array)).drop_null()
    return set(lengths.to_pylist())


def _bounds(array: pa.Array) -> tuple[int, int, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Return the values used by a sliced list array, and offsets relative to the first."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    if not len(offsets):
        return 0, 0, np.zeros(1, np.int64)
    return int(offsets[0]), int(offsets[-1]), offsets - offsets[0]


def _rounded(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return numbers with the digits that Spark stores in a type: rounded or truncated ones."""
    if kinds.is_integer(array.type):
        if kinds.is_floating(target):
            return array.cast(target, safe=False)
        if kinds.is_decimal(target):
            digits = min(_DECIMAL_DIGITS_MAX, _INTEGER_DIGITS + target.scale)
            return array.cast(pa.decimal128(digits, target.scale))
    is_exact = not kinds.is_decimal(array.type) and not kinds.is_floating(array.type)
    if is_exact or not (kinds.is_integer(target) or kinds.is_decimal(target)):
        return array
    if kinds.is_integer(target):
        return pc.trunc(array)
    if kinds.is_decimal(array.type) and array.type.scale > target.scale:
        return pc.round(array, ndigits=target.scale, round_mode="half_towards_infinity")
    return array


def _cast(array: pa.Array, target: pa.DataType, path: str) -> pa.Array:
    try:
        if kinds.is_dictionary(target):
            return _cast(array, target.value_type, path).dictionary_encode().cast(target)
        return _rounded(array, target).cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidInputError(
            f"values do not fit the target type: {error}",
            column=path,
            found=str(array.type),
            expected=str(target),
        ) from error
