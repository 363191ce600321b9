"""Rows by index, right for every type.

Arrow 26 takes and filters wrong values from lists of a fixed size within each other if the outer
lists, or the inner ones, are a slice:

    [[1 2] [3 4]] [[5 6] [7 8]] [[9 0] [1 2]]    whole
    [[5 6] [7 8]] [[9 0] [1 2]]                  sliced from row 1; take(0) gives [[1 2] [3 4]]

So such arrays are copied first to where they are no slice. What a caller hands over may be any
slice, and batches are sliced on their way: rows are picked by these functions, not by Arrow's.
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
from lancelet.buffers import Int64s, Slices
from lancelet.encodings.arrow import arrow_of
from lancelet.errors import ArrayOverflowError

_SLICED_FROM: Final = 4
"""A smaller share of an array, one of so many, is copied, so that it does not hold the rest."""


_OFFSETS: Final[Mapping[pa.DataType, np.dtype[np.signedinteger[Any]]]] = {
    pa.binary(): np.dtype(np.int32),
    pa.string(): np.dtype(np.int32),
    pa.large_binary(): np.dtype(np.int64),
    pa.large_string(): np.dtype(np.int64),
}
"""Types of texts and bytes, and what their offsets are."""

_UNCHECKED: Final = pc.TakeOptions(boundscheck=False)


def take_rows(array: pa.Array, indices: pa.Array | Int64s, *, is_within: bool = False) -> pa.Array:
    """Return values by index, in any order; whoever made the indices may know that all are within.

    Arrow loads pandas before it makes an array of one of NumPy's, and all of `pyarrow.compute`
    for a method of an array: a take in a new process goes without.

    >>> inner = pa.FixedSizeListArray.from_arrays(pa.array(range(12)), 2)
    >>> take_rows(pa.FixedSizeListArray.from_arrays(inner, 2)[1:], np.array([1])).to_pylist()
    [[[8, 9], [10, 11]]]
    """
    if isinstance(indices, np.ndarray):
        indices = arrow_of(indices)
    if _holds_nested_fixed_lists(array.type):
        array = pa.concat_arrays([array, array.slice(0, 0)])
    return pc.call_function("take", [array, indices], _UNCHECKED if is_within else None)


def place_rows(chunks: Sequence[pa.Array], places: Int64s) -> pa.Array:
    """Return the rows of arrays of one type, each at its place; places are a permutation.

    Texts and bytes are copied once, which joining the arrays first would double.

    >>> place_rows([pa.array(["a", "b"]), pa.array(["c"])], np.array([2, 0, 1])).to_pylist()
    ['b', 'c', 'a']
    """
    first = chunks[0].type
    if len(chunks) > 1 and first in _OFFSETS:
        placed = _place_bytes(chunks, places, _OFFSETS[first])
        if placed is not None:
            return placed
    order = np.empty_like(places)
    order[places] = np.arange(len(places))
    return take_rows(join_arrays(chunks), order)


def _place_bytes(
    chunks: Sequence[pa.Array], places: Int64s, offset: np.dtype[np.signedinteger[Any]]
) -> pa.Array | None:
    """Return texts or bytes at their places; None if 32-bit offsets cannot number them."""
    sources = [_slices_of(chunk, offset) for chunk in chunks]
    sizes = np.empty(len(places), np.int64)
    sizes[places] = np.concatenate([source.size for source in sources])
    offsets = np.zeros(len(places) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    if offsets[-1] > np.iinfo(offset).max:
        return None
    # Malloc hands out again what another thread gave back; Arrow's own pool asks for fresh pages.
    buffer = pa.allocate_buffer(int(offsets[-1]), pa.system_memory_pool())
    data = np.frombuffer(memoryview(buffer), np.uint8)
    starts, first = offsets[places], 0
    for source in sources:
        kernels.copy_slices(source, data, starts[first : first + len(source)])
        first += len(source)
    validity = None
    if any(chunk.null_count for chunk in chunks):
        valid = np.empty(len(places), np.bool_)
        valid[places] = pa.chunked_array([chunk.is_valid() for chunk in chunks]).to_numpy()
        validity = pa.array(valid).buffers()[1]
    buffers = [validity, pa.py_buffer(offsets.astype(offset)), buffer]
    return pa.Array.from_buffers(chunks[0].type, len(places), buffers)


def _slices_of(array: pa.Array, offset: np.dtype[np.signedinteger[Any]]) -> Slices:
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, offset)[array.offset : array.offset + len(array) + 1]
    held = np.frombuffer(b"" if data is None else data, np.uint8)
    return Slices(held, ends[:-1].astype(np.int64), np.diff(ends).astype(np.int64))


def rows_at(array: pa.Array, rows: Int64s) -> pa.Array:
    """Return values by index, ascending; most of an array that lie beside each other are a slice.

    >>> rows_at(pa.array([5, 6, 7, 8]), np.array([1, 2])).to_pylist()
    [6, 7]
    """
    if _SLICED_FROM * len(rows) >= len(array) and follow_each_other(rows):
        return array.slice(rows[0], len(rows))
    return take_rows(array, rows, is_within=len(rows) == 0 or 0 <= rows[0] <= rows[-1] < len(array))


def follow_each_other(rows: Int64s) -> bool:
    """Return whether ascending rows are all those between the first and the last.

    >>> follow_each_other(np.array([3, 4, 5])), follow_each_other(np.array([3, 5]))
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
    whole = [
        pa.concat_arrays([*column.chunks, column.chunk(0).slice(0, 0)])
        if column.num_chunks and _holds_nested_fixed_lists(column.type)
        else column
        for column in table.columns
    ]
    return pa.Table.from_arrays(whole, schema=table.schema).take(indices)


def keep_of_batch(batch: pa.RecordBatch, kept: npt.NDArray[np.bool_]) -> pa.RecordBatch:
    """Return the rows of a batch that are flagged."""
    return take_from_batch(batch, pa.array(np.flatnonzero(kept)))


def keep_of_table(table: pa.Table, kept: npt.NDArray[np.bool_]) -> pa.Table:
    """Return the rows of a table that are flagged."""
    return take_from_table(table, pa.array(np.flatnonzero(kept)))


def join_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """Return arrays of one type, one after the other.

    Dictionaries are joined whole, and without the items that nothing points at if there are more
    of them than the keys can number.

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
            "the rows do not fit one array; read fewer rows at a time",
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
