"""Filtering: the columns of the filter first, the others for the rows that survive.

    split      rows 0..8192 of fragment 3, of which 2 are deleted
    step 1     _rowid < 7       8190 rows -> 4
    step 2     age > 30         reads age of 4 rows -> 1
    then       id, name         of 1 row

Splits are worked on side by side, each from its first step to its rows, and handed on in order.
A split is so small that its rows fit in memory several times over even if all of them survive.

Where statistics or an index have left a few rows beside each other, most of them are likely to
survive, and a second visit costs more than values that nobody wants: all columns are read at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyroaring import FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.encodings.arrow import to_numpy
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import take_ascending
from lancelet.errors import CorruptDataError
from lancelet.file.pool import map_ordered
from lancelet.file.schedule import TASK_BYTES, few_rows, fixed_row_bytes
from lancelet.format.field import Field
from lancelet.format.roaring import to_numbers
from lancelet.query.indexing.search import Candidates, count_by_index, find_candidates, rows_at_once
from lancelet.query.node_meter import READ, TAKE
from lancelet.query.nodes.pace import Pace, WeighedSource, pace_of
from lancelet.query.nodes.pack import Pack, packed
from lancelet.query.nodes.source import FragmentSource, dense_enough, sources, waits_for_storage
from lancelet.query.plan import FilterStep, ScanPlan
from lancelet.query.projection import without_columns
from lancelet.query.prune import candidate_ranges
from lancelet.rowids.selection import ALL
from lancelet.values import dataclass

_OUTPUT_BYTES: Final = 16 * TASK_BYTES
_ROWS_MIN: Final = 4096
_NARROW_ROWS: Final = 1 << 15
_ROWS_MAX: Final = 1 << 20
_CANDIDATES_PER_SPLIT: Final = 1 << 16
_LITTLE_BYTES: Final = 1 << 19
_LITTLE_FIELDS: Final = 16
_GAP_BYTES: Final = 1 << 18
"""So much between rows that may match is read and looked at sooner than they are two tasks."""
_NO_OFFSETS: Final = FrozenBitMap()


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows of a fragment that one task filters: `offsets` within `rows`, or all of them.

    The fields `at_once` are read together before the first step; without them each step reads its
    own, and the fields that are returned are read for the rows that pass.
    """

    source: FragmentSource | Pack
    rows: RowRange
    steps: tuple[FilterStep, ...]
    offsets: Int64s | None = None
    at_once: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Survivors:
    """The rows of a split that passed; `offsets` is None if all did. `columns` were read."""

    offsets: Int64s | None
    columns: dict[Field, pa.Array]
    num_rows: int


def splits(plan: ScanPlan, kept: Sequence[Field] = ()) -> Iterator[Split]:
    """Yield the rows that may match, cut into tasks; `kept` fields of rows that pass are used."""
    return _splits(plan, find_candidates(plan), kept)


def _splits(
    plan: ScanPlan, candidates: Candidates | None, kept: Sequence[Field] = ()
) -> Iterator[Split]:
    options = plan.options
    chosen = sources(plan.snapshot, options.fragments, with_deleted=options.with_deleted)
    is_packed = options.memory_limit is None and not waits_for_storage(plan.snapshot)
    if candidates is None and is_packed:
        for source in packed(chosen):
            if isinstance(source, Pack):
                yield Split(source, RowRange(0, source.num_rows), plan.steps)
            else:
                everything = RowRange(0, source.num_rows)
                yield from _splits_of_range(plan, source, everything, plan.steps, kept)
        return
    for source in chosen:
        if candidates is not None:
            fragment_id = int(source.fragment.id)
            if fragment_id in candidates.covered:
                yield from _splits_of_candidates(plan, source, candidates, kept)
                continue
            if options.indexed_only:
                continue
        yield from _splits_of_range(plan, source, RowRange(0, source.num_rows), plan.steps, kept)


