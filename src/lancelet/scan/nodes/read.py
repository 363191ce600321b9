"""Read the rows of fragments, or a window of them, in order without a filter.

    fragments     0: 100 rows   1: 50 rows (5 deleted)   2: 100 rows
    offset 120, limit 40        1: visible rows 20..45   2: rows 0..15

Small fragments are read in parallel; the reader of a large one splits it. Tiny local fragments are
read sequentially: they spend more time in the interpreter than in kernels, so threads would only
contend for the interpreter lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_rows
from lancelet.file.pool import map_ordered
from lancelet.scan.nodes.batch_sizer import BatchSizer, batch_sizer
from lancelet.scan.nodes.pack import Pack, pack_tiny
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.plan import ScanPlan
from lancelet.scan.projection import without_columns

_SMALL_BYTES: Final = 4 * 1024 * 1024
_TINY_BYTES: Final = 256 * 1024
_COMPUTED_ROWS: Final = 65536
"""Rows per batch if no column is read."""


class Window(NamedTuple):
    """A row range of a fragment, and the number of visible rows in it."""

    source: FragmentSource | Pack
    rows: RowRange
    num_visible: int


def windows(plan: ScanPlan) -> Iterator[Window]:
    """Yield the rows of a scan without a filter, as one window per fragment."""
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
    """Yield the batches of a scan without a filter."""
    waits, sizer = waits_for_storage(plan.snapshot), batch_sizer(plan)
    parallel_bytes_min = 0 if waits else _TINY_BYTES

    def is_for_a_task(window: Window) -> bool:
        return sizer.is_bounded or parallel_bytes_min <= _file_bytes(window) < _SMALL_BYTES

    def read(window: Window) -> list[pa.RecordBatch]:
        batches = list(_read(plan, window))
        sizer.observe(sum(map(len, batches)), *batches)
        return batches

    scan_windows = windows(plan) if waits or sizer.is_bounded else _with_packs(plan)
    if sizer.is_bounded:
        scan_windows = _split_windows(plan, scan_windows, sizer)
    for is_task, group in groupby(scan_windows, key=is_for_a_task):
        if is_task:
            for batches in map_ordered(read, group, waits=waits, window=sizer.ahead):
                yield from batches
        else:
            for window in group:
                for batch in _read(plan, window):
                    yield from _by_fragment(window.source, batch)


def _split_windows(
    plan: ScanPlan, scan_windows: Iterable[Window], sizer: BatchSizer
) -> Iterator[Window]:
    """Split windows into tasks within the memory limit of a scan."""
    for window in scan_windows:
        source = window.source
        assert isinstance(source, FragmentSource), "windows refer to fragments"
        for rows in sizer.split_range(source, plan.projection.fields, window.rows):
            yield Window(source, rows, len(rows))


def _by_fragment(source: FragmentSource | Pack, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch of a pack into one batch per fragment."""
    if not isinstance(source, Pack):
        yield batch
        return
    start = 0
    for member in source.members:
        if member.num_visible:
            yield batch.slice(start, member.num_visible)
        start += member.num_visible


def _with_packs(plan: ScanPlan) -> Iterator[Window]:
    """Yield the windows of a scan, with whole tiny fragments combined into packs."""
    for is_whole, group in groupby(windows(plan), key=_is_whole):
        if not is_whole:
            yield from group
            continue
        for source in pack_tiny(
            (window.source for window in group), rows_max=plan.options.batch_size
        ):
            yield Window(source, RowRange(0, source.num_rows), source.num_visible)


def _is_whole(window: Window) -> bool:
    return window.rows == RowRange(0, window.source.num_rows)


def _file_bytes(window: Window) -> int:
    """Return the bytes of the files of a window; unknown sizes count as large."""
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
    """Yield the stored columns; batches without columns if there are none."""
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
