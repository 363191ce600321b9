"""Convert rows to the types of a table where the conversion is lossless.

    table            rows                      result
    string           large_string, dictionary  string
    int16            int64                     int16, if every value fits
    float            double                    float, if every value is representable
    vector of 3      list                      a vector, if every list has 3 elements
    timestamp[us]    timestamp[ns]             microseconds, if no value has nanoseconds
    struct{x, y}     struct{y}                 y, converted; missing fields stay missing

A value that would change raises an error with its row and value. Types without such a conversion,
such as strings to numbers, stay unchanged and are rejected by `fit_to_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.change.rows import RowStream, Types, shorten
from lancelet.errors import SchemaMismatchError
from lancelet.format.schema import Schema

Converter: TypeAlias = Callable[[pa.Array], pa.Array]

_T: Final = pa.types
_TEXTS: Final = (_T.is_string, _T.is_large_string, _T.is_string_view)
_BYTES: Final = (
    _T.is_binary,
    _T.is_large_binary,
    _T.is_binary_view,
    _T.is_fixed_size_binary,
)
_INTEGER_DIGITS: Final = 20
_DECIMAL_DIGITS: Final = 76


class LossyConversionError(SchemaMismatchError, OSError):
    """A value cannot be converted to the column type without changing it."""


class _RefusedError(ValueError):
    """A value of an array cannot be converted."""


def fit_rows(stream: RowStream, table: Schema) -> RowStream:
    """Convert rows to the types of a table where the conversion is lossless.

    Rows of Python values without explicit types take the types of the table.

    Raises:
        LossyConversionError: When a batch is read that has a value that would change.
    """
    if stream.schema.equals(table.to_arrow()):
        return stream
    return fit_columns(stream, convertible_types(table))


def convertible_types(table: Schema) -> dict[str, pa.DataType]:
    """Return the column types of a table, except for blobs, which accept other values."""
    blobs = {field.name for field in table.fields if any(node.is_blob for node in field.walk())}
    return {field.name: field.type for field in table.to_arrow() if field.name not in blobs}


def fit_columns(stream: RowStream, types: Types) -> RowStream:
    """Convert some columns to other types, like `fit_rows`."""
    targets = {
        field.name: types[field.name]
        for field in stream.schema
        if field.name in types and not _is_same_layout(field.type, types[field.name])
    }
    if targets and stream.typed is not None:
        stream = stream.typed(targets)
    converters: dict[str, Converter] = {}
    for name, target in targets.items():
        source = stream.schema.field(name).type
        converter = None if source == target else find_converter(source, target)
        if converter is not None:
            converters[name] = converter
    if not converters:
        return stream
    fields = [
        field.with_type(_type_after(field.type, types[field.name]))
        if field.name in converters
        else field
        for field in stream.schema
    ]
    schema = pa.schema(fields, stream.schema.metadata)
    return RowStream(schema, _convert_batches(stream, schema, converters), stream.is_in_memory)


def _is_same_layout(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether types have the same layout, ignoring list item names and nullability."""
    if source == target or source.num_fields != target.num_fields or source.id != target.id:
        return bool(source == target)
    if isinstance(source, pa.BaseExtensionType) or not source.num_fields:
        return False
    if _T.is_fixed_size_list(source) and source.list_size != target.list_size:
        return False
    if _T.is_struct(source) and any(target.get_field_index(part.name) < 0 for part in source):
        return False
    parts = [source.field(index) for index in range(source.num_fields)]
    return all(
        _is_same_layout(part.type, target.field(part.name if _T.is_struct(source) else index).type)
        for index, part in enumerate(parts)
    )


