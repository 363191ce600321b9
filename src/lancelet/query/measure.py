"""What each node of a plan reads while the plan runs, for plans that are analysed and no others.

    filter k > 5, columns v       LanceRead    k of 1000 rows     2 requests
                                  Take         v of 994 rows      1 request

A plan that is analysed reads from a snapshot, asks indices and runs a search that tell on what
behalf they are asked; plans that are not know nothing of it. A request belongs to the node in
which its thread is, else to that in which the thread is that runs the plan, else to `LanceRead`.

Open indices are asked as they are; all else is read as if for the first time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from functools import cached_property
from typing import Any, TypeVar, cast

import pyarrow as pa

from lancelet.buffers import Int64s, Slices
from lancelet.encodings.base import RowIndices, RowRange, Rows
from lancelet.file.small_files import SmallFiles
from lancelet.format.field import Field
from lancelet.format.fragment import DataFile, Fragment
from lancelet.format.index_metadata import IndexSection
from lancelet.index.question import OneOf, Question
from lancelet.io.metered import PROCESS_METER, IoMeter, metered
from lancelet.io.wrapped import WrappedStore
from lancelet.query import search as searches
from lancelet.query.evaluate import evaluate_filter
from lancelet.query.fragment_reader import FragmentReader
from lancelet.query.indexing.choose import choose_parts
from lancelet.query.indexing.column_indices import ColumnIndex, column_indices, vector_indices
from lancelet.query.indexing.segments import TableSegment, physical_rows_of
from lancelet.query.node_meter import (
    INDICES,
    READ,
    REFINE,
    SEARCH,
    TAKE,
    NodeMeter,
    filter_node,
    index_node,
)
from lancelet.query.plan import FilterStep, ScanPlan
from lancelet.query.scan_options import ScanOptions
from lancelet.query.search.hits import Hits, Search
from lancelet.query.simplify import Conjunct
from lancelet.rowids.address import UInt64s
from lancelet.rowids.selection import RowSet
from lancelet.table.snapshot import Snapshot

T = TypeVar("T")


def planning(plan: ScanPlan) -> MeasuredPlan:
    """Return the plan as it is, to be asked what it will do: what that reads is counted."""
    store = plan.snapshot.location.store
    around = store.around if isinstance(store, WrappedStore) else None
    meter = NodeMeter(PROCESS_METER.scope(), around if isinstance(around, IoMeter) else None)
    return MeasuredPlan.over(plan, meter)


def measuring(planned: MeasuredPlan) -> ScanPlan:
    """Return a plan over a store that is counted, with nothing kept but open indices."""
    plan, meter = planned, planned.meter
    location = plan.snapshot.location
    apart = location.apart(metered(location.store, meter))
    rule = _Rule(plan, meter)
    snapshot = _MeasuredSnapshot(apart, plan.snapshot.entry, plan.snapshot.stored, rule)
    column_indices(snapshot, of=plan.snapshot)
    vector_indices(snapshot, of=plan.snapshot)
    searches.text_indices.text_indices(snapshot, of=plan.snapshot)
    search = plan.options.search
    wanted = None if search is None else _MeasuredSearch(search, meter)
    return replace(plan, snapshot=snapshot, options=replace(plan.options, search=wanted))


def takes_late(plan: ScanPlan) -> bool:
    """Say whether columns are read apart for the rows that pass a filter.

    Where indices are asked for all of it, rows that they find are read with all of their columns.
    """
    if not plan.is_filtered:
        return False
    asked = {each for part in choose_parts(plan) for each in part.expressions}
    return any(each.expression not in asked for each in plan.conjuncts)


def goes_through_vectors(plan: ScanPlan) -> bool:
    """Say whether a search asks an index of vectors."""
    search = plan.options.search
    if not isinstance(search, searches.hits.Explained):
        return False
    return any(step.startswith("ANN") for step in search.steps(plan))


class _Rule:
    """Says which node reads columns."""

    def __init__(self, plan: ScanPlan, meter: NodeMeter) -> None:
        self.plan, self.meter = plan, meter
        options = plan.options
        self._early = {field.id for step in plan.steps for field in step.fields}
        self._wanted = {field.id for field in plan.projection.fields}
        self._is_late = takes_late(plan)
        self._is_sorted = bool(options.order_by)
        self._search = options.search
        self._by_index = goes_through_vectors(plan)

    def node_of(self, fields: Sequence[Field], rows: Rows) -> str:
        """Return the node on whose behalf rows of fields are read."""
        ids = {field.id for field in fields}
        by_place = not isinstance(rows, RowRange)
        if self._search is not None:
            if self.meter.is_searching:
                return REFINE if by_place and self._by_index else READ
            return TAKE if self.meter.has_searched else READ
        if self._is_sorted and by_place and ids == self._wanted:
            return TAKE
        return TAKE if self._is_late and ids and not ids & self._early else READ

    @contextmanager
    def reading(self, fields: Sequence[Field], rows: Rows) -> Iterator[None]:
        """Count a read for its node, unless it is a part of another."""
        if self.meter.is_reading:
            yield
            return
        node = self.node_of(fields, rows)
        with self.meter.within(node):
            yield
        self.meter.saw(node, [field.id for field in fields], len(rows))


class _MeasuredReader(FragmentReader):
    """Reads a fragment on behalf of nodes."""

    def __init__(self, snapshot: Snapshot, fragment: Fragment, rule: _Rule) -> None:
        super().__init__(snapshot, fragment)
        self._rule = rule

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        with self._rule.reading(fields, rows):
            return super().read(fields, rows)

    def read_chunks(self, fields: Sequence[Field], rows: Rows) -> list[pa.ChunkedArray]:
        with self._rule.reading(fields, rows):
            return super().read_chunks(fields, rows)

    def read_in_place(self, field: Field, rows: Int64s) -> Slices | None:
        node = self._rule.node_of((field,), RowIndices(rows))
        with self._rule.meter.within(node):
            found = super().read_in_place(field, rows)
        if found is not None:
            self._rule.meter.saw(node, [field.id], len(rows))
        return found

    def iter_batches(
        self, fields: Sequence[Field], rows: RowRange, batch_size: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        batches = super().iter_batches(fields, rows, batch_size)
        while True:
            with self._rule.meter.within(READ):
                batch = next(batches, None)
            if batch is None:
                return
            self._rule.meter.saw(READ, [field.id for field in fields], batch.num_rows)
            yield batch


class _MeasuredFiles:
    """Small files that are read together on behalf of nodes."""

    def __init__(self, files: SmallFiles, rule: _Rule) -> None:
        self._files, self._rule = files, rule

    def read(self, fields: Sequence[Field], rows: Rows) -> list[pa.Array]:
        """Return the values of fields as one array each."""
        with self._rule.reading(fields, rows):
            return self._files.read(fields, rows)


@dataclass(frozen=True, eq=False)
class _MeasuredSnapshot(Snapshot):
    """A version whose files are read on behalf of nodes."""

    rule: _Rule

    @cached_property
    def indices(self) -> IndexSection:
        return self.rule.plan.snapshot.indices

    def open_fragment(self, fragment: Fragment, make: Callable[[Snapshot, Fragment], T]) -> T:
        del make  # fragments of a plan are read in one way
        return cast("T", super().open_fragment(fragment, self._open_measured))

    def _open_measured(self, bare: Snapshot, fragment: Fragment) -> _MeasuredReader:
        return _MeasuredReader(bare, fragment, self.rule)

    def open_small_files(
        self, files: Sequence[DataFile], num_rows: Sequence[int]
    ) -> SmallFiles | None:
        opened = super().open_small_files(files, num_rows)
        return None if opened is None else cast("SmallFiles", _MeasuredFiles(opened, self.rule))


@dataclass(frozen=True, slots=True, eq=False)
class _MeasuredStep(FilterStep):
    """A part of a filter that counts the rows it passes."""

    meter: NodeMeter

    def passed(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        node = filter_node(self.expression)
        with self.meter.within(node):
            found = evaluate_filter(self.expression, rows)
        self.meter.saw(node, [0], found.true_count)
        return found


@dataclass(frozen=True, eq=False)
class MeasuredPlan(ScanPlan):
    """A plan whose steps and indices tell what they do."""

    meter: NodeMeter = field(kw_only=True)

    @staticmethod
    def over(plan: ScanPlan, meter: NodeMeter) -> MeasuredPlan:
        """Return a plan that tells a meter."""
        values = {each.name: getattr(plan, each.name) for each in dataclass_fields(ScanPlan)}
        measured = MeasuredPlan(**values, meter=meter)
        return replace(measured, steps=measured.measured(plan.steps))

    @property
    def indices(self) -> Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]:
        """The indices that can be asked, which tell what they are asked."""
        with self.meter.asking(INDICES):
            return _MeasuredIndices(super().indices, self.meter)

    def measured(self, steps: Iterable[FilterStep]) -> tuple[FilterStep, ...]:
        """Return steps that tell what they do."""
        return tuple(
            _MeasuredStep(step.expression, step.fields, step.row_columns, self.meter)
            for step in steps
        )

    def steps_of(self, conjuncts: Iterable[Conjunct]) -> tuple[FilterStep, ...]:
        """Return the steps of a part of the filter, which tell what they do."""
        return self.measured(super().steps_of(conjuncts))

    def again(self, options: ScanOptions) -> ScanPlan:
        """Return the plan of another scan, which tells the same meter."""
        return MeasuredPlan.over(super().again(options), self.meter)

    def passed(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the filter holds, and tell how many pass."""
        whole = FilterStep(self.filter, (), ())
        node = filter_node(self.steps[-1].expression if self.steps else self.filter)
        with self.meter.within(node):
            found = whole.passed(rows)
        self.meter.saw(node, [0], found.true_count)
        return found

    def run(self, node: str, work: Callable[[], T]) -> T:
        """Do the work of a node on its behalf."""
        with self.meter.within(node):
            return work()


