"""Row selection that is correct for all types.

Arrow 26 returns wrong values when taking or filtering nested fixed-size lists if the outer or inner
lists are a slice:

    [[1 2] [3 4]] [[5 6] [7 8]] [[9 0] [1 2]]    whole
    [[5 6] [7 8]] [[9 0] [1 2]]                  sliced from row 1; take(0) gives [[1 2] [3 4]]

Such arrays are therefore copied first. Input arrays may be slices, and batches are sliced
internally, so all code uses these functions instead of Arrow's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancelet import kernels
from lancelet.buffers import ByteSlices, Int64s
from lancelet.encodings.arrow import to_arrow
from lancelet.errors import ArrayOverflowError

_SLICE_SHARE: Final = 4
"""Selections of less than 1/4 of an array are copied, so that they do not retain the rest."""


_OFFSETS: Final[Mapping[pa.DataType, np.dtype[np.signedinteger[Any]]]] = {
    pa.binary(): np.dtype(np.int32),
    pa.string(): np.dtype(np.int32),
    pa.large_binary(): np.dtype(np.int64),
    pa.large_string(): np.dtype(np.int64),
}
"""NumPy offset type of string and binary types."""

_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)


def take_rows(array: pa.Array, indices: pa.Array | Int64s, *, is_within: bool = False) -> pa.Array:
    """Return values by index, in any order; `is_within` skips the bounds check.

    Avoids the pandas import of `pa.array` for NumPy arrays and the `pyarrow.compute` import of
    array methods, which would slow down a take in a new process.

    >>> inner = pa.FixedSizeListArray.from_arrays(pa.array(range(12)), 2)
    >>> take_rows(pa.FixedSizeListArray.from_arrays(inner, 2)[1:], np.array([1])).to_pylist()
    [[[8, 9], [10, 11]]]
    """
    if isinstance(indices, np.ndarray):
        indices = to_arrow(indices)
    if _holds_nested_fixed_lists(array.type):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    return pc.call_function("take", [array, indices], _UNCHECKED if is_within else None)


def scatter_rows(chunks: Sequence[pa.Array], positions: Int64s) -> pa.Array:
    """Scatter the rows of arrays of one type to `positions`, a permutation.

    Strings and binary values are copied once; concatenating first would copy them twice.

    >>> scatter_rows([pa.array(["a", "b"]), pa.array(["c"])], np.array([2, 0, 1])).to_pylist()
    ['b', 'c', 'a']
    """
    first = chunks[0].type
    if len(chunks) > 1 and first in _OFFSETS:
        scattered = _scatter_bytes(chunks, positions, _OFFSETS[first])
        if scattered is not None:
            return scattered
    order = np.empty_like(positions)
    order[positions] = np.arange(len(positions))
    return take_rows(join_arrays(chunks), order)


def _scatter_bytes(
    chunks: Sequence[pa.Array], positions: Int64s, offset: np.dtype[np.signedinteger[Any]]
) -> pa.Array | None:
    """Scatter strings or binary values; None if 32-bit offsets would overflow."""
    sources = [_to_slices(chunk, offset) for chunk in chunks]
    sizes = np.empty(len(positions), np.int64)
    sizes[positions] = np.concatenate([source.size for source in sources])
    offsets = np.zeros(len(positions) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > np.iinfo(offset).max:
        return None
    # Malloc reuses memory freed by other threads; Arrow's pool requests new pages.
    buffer = pa.allocate_buffer(int(offsets[-1]), pa.system_memory_pool())
    data = np.frombuffer(memoryview(buffer), np.uint8)
    starts, first = offsets[positions], 0
    for source in sources:
        kernels.copy_slices(source, data, starts[first : first + len(source)])
        first += len(source)
    validity = None
    if any(chunk.null_count for chunk in chunks):
        valid = np.empty(len(positions), np.bool_)
        valid[positions] = pa.chunked_array([chunk.is_valid() for chunk in chunks]).to_numpy()
        validity = pa.array(valid).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(offset)), buffer]
    return pa.Array.from_buffers(chunks[0].type, len(positions), buffers)


def _to_slices(array: pa.Array, offset: np.dtype[np.signedinteger[Any]]) -> ByteSlices:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, offset)[array.offset : array.offset + len(array) + 1]
    data_bytes = np.frombuffer(b"" if data is None else data, np.uint8)
    return ByteSlices(data_bytes, ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64))


def take_ascending(array: pa.Array, rows: Int64s) -> pa.Array:
    """Return values at ascending indices; a contiguous large part of the array is a slice.

    >>> take_ascending(pa.array([5, 6, 7, 8]), np.array([1, 2])).to_pylist()
    [6, 7]
    """
    if _SLICE_SHARE * len(rows) >= len(array) and is_contiguous(rows):
        return array.slice(rows[0], len(rows))
    return take_rows(array, rows, is_within=len(rows) == 0 or 0 <= rows[0] <= rows[-1] < len(array))


def is_contiguous(rows: Int64s) -> bool:
    """Return whether ascending rows are contiguous.

    >>> is_contiguous(np.array([3, 4, 5])), is_contiguous(np.array([3, 5]))
    (True, False)
    """
    return len(rows) > 0 and int(rows[-1] - rows[0]) + 1 == len(rows)


def take_from_batch(batch: pa.RecordBatch, indices: pa.Array) -> pa.RecordBatch:
    """Return the rows of a batch by index, in any order."""
    if not batch.num_columns:
        return batch.take(indices)
    return pa.RecordBatch.from_arrays(
        [take_rows(column, indices) for column in batch.columns], schema=batch.schema
    )


def take_from_table(table: pa.Table, indices: pa.Array) -> pa.Table:
    """Return the rows of a table by index, in any order."""
    columns = [
        pa.concat_arrays([*column.chunks, column.chunk(0).slice(0, 0)])
        if column.num_chunks and _holds_nested_fixed_lists(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(columns, schema=table.schema).take(indices)


def filter_batch(batch: pa.RecordBatch, mask: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch selected by a mask."""
    return take_from_batch(batch, pa.array(np.flatnonzero(mask)))


def filter_table(table: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a table selected by a mask."""
    return take_from_table(table, pa.array(np.flatnonzero(mask)))


def join_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Concatenate arrays of one type.

    Dictionaries are concatenated; if there are more items than keys can address, unused items are
    dropped.

    >>> keys = pa.array([1, None], pa.int8())
    >>> pages = [pa.DictionaryArray.from_arrays(keys, range(n, n + 99)) for n in (0, 100, 200)]
    >>> join_arrays(pages).to_pylist()
    [1, None, 101, None, 201, None]
    """
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        if pa.types.is_dictionary(arrays[0].type):
            plain = [array.dictionary.take(array.indices) for array in arrays]
            with suppress(pa.ArrowInvalid):
                return pa.concat_arrays(plain).dictionary_encode().cast(arrays[0].type)
        raise ArrayOverflowError(
            "the rows do not fit into one array; read fewer rows at a time",
            rows=sum(len(array) for array in arrays),
            type=str(arrays[0].type),
        ) from error


def _holds_nested_fixed_lists(data_type: pa.DataType) -> bool:
    if isinstance(data_type, pa.BaseExtensionType):
        return _holds_nested_fixed_lists(data_type.storage_type)
    parts = [data_type.field(index).type for index in range(data_type.num_fields)]
    if pa.types.is_fixed_size_list(data_type) and any(map(pa.types.is_fixed_size_list, parts)):
        return True
    return any(_holds_nested_fixed_lists(part) for part in parts)