def _convert_batches(
    stream: RowStream, schema: pa.Schema, converters: dict[str, Converter]
) -> Iterator[pa.RecordBatch]:
    first = 0
    for batch in stream.batches:
        columns = [
            _convert(array, converters[field.name], field, first)
            if field.name in converters
            else array
            for array, field in zip(batch.columns, schema, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)
        first += batch.num_rows


def _convert(array: pa.Array, converter: Converter, field: pa.Field, first: int) -> pa.Array:
    try:
        return converter(array)
    except (_RefusedError, pa.ArrowInvalid) as error:
        row = _first_refused(array, converter)
        raise LossyConversionError(
            f"a value cannot be converted to {field.type} without loss; convert the column "
            f"first, or change the type of the table: {error}",
            column=field.name,
            row=first + row,
            value=shorten(array[row].as_py()),
            found=str(array.type),
            expected=str(field.type),
        ) from error


def _first_refused(array: pa.Array, converter: Converter) -> int:
    """Return the index of the first value that cannot be converted; there must be one."""
    first = 0
    while len(array) > 1:
        half = array.slice(0, len(array) // 2)
        try:
            converter(half)
        except (_RefusedError, pa.ArrowInvalid):
            array = half
        else:
            first += len(half)
            array = array.slice(len(half))
    return first


def _type_after(source: pa.DataType, target: pa.DataType) -> pa.DataType:
    """Return the type after a conversion: that of the table, without missing fields."""
    if not _T.is_struct(target) or not _T.is_struct(source):
        return target
    return pa.struct(
        [part.with_type(_type_after(part.type, target.field(part.name).type)) for part in source]
    )


def find_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    """Return a converter from one type to another, or None if no lossless conversion exists.

    The converter raises if a value would change.

    >>> find_converter(pa.int64(), pa.int8())(pa.array([1, None])).type
    DataType(int8)
    >>> find_converter(pa.string(), pa.int8()) is None
    True
    """
    if source == target:
        return _identity
    if _T.is_null(source):
        return lambda array: pa.nulls(len(array), target)
    for build in (
        _extension_converter,
        _dictionary_converter,
        _list_converter,
        _struct_converter,
        _map_converter,
        _primitive_converter,
    ):
        converter = build(source, target)
        if converter is not None:
            return converter
    return None


def _identity(array: pa.Array) -> pa.Array:
    return array


def _compose(
    inner: Converter | None, before: Converter, after: Converter | None = None
) -> Converter | None:
    """Return a converter that applies `before`, `inner` and `after`; None if `inner` is None."""
    if inner is None:
        return None
    if after is None:
        return lambda array: inner(before(array))
    return lambda array: after(inner(before(array)))


def _extension_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    """Convert the storage of extension types.

    Only tensors and JSON convert to and from plain types.
    """
    if not isinstance(target, pa.BaseExtensionType):
        is_tensor = isinstance(source, pa.FixedShapeTensorType)
        return (
            _compose(find_converter(source.storage_type, target), _to_storage)
            if is_tensor
            else None
        )
    stored = source
    if isinstance(source, pa.BaseExtensionType):
        if source.extension_name != target.extension_name:
            return None
        stored = source.storage_type
    elif not (isinstance(target, pa.FixedShapeTensorType) or _is_json(target)):
        return None
    return _compose(
        find_converter(stored, target.storage_type),
        _to_storage,
        lambda array: pa.ExtensionArray.from_storage(target, array),
    )


def _is_json(data_type: pa.BaseExtensionType) -> bool:
    return bool(data_type.extension_name == "arrow.json")


def _to_storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _dictionary_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    values = source.value_type if _T.is_dictionary(source) else source
    if _T.is_dictionary(target):
        inner = find_converter(values, target.value_type)
        return _compose(inner, _decode_dictionary, lambda array: _encode_dictionary(array, target))
    return (
        _compose(find_converter(values, target), _decode_dictionary)
        if _T.is_dictionary(source)
        else None
    )


def _decode_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if _T.is_dictionary(array.type) else array


def _encode_dictionary(values: pa.Array, target: pa.DictionaryType) -> pa.DictionaryArray:
    encoded = values.dictionary_encode()
    indices = encoded.indices.cast(target.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=target.ordered)


def _is_list(data_type: pa.DataType) -> bool:
    return bool(
        _T.is_list(data_type) or _T.is_large_list(data_type) or _T.is_fixed_size_list(data_type)
    )


def _list_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    if not (_is_list(source) and _is_list(target)):
        return None
    items = find_converter(source.value_type, target.value_type)
    if items is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        mask = array.is_null() if array.null_count else None
        values = items(pc.list_flatten(array))
        if _T.is_fixed_size_list(target):
            size = target.list_size
            is_valid = np.asarray(array.is_valid())
            if (lengths[is_valid] != size).any():
                raise _RefusedError(f"the list does not have {size} elements")
            if mask is not None:
                slots = np.repeat(is_valid, size)
                value_indices = np.cumsum(slots) - 1
                values = values.take(pa.array(value_indices, mask=~slots))
            return pa.FixedSizeListArray.from_arrays(values, type=target, mask=mask)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        kind = pa.LargeListArray if _T.is_large_list(target) else pa.ListArray
        width = np.int64 if _T.is_large_list(target) else np.int32
        if offsets[-1] > np.iinfo(width).max:
            raise _RefusedError(
                "the lists of a batch have too many elements; write smaller batches"
            )
        return kind.from_arrays(pa.array(offsets.astype(width)), values, type=target, mask=mask)

    return convert


def _struct_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    if not (_T.is_struct(source) and _T.is_struct(target)):
        return None
    names = [part.name for part in source]
    if any(target.get_field_index(name) < 0 for name in names):
        return None
    parts: list[Converter] = []
    for part in source:
        converter = find_converter(part.type, target.field(part.name).type)
        if converter is None:
            return None
        parts.append(converter)
    fields = list(_type_after(source, target))

    def convert(array: pa.Array) -> pa.Array:
        columns = [part(array.field(index)) for index, part in enumerate(parts)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    return convert


def _map_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    if not (_T.is_map(source) and _T.is_map(target)):
        return None
    keys = find_converter(source.key_type, target.key_type)
    items = find_converter(source.item_type, target.item_type)
    if keys is None or items is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        return pa.MapArray.from_arrays(
            pc.subtract(array.offsets, start),
            keys(array.keys.slice(start, stop - start)),
            items(array.items.slice(start, stop - start)),
            type=target,
            mask=array.is_null() if array.null_count else None,
        )

    return convert


def _primitive_converter(source: pa.DataType, target: pa.DataType) -> Converter | None:
    if _T.is_floating(source) and _T.is_floating(target) and source.bit_width > target.bit_width:
        return lambda array: _narrow(array, target)
    if _T.is_integer(source) and _T.is_decimal(target):
        # Arrow requires a precision for the largest integer, independent of the values.
        wide = pa.decimal256(min(_DECIMAL_DIGITS, _INTEGER_DIGITS + target.scale), target.scale)
        return lambda array: array.cast(wide).cast(target)
    if _has_safe_cast(source, target):
        return lambda array: array.cast(target)
    return None


def _narrow(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert to a narrower floating-point type; raise if a value would change."""
    narrow = array.cast(target, safe=False)
    before = array.to_numpy(zero_copy_only=False)
    after = narrow.cast(array.type).to_numpy(zero_copy_only=False)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    if not (same | ~np.asarray(array.is_valid())).all():
        raise _RefusedError(f"the number is not representable as {target}")
    return narrow


def _has_safe_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow has a cast that raises if a value would change."""

    def both(*kinds: Callable[[pa.DataType], bool]) -> bool:
        return any(kind(source) for kind in kinds) and any(kind(target) for kind in kinds)

    if both(*_TEXTS) or both(*_BYTES):
        return True
    if _T.is_integer(source) or _T.is_floating(source):
        return bool(_T.is_integer(target) or _T.is_floating(target))
    if _T.is_decimal(source):
        return bool(_T.is_decimal(target) or _T.is_integer(target))
    if both(_T.is_timestamp):
        return (source.tz is None) == (target.tz is None)
    if _T.is_date(source) and _T.is_timestamp(target):
        return target.tz is None
    return both(_T.is_date) or both(_T.is_time) or both(_T.is_duration)