class _MeasuredSearch:
    """A search that tells what it does, and is otherwise what it is."""

    def __init__(self, search: Search, meter: NodeMeter) -> None:
        self._search, self._meter = search, meter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._search, name)

    def find(self, plan: ScanPlan, rows: Mapping[int, Int64s] | None) -> Hits:
        """Return the best rows of a version."""
        with self._meter.asking(SEARCH):
            found = self._search.find(plan, rows)
        self._meter.has_searched = True
        self._meter.saw(SEARCH, [0], len(found))
        return found


class _MeasuredIndices(Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]):
    """Indices that tell what they are asked."""

    def __init__(
        self, indices: Mapping[tuple[str, ...], tuple[ColumnIndex, ...]], meter: NodeMeter
    ) -> None:
        self._indices, self._meter = indices, meter

    def __getitem__(self, path: tuple[str, ...]) -> tuple[ColumnIndex, ...]:
        with self._meter.asking(INDICES):
            found = self._indices[path]
        return tuple(
            _MeasuredIndex(each.name, each.path, self._segments(each), self._meter)
            for each in found
        )

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    def _segments(self, index: ColumnIndex) -> tuple[TableSegment, ...]:
        return tuple(
            _MeasuredSegment(each.snapshot, each.metadata, each.kind, self._meter)
            for each in index.segments
        )


