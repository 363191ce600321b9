"""Reading without a filter: the rows of fragments, or a window of them, in order.

    fragments     0: 100 rows   1: 50 rows (5 deleted)   2: 100 rows
    offset 120, limit 40        1: visible rows 20..45   2: rows 0..15

Small fragments are read side by side; a large one is cut by its own reader. Tiny ones are read one
after the other where nothing is waited for: they take the interpreter longer than the kernels, and
threads would only pass the interpreter around.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.file.pool import map_ordered
from lancelet.query.nodes.pace import Pace, pace_of
from lancelet.query.nodes.pack import Pack, packed
from lancelet.query.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.query.plan import ScanPlan
from lancelet.query.projection import without_columns

_SMALL_BYTES: Final = 4 * 1024 * 1024
_TINY_BYTES: Final = 256 * 1024
_COMPUTED_ROWS: Final = 65536
"""The rows of a batch for which nothing is read."""


class Window(NamedTuple):
    """Some rows of a fragment, hidden ones among them, and how many are to be seen."""

    source: FragmentSource | Pack
    rows: RowRange
    num_visible: int


def windows(plan: ScanPlan) -> Iterator[Window]:
    """Yield the rows that a scan without a filter returns, as a window of each fragment."""
    options = plan.options
    skip, left = options.offset, options.limit
    for source in sources(plan.snapshot, options.fragments, with_deleted=options.with_deleted):
        if left == 0:
            return
        count = source.num_visible
        if skip >= count:
            skip -= count
            continue
        stop = count if left is None else min(count, skip + left)
        yield Window(source, source.window(skip, stop), stop - skip)
        left = None if left is None else left - (stop - skip)
        skip = 0


def read_rows(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a scan without a filter."""
    waits, pace = waits_for_storage(plan.snapshot), pace_of(plan)
    side_by_side_from = 0 if waits else _TINY_BYTES

    def is_for_a_task(window: Window) -> bool:
        return pace.is_bounded or side_by_side_from <= _file_bytes(window) < _SMALL_BYTES

    def read(window: Window) -> list[pa.RecordBatch]:
        batches = list(_read(plan, window))
        pace.note(sum(map(len, batches)), *batches)
        return batches

    found = windows(plan) if waits or pace.is_bounded else _with_packs(plan)
    if pace.is_bounded:
        found = _cut(plan, found, pace)
    for is_task, group in groupby(found, key=is_for_a_task):
        if is_task:
            for batches in map_ordered(read, group, waits=waits, window=pace.ahead):
                yield from batches
        else:
            for window in group:
                for batch in _read(plan, window):
                    yield from _apart(window.source, batch)


def _cut(plan: ScanPlan, found: Iterable[Window], pace: Pace) -> Iterator[Window]:
    """Yield windows as tasks that fit the memory limit of a scan."""
    for window in found:
        source = window.source
        assert isinstance(source, FragmentSource), "windows are of fragments"
        for rows in pace.cut(source, plan.projection.fields, window.rows):
            yield Window(source, rows, len(rows))


def _apart(source: FragmentSource | Pack, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield what was read of fragments as batches that each belong to one of them."""
    if not isinstance(source, Pack):
        yield batch
        return
    start = 0
    for member in source.members:
        if member.num_visible:
            yield batch.slice(start, member.num_visible)
        start += member.num_visible


def _with_packs(plan: ScanPlan) -> Iterator[Window]:
    """Yield the windows of a scan, whole tiny fragments packed together."""
    for is_whole, group in groupby(windows(plan), key=_is_whole):
        if not is_whole:
            yield from group
            continue
        for source in packed((window.source for window in group), rows_max=plan.options.batch_size):
            yield Window(source, RowRange(0, source.num_rows), source.num_visible)


def _is_whole(window: Window) -> bool:
    return window.rows == RowRange(0, window.source.num_rows)


def _file_bytes(window: Window) -> int:
    """Return the bytes of the files of a fragment; what is not known counts as much."""
    if isinstance(window.source, Pack):
        return 0
    return sum(file.size_bytes or _SMALL_BYTES for file in window.source.fragment.files)


def _read(plan: ScanPlan, window: Window) -> Iterator[pa.RecordBatch]:
    source, projection = window.source, plan.projection
    start = window.rows.start
    for batch in _stored(plan, window):
        rows = RowRange(start, start + batch.num_rows)
        start = rows.stop
        visible = source.visible(rows)
        if visible is not None:
            chosen = visible - rows.start
            arrays = [take_rows(array, chosen) for array in batch.columns]
            batch = _batch(arrays, batch.schema.names, len(visible))  # noqa: PLW2901 - the same rows, fewer
        if projection.row_columns:
            extra = source.row_columns(projection.row_columns, rows, visible)
            batch = _batch(  # noqa: PLW2901 - the same rows, with more columns
                [*batch.columns, *extra.values()],
                [*batch.schema.names, *extra],
                batch.num_rows,
            )
        yield batch if _fits(projection.schema, batch) else projection.compute(batch)


def _fits(schema: pa.Schema, batch: pa.RecordBatch) -> bool:
    return bool(batch.schema.equals(schema, check_metadata=True))


def _stored(plan: ScanPlan, window: Window) -> Iterator[pa.RecordBatch]:
    """Yield what is read from files; rows without columns if that is nothing."""
    fields, size = plan.projection.fields, plan.options.batch_size
    if fields:
        yield from window.source.iter_batches(fields, window.rows, size)
        return
    step = size or _COMPUTED_ROWS
    for start in range(window.rows.start, window.rows.stop, step):
        yield without_columns(min(step, window.rows.stop - start))


def _batch(arrays: list[pa.Array], names: list[str], num_rows: int) -> pa.RecordBatch:
    if not arrays:
        return without_columns(num_rows)
    return pa.RecordBatch.from_arrays(arrays, names)
