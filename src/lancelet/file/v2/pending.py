"""Values that waited for their page, as one array.

    batches      [0 1 2 3] [4 5 6 7] [8 9]      slices of one array of a table, or their own
    page         [0 1 2 3 4 5 6 7 8 9]

A table is written in batches that are slices of its arrays, so the page they fill lies in memory
already, and is found there. What lies apart is copied.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lancelet.errors import InvalidInputError
from lancelet.format.schema import Field


def joined(arrays: Sequence[pa.Array], field: Field) -> pa.Array:
    """Return arrays, one at least, as one array of the values of a field."""
    if len(arrays) == 1:
        return arrays[0]
    whole = _whole(arrays)
    if whole is not None:
        return whole
    try:
        return pa.concat_arrays([_without_null_items(array) for array in arrays])
    except pa.ArrowInvalid as error:
        raise InvalidInputError(
            "the dictionaries of the batches have more values together than their keys can number",
            field=field.name,
            type=str(field.storage_type),
        ) from error


def _whole(arrays: Sequence[pa.Array]) -> pa.Array | None:
    """Return the array of which arrays are slices that follow each other, if there is one."""
    first = arrays[0]
    if not _is_flat(first.type):
        return None
    buffers = first.buffers()
    places = _places(buffers)
    stop = first.offset
    for array in arrays:
        if array.offset != stop or _places(array.buffers()) != places:
            return None
        stop += len(array)
    return pa.Array.from_buffers(first.type, stop - first.offset, buffers, offset=first.offset)


def _is_flat(data_type: pa.DataType) -> bool:
    """Whether arrays are two or three buffers and nothing else."""
    return bool(
        pa.types.is_primitive(data_type)
        or pa.types.is_decimal(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or data_type in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
    )


def _places(buffers: Sequence[pa.Buffer | None]) -> list[tuple[int, int] | None]:
    return [None if buffer is None else (buffer.address, buffer.size) for buffer in buffers]


def _without_null_items(array: pa.Array) -> pa.Array:
    """Return a dictionary array whose nulls are in its indices alone, or others have no union."""
    if not isinstance(array, pa.DictionaryArray) or not array.dictionary.null_count:
        return array
    kept = array.dictionary.is_valid()
    counts = pc.cumulative_sum(kept.cast(pa.int64()))
    places = pc.if_else(kept, pc.subtract(counts, 1), None)
    indices = places.take(array.indices).cast(array.type.index_type)
    items = array.dictionary.filter(kept)
    return pa.DictionaryArray.from_arrays(indices, items, ordered=array.type.ordered)
