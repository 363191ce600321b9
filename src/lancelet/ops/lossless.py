"""Rows of other types than a table's, converted where that loses nothing.

    table            rows                      become
    string           large_string, dictionary  string
    int16            int64                     int16, if every value fits
    float            double                    float, if every value is one
    vector of 3      list                      a vector, if every list has 3 elements
    timestamp[us]    timestamp[ns]             microseconds, if no value has nanoseconds
    struct{x, y}     struct{y}                 y, converted; what is missing stays missing

A value that would change is an error that names the row and shows the value. Types that have no
such conversion, as from text to numbers, are left for `fit_to_table` to refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import SchemaMismatchError
from lancelet.format.schema import Schema
from lancelet.ops.rows import RowStream, Types, shown

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
    """A value cannot be converted to the type of its column without changing it."""


class _RefusedError(ValueError):
    """Some value of an array cannot be converted."""


def fit_rows(stream: RowStream, table: Schema) -> RowStream:
    """Return rows with the types of a table, where values of theirs can be values of those.

    Rows that came without types, as Python's own numbers do, are given those of the table.

    Raises:
        LossyConversionError: As the rows are read, for the first value that would change.
    """
    if stream.schema.equals(table.to_arrow()):
        return stream
    return fit_columns(stream, types_of(table))


def types_of(table: Schema) -> dict[str, pa.DataType]:
    """Return the types of a table's columns, but of those with blobs, which take other values."""
    blobs = {field.name for field in table.fields if any(node.is_blob for node in field.walk())}
    return {field.name: field.type for field in table.to_arrow() if field.name not in blobs}


def fit_columns(stream: RowStream, types: Types) -> RowStream:
    """Return rows with other types in some columns, as `fit_rows` gives them those of a table."""
    others = {
        field.name: types[field.name]
        for field in stream.schema
        if field.name in types and not _are_alike(field.type, types[field.name])
    }
    if others and stream.typed is not None:
        stream = stream.typed(others)
    converters: dict[str, Converter] = {}
    for name, wanted in others.items():
        found = stream.schema.field(name).type
        converter = None if found == wanted else conversion(found, wanted)
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
    return RowStream(schema, _converted(stream, schema, converters), stream.is_in_memory)


