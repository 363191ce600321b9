"""Sorting: the columns to sort by are read with addresses, the others in the order found.

    order by age     read age, _rowaddr     sort     take the rows at these addresses, in batches

Memory holds the keys of all rows and the values of one batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lancelet.buffers import Int64s
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.node_meter import SORT, TAKE
from lancelet.query.nodes.pace import Pace
from lancelet.query.nodes.sort_keys import sortable
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.row_columns import RowColumn
from lancelet.query.scan_options import Ordering, ScanOptions
from lancelet.query.take import take_addresses

_BATCH_ROWS: Final = 8192


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
    plan: ScanPlan, keys: pa.Table, pace: Pace | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan in the order that it asks for, offset and limit applied.

    A pace says how many are taken at a time.
    """
    options = plan.options
    with plan.meter.within(SORT):
        order = sort_order(keys, options.order_by)
    stop = None if options.limit is None else options.offset + options.limit
    chosen = order[options.offset : stop]
    addresses = keys.column(RowColumn.ADDRESS.value).to_numpy()[chosen]
    size = sorted_batch_rows(options)
    start = 0
    while start < len(addresses):
        part = addresses[start : start + (size if pace is None else min(size, pace.rows))]
        with plan.meter.within(TAKE):
            table = take_addresses(plan.snapshot, part, plan.projection)
        if pace is not None:
            pace.note(len(part), table.nbytes)
        yield from table.to_batches()
        start += len(part)


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