def _ranges_within(
    plan: ScanPlan, source: FragmentSource, within: RowRange, steps: tuple[FilterStep, ...]
) -> list[RowRange]:
    """Return rows of a fragment that statistics do not rule out; some may lie beyond a range."""
    # What an index left of a large fragment is read sooner than statistics of all of it are.
    is_narrow = len(within) <= _NARROW_ROWS < source.num_rows
    if not plan.options.use_statistics or not steps or is_narrow:
        return [within]
    found: list[RowRange] = []
    gap = _GAP_BYTES / max(source.reader.row_bytes(steps[0].fields), 1.0)
    for rows in candidate_ranges(source.reader, steps, plan.snapshot):
        if found and rows.start - found[-1].stop <= gap:
            found[-1] = RowRange(found[-1].start, rows.stop)
        else:
            found.append(rows)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class FilteredRange:
    """Rows that statistics do not rule out, how many of them are one task, and see `Split`."""

    rows: RowRange
    task_rows: int
    at_once: tuple[Field, ...]


def filtered_ranges(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    kept: Sequence[Field],
) -> Iterator[FilteredRange]:
    """Yield how rows of a fragment are filtered; a run and its estimate both follow this."""
    ranges = _ranges_within(plan, source, within, steps)
    # Whatever values take, so few rows of a file that is not large are one task.
    has_many = any(len(rows) > _ROWS_MIN for rows in ranges) or _is_large(source)
    step = _rows_per_split(plan, source, steps) if has_many else _ROWS_MIN
    is_left = sum(map(len, ranges)) < source.num_rows
    fields = tuple(dict.fromkeys([*(each for one in steps for each in one.fields), *kept]))
    for rows in ranges:
        first, stop = max(rows.start, within.start), min(rows.stop, within.stop)
        if first < stop:
            is_little = is_left and _is_little(fields, min(step, stop - first))
            yield FilteredRange(RowRange(first, stop), step, fields if is_little else ())


def _splits_of_range(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    kept: Sequence[Field],
) -> Iterator[Split]:
    """Yield rows of a fragment that lie side by side, but those that statistics rule out."""
    for found in filtered_ranges(plan, source, within, steps, kept):
        first, stop = found.rows.start, found.rows.stop
        for start in range(first, stop, found.task_rows):
            rows = RowRange(start, min(start + found.task_rows, stop))
            yield Split(source, rows, steps, at_once=found.at_once)


def _splits_of_candidates(
    plan: ScanPlan, source: FragmentSource, candidates: Candidates, kept: Sequence[Field]
) -> Iterator[Split]:
    """Yield the rows of a fragment that indices left."""
    steps = candidates.steps
    bitmap = candidates.rows.parts.get(int(source.fragment.id), _NO_OFFSETS)
    if bitmap is ALL:
        yield from _splits_of_range(plan, source, RowRange(0, source.num_rows), steps, kept)
        return
    if not bitmap:
        return
    first, last = bitmap.min(), bitmap.max()
    if last >= source.num_rows:
        raise CorruptDataError(
            "an index has a row that is out of range of its fragment; drop it and build it again",
            fragment_id=int(source.fragment.id),
            offset=last,
            num_rows=source.num_rows,
        )
    if last - first + 1 == len(bitmap) > 1:
        yield from _splits_of_range(plan, source, RowRange(first, last + 1), steps, kept)
        return
    offsets = source.without_hidden(to_numbers(bitmap).astype(np.int64))
    for start in range(0, len(offsets), _CANDIDATES_PER_SPLIT):
        part = offsets[start : start + _CANDIDATES_PER_SPLIT]
        rows = RowRange(int(part[0]), int(part[-1]) + 1)
        # Whole zones are read as what they are, and not row by row.
        yield Split(source, rows, steps, None if len(rows) == len(part) else part)


