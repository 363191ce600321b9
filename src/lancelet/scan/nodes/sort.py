"""Sort the rows of a scan.

    order by age     read age, _rowaddr     sort     take the rows at these addresses, in batches

Sort keys are read with row addresses, the other columns in sorted order. Memory holds the keys of
all rows and the values of one batch; with a memory limit, only the keys of rows that may still be
among the first.

Values that pyarrow does not sort, or not as the reference does, are replaced by sortable keys. Half
floats become floats, dictionaries are decoded. Floats with NaN and nested values become integers in
the same order:

    order by v       [1, 2]   [1]   [1, null]   null
    nulls last          2      1        3       null       a prefix sorts before a longer list,
    nulls first         3      1        2       null       nulls in lists follow the null order

Structs are ordered by their fields, in order. NaN is the greatest value, so it is first in
descending order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.errors import MemoryLimitError
from lancelet.scan.indexing.first_rows import bound_of_first_rows
from lancelet.scan.node_meter import SORT, TAKE
from lancelet.scan.nodes.batch_sizer import batch_sizer
from lancelet.scan.plan import ScanPlan, plan_scan
from lancelet.scan.row_columns import RowColumn
from lancelet.scan.scan_options import Ordering, ScanOptions
from lancelet.scan.take import take_addresses

_BATCH_ROWS: Final = 8192
_KEYS_SHARE: Final = 8
"""Sorting needs several times the memory of the keys, so keys may use this share of the limit."""

_types = pa.types


def plan_keys(plan: ScanPlan) -> ScanPlan:
    """Return the plan that reads the sort keys and row addresses.

    If an index is sorted by the key, only the rows that may be first are read.
    """
    bound = bound_of_first_rows(plan)
    names = dict.fromkeys(ordering.column for ordering in plan.options.order_by)
    options = replace(
        plan.options,
        columns=tuple(names),
        filter=plan.options.filter if bound is None else bound,
        limit=None,
        offset=0,
        order_by=(),
        with_row_address=True,
    )
    return plan_scan(plan.snapshot, options, plan.meter)


def sorted_rows(
    plan: ScanPlan, keys: Iterable[pa.RecordBatch], schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan in sorted order, after offset and limit."""
    options, sizer = plan.options, batch_sizer(plan, share=0.5)
    table = _collect_keys(plan, keys, schema)
    with plan.meter.within(SORT):
        order = sort_order(table, options.order_by)
    stop = None if options.limit is None else options.offset + options.limit
    chosen = order[options.offset : stop]
    addresses = table.column(RowColumn.ADDRESS.value).to_numpy()[chosen]
    size = sorted_batch_rows(options)
    start = 0
    while start < len(addresses):
        part = addresses[start : start + min(size, sizer.rows)]
        with plan.meter.within(TAKE):
            rows = take_addresses(plan.snapshot, part, plan.projection)
        sizer.observe(len(part), rows)
        yield from rows.to_batches()
        start += len(part)


