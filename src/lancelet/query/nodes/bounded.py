"""Scans within a memory limit: the same steps as without, in tasks of the size that fits.

    no filter    ranges of rows, cut by what their columns take
    filter       ranges cut by what the columns of the filter take   -> rows that pass
                 these cut again by what the late columns take       -> batches
    order        keys of the rows that can still be among the first  -> taken in small batches

A filter may leave few rows of many or all of them, so what is read of rows that pass has tasks of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.errors import MemoryLimitError
from lancelet.file.pool import map_ordered
from lancelet.format.field import Field
from lancelet.query.indexing.counts import count_by_index
from lancelet.query.nodes.filter import (
    Split,
    Survivors,
    completed,
    count_split,
    cut_batch,
    splits,
    survivors_of,
)
from lancelet.query.nodes.pace import Pace, WeighedSource, pace_of
from lancelet.query.nodes.read import Window, read_window, windows
from lancelet.query.nodes.sort import sort_order
from lancelet.query.nodes.source import FragmentSource, dense_enough, waits_for_storage
from lancelet.query.plan import ScanPlan
from lancelet.query.scan_options import ScanOptions

T = TypeVar("T")
R = TypeVar("R")

_KEYS_SHARE: Final = 8
"""Sorting takes several times what is sorted, so keys may take one in so many bytes."""


def read_within(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan without a filter."""
    pace = pace_of(plan)

    def read(window: Window) -> list[pa.RecordBatch]:
        batches = read_window(plan, window)
        pace.note(sum(map(len, batches)), sum(batch.nbytes for batch in batches))
        return batches

    for batches in _side_by_side(plan, pace, read, _cut_windows(plan, pace)):
        yield from batches


def filter_within(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match."""
    early, late = pace_of(plan, share=0.5), pace_of(plan, share=0.5)
    fields = plan.projection.fields

    def find(split: Split) -> tuple[Split, Survivors]:
        return split, survivors_of(plan, split, split.steps, fields)

    found = _side_by_side(plan, early, find, _cut_splits(plan, early))
    pieces = (piece for each in found for piece in _cut_survivors(plan, late, *each))
    complete = partial(_completed, plan)
    for batch in _side_by_side(plan, late, complete, pieces):
        yield from cut_batch(batch, plan.options.batch_size)


def count_within(plan: ScanPlan) -> int:
    """Return how many rows match."""
    known = count_by_index(plan)
    if known is not None:
        return known
    pace = pace_of(plan)
    return sum(_side_by_side(plan, pace, partial(count_split, plan), _cut_splits(plan, pace)))


def keys_within(plan: ScanPlan, keys: Iterable[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """Return what to sort by of the rows that can be returned, all that were read or the first."""
    options, limit = plan.options, plan.options.memory_limit
    assert limit is not None, "only plans with a limit are bounded"
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


def _cut_windows(plan: ScanPlan, pace: Pace) -> Iterator[Window]:
    fields = plan.projection.fields
    for window in windows(plan):
        source = window.source
        assert isinstance(source, FragmentSource), "windows are of fragments"
        for rows in pace.cut(source, fields, window.rows):
            yield Window(source, rows, len(rows))


def _cut_splits(plan: ScanPlan, pace: Pace) -> Iterator[Split]:
    """Yield the rows that may match as tasks that read the columns of the filter."""
    weighed: WeighedSource | None = None
    for split in splits(plan):
        source = split.source
        assert isinstance(source, FragmentSource), "with a limit nothing is packed"
        if weighed is None or weighed.fragment is not source.fragment:
            weighed = WeighedSource(source, pace)
        fields = tuple(dict.fromkeys(field for step in split.steps for field in step.fields))
        own = replace(split, source=weighed)
        if split.offsets is None:
            for rows in pace.cut(weighed, fields, split.rows):
                yield replace(own, rows=rows)
            continue
        start = 0
        while start < len(split.offsets):
            part = split.offsets[start : start + pace.rows]
            yield replace(own, rows=RowRange(int(part[0]), int(part[-1]) + 1), offsets=part)
            start += len(part)


def _cut_survivors(
    plan: ScanPlan, pace: Pace, split: Split, found: Survivors
) -> Iterator[tuple[Split, Survivors]]:
    """Yield the rows of a split that passed as tasks that read the late columns."""
    source = split.source
    assert isinstance(source, FragmentSource), "with a limit nothing is packed"
    weighed = WeighedSource(source, pace)
    missing = tuple(field for field in plan.projection.fields if field not in found.columns)
    start = 0
    while start < found.num_rows:
        part = _some(split, found, start, min(pace.rows, found.num_rows - start))
        while part[1].num_rows > 1 and _late_bytes(weighed, missing, *part) > pace.task_bytes:
            part = _some(split, found, start, -(-part[1].num_rows // 2))
        yield replace(part[0], source=weighed), part[1]
        start += part[1].num_rows


def _some(split: Split, found: Survivors, start: int, count: int) -> tuple[Split, Survivors]:
    """Return some of the rows that passed."""
    if found.offsets is None:
        first, offsets = split.rows.start + start, None
        rows = RowRange(first, first + count)
    else:
        offsets = found.offsets[start : start + count]
        rows = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
    columns = {field: array.slice(start, count) for field, array in found.columns.items()}
    return replace(split, rows=rows), Survivors(offsets, columns, count)


def _late_bytes(
    source: FragmentSource, fields: Sequence[Field], split: Split, found: Survivors
) -> float:
    """Return about what rows that passed take with their late columns."""
    kept = sum(array.nbytes for array in found.columns.values())
    if not fields:
        return float(kept)
    everything = source.reader.decoded_bytes(fields, split.rows)
    # Rows that lie dense are read with what is between them.
    is_dense = dense_enough(found.num_rows, len(split.rows))
    share = 1.0 if is_dense else found.num_rows / len(split.rows)
    return float(kept + everything * share)


def _completed(plan: ScanPlan, piece: tuple[Split, Survivors]) -> pa.RecordBatch:
    return completed(plan, *piece)


def _side_by_side(
    plan: ScanPlan, pace: Pace, task: Callable[[T], R], items: Iterable[T]
) -> Iterator[R]:
    return map_ordered(task, items, waits=waits_for_storage(plan.snapshot), window=pace.ahead)
