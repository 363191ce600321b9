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
from lancelet.buffers import Bytes, ByteSlices, Int64s
from lancelet.encodings.arrow import to_arrow, to_numpy
from lancelet.errors import ArrayOverflowError

_SLICE_SHARE: Final = 4
"""Selections of less than 1/4 of an array are copied, so that they do not retain the rest."""


_VECTOR_BYTES_MIN: Final = 256
"""Smaller vectors are faster to take by index after they are concatenated."""

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


def decode_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of a dictionary array.

    >>> decode_dictionary(pa.array(["a", "b", None, "a"]).dictionary_encode()).to_pylist()
    ['a', 'b', None, 'a']
    """
    items, keys = array.dictionary, array.indices
    if items.type not in _OFFSETS or items.null_count or not len(items):
        return take_rows(items, keys)
    validity = None
    if keys.null_count:
        validity = keys.is_valid().buffers()[1]
        keys = keys.fill_null(0)
    indices = to_numpy(keys)
    indices = indices.view(f"u{indices.itemsize}")
    offset = _OFFSETS[items.type]
    ends = np.frombuffer(items.buffers()[1], offset)[items.offset : items.offset + len(items) + 1]
    data = np.frombuffer(items.buffers()[2] or b"", np.uint8)
    try:
        offsets, found = kernels.lookup_variable(ends, data, indices)
    except kernels.OffsetOverflowError:
        return take_rows(items, keys)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(found)]
    return pa.Array.from_buffers(items.type, len(keys), buffers)


def scatter_rows(chunks: Sequence[pa.Array], positions: Int64s) -> pa.Array:
    """Scatter the rows of arrays of one type to `positions`, a permutation.

    Strings, binary values, lists of numbers and vectors are copied once; concatenating first would
    copy them twice.

    >>> scatter_rows([pa.array(["a", "b"]), pa.array(["c"])], np.array([2, 0, 1])).to_pylist()
    ['b', 'c', 'a']
    """
    scattered = _scatter_slices(chunks, positions)
    if scattered is not None:
        return scattered
    order = np.empty_like(positions)
    order[positions] = np.arange(len(positions))
    return take_rows(join_arrays(chunks), order, is_within=True)


def _scatter_slices(chunks: Sequence[pa.Array], positions: Int64s) -> pa.Array | None:
    """Scatter values that are byte ranges; None for other types, or if offsets would overflow."""
    data_type = chunks[0].type
    width = vector_bytes(data_type)
    if width and not any(chunk.null_count for chunk in chunks):
        items = [chunk.values.slice(chunk.offset * data_type.list_size) for chunk in chunks]
        if any(each.null_count for each in items):
            return None
        data, first = empty_bytes(width * len(positions)), 0
        for chunk, item in zip(chunks, items, strict=True):
            source = ByteSlices(
                _item_bytes(item),
                np.arange(0, width * len(chunk), width),
                np.full(len(chunk), width),
            )
            kernels.copy_slices(source, data, positions[first : first + len(chunk)] * width)
            first += len(chunk)
        return vectors_of(data_type, data)
    if data_type in _OFFSETS:
        return _scatter_bytes(chunks, positions, _OFFSETS[data_type], 1)
    if is_list_of_numbers(data_type) and not any(_items_of(c).null_count for c in chunks):
        offset = _OFFSETS[pa.binary() if pa.types.is_list(data_type) else pa.large_binary()]
        return _scatter_bytes(chunks, positions, offset, data_type.value_type.bit_width // 8)
    return None


def _scatter_bytes(
    chunks: Sequence[pa.Array],
    positions: Int64s,
    offset: np.dtype[np.signedinteger[Any]],
    item_bytes: int,
) -> pa.Array | None:
    """Scatter strings, binary values or lists; None if 32-bit offsets would overflow."""
    sources = [_to_slices(chunk, offset, item_bytes) for chunk in chunks]
    sizes = np.empty(len(positions), np.int64)
    sizes[positions] = np.concatenate([source.size for source in sources])
    ends = np.zeros(len(positions) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if ends[-1] // item_bytes > np.iinfo(offset).max:
        return None
    data = empty_bytes(int(ends[-1]))
    starts, first = ends[positions], 0
    for source in sources:
        kernels.copy_slices(source, data, starts[first : first + len(source)])
        first += len(source)
    validity, nulls = None, sum(chunk.null_count for chunk in chunks)
    if nulls:
        valid = np.empty(len(positions), np.bool_)
        valid[positions] = pa.chunked_array([chunk.is_valid() for chunk in chunks]).to_numpy()
        validity = pa.array(valid).buffers()[1]
    offsets = pa.py_buffer((ends if item_bytes == 1 else ends // item_bytes).astype(offset))
    data_type, buffer = chunks[0].type, pa.py_buffer(data)
    if data_type in _OFFSETS:
        return pa.Array.from_buffers(data_type, len(positions), [validity, offsets, buffer], nulls)
    count = int(ends[-1]) // item_bytes
    items = pa.Array.from_buffers(data_type.value_type, count, [None, buffer], 0)
    return pa.Array.from_buffers(
        data_type, len(positions), [validity, offsets], nulls, children=[items]
    )


def _to_slices(
    array: pa.Array, offset: np.dtype[np.signedinteger[Any]], item_bytes: int
) -> ByteSlices:
    if array.type in _OFFSETS:
        data = array.buffers()[2]
        data_bytes = np.frombuffer(b"" if data is None else data, np.uint8)
    else:
        data_bytes = _item_bytes(array.values)
    ends = np.frombuffer(array.buffers()[1] or bytes(offset.itemsize), offset)
    ends = ends[array.offset : array.offset + len(array) + 1].astype(np.int64) * item_bytes
    return ByteSlices(data_bytes, ends[:-1], np.diff(ends))


def vectors_of(data_type: pa.DataType, data: Bytes) -> pa.Array:
    """Return the vectors of a buffer."""
    count = 8 * len(data) // data_type.value_type.bit_width
    values = pa.Array.from_buffers(data_type.value_type, count, [None, pa.py_buffer(data)], 0)
    rows = count // data_type.list_size
    return pa.Array.from_buffers(data_type, rows, [None], 0, children=[values])


def binary_of(data_type: pa.DataType, ends: Int64s, data: Bytes) -> pa.Array:
    """Return the binary values of a buffer."""
    offsets = pa.py_buffer(ends.astype(_OFFSETS[data_type]))
    buffers = [None, offsets, pa.py_buffer(data)]
    return pa.Array.from_buffers(data_type, len(ends) - 1, buffers, 0)


def is_binary(data_type: pa.DataType) -> bool:
    """Return whether values are bytes, excluding text."""
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))


def empty_bytes(size: int) -> Bytes:
    """Return uninitialized memory."""
    if (recycled := kernels.recycled_bytes(size)) is not None:
        return recycled
    # Malloc reuses memory freed by other threads; Arrow's pool requests new pages.
    buffer = pa.allocate_buffer(size, pa.system_memory_pool())
    return np.frombuffer(memoryview(buffer), np.uint8)


def _item_bytes(items: pa.Array) -> Bytes:
    """Return the bytes of numbers."""
    width = items.type.bit_width // 8
    data = np.frombuffer(items.buffers()[1] or b"", np.uint8)
    return data[items.offset * width : (items.offset + len(items)) * width]


def _items_of(array: pa.Array) -> pa.Array:
    """Return the items of the lists of a slice."""
    start, stop = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return array.values.slice(start, stop - start)


def vector_bytes(data_type: pa.DataType) -> int:
    """Return the size of a vector of numbers that is copied as bytes, or 0."""
    if not pa.types.is_fixed_size_list(data_type) or not _is_number(data_type.value_type):
        return 0
    width = int(data_type.list_size) * int(data_type.value_type.bit_width) // 8
    return width if width >= _VECTOR_BYTES_MIN else 0


def is_list_of_numbers(data_type: pa.DataType) -> bool:
    """Return whether values are lists of integers or floating-point numbers."""
    is_list = pa.types.is_list(data_type) or pa.types.is_large_list(data_type)
    return is_list and _is_number(data_type.value_type)


def _is_number(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


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
