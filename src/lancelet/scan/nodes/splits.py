"""Divide the rows that may pass a filter into tasks.

    fragment of 1,000,000 rows      statistics leave 3 zones     one split of 3 ranges
    fragment of 5,000,000 rows      all zones may match          splits of 1,048,576 rows

A split is small enough to fit in memory several times even if all its rows pass. Short ranges share
a split if the first step of the filter compares their values while they are decoded.

In small ranges that statistics or an index left, most rows are likely to pass, and a second read
costs more than unused values: all columns are read together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from pyroaring import FrozenBitMap

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.errors import CorruptDataError
from lancelet.file.schedule import TASK_BYTES, fixed_row_bytes, split_rows_min
from lancelet.format.field import Field
from lancelet.format.roaring import to_numbers
from lancelet.rowids.selection import ALL
from lancelet.scan.indexing.choose import ChosenPart
from lancelet.scan.indexing.search import Candidates, find_candidates
from lancelet.scan.nodes.pack import Pack, pack_tiny
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.plan import FilterStep, ScanPlan
from lancelet.scan.prune import candidate_ranges
from lancelet.values import dataclass

_OUTPUT_BYTES: Final = 16 * TASK_BYTES
_ROWS_MIN: Final = 4096
_NARROW_ROWS: Final = 1 << 15
_ROWS_MAX: Final = 1 << 20
_CANDIDATES_PER_SPLIT: Final = 1 << 16
_CERTAIN_ROWS_MIN: Final = 1 << 17
"""Shorter ranges where all rows match are filtered like the rows around them, which takes less time
than a separate task.
"""
_EAGER_BYTES_MAX: Final = 1 << 19
_EAGER_FIELDS_MAX: Final = 16
_MERGE_BYTES: Final = 1 << 20
"""Candidate ranges with fewer bytes between them are merged into one task."""
_NO_OFFSETS: Final = FrozenBitMap()


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Rows of a fragment that one task filters: `offsets` within `rows`, or all of them.

    The `eager_fields` are read together before the first step. Otherwise each step reads its own
    fields, and output fields are read for the rows that pass. If there are several `ranges` within
    `rows`, the first step is evaluated on all of them together.
    """

    source: FragmentSource | Pack
    rows: RowRange
    steps: tuple[FilterStep, ...]
    offsets: Int64s | None = None
    eager_fields: tuple[Field, ...] = ()
    ranges: tuple[RowRange, ...] = ()

    def by_range(self) -> Iterator[Split]:
        """Yield a split for each of several ranges, or this one."""
        if not self.ranges:
            yield self
        for rows in self.ranges:
            yield replace(self, rows=rows, ranges=())


def splits(
    plan: ScanPlan,
    output: Sequence[Field] = (),
    parts: Sequence[ChosenPart] | None = None,
) -> Iterator[Split]:
    """Yield the candidate rows as tasks; `output` are the fields needed for rows that pass.

    `parts` are the parts of the filter that indices evaluate; they are chosen by default.
    """
    return splits_of(plan, find_candidates(plan, parts), output)


def splits_of(
    plan: ScanPlan, candidates: Candidates | None, output: Sequence[Field] = ()
) -> Iterator[Split]:
    """Yield the rows as tasks, given the candidates of indices."""
    options = plan.options
    chosen = sources(plan.snapshot, options.fragments, with_deleted=options.with_deleted)
    is_packed = options.memory_limit is None and not waits_for_storage(plan.snapshot)
    if candidates is None and is_packed:
        for source in pack_tiny(chosen):
            if isinstance(source, Pack):
                yield Split(source, RowRange(0, source.num_rows), plan.steps)
            else:
                all_rows = RowRange(0, source.num_rows)
                yield from _splits_of_range(plan, source, all_rows, plan.steps, output)
        return
    for source in chosen:
        if candidates is not None:
            fragment_id = int(source.fragment.id)
            if fragment_id in candidates.covered:
                yield from _splits_of_candidates(plan, source, candidates, output)
                continue
            if options.indexed_only:
                continue
        yield from _splits_of_range(plan, source, RowRange(0, source.num_rows), plan.steps, output)


