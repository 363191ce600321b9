"""Filter rows with late materialization.

    split      rows 0..8192 of fragment 3, of which 2 are deleted
    step 1     _rowid < 7       8190 rows -> 4
    step 2     age > 30         reads age of 4 rows -> 1
    then       id, name         of 1 row

Filter columns are read first, other columns only for the rows that pass. Splits run in parallel,
each from its first step to its output, and results are emitted in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.base import RowRange
from lancelet.encodings.take import decode_dictionary, take_ascending
from lancelet.file.pool import map_ordered
from lancelet.format.field import Field
from lancelet.scan.indexing.choose import ChosenPart
from lancelet.scan.indexing.search import Candidates
from lancelet.scan.node_meter import READ, TAKE
from lancelet.scan.nodes.batch_sizer import BatchSizer, MeteredSource, batch_sizer
from lancelet.scan.nodes.pack import Pack
from lancelet.scan.nodes.source import FragmentSource, dense_enough, waits_for_storage
from lancelet.scan.nodes.splits import Split, splits, splits_of
from lancelet.scan.plan import FilterStep, Flags, ScanPlan
from lancelet.scan.projection import without_columns
from lancelet.values import dataclass

_DICTIONARY_ROWS_MIN: Final = 4096
_MATCHED_ROWS_MIN: Final = 8192
_MATCHED_SHARE_MAX: Final = 0.1
_SHORT_BYTES: Final = 1 << 20
"""Tasks that read fewer bytes take less time than starting a thread."""
_SHORT_COMPARED_BYTES: Final = 1 << 22
"""The same for numbers that are compared while they are decoded."""


@dataclass(frozen=True, slots=True, eq=False)
class FilteredRows:
    """The rows of a split that pass, or all if `offsets` is None, and the columns read so far."""

    offsets: Int64s | None
    columns: dict[Field, pa.Array]
    num_rows: int


def filter_rows(plan: ScanPlan, parts: Sequence[ChosenPart]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of rows that match; indices evaluate the `parts` of the filter."""
    for batch in _filter_splits(plan, parts):
        if batch is not None:
            yield from split_batch(batch, plan.options.batch_size)


