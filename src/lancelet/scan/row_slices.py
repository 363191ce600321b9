"""Estimate the rows of each fragment that a scan will examine.

    filter k > 5, zones of k        rows 8192 .. 20000 of fragment 0
    BITMAP on city                  rows 4, 17 and 90 of fragment 0, row 3 of fragment 2
    BTREE on k, pages not cached    about 900 rows, assumed evenly spaced among the possible ones

Cached indices return the exact rows; the others estimate the number of matches.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.file.pool import tasks_ahead
from lancelet.format.field import Field
from lancelet.format.roaring import to_numbers
from lancelet.io.metered import IoCounts
from lancelet.rowids.selection import ALL
from lancelet.scan.indexing.choose import ChosenPart
from lancelet.scan.indexing.search import Candidates
from lancelet.scan.nodes.pack import Pack, pack_tiny
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.nodes.splits import ranges_to_filter
from lancelet.scan.plan import FilterStep, ScanPlan, filter_steps
from lancelet.values import dataclass

_SAMPLED_SLICES_MAX: Final = 16
"""Maximum number of slices of single rows whose reads are estimated; others are extrapolated."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSlice:
    """Rows of a fragment that are examined together: `offsets` within `rows`, or all of them.

    The `eager_fields` are read together; see `Split`.
    """

    source: FragmentSource
    rows: RowRange
    offsets: Int64s | None = None
    eager_fields: tuple[Field, ...] = ()
    task_rows: int | None = None
    """The number of rows per task; None if one task reads the slice."""
    is_pruned: bool = False
    """Whether the slice is a part of a fragment that statistics did not prune."""
    is_certain: bool = False
    """Whether all rows match, so that only output fields are read."""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows) if self.offsets is None else len(self.offsets)

    def sample(self, count: int) -> RowSlice:
        """Return `count` rows: contiguous ones in a pruned range, else evenly spaced ones.

        Statistics prune a fragment if its values are clustered, and then matches are contiguous.
        """
        if count >= len(self):
            return self
        if self.is_pruned:
            first = self.rows.start + (len(self) - count) // 2
            return RowSlice(self.source, RowRange(first, first + count))
        positions = np.linspace(0, len(self) - 1, count).astype(np.int64)
        if self.offsets is not None:
            return RowSlice(self.source, self.rows, self.offsets[positions])
        return RowSlice(self.source, self.rows, positions + self.rows.start)


