"""Concatenation of the buffered values of a page.

    batches      [0 1 2 3] [4 5 6 7] [8 9]      slices of one array, or separate arrays
    page         [0 1 2 3 4 5 6 7 8 9]

Batches of a table are adjacent slices of its arrays. These are joined without a copy; other arrays
are copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.format.schema import Field


def concat_values(arrays: Sequence[pa.Array], field: Field) -> pa.Array:
    """Concatenate one or more arrays of a field."""
    if len(arrays) == 1:
        return arrays[0]
    parent = _find_parent(arrays)
    if parent is not None:
        return parent
    try:
        return pa.concat_arrays([_without_null_items(array) for array in arrays])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "the combined dictionary of the batches exceeds the range of the index type",
            field=field.name,
            type=str(field.storage_type),
        ) from error


def _find_parent(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return the adjacent slices of one array as a single slice, or None for other arrays."""
    first = arrays[0]
    if not _is_flat(first.type):
        return None
    buffers = first.buffers()
    addresses = _buffer_addresses(buffers)
    stop = first.offset
    for array in arrays:
        if array.offset != stop or _buffer_addresses(array.buffers()) != addresses:
            return None
        stop += len(array)
    return pa.Array.from_buffers(first.type, stop - first.offset, buffers, offset=first.offset)


def _is_flat(data_type: pa.DataType) -> bool:
    """Return whether arrays have two or three buffers and no children."""
    return bool(
        pa.types.is_primitive(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    )


def _buffer_addresses(buffers: Sequence[pa.Buffer | None]) -> list[tuple[int, int] | None]:
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in buffers]


def _without_null_items(array: pa.Array) -> pa.Array:
    """Move nulls from the dictionary to the indices, as required by `pa.concat_arrays`."""
    if not isinstance(array, pa.DictionaryArray) or not array.dictionary.null_count:
        return array
    is_valid = array.dictionary.is_valid()
    counts = pc.cumulative_sum(is_valid.cast(pa.int64()))
    addresses = pc.if_else(is_valid, pc.subtract(counts, 1), None)
    indices = addresses.take(array.indices).cast(array.type.index_type)
    items = array.dictionary.filter(is_valid)
    return pa.DictionaryArray.from_arrays(indices, items, ordered=array.type.ordered)