def _are_alike(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether types are stored alike, whatever the items of lists are called and may be null."""
    if found == wanted or found.num_fields != wanted.num_fields or found.id != wanted.id:
        return bool(found == wanted)
    if isinstance(found, pa.BaseExtensionType) or not found.num_fields:
        return False
    if _T.is_fixed_size_list(found) and found.list_size != wanted.list_size:
        return False
    if _T.is_struct(found) and any(wanted.get_field_index(part.name) < 0 for part in found):
        return False
    parts = [found.field(place) for place in range(found.num_fields)]
    return all(
        _are_alike(part.type, wanted.field(part.name if _T.is_struct(found) else place).type)
        for place, part in enumerate(parts)
    )


def _converted(
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
            f"a value cannot be converted to {field.type} without a loss; convert the column "
            f"beforehand, or give the table another type: {error}",
            column=field.name,
            row=first + row,
            value=shown(array[row].as_py()),
            found=str(array.type),
            expected=str(field.type),
        ) from error


def _first_refused(array: pa.Array, converter: Converter) -> int:
    """Return the place of the first value that cannot be converted, of an array that has one."""
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


def _type_after(found: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    """Return the type that a conversion gives: that of the table, but for missing fields."""
    if not _T.is_struct(wanted) or not _T.is_struct(found):
        return wanted
    return pa.struct(
        [part.with_type(_type_after(part.type, wanted.field(part.name).type)) for part in found]
    )


def conversion(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    """Return what converts arrays of a type to another one, or None if nothing does.

    What it returns raises if a value would change.

    >>> conversion(pa.int64(), pa.int8())(pa.array([1, None])).type
    DataType(int8)
    >>> conversion(pa.string(), pa.int8()) is None
    True
    """
    if found == wanted:
        return _as_it_is
    if _T.is_null(found):
        return lambda array: pa.nulls(len(array), wanted)
    for build in (_of_extensions, _of_dictionaries, _of_lists, _of_structs, _of_maps, _of_values):
        converter = build(found, wanted)
        if converter is not None:
            return converter
    return None


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


def _around(
    inner: Converter | None, before: Converter, after: Converter | None = None
) -> Converter | None:
    """Return a conversion of what `before` gives, if there is one, and then of its result."""
    if inner is None:
        return None
    if after is None:
        return lambda array: inner(before(array))
    return lambda array: after(inner(before(array)))


def _of_extensions(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    """Convert what extension types store; only tensors and JSON are no more than that."""
    if not isinstance(wanted, pa.BaseExtensionType):
        is_tensor = isinstance(found, pa.FixedShapeTensorType)
        return _around(conversion(found.storage_type, wanted), _storage_of) if is_tensor else None
    stored = found
    if isinstance(found, pa.BaseExtensionType):
        if found.extension_name != wanted.extension_name:
            return None
        stored = found.storage_type
    elif not (isinstance(wanted, pa.FixedShapeTensorType) or _is_json(wanted)):
        return None
    return _around(
        conversion(stored, wanted.storage_type),
        _storage_of,
        lambda array: pa.ExtensionArray.from_storage(wanted, array),
    )


def _is_json(data_type: pa.BaseExtensionType) -> bool:
    return bool(data_type.extension_name == "arrow.json")


def _storage_of(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _of_dictionaries(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    values = found.value_type if _T.is_dictionary(found) else found
    if _T.is_dictionary(wanted):
        inner = conversion(values, wanted.value_type)
        return _around(inner, _decoded, lambda array: _encoded(array, wanted))
    return _around(conversion(values, wanted), _decoded) if _T.is_dictionary(found) else None


def _decoded(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if _T.is_dictionary(array.type) else array


def _encoded(values: pa.Array, wanted: pa.DictionaryType) -> pa.DictionaryArray:
    encoded = values.dictionary_encode()
    indices = encoded.indices.cast(wanted.index_type)
    return pa.DictionaryArray.from_arrays(indices, encoded.dictionary, ordered=wanted.ordered)


def _is_list(data_type: pa.DataType) -> bool:
    return bool(
        _T.is_list(data_type) or _T.is_large_list(data_type) or _T.is_fixed_size_list(data_type)
    )


def _of_lists(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    if not (_is_list(found) and _is_list(wanted)):
        return None
    items = conversion(found.value_type, wanted.value_type)
    if items is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
        mask = array.is_null() if array.null_count else None
        values = items(pc.list_flatten(array))
        if _T.is_fixed_size_list(wanted):
            size = wanted.list_size
            is_there = np.asarray(array.is_valid())
            if (lengths[is_there] != size).any():
                raise _RefusedError(f"the list does not have {size} elements")
            if mask is not None:
                slots = np.repeat(is_there, size)
                places = np.cumsum(slots) - 1
                values = values.take(pa.array(places, mask=~slots))
            return pa.FixedSizeListArray.from_arrays(values, type=wanted, mask=mask)
        offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        kind = pa.LargeListArray if _T.is_large_list(wanted) else pa.ListArray
        width = np.int64 if _T.is_large_list(wanted) else np.int32
        if offsets[-1] > np.iinfo(width).max:
            raise _RefusedError("the lists of a batch have too many elements")
        return kind.from_arrays(pa.array(offsets.astype(width)), values, type=wanted, mask=mask)

    return convert


def _of_structs(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    if not (_T.is_struct(found) and _T.is_struct(wanted)):
        return None
    names = [part.name for part in found]
    if any(wanted.get_field_index(name) < 0 for name in names):
        return None
    parts: list[Converter] = []
    for part in found:
        converter = conversion(part.type, wanted.field(part.name).type)
        if converter is None:
            return None
        parts.append(converter)
    fields = list(_type_after(found, wanted))

    def convert(array: pa.Array) -> pa.Array:
        columns = [part(array.field(place)) for place, part in enumerate(parts)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)

    return convert


def _of_maps(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    if not (_T.is_map(found) and _T.is_map(wanted)):
        return None
    keys = conversion(found.key_type, wanted.key_type)
    items = conversion(found.item_type, wanted.item_type)
    if keys is None or items is None:
        return None

    def convert(array: pa.Array) -> pa.Array:
        start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
        return pa.MapArray.from_arrays(
            pc.subtract(array.offsets, start),
            keys(array.keys.slice(start, stop - start)),
            items(array.items.slice(start, stop - start)),
            type=wanted,
            mask=array.is_null() if array.null_count else None,
        )

    return convert


def _of_values(found: pa.DataType, wanted: pa.DataType) -> Converter | None:
    if _T.is_floating(found) and _T.is_floating(wanted) and found.bit_width > wanted.bit_width:
        return lambda array: _narrowed(array, wanted)
    if _T.is_integer(found) and _T.is_decimal(wanted):
        # Arrow asks for a precision that the largest integer needs, whatever the values are.
        wide = pa.decimal256(min(_DECIMAL_DIGITS, _INTEGER_DIGITS + wanted.scale), wanted.scale)
        return lambda array: array.cast(wide).cast(wanted)
    if _has_safe_cast(found, wanted):
        return lambda array: array.cast(wanted)
    return None


def _narrowed(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return numbers with fewer bits, all of which are the same numbers."""
    narrow = array.cast(wanted, safe=False)
    before = array.to_numpy(zero_copy_only=False)
    after = narrow.cast(array.type).to_numpy(zero_copy_only=False)
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    if not (same | ~np.asarray(array.is_valid())).all():
        raise _RefusedError(f"the number is not one of {wanted}")
    return narrow


def _has_safe_cast(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow casts the type to the other and raises where a value would change."""

    def both(*kinds: Callable[[pa.DataType], bool]) -> bool:
        return any(kind(found) for kind in kinds) and any(kind(wanted) for kind in kinds)

    if both(*_TEXTS) or both(*_BYTES):
        return True
    if _T.is_integer(found) or _T.is_floating(found):
        return bool(_T.is_integer(wanted) or _T.is_floating(wanted))
    if _T.is_decimal(found):
        return bool(_T.is_decimal(wanted) or _T.is_integer(wanted))
    if both(_T.is_timestamp):
        return (found.tz is None) == (wanted.tz is None)
    if _T.is_date(found) and _T.is_timestamp(wanted):
        return wanted.tz is None
    return both(_T.is_date) or both(_T.is_time) or both(_T.is_duration)