def _ranges_within(
    plan: ScanPlan, source: FragmentSource, within: RowRange, steps: tuple[FilterStep, ...]
) -> tuple[list[RowRange], list[RowRange]]:
    """Return the ranges that statistics do not prune, and the long parts where all rows match.

    They may exceed `within`.
    """
    # A narrow range that an index selected is cheaper to read than statistics of a large fragment.
    is_narrow = len(within) <= _NARROW_ROWS < source.num_rows
    if not plan.options.use_statistics or not steps or is_narrow:
        return [within], []
    ranges: list[RowRange] = []
    merge_rows = _MERGE_BYTES / max(source.reader.row_bytes(steps[0].fields), 1.0)
    found = candidate_ranges(source.reader, steps, plan.snapshot)
    for rows in found.possible:
        if ranges and rows.start - ranges[-1].stop <= merge_rows:
            ranges[-1] = RowRange(ranges[-1].start, rows.stop)
        else:
            ranges.append(rows)
    return ranges, [rows for rows in found.certain if len(rows) >= _CERTAIN_ROWS_MIN]


def _parts(rows: RowRange, certain: Sequence[RowRange]) -> Iterator[tuple[RowRange, bool]]:
    """Split a range at the ranges within it where all rows match.

    >>> list(_parts(RowRange(0, 9), [RowRange(2, 5)]))
    [(RowRange(start=0, stop=2), False), (RowRange(start=2, stop=5), True), \
(RowRange(start=5, stop=9), False)]
    """
    start = rows.start
    for each in certain:
        part = RowRange(max(each.start, start), min(each.stop, rows.stop))
        if part.start < part.stop:
            if start < part.start:
                yield RowRange(start, part.start), False
            yield part, True
            start = part.stop
    if start < rows.stop:
        yield RowRange(start, rows.stop), False


@dataclass(frozen=True, slots=True, eq=False)
class FilteredRange:
    """A range that statistics do not prune, the rows per task, and the fields of `Split`.

    All rows of a range without steps match.
    """

    rows: RowRange
    task_rows: int
    steps: tuple[FilterStep, ...]
    eager_fields: tuple[Field, ...]


def ranges_to_filter(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    output: Sequence[Field],
) -> Iterator[FilteredRange]:
    """Yield the ranges of a fragment to filter; used by execution and estimation."""
    ranges, certain = _ranges_within(plan, source, within, steps)
    # Small files are not split below this number of rows, regardless of the size of values.
    has_many = any(len(rows) > _ROWS_MIN for rows in ranges) or _is_large(source)
    step = _rows_per_split(plan, source, steps) if has_many else _ROWS_MIN
    is_pruned = sum(map(len, ranges)) < source.num_rows
    fields = tuple(
        dict.fromkeys([*(each for filter_step in steps for each in filter_step.fields), *output])
    )
    for rows in ranges:
        inside = RowRange(max(rows.start, within.start), min(rows.stop, within.stop))
        for part, is_certain in _parts(inside, certain):
            is_eager = is_pruned and _is_cheap_to_read(fields, min(step, len(part)))
            eager_fields = fields if is_eager and not is_certain else ()
            yield FilteredRange(part, step, () if is_certain else steps, eager_fields)