def estimate_slices(
    plan: ScanPlan,
    candidates: Candidates | None,
    parts: Sequence[ChosenPart],
    output: Sequence[Field] = (),
) -> tuple[RowSlice, ...]:
    """Return the slices to examine, given the `candidates` of indices or the `parts` they answer.

    `output` are the fields used for rows that pass.
    """
    options, slices = plan.options, list[RowSlice]()
    chosen = list(sources(plan.snapshot, options.fragments, with_deleted=options.with_deleted))
    covered = frozenset(candidates.covered) if candidates is not None else _covered(parts)
    estimated: list[RowSlice] = []
    # Rows that indices select are not pruned by the statistics of other columns.
    indexed = {each for part in parts for each in part.expressions}
    conjuncts = [each for each in plan.conjuncts if each.expression in indexed]
    indexed_steps = tuple(filter_steps(plan.snapshot, conjuncts)) if parts else ()
    for source in chosen:
        all_rows = RowRange(0, source.num_rows)
        if int(source.fragment.id) not in covered:
            if not (covered and options.indexed_only):
                slices += _in_range(plan, source, all_rows, plan.steps, output)
        elif candidates is not None:
            slices += _candidate_slices(plan, source, candidates, output)
        elif has_statistics(plan, source):
            estimated += _in_range(plan, source, all_rows, indexed_steps, output)
        else:
            estimated.append(RowSlice(source, all_rows))
    if estimated:
        num_rows = max(1, plan.snapshot.num_rows)
        share = math.prod(min(1.0, part.estimate / num_rows) for part in parts)
        slices += sample_slices(estimated, -int(-share * num_rows // 1))
    return tuple(slices)


def _covered(parts: Sequence[ChosenPart]) -> frozenset[int]:
    indices = [index for part in parts for index in part.indices]
    return frozenset.intersection(*(index.covered for index in indices)) if indices else frozenset()


def has_statistics(plan: ScanPlan, source: FragmentSource) -> bool:
    """Return whether the statistics of the filter columns of a fragment were read before."""
    fields = [field for step in plan.steps for field in step.fields]
    return bool(fields) and source.reader.statistics_reads(fields) != IoCounts()


def _in_range(
    plan: ScanPlan,
    source: FragmentSource,
    within: RowRange,
    steps: tuple[FilterStep, ...],
    output: Sequence[Field],
) -> Iterator[RowSlice]:
    """Yield the slices of a row range that statistics do not prune."""
    if len(within):
        for each in ranges_to_filter(plan, source, within, steps, output):
            is_certain = bool(steps) and not each.steps
            yield RowSlice(
                source,
                each.rows,
                None,
                tuple(output) if is_certain else each.eager_fields,
                each.task_rows,
                is_pruned=len(each.rows) < source.num_rows,
                is_certain=is_certain,
            )


def _candidate_slices(
    plan: ScanPlan, source: FragmentSource, candidates: Candidates, output: Sequence[Field]
) -> Iterator[RowSlice]:
    """Yield the slices of a fragment that indices matched."""
    fragment_id = int(source.fragment.id)
    if fragment_id not in candidates.rows.parts:
        return
    bitmap = candidates.rows.parts[fragment_id]
    if bitmap is ALL:
        yield from _in_range(plan, source, RowRange(0, source.num_rows), candidates.steps, output)
    elif bitmap:
        rows = RowRange(bitmap.min(), bitmap.max() + 1)
        if len(rows) == len(bitmap) > 1:
            yield from _in_range(plan, source, rows, candidates.steps, output)
            return
        offsets = source.without_hidden(to_numbers(bitmap).astype(np.int64))
        if len(offsets):
            yield RowSlice(source, rows, offsets)


def slices_before_limit(
    slices: Sequence[RowSlice], limit: int, share: float, *, waits: bool
) -> tuple[RowSlice, ...]:
    """Return the slices whose tasks start before `limit` rows pass, if a `share` of rows passes.

    Tasks run ahead of the results, so more rows are examined than the limit requires.
    """
    tasks = list(_tasks_of(slices))
    rows_passed = np.cumsum([len(task) for task in tasks]) * share
    needed = int(np.searchsorted(rows_passed, limit)) + 1
    started = tasks[: needed + tasks_ahead(len(tasks), waits=waits)]
    return tuple(slices) if len(started) == len(tasks) else tuple(started)


def _tasks_of(slices: Iterable[RowSlice]) -> Iterator[RowSlice]:
    for each in slices:
        if each.offsets is not None or each.task_rows is None:
            yield each
            continue
        for start in range(each.rows.start, each.rows.stop, each.task_rows):
            rows = RowRange(start, min(start + each.task_rows, each.rows.stop))
            yield replace(each, rows=rows)


def sample_slices(slices: Sequence[RowSlice], count: int) -> tuple[RowSlice, ...]:
    """Return a sample of `count` evenly spaced rows."""
    total = sum(map(len, slices))
    if count >= total:
        return tuple(slices)
    if count < len(slices):
        chosen = np.linspace(0, len(slices) - 1, count).astype(np.int64).tolist()
        return tuple(slices[index].sample(1) for index in chosen)
    return tuple(row_slice.sample(-(-len(row_slice) * count // total)) for row_slice in slices)


def estimate_reads(
    slices: Sequence[RowSlice], fields: Sequence[Field], *, one_by_one: bool = False
) -> IoCounts:
    """Estimate the reads of fields of slices; single rows are sampled.

    Rows of a slice are read `one_by_one`, or together with the rows between them.
    """
    if not fields or not slices:
        return IoCounts()

    def read(row_slice: RowSlice) -> IoCounts:
        if one_by_one and row_slice.offsets is not None:
            return row_slice.source.reader.estimate_reads(fields, RowIndices(row_slice.offsets))
        return row_slice.source.estimate_reads(fields, row_slice.rows, row_slice.offsets)

    total = _sum(read(each) for each in slices if each.offsets is None)
    single = [each for each in slices if each.offsets is not None]
    step = -(-len(single) // _SAMPLED_SLICES_MAX) or 1
    sampled = single[::step]
    reads = _sum(map(read, sampled))
    factor = len(single) / max(1, len(sampled))
    return total + IoCounts(round(reads.read_iops * factor), round(reads.read_bytes * factor))


def estimate_packed_reads(
    plan: ScanPlan, slices: Sequence[RowSlice]
) -> tuple[list[RowSlice], IoCounts]:
    """Return the slices that are not packed, and the reads of packed fragments.

    Local tiny fragments are read together as packs.
    """
    by_source = {
        row_slice.source: row_slice
        for row_slice in slices
        if len(row_slice.rows) == row_slice.source.num_rows
    }
    if waits_for_storage(plan.snapshot) or len(by_source) < len(slices):
        return list(slices), IoCounts()
    unpacked: list[RowSlice] = []
    read = IoCounts()
    for source in pack_tiny(by_source):
        if isinstance(source, Pack):
            files = [file for each in source.members for file in each.fragment.files]
            read += IoCounts(len(files), sum(file.size_bytes or 0 for file in files))
        else:
            unpacked.append(by_source[source])
    return unpacked, read


def _sum(counts: Iterable[IoCounts]) -> IoCounts:
    return sum(counts, IoCounts())
