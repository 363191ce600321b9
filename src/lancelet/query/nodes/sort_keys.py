"""What stands for values that pyarrow does not sort, or not as the reference does.

Half floats become floats, dictionaries their values. Floats with NaN and nested values become
numbers that are in the same order:

    order by v       [1, 2]   [1]   [1, null]   null
    nulls last          2      1        3       null       the end of a list comes first,
    nulls first         3      1        2       null       nulls in it where nulls are asked for

Structs are ordered by their fields, the first one first. NaN is the greatest, so it comes first
where the order descends.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.query.scan_options import Ordering

_types = pa.types


def sortable(values: pa.ChunkedArray, ordering: Ordering) -> pa.ChunkedArray | pa.Array:
    """Return values that pyarrow sorts as a column is to be sorted; null where it is null.

    >>> sortable(pa.chunked_array([[[1, 2], [1], None]]), Ordering("v")).to_pylist()
    [2, 1, None]
    """
    kind = values.type
    if not _stands_for_others(kind) and not _types.is_nested(kind) and not _has_nan(values):
        return values
    plain = _plain(values.combine_chunks())
    if not _types.is_nested(plain.type) and not _has_nan(plain):
        return plain
    # Descending turns numbers round, and with them the nulls within.
    numbers = _numbers(plain, nulls_low=ordering.nulls_first == ordering.ascending)
    return pa.array(numbers, mask=_is_null(plain))


def _plain(values: pa.Array) -> pa.Array:
    """Return values as a type that has an order of its own, if there is one."""
    if isinstance(values.type, pa.BaseExtensionType):
        return _plain(values.storage)
    if _types.is_dictionary(values.type):
        return _plain(values.dictionary_decode())
    if _types.is_float16(values.type):
        return values.cast(pa.float32())
    if _types.is_map(values.type):
        entry = pa.struct([values.type.key_field, values.type.item_field])
        return values.cast(pa.list_(pa.field("entries", entry, nullable=False)))
    return values


def _stands_for_others(kind: pa.DataType) -> bool:
    is_extension = isinstance(kind, pa.BaseExtensionType)
    return is_extension or _types.is_dictionary(kind) or _types.is_float16(kind)


def _has_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    return _types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _is_null(values: pa.Array) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False)


def _numbers(values: pa.Array, *, nulls_low: bool) -> Int64s:
    """Return a number for each value, in the order of the values."""
    values = _plain(values)
    kind = values.type
    if _types.is_struct(kind):
        fields = values.flatten()
        numbers = np.zeros(len(values), np.int64)
        for each in fields:
            numbers = _joined(numbers, _numbers(each, nulls_low=nulls_low))
    elif _types.is_null(kind):
        numbers = np.zeros(len(values), np.int64)
    elif _types.is_nested(kind):
        numbers = _numbers_of_lists(values, nulls_low=nulls_low)
    else:
        ranks = pc.rank(values, tiebreaker="dense")
        numbers = ranks.to_numpy().astype(np.int64)
    is_null = _is_null(values)
    numbers[is_null] = -1 if nulls_low else len(values) + 1
    return numbers


def _numbers_of_lists(values: pa.Array, *, nulls_low: bool) -> Int64s:
    """Compare lists element by element, until all differ or all have ended."""
    elements = _numbers(values.flatten(), nulls_low=nulls_low) + 2
    if _types.is_fixed_size_list(values.type):
        lengths = np.full(len(values), values.type.list_size, np.int64)
    else:
        lengths = np.diff(values.offsets.to_numpy().astype(np.int64))
    lengths[_is_null(values)] = 0
    starts = np.cumsum(lengths) - lengths
    numbers = np.zeros(len(values), np.int64)
    for place in range(int(lengths.max(initial=0))):
        goes_on = lengths > place
        here = np.zeros(len(values), np.int64)
        here[goes_on] = elements[starts[goes_on] + place]
        numbers = _joined(numbers, here)
        if len(numbers) and numbers.max() == len(numbers) - 1:
            break
    return numbers


def _joined(first: Int64s, then: Int64s) -> Int64s:
    """Return numbers in the order of pairs of numbers."""
    order = np.lexsort((then, first))
    is_new = np.ones(len(order), np.int64)
    is_new[1:] = (np.diff(first[order]) != 0) | (np.diff(then[order]) != 0)
    joined = np.empty(len(order), np.int64)
    joined[order] = np.cumsum(is_new) - 1
    return joined