def _filter_splits(plan: ScanPlan, parts: Sequence[ChosenPart]) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows that match, split by split.

    The share of rows that pass varies, so with a memory limit the late columns are read by separate
    tasks of a suitable size.
    """
    waits, early = waits_for_storage(plan.snapshot), batch_sizer(plan, share=0.5)
    if not early.is_bounded:
        tasks = splits(plan, plan.projection.fields, parts)
        filtering = partial(_filter_split, plan)
        return map_ordered(filtering, tasks, waits=waits, is_short=partial(_is_short, plan))
    late = batch_sizer(plan, share=0.5)

    def find(split: Split) -> tuple[Split, FilteredRows]:
        return split, apply_filter(plan, split, split.steps, plan.projection.fields)

    def complete(part: tuple[Split, FilteredRows]) -> pa.RecordBatch:
        return materialize(plan, *part)

    tasks = _resize_splits(splits(plan, plan.projection.fields, parts), early)
    filtered = map_ordered(find, tasks, waits=waits, window=early.ahead)
    late_tasks = (task for each in filtered for task in _split_filtered(plan, late, *each))
    return map_ordered(complete, late_tasks, waits=waits, window=late.ahead)


def count_matching(plan: ScanPlan, candidates: Candidates | None) -> int:
    """Return the number of rows that match, given the candidates of indices."""
    sizer = batch_sizer(plan)
    tasks = splits_of(plan, candidates)
    if sizer.is_bounded:
        tasks = _resize_splits(tasks, sizer)
    waits = waits_for_storage(plan.snapshot)
    counts = map_ordered(
        partial(_count_split, plan),
        tasks,
        waits=waits,
        window=sizer.ahead,
        is_short=partial(_is_short, plan),
    )
    return sum(counts)


def _is_short(plan: ScanPlan, split: Split) -> bool:
    """Return whether filtering a split takes less time than starting a thread."""
    source = split.source
    if isinstance(source, Pack) or not split.steps or waits_for_storage(plan.snapshot):
        return False
    rows = sum(map(len, split.ranges)) or len(split.rows)
    compared = source.reader.row_bytes(split.steps[0].fields)
    output = source.reader.row_bytes(plan.projection.fields)
    values = split.steps[0].values
    is_compared = values is not None and values.numbers is not None
    limit = _SHORT_COMPARED_BYTES if is_compared else _SHORT_BYTES
    return rows * compared <= limit and rows * output <= 4 * limit


def matching_offsets(plan: ScanPlan) -> Iterator[tuple[int, Int64s]]:
    """Yield fragment ids and the offsets of their rows that match, split by split."""

    def offsets_of(split: Split) -> list[tuple[int, Int64s]]:
        filtered = apply_filter(plan, split, split.steps)
        offsets = filtered.offsets
        if offsets is None:
            offsets = np.arange(split.rows.start, split.rows.stop)
        return [
            (int(source.fragment.id), member_offsets)
            for source, member_offsets in split.source.by_member(offsets)
        ]

    for found in map_ordered(offsets_of, splits(plan), waits=waits_for_storage(plan.snapshot)):
        yield from found


def _filter_split(plan: ScanPlan, split: Split) -> pa.RecordBatch | None:
    filtered = apply_filter(plan, split, split.steps, plan.projection.fields)
    return materialize(plan, split, filtered) if filtered.num_rows else None


def materialize(plan: ScanPlan, split: Split, filtered: FilteredRows) -> pa.RecordBatch:
    """Return the output batch for rows that passed, reading missing columns."""
    projection, source = plan.projection, split.source
    missing = [field for field in projection.fields if field not in filtered.columns]
    late: dict[Field, pa.Array] = {}
    if missing:
        # If indices decided the whole filter, no columns were read before.
        with plan.meter.within(TAKE if split.steps else READ):
            arrays = source.read(missing, split.rows, filtered.offsets)
        late = dict(zip(missing, arrays, strict=True))
    columns = {
        field.name: filtered.columns.get(field, late.get(field)) for field in projection.fields
    }
    columns |= source.row_columns(projection.row_columns, split.rows, filtered.offsets)
    batch = (
        pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        if columns
        else without_columns(filtered.num_rows)
    )
    return projection.compute(batch)


def _count_split(plan: ScanPlan, split: Split) -> int:
    """Count the rows that pass, without materializing the result of the last step."""
    if not split.steps:
        offsets = split.offsets
        return split.source.count_visible(split.rows) if offsets is None else len(offsets)
    return _apply_steps(plan, split, split.steps, None).count


def apply_filter(
    plan: ScanPlan, split: Split, steps: tuple[FilterStep, ...], output: Sequence[Field] = ()
) -> FilteredRows:
    """Return the rows of a split that pass all steps, and the `output` columns read so far.

    Each step reads its columns for the remaining rows only.
    """
    remaining = _apply_steps(plan, split, steps, output)
    remaining.select()
    return FilteredRows(remaining.offsets, remaining.columns, remaining.count)


def _apply_steps(
    plan: ScanPlan, split: Split, steps: tuple[FilterStep, ...], output: Sequence[Field] | None
) -> _Remaining:
    """Apply steps; if `output` is None, the rows that pass the last step are counted only."""
    remaining = _Remaining.of(split)
    for index, step in enumerate(steps):
        if not remaining.count:
            break
        later = (field for after in steps[index + 1 :] for field in after.fields)
        needed = {*(output or ()), *later}
        selects = split.ranges or (output is not None and index == len(steps) - 1)
        is_applied = selects and remaining.select_by(plan, step, needed)
        if not is_applied and remaining.count:
            remaining.apply(plan, step, needed)
    return remaining


@dataclass(slots=True, eq=False)
class _Remaining:
    """The rows of a split that passed the steps so far.

    `columns` have a value for each of `offsets`, or for each row of the split if these are None.
    `mask` are the rows of them that passed, or None if all passed.
    """

    split: Split
    offsets: Int64s | None
    columns: dict[Field, pa.Array]
    count: int
    has_all: bool
    """Whether the offsets, or the rows of the split, are still all of its visible rows."""
    mask: Flags | None = None

    @staticmethod
    def of(split: Split) -> _Remaining:
        """Return the visible rows of a split, with its eager fields."""
        if split.ranges:
            return _Remaining(split, None, {}, sum(map(len, split.ranges)), has_all=True)
        offsets = split.offsets
        if offsets is None:
            offsets = split.source.visible(split.rows)
        count = len(split.rows) if offsets is None else len(offsets)
        columns: dict[Field, pa.Array] = {}
        if count and split.eager_fields:
            arrays = split.source.read(split.eager_fields, split.rows, offsets)
            columns.update(zip(split.eager_fields, arrays, strict=True))
        return _Remaining(split, offsets, columns, count, has_all=split.offsets is None)

    @property
    def _total(self) -> int:
        if self.offsets is not None:
            return len(self.offsets)
        return sum(map(len, self.split.ranges)) or len(self.split.rows)

    def apply(self, plan: ScanPlan, step: FilterStep, needed: Collection[Field]) -> None:
        """Apply a step; columns that are read for it are added to `columns` if they are needed."""
        if self.mask is not None and not self._is_dense_for(step):
            self.select()
        found = self._matched(plan, step, needed)
        if found is None:
            found = self._passed(plan, step)
            self.columns = {
                field: array for field, array in self.columns.items() if field in needed
            }
        self.count = int(np.count_nonzero(found))
        plan.shares[step] = self.count / self._total
        self.mask = None if self.count == self._total else found

    def select_by(self, plan: ScanPlan, step: FilterStep, needed: Collection[Field]) -> bool:
        """Apply a step if it selects values while they are decoded.

        Otherwise, the visible rows of several ranges are listed.
        """
        source, field, values = self.split.source, self._compared_field(step), step.values
        if field is None or values is None or self.mask is not None or isinstance(source, Pack):
            return False
        if self.offsets is not None and self.columns:
            return False
        ranges = self.split.ranges or (self.split.rows,)
        found = None if values.is_empty else source.reader.select(field, ranges, values)
        if found is None:
            if self.split.ranges:
                listed = [np.arange(each.start, each.stop) for each in ranges]
                self.offsets, self.has_all = source.without_hidden(np.concatenate(listed)), False
                self.count = len(self.offsets)
            return False
        rows, selected = found
        visible = source.visible_among(rows)
        if visible is not None:
            rows, selected = rows[visible], take_ascending(selected, visible)
        step.count_passed(len(rows), plan.meter)
        plan.shares[step] = len(rows) / self._total
        self.count = len(rows)
        if len(rows) < len(self.split.rows):
            self.offsets, self.has_all = rows, False
            first = self.split.rows.start
            self.columns = {
                each: _decoded(each, take_ascending(array, rows - first))
                for each, array in self.columns.items()
            }
        if field in needed:
            self.columns[field] = selected
        return True

    def _compared_field(self, step: FilterStep) -> Field | None:
        """Return the column whose stored values a step can compare on all rows, or None."""
        if step.values is None or not self.has_all:
            return None
        field = step.fields[0]
        if self.split.ranges:
            return field
        if field in self.columns or self._total < _MATCHED_ROWS_MIN:
            return None
        return field

    def select(self) -> None:
        """Apply the mask to the offsets and columns."""
        mask, self.mask = self.mask, None
        if mask is None:
            self.columns = {field: _decoded(field, each) for field, each in self.columns.items()}
            return
        self.has_all = False
        selected = np.flatnonzero(mask).astype(np.int64, copy=False)
        start = self.split.rows.start
        if self.offsets is not None:
            self.offsets = self.offsets[selected]
        else:
            self.offsets = selected + start if start else selected
        self.columns = {
            field: _decoded(field, take_ascending(array, selected))
            for field, array in self.columns.items()
        }

    def _is_dense_for(self, step: FilterStep) -> bool:
        """Return whether a step is faster for all rows than for those that passed before."""
        missing = [field for field in step.fields if field not in self.columns]
        return not step.can_fail and dense_enough(missing, self.count, self._total)

    def _matched(self, plan: ScanPlan, step: FilterStep, needed: Collection[Field]) -> Flags | None:
        """Compare the values of all rows while they are decoded, or return None."""
        source, field = self.split.source, self._compared_field(step)
        if field is None or isinstance(source, Pack):
            return None
        values = step.values
        assert values is not None
        # A needed column is read again for the rows that pass.
        if field in needed and plan.shares.get(step, 0.0) > _MATCHED_SHARE_MAX:
            return None
        if values.is_empty:
            return np.zeros(self._total, np.bool_)
        found = source.reader.match(field, self.split.rows, values)
        if found is None:
            return None
        if self.offsets is not None:
            found = found[self.offsets - self.split.rows.start]
        return step.passed_range(found, plan.meter, self.mask)

    def _passed(self, plan: ScanPlan, step: FilterStep) -> Flags:
        """Return whether each row passed so far and passes a step.

        A column of repeated values is read as a dictionary, and each of its items is evaluated
        once.
        """
        field = self._dictionary_field(step)
        if field is not None:
            encoded = self.split.source.read((field,), self.split.rows, self.offsets)[0]
            self.columns[step.fields[0]] = encoded
            if len(encoded.dictionary) < len(encoded):
                return step.passed_dictionary(encoded, plan.meter, self.mask)
        self.columns = {each: _decoded(each, array) for each, array in self.columns.items()}
        rows = _step_input(step, self.split, self.offsets, self.columns)
        return step.passed(rows, plan.meter, mask=self.mask)

    def _dictionary_field(self, step: FilterStep) -> Field | None:
        """Return the field to read as a dictionary, or None if a step needs the values of rows."""
        source = self.split.source
        if isinstance(source, Pack) or self._total < _DICTIONARY_ROWS_MIN:
            return None
        if not step.takes_dictionary or step.fields[0] in self.columns:
            return None
        return source.reader.as_dictionary(step.fields[0])


def _decoded(field: Field, array: pa.Array) -> pa.Array:
    """Return the values of a field that was read as a dictionary."""
    if pa.types.is_dictionary(array.type) and not field.logical_type.startswith("dict:"):
        return decode_dictionary(array)
    return array


def _step_input(
    step: FilterStep, split: Split, offsets: Int64s | None, columns: dict[Field, pa.Array]
) -> pa.RecordBatch:
    """Return the input batch of a step; columns that are read for it are added to `columns`."""
    missing = [field for field in step.fields if field not in columns]
    if missing:
        arrays = split.source.read(missing, split.rows, offsets)
        columns.update(zip(missing, arrays, strict=True))
    inputs = {field.name: columns[field] for field in step.fields}
    inputs |= split.source.row_columns(step.row_columns, split.rows, offsets)
    if not inputs:
        return without_columns(len(split.rows) if offsets is None else len(offsets))
    return pa.RecordBatch.from_arrays(list(inputs.values()), list(inputs))


def _resize_splits(tasks: Iterable[Split], sizer: BatchSizer) -> Iterator[Split]:
    """Split tasks to read the filter columns within a memory limit."""
    metered: MeteredSource | None = None
    for split in tasks:
        source = split.source
        assert isinstance(source, FragmentSource), "fragments are not packed with a memory limit"
        if metered is None or metered.fragment is not source.fragment:
            metered = MeteredSource(source, sizer)
        fields = tuple(dict.fromkeys(field for step in split.steps for field in step.fields))
        metered_split = replace(split, source=metered)
        if split.offsets is None:
            for rows in sizer.split_range(metered, fields, split.rows):
                yield replace(metered_split, rows=rows)
            continue
        start = 0
        while start < len(split.offsets):
            part = split.offsets[start : start + sizer.rows]
            yield replace(
                metered_split, rows=RowRange(int(part[0]), int(part[-1]) + 1), offsets=part
            )
            start += len(part)


def _split_filtered(
    plan: ScanPlan, sizer: BatchSizer, split: Split, filtered: FilteredRows
) -> Iterator[tuple[Split, FilteredRows]]:
    """Split the rows that passed into tasks that read the late columns within a memory limit."""
    source = split.source
    assert isinstance(source, FragmentSource), "fragments are not packed with a memory limit"
    metered = MeteredSource(source, sizer)
    missing = tuple(field for field in plan.projection.fields if field not in filtered.columns)
    start = 0
    while start < filtered.num_rows:
        part = _slice_filtered(split, filtered, start, min(sizer.rows, filtered.num_rows - start))
        while part[1].num_rows > 1 and _late_bytes(metered, missing, *part) > sizer.task_bytes:
            part = _slice_filtered(split, filtered, start, -(-part[1].num_rows // 2))
        yield replace(part[0], source=metered), part[1]
        start += part[1].num_rows


def _slice_filtered(
    split: Split, filtered: FilteredRows, start: int, count: int
) -> tuple[Split, FilteredRows]:
    """Return a slice of the rows that passed."""
    if filtered.offsets is None:
        first, offsets = split.rows.start + start, None
        rows = RowRange(first, first + count)
    else:
        offsets = filtered.offsets[start : start + count]
        rows = RowRange(int(offsets[0]), int(offsets[-1]) + 1)
    columns = {field: array.slice(start, count) for field, array in filtered.columns.items()}
    return replace(split, rows=rows), FilteredRows(offsets, columns, count)


def _late_bytes(
    source: FragmentSource, fields: Sequence[Field], split: Split, filtered: FilteredRows
) -> float:
    """Estimate the memory of rows that passed, including their late columns."""
    read_bytes = sum(array.nbytes for array in filtered.columns.values())
    if not fields:
        return float(read_bytes)
    range_bytes = source.reader.decoded_bytes(fields, split.rows)
    # Dense rows are read together with the rows between them.
    is_dense = dense_enough(fields, filtered.num_rows, len(split.rows))
    share = 1.0 if is_dense else filtered.num_rows / len(split.rows)
    return float(read_bytes + range_bytes * share)


def split_batch(batch: pa.RecordBatch, size: int | None) -> Iterator[pa.RecordBatch]:
    """Split a batch into batches of at most `size` rows."""
    if size is None or batch.num_rows <= size:
        yield batch
        return
    for start in range(0, batch.num_rows, size):
        yield batch.slice(start, size)