def _collect_keys(plan: ScanPlan, keys: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return all sort keys or, within a memory limit, those of the first rows."""
    options, limit = plan.options, plan.options.memory_limit
    if limit is None:
        return pa.Table.from_batches(keys, schema)
    keys_bytes_max = max(1, limit // _KEYS_SHARE)
    batches: list[pa.RecordBatch] = []
    size = 0
    for batch in keys:
        batches.append(batch)
        size += batch.nbytes
        if size > keys_bytes_max:
            batches = _first(batches, schema, options).to_batches()
            size = sum(each.nbytes for each in batches)
            if size > keys_bytes_max // 2:
                raise MemoryLimitError(
                    "the sort keys exceed the memory limit; reduce the limit on rows, or allow "
                    "more memory",
                    memory_limit=limit,
                    needed_bytes=_KEYS_SHARE * 2 * size,
                )
    return pa.Table.from_batches(batches, schema)


def _first(batches: list[pa.RecordBatch], schema: pa.Schema, options: ScanOptions) -> pa.Table:
    """Return the first rows up to the limit; the order of equal rows is stable."""
    table = pa.Table.from_batches(batches, schema)
    if options.limit is None:
        return table
    order = sort_order(table, options.order_by)[: options.offset + options.limit]
    return table.take(pa.array(order)).combine_chunks()


def sorted_batch_rows(options: ScanOptions) -> int:
    """Return the number of rows per batch in sorted order."""
    return options.batch_size or _BATCH_ROWS


def sort_order(rows: pa.Table, orderings: Sequence[Ordering]) -> Int64s:
    """Return the row indices in sorted order; the sort is stable.

    >>> rows = pa.table({"a": [2, None, 1, 2], "b": [1, 0, 0, 0]})
    >>> sort_order(rows, [Ordering("a", ascending=False), Ordering("b")]).tolist()
    [3, 0, 2, 1]
    """
    order: Int64s = np.arange(rows.num_rows)
    # Stable sorts from the least to the most significant column.
    for ordering in reversed(orderings):
        key = sortable(rows.column(ordering.column), ordering).take(pa.array(order))
        direction = "ascending" if ordering.ascending else "descending"
        order = order[pc.sort_indices(key, sort_keys=[("", direction)]).to_numpy()]
        if ordering.nulls_first and key.null_count:
            order = np.roll(order, key.null_count)
    return order


def sortable(values: pa.ChunkedArray, ordering: Ordering) -> pa.ChunkedArray | pa.Array:
    """Return keys that pyarrow sorts in the order of a column; null for nulls.

    >>> sortable(pa.chunked_array([[[1, 2], [1], None]]), Ordering("v")).to_pylist()
    [2, 1, None]
    """
    kind = values.type
    if not _needs_conversion(kind) and not _types.is_nested(kind) and not _has_nan(values):
        return values
    plain = _plain(values.combine_chunks())
    if not _types.is_nested(plain.type) and not _has_nan(plain):
        return plain
    # Descending order reverses the integers, and therefore the nulls within values.
    numbers = _rank(plain, nulls_low=ordering.nulls_first == ordering.ascending)
    return pa.array(numbers, mask=_is_null(plain))


def _plain(values: pa.Array) -> pa.Array:
    """Convert values to a type with a native order, if there is one."""
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


def _needs_conversion(kind: pa.DataType) -> bool:
    is_extension = isinstance(kind, pa.BaseExtensionType)
    return is_extension or _types.is_dictionary(kind) or _types.is_float16(kind)


def _has_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    return _types.is_floating(values.type) and bool(pc.any(pc.is_nan(values)).as_py())


def _is_null(values: pa.Array) -> Any:
    return values.is_null().to_numpy(zero_copy_only=False)


def _rank(values: pa.Array, *, nulls_low: bool) -> Int64s:
    """Return an integer for each value, in the order of the values."""
    values = _plain(values)
    kind = values.type
    if _types.is_struct(kind):
        fields = values.flatten()
        numbers = np.zeros(len(values), np.int64)
        for each in fields:
            numbers = _combine_ranks(numbers, _rank(each, nulls_low=nulls_low))
    elif _types.is_null(kind):
        numbers = np.zeros(len(values), np.int64)
    elif _types.is_nested(kind):
        numbers = _rank_lists(values, nulls_low=nulls_low)
    else:
        ranks = pc.rank(values, tiebreaker="dense")
        numbers = ranks.to_numpy().astype(np.int64)
    is_null = _is_null(values)
    numbers[is_null] = -1 if nulls_low else len(values) + 1
    return numbers


def _rank_lists(values: pa.Array, *, nulls_low: bool) -> Int64s:
    """Rank lists element by element, until all are distinct or have ended."""
    elements = _rank(values.flatten(), nulls_low=nulls_low) + 2
    if _types.is_fixed_size_list(values.type):
        lengths = np.full(len(values), values.type.list_size, np.int64)
    else:
        lengths = np.diff(values.offsets.to_numpy().astype(np.int64))
    lengths[_is_null(values)] = 0
    starts = np.cumsum(lengths) - lengths
    numbers = np.zeros(len(values), np.int64)
    for index in range(int(lengths.max(initial=0))):
        is_longer = lengths > index
        ranks = np.zeros(len(values), np.int64)
        ranks[is_longer] = elements[starts[is_longer] + index]
        numbers = _combine_ranks(numbers, ranks)
        if len(numbers) and numbers.max() == len(numbers) - 1:
            break
    return numbers


def _combine_ranks(first: Int64s, then: Int64s) -> Int64s:
    """Return the dense ranks of pairs of integers."""
    order = np.lexsort((then, first))
    is_new = np.ones(len(order), np.int64)
    is_new[1:] = (np.diff(first[order]) != 0) | (np.diff(then[order]) != 0)
    joined = np.empty(len(order), np.int64)
    joined[order] = np.cumsum(is_new) - 1
    return joined
