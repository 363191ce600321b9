"""Sorting: the columns to sort by are read with addresses, the others in the order found.

    order by age     read age, _rowaddr     sort     take the rows at these addresses, in batches

Memory holds the keys of all rows and the values of one batch; with a memory limit, the keys of rows
that can still be among the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.errors import MemoryLimitError
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.node_meter import SORT, TAKE
from lancelet.query.nodes.pace import pace_of
from lancelet.query.nodes.sort_keys import sortable
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_options import Ordering, ScanOptions
from lancelet.query.take import take_addresses

_BATCH_ROWS: Final = 8192
_KEYS_SHARE: Final = 8
"""Sorting takes several times what is sorted, so keys may take one in so many bytes."""


def plan_keys(plan: ScanPlan) -> ScanPlan:
    """Return the plan that reads what to sort by, and where the rows are.

    Of the rows it reads only those that an index knows to come first, if there is one.
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
    """Yield the rows of a scan in the order that it asks for, offset and limit applied."""
    options, pace = plan.options, pace_of(plan, share=0.5)
    table = _held_keys(plan, keys, schema)
    with plan.meter.within(SORT):
        order = sort_order(table, options.order_by)
    stop = None if options.limit is None else options.offset + options.limit
    chosen = order[options.offset : stop]
    addresses = table.column(RowColumn.ADDRESS.value).to_numpy()[chosen]
    size = sorted_batch_rows(options)
    start = 0
    while start < len(addresses):
        part = addresses[start : start + min(size, pace.rows)]
        with plan.meter.within(TAKE):
            found = take_addresses(plan.snapshot, part, plan.projection)
        pace.note(len(part), found)
        yield from found.to_batches()
        start += len(part)


def _held_keys(plan: ScanPlan, keys: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return what to sort by: all that was read, or within a limit of memory the first rows."""
    options, limit = plan.options, plan.options.memory_limit
    if limit is None:
        return pa.Table.from_batches(keys, schema)
    most = max(1, limit // _KEYS_SHARE)
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in keys:
        held.append(batch)
        size += batch.nbytes
        if size > most:
            held = _first(held, schema, options).to_batches()
            size = sum(each.nbytes for each in held)
            if size > most // 2:
                raise MemoryLimitError(
                    "what to sort by does not fit the memory limit; ask for fewer rows with a "
                    "limit, or allow more memory",
                    memory_limit=limit,
                    needed_bytes=_KEYS_SHARE * 2 * size,
                )
    return pa.Table.from_batches(held, schema)


def _first(held: list[pa.RecordBatch], schema: pa.Schema, options: ScanOptions) -> pa.Table:
    """Return the rows that come first, as many as are wanted; equal ones in the same order."""
    table = pa.Table.from_batches(held, schema)
    if options.limit is None:
        return table
    order = sort_order(table, options.order_by)[: options.offset + options.limit]
    return table.take(pa.array(order)).combine_chunks()


def sorted_batch_rows(options: ScanOptions) -> int:
    """Return how many rows are taken at a time in sorted order."""
    return options.batch_size or _BATCH_ROWS


def sort_order(rows: pa.Table, orderings: Sequence[Ordering]) -> Int64s:
    """Return the places of rows in sorted order; rows that are equal keep theirs.

    >>> rows = pa.table({"a": [2, None, 1, 2], "b": [1, 0, 0, 0]})
    >>> sort_order(rows, [Ordering("a", ascending=False), Ordering("b")]).tolist()
    [3, 0, 2, 1]
    """
    order: Int64s = np.arange(rows.num_rows)
    # Sorting by the least important column first leaves the most important one to decide.
    for ordering in reversed(orderings):
        key = sortable(rows.column(ordering.column), ordering).take(pa.array(order))
        direction = "ascending" if ordering.ascending else "descending"
        order = order[pc.sort_indices(key, sort_keys=[("", direction)]).to_numpy()]
        if ordering.nulls_first and key.null_count:
            order = np.roll(order, key.null_count)
    return order