@dataclass(frozen=True, eq=False)
class _MeasuredSegment(TableSegment):
    """A segment that tells which rows it names."""

    meter: NodeMeter

    def named_rows(self, question: OneOf, most: int) -> UInt64s | None:
        node = index_node(self.metadata.name)
        with self.meter.asking(node):
            found = super().named_rows(question, most)
        if found is not None:
            self.meter.saw(node, [0], len(found))
        return found


@dataclass(frozen=True, eq=False)
class _MeasuredIndex(ColumnIndex):
    """An index that tells what it is asked."""

    meter: NodeMeter

    def estimate(self, question: Question, *, is_negated: bool = False) -> int | None:
        with self.meter.asking(index_node(self.name)):
            return super().estimate(question, is_negated=is_negated)

    def search(self, question: Question) -> tuple[RowSet, bool]:
        node = index_node(self.name)
        with self.meter.asking(node):
            rows, is_exact = super().search(question)
        sizes = physical_rows_of(self.segments[0].snapshot)
        self.meter.saw(node, [0], rows.num_rows(sizes))
        return rows, is_exact

    def count(self, question: Question) -> int | None:
        node = index_node(self.name)
        with self.meter.asking(node):
            found = super().count(question)
        if found is not None:
            self.meter.saw(node, [0], found)
        return found

    def nulls(self) -> RowSet | None:
        with self.meter.asking(index_node(self.name)):
            return super().nulls()