def filter_rows(plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield the rows that match."""
    named = None if plan.options.memory_limit is not None else rows_at_once(plan)
    if named is not None:
        for batch in named:
            yield from cut_batch(batch, plan.options.batch_size)
        return
    for batch in _completed(plan):
        if batch is not None:
            yield from cut_batch(batch, plan.options.batch_size)


def _completed(plan: ScanPlan) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows that match, split by split.

    A filter may leave few rows of many or all of them, so within a memory limit the late columns
    are read in tasks of their own, of the size that fits.
    """
    waits, early = waits_for_storage(plan.snapshot), pace_of(plan, share=0.5)
    if not early.is_bounded:
        tasks = splits(plan, plan.projection.fields)
        return map_ordered(partial(_filter_split, plan), tasks, waits=waits)
    late = pace_of(plan, share=0.5)

    def find(split: Split) -> tuple[Split, Survivors]:
        return split, survivors_of(plan, split, split.steps, plan.projection.fields)

    def complete(piece: tuple[Split, Survivors]) -> pa.RecordBatch:
        return completed(plan, *piece)

    tasks = _cut_splits(splits(plan, plan.projection.fields), early)
    found = map_ordered(find, tasks, waits=waits, window=early.ahead)
    pieces = (piece for each in found for piece in _cut_survivors(plan, late, *each))
    return map_ordered(complete, pieces, waits=waits, window=late.ahead)


def count_matching(plan: ScanPlan) -> int:
    """Return how many rows match."""
    known = count_by_index(plan)
    if known is not None:
        return known
    pace = pace_of(plan)
    tasks = _splits(plan, find_candidates(plan, counts=True))
    if pace.is_bounded:
        tasks = _cut_splits(tasks, pace)
    waits = waits_for_storage(plan.snapshot)
    return sum(map_ordered(partial(_count_split, plan), tasks, waits=waits, window=pace.ahead))


def matching_offsets(plan: ScanPlan) -> Iterator[tuple[int, Int64s]]:
    """Yield the id of a fragment and the offsets of rows in it that match, split by split."""

    def offsets_of(split: Split) -> list[tuple[int, Int64s]]:
        found = survivors_of(plan, split, split.steps)
        offsets = found.offsets
        if offsets is None:
            offsets = np.arange(split.rows.start, split.rows.stop)
        return [(int(source.fragment.id), own) for source, own in split.source.by_member(offsets)]

    for found in map_ordered(offsets_of, splits(plan), waits=waits_for_storage(plan.snapshot)):
        yield from found


def _filter_split(plan: ScanPlan, split: Split) -> pa.RecordBatch | None:
    found = survivors_of(plan, split, split.steps, plan.projection.fields)
    return completed(plan, split, found) if found.num_rows else None


def completed(plan: ScanPlan, split: Split, found: Survivors) -> pa.RecordBatch:
    """Return what a scan returns of rows that passed; columns that are missing are read."""
    projection, source = plan.projection, split.source
    missing = [field for field in projection.fields if field not in found.columns]
    late: dict[Field, pa.Array] = {}
    if missing:
        # Where indices have decided all of the filter, nothing was read of the rows before.
        with plan.meter.within(TAKE if split.steps else READ):
            arrays = source.read(missing, split.rows, found.offsets)
        late = dict(zip(missing, arrays, strict=True))
    columns = {field.name: found.columns.get(field, late.get(field)) for field in projection.fields}
    columns |= source.row_columns(projection.row_columns, split.rows, found.offsets)
    batch = (
        pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        if columns
        else without_columns(found.num_rows)
    )
    return projection.compute(batch)


def _count_split(plan: ScanPlan, split: Split) -> int:
    """Count the rows that pass; which ones pass the last step need not be known."""
    if not split.steps and split.offsets is not None:
        return len(split.offsets)
    if not split.steps:
        return survivors_of(plan, split, ()).num_rows
    last = split.steps[-1]
    found = survivors_of(plan, split, split.steps[:-1], last.fields)
    if not found.num_rows:
        return 0
    rows = _rows_of_step(last, split, found.offsets, found.columns)
    return int(last.passed(rows, plan.meter).true_count)


def survivors_of(
    plan: ScanPlan, split: Split, steps: tuple[FilterStep, ...], kept: Sequence[Field] = ()
) -> Survivors:
    """Run steps of the filter, each over the rows that the one before left.

    Of the columns that were read, those are `kept` that somebody needs afterwards.
    """
    offsets = split.offsets
    if offsets is None:
        offsets = split.source.visible(split.rows)
    columns: dict[Field, pa.Array] = {}
    count = len(split.rows) if offsets is None else len(offsets)
    if count and split.at_once:
        arrays = split.source.read(split.at_once, split.rows, offsets)
        columns.update(zip(split.at_once, arrays, strict=True))
    for place, step in enumerate(steps):
        if not count:
            break
        rows = _rows_of_step(step, split, offsets, columns)
        passed = step.passed(rows, plan.meter)
        if passed.true_count == count:
            continue
        count = passed.true_count
        chosen = np.flatnonzero(to_numpy(passed)).astype(np.int64, copy=False)
        if offsets is not None:
            offsets = offsets[chosen]
        else:
            offsets = chosen + split.rows.start if split.rows.start else chosen
        later = {*kept, *(field for after in steps[place + 1 :] for field in after.fields)}
        columns = {
            field: take_ascending(array, chosen)
            for field, array in columns.items()
            if field in later
        }
    return Survivors(offsets, columns, count)


def _is_little(fields: Sequence[Field], num_rows: int) -> bool:
    """Return whether all values of so many rows are read sooner than somebody could choose."""
    if not 1 < len({field.id for field in fields}) == len(fields) <= _LITTLE_FIELDS:
        return False
    widths = [fixed_row_bytes(field.arrow_type) for field in fields]
    return None not in widths and num_rows * sum(filter(None, widths)) <= _LITTLE_BYTES


def _rows_of_step(
    step: FilterStep, split: Split, offsets: Int64s | None, columns: dict[Field, pa.Array]
) -> pa.RecordBatch:
    """Return what a step looks at; what is read for it is added to `columns`."""
    missing = [field for field in step.fields if field not in columns]
    if missing:
        arrays = split.source.read(missing, split.rows, offsets)
        columns.update(zip(missing, arrays, strict=True))
    seen = {field.name: columns[field] for field in step.fields}
    seen |= split.source.row_columns(step.row_columns, split.rows, offsets)
    if not seen:
        return without_columns(len(split.rows) if offsets is None else len(offsets))
    return pa.RecordBatch.from_arrays(list(seen.values()), list(seen))


def _rows_per_split(plan: ScanPlan, source: FragmentSource, steps: tuple[FilterStep, ...]) -> int:
    first = source.reader.row_bytes(steps[0].fields) if steps else 0.0
    output = source.reader.row_bytes(plan.projection.fields)
    by_first = TASK_BYTES / max(first, 1.0)
    by_output = _OUTPUT_BYTES / max(output, 1.0)
    least = min(_ROWS_MIN, few_rows(output, max(first, output / 8)))
    return max(least, min(int(by_first), int(by_output), _ROWS_MAX))


def _is_large(source: FragmentSource) -> bool:
    """Say whether values of a fragment may be so large that a few rows are no single task."""
    return source.fragment.data_bytes > _OUTPUT_BYTES


def _cut_splits(tasks: Iterable[Split], pace: Pace) -> Iterator[Split]:
    """Yield tasks that read the columns of the filter and fit a memory limit."""
    weighed: WeighedSource | None = None
    for split in tasks:
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


def cut_batch(batch: pa.RecordBatch, size: int | None) -> Iterator[pa.RecordBatch]:
    """Yield a batch as batches of at most so many rows."""
    if size is None or batch.num_rows <= size:
        yield batch
        return
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
