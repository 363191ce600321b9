"""Estimate the rows of each fragment that a scan will examine.

    filter k > 5, zones of k        rows 8192 .. 20000 of fragment 0
    BITMAP on city                  rows 4, 17 and 90 of fragment 0, row 3 of fragment 2
    BTREE on k, pages not cached    about 900 rows, assumed evenly spaced among the possible ones

Cached indices return the exact rows; the others estimate the number of matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowIndices, RowRange
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.format.field import Field
from lancelet.format.roaring import to_numbers
from lancelet.io.metered import IoCounts
from lancelet.rowids.selection import ALL
from lancelet.scan.indexing.choose import ChosenPart
from lancelet.scan.indexing.search import Candidates
from lancelet.scan.nodes.filter import ranges_to_filter
from lancelet.scan.nodes.pack import Pack, pack_tiny
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.plan import FilterStep, ScanPlan
from lancelet.values import dataclass

_SAMPLED_SLICES_MAX: Final = 16
"""Maximum number of slices of single rows whose reads are estimated; others are extrapolated."""
_EQUALITY_SELECTIVITY: Final = 0.1
_SELECTIVITY: Final = 1 / 3
"""Default selectivity of a filter conjunct, as in other databases."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSlice:
    """Rows of a fragment that are examined together: `offsets` within `rows`, or all of them.

    The `eager_fields` are read together; see `Split`.
    """

    source: FragmentSource
    rows: RowRange
    offsets: Int64s | None = None
    eager_fields: tuple[Field, ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.rows) if self.offsets is None else len(self.offsets)

    def sample(self, count: int) -> RowSlice:
        """Return `count` rows: contiguous ones in a pruned range, else evenly spaced ones.

        Statistics prune a fragment if its values are clustered, and then matches are contiguous.
        """
        if count >= len(self):
            return self
        if self.offsets is None and len(self) < self.source.num_rows:
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
    for source in chosen:
        all_rows = RowRange(0, source.num_rows)
        if int(source.fragment.id) not in covered:
            if not (covered and options.indexed_only):
                slices += _in_range(plan, source, all_rows, plan.steps, output)
        elif candidates is not None:
            slices += _candidate_slices(plan, source, candidates, output)
        elif has_statistics(plan, source):
            estimated += _in_range(plan, source, all_rows, plan.steps, output)
        else:
            estimated.append(RowSlice(source, all_rows))
    if estimated:
        slices += sample_slices(estimated, min(part.estimate for part in parts))
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
            yield RowSlice(source, each.rows, eager_fields=each.eager_fields)


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


def packed_reads(plan: ScanPlan, slices: Sequence[RowSlice]) -> tuple[list[RowSlice], IoCounts]:
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


def estimate_selectivity(expressions: Iterable[Expression]) -> float:
    """Return the estimated selectivity of a conjunction."""
    selectivity = 1.0
    for each in expressions:
        selectivity *= _EQUALITY_SELECTIVITY if _is_equality(each) else _SELECTIVITY
    return selectivity


def _is_equality(expression: Expression) -> bool:
    match expression:
        case ex.Comparison(Operator.EQUAL, _, _):
            return True
    return False


def _sum(counts: Iterable[IoCounts]) -> IoCounts:
    return sum(counts, IoCounts())