def _splits_of_range(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    output: Sequence[Field],
) -> Iterator[Split]:
    """Yield the splits of a row range that statistics do not prune."""
    joins = _joins_ranges(plan, steps)
    together: list[FilteredRange] = []
    count = 0
    for filtered in ranges_to_filter(plan, source, within, steps, output):
        size = len(filtered.rows)
        is_short = joins and bool(filtered.steps) and size <= filtered.task_rows
        if not is_short or count + size > filtered.task_rows:
            yield from _joined(source, together)
            together, count = [], 0
        if is_short:
            together.append(filtered)
            count += size
            continue
        first, stop = filtered.rows.start, filtered.rows.stop
        for start in range(first, stop, filtered.task_rows):
            rows = RowRange(start, min(start + filtered.task_rows, stop))
            yield Split(source, rows, filtered.steps, eager_fields=filtered.eager_fields)
    yield from _joined(source, together)


def _joins_ranges(plan: ScanPlan, steps: tuple[FilterStep, ...]) -> bool:
    """Return whether a task can evaluate the first step on several ranges of a fragment."""
    if plan.options.memory_limit is not None or waits_for_storage(plan.snapshot):
        return False
    return bool(steps) and steps[0].values is not None


def _joined(source: FragmentSource, ranges: Sequence[FilteredRange]) -> Iterator[Split]:
    """Yield one split for ranges with the same steps, if there are any."""
    match ranges:
        case [filtered]:
            yield Split(source, filtered.rows, filtered.steps, eager_fields=filtered.eager_fields)
        case [first, *_, last]:
            rows = RowRange(first.rows.start, last.rows.stop)
            yield Split(source, rows, first.steps, ranges=tuple(each.rows for each in ranges))


def _splits_of_candidates(
    plan: ScanPlan, source: FragmentSource, candidates: Candidates, output: Sequence[Field]
) -> Iterator[Split]:
    """Yield the splits of the candidates that indices selected in a fragment."""
    steps = candidates.steps
    bitmap = candidates.rows.parts.get(int(source.fragment.id), _NO_OFFSETS)
    if bitmap is ALL:
        yield from _splits_of_range(plan, source, RowRange(0, source.num_rows), steps, output)
        return
    if not bitmap:
        return
    first, last = bitmap.min(), bitmap.max()
    if last >= source.num_rows:
        raise CorruptDataError(
            "an index refers to a row out of range of its fragment; drop and rebuild the index",
            fragment_id=int(source.fragment.id),
            offset=last,
            num_rows=source.num_rows,
        )
    if last - first + 1 == len(bitmap) > 1:
        yield from _splits_of_range(plan, source, RowRange(first, last + 1), steps, output)
        return
    offsets = source.without_hidden(to_numbers(bitmap).astype(np.int64))
    for start in range(0, len(offsets), _CANDIDATES_PER_SPLIT):
        part = offsets[start : start + _CANDIDATES_PER_SPLIT]
        rows = RowRange(int(part[0]), int(part[-1]) + 1)
        # Contiguous rows are read as a range instead of row by row.
        yield Split(source, rows, steps, None if len(rows) == len(part) else part)


def _is_cheap_to_read(fields: Sequence[Field], num_rows: int) -> bool:
    """Return whether reading all columns of a pruned split beats late materialization."""
    if not 1 < len({field.id for field in fields}) == len(fields) <= _EAGER_FIELDS_MAX:
        return False
    widths = [fixed_row_bytes(field.arrow_type) for field in fields]
    return None not in widths and num_rows * sum(filter(None, widths)) <= _EAGER_BYTES_MAX


def _rows_per_split(plan: ScanPlan, source: FragmentSource, steps: tuple[FilterStep, ...]) -> int:
    first = source.reader.row_bytes(steps[0].fields) if steps else 0.0
    output = source.reader.row_bytes(plan.projection.fields)
    by_first = TASK_BYTES / max(first, 1.0)
    by_output = _OUTPUT_BYTES / max(output, 1.0)
    rows_min = min(_ROWS_MIN, split_rows_min(output, max(first, output / 8)))
    return max(rows_min, min(int(by_first), int(by_output), _ROWS_MAX))


def _is_large(source: FragmentSource) -> bool:
    """Return whether values may be large enough to split small row ranges."""
    return source.fragment.data_bytes > _OUTPUT_BYTES
