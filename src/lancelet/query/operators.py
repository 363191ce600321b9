"""What a scan does: an operator for each way to find its rows, which runs, estimates and says it.

    no filter      ReadRows      a window of offset and limit
    filter         FilterRows    columns of the filter, then the others of rows that pass
    order          SortRows      what to sort by of either, then the others in the order found
    search         SearchRows    an index, or all rows, then columns of what was found

An operator is a plan with what can be done with it. `run` yields batches as they are taken; `steps`
says what it will do, the last first, and what those of them that read are expected to read. So
what is explained is what runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from lancelet.encodings.base import RowRange
from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.query import search as searches
from lancelet.query.estimate import (
    NO_READS,
    Estimate,
    RowEstimator,
    format_io,
    index_nodes,
)
from lancelet.query.indexing.choose import render_part
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.indexing.search import find_candidates
from lancelet.query.looks import RowSlice, sample_slices
from lancelet.query.node_meter import INDICES, READ, REFINE, SEARCH, SORT, TAKE, filter_node
from lancelet.query.nodes.filter import filter_rows
from lancelet.query.nodes.read import read_rows, windows
from lancelet.query.nodes.sort import plan_keys, sorted_batch_rows, sorted_rows
from lancelet.query.nodes.source import FragmentSource, sources
from lancelet.query.plan import ScanPlan
from lancelet.query.search.hits import Search
from lancelet.values import cached_property, dataclass

ASKED: Final = "ScalarIndexQuery:"


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a plan as it is shown, and the nodes of which it tells when they are measured."""

    text: str
    nodes: tuple[str, ...] = ()
    reads: bool = False
    has_result_rows: bool = False

    def was_run(self, nodes: Collection[str]) -> bool:
        """Say whether a node of the step is among those that did something."""
        return any(node in nodes for node in self.nodes)


class Operator(RowEstimator, ABC):
    """A way to find the rows of a plan, and to return them."""

    @abstractmethod
    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, as they are taken."""

    @property
    @abstractmethod
    def early_fields(self) -> tuple[Field, ...]:
        """The fields that are read before rows are chosen."""

    @property
    @abstractmethod
    def late_fields(self) -> tuple[Field, ...]:
        """The fields that are read of chosen rows alone."""

    @abstractmethod
    def _own_steps(self) -> Iterator[Step]:
        """Yield the steps before the limit, the last first, but for the one that reads."""

    def _read(self) -> Estimate:
        return self.estimate_reads(self.early_fields)

    @cached_property
    def read(self) -> Estimate:
        """What is expected to be read before rows are chosen, late columns not among it."""
        return self.with_planning(READ, self._read)

    def steps(self, *, verbose: bool = False) -> list[Step]:
        """Return what is done, the last first."""
        plan, options = self.plan, self.plan.options
        steps = [Step(f"Project: {', '.join(plan.schema.names)}", has_result_rows=True)]
        if options.limit is not None or options.offset:
            text = f"Limit: offset={options.offset} limit={options.limit}"
            steps.append(Step(text, has_result_rows=True))
        steps += [*self._own_steps(), self._read_step()]
        if verbose:
            version = f"Version: {plan.snapshot.version} of {plan.snapshot.num_rows} rows"
            steps.append(Step(version))
        return steps

    def steps_of_count(self) -> list[Step]:
        """Return what is done to count the rows: less where sets of indices are the answer."""
        mask = find_candidates(self.plan, counts=True) if self.plan.is_filtered else None
        if mask is None or mask.steps:
            return self.steps(verbose=True)
        text = f"CountFromMask: num_fragments={len(mask.covered)}"
        steps = [Step(text, has_result_rows=True), *self._index_steps()]
        if not mask.covered.issuperset(self.plan.snapshot.fragments.ids.tolist()):
            steps.append(self._read_step())
        return steps

    def estimate_reads(self, fields: Sequence[Field]) -> Estimate:
        """Return what is read of rows that are looked at, whose files are opened."""
        found = super().estimate_reads(fields)
        opened = self.opening_reads(self.slices, distinct([*self.early_fields, *self.late_fields]))
        return Estimate(found.fragments, found.rows, found.reads + opened)

    def _read_step(self) -> Step:
        names = ", ".join(field.name for field in self.early_fields)
        text = (
            f"{READ}: uri={self.plan.snapshot.location.uri}, projection=[{names}], "
            f"num_fragments={self.read.fragments}, {self.read}"
        )
        return Step(text, (READ,), reads=True)

    def _take_steps(self, source: str, estimate: Estimate) -> Iterator[Step]:
        if self.late_fields:
            names = ", ".join(field.name for field in self.late_fields)
            text = f"{TAKE}: projection=[{names}], source={source}, {estimate}"
            yield Step(text, (TAKE,), reads=True)

    def _filter_steps(self) -> Iterator[Step]:
        for step in reversed(self.plan.steps):
            yield Step(f"Filter: {step.expression}", (filter_node(step.expression),))

    def _index_steps(self) -> Iterator[Step]:
        """Yield a step for each question; what an index did is told where it is first asked."""
        seen: set[str] = set()
        for place, part in enumerate(self.parts):
            nodes = [node for node in index_nodes(part) if node not in seen]
            seen.update(nodes)
            if not place:
                nodes.append(INDICES)
            reads = self.reads_of_part(part.part) + self.planning_reads(nodes)
            text = f"query={render_part(part.part)}, estimated_rows={part.estimate}"
            yield Step(f"{ASKED} {text}, {format_io(reads)}", tuple(nodes), reads=True)


class ReadRows(Operator):
    """Reads rows in the order of the table."""

    late_fields = ()

    @property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields that are returned."""
        return distinct(self.plan.projection.fields)

    @cached_property
    def slices(self) -> tuple[RowSlice, ...]:
        """The window that offset and limit leave."""
        if self.plan.is_empty:
            return ()
        return tuple(
            RowSlice(each.source, each.rows)
            for each in windows(self.plan)
            if isinstance(each.source, FragmentSource)
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        return read_rows(self.plan)

    def _own_steps(self) -> Iterator[Step]:
        yield from ()


class FilterRows(Operator):
    """Reads the columns of a filter, and the others for the rows that pass."""

    @cached_property
    def takes_late(self) -> bool:
        """Whether columns are read apart for the rows that pass the filter."""
        # Where indices are asked for all of a filter, rows are read with all of their columns.
        asked = {each for part in self.parts for each in part.expressions}
        has_rest = any(each.expression not in asked for each in self.plan.conjuncts)
        return has_rest and (bool(self.stepwise_slices) or not self.slices)

    @property
    def retained_fields(self) -> Sequence[Field]:
        """The fields that are returned."""
        return self.plan.projection.fields

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields of the filter, with all others where they are read at once."""
        late = () if self.takes_late else self.plan.projection.fields
        return distinct([*self.filter_fields, *late])

    @cached_property
    def late_fields(self) -> tuple[Field, ...]:
        """The fields that the filter does not name."""
        early = {field.id for field in self.filter_fields}
        return tuple(field for field in self.plan.projection.fields if field.id not in early)

    @cached_property
    def take(self) -> Estimate:
        """What is expected to be read of late columns, for about as many rows as are left."""
        return self.with_planning(TAKE, self._take)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        rows, options = filter_rows(self.plan), self.plan.options
        is_all = not options.offset and options.limit is None
        return rows if is_all else _window(rows, options.offset, options.limit)

    def _take(self) -> Estimate:
        if not self.late_fields:
            return NO_READS
        apart = self.stepwise_slices
        share = sum(map(len, apart)) / max(1, sum(map(len, self.slices)))
        rows = rounded_up(self.rows_passing * share, self.plan.options.limit)
        return self.estimate_take(self.late_fields, rows, rows, one_by_one=False, among=apart)

    def _own_steps(self) -> Iterator[Step]:
        if self.takes_late:
            yield from self._take_steps("stream of rows that match", self.take)
        yield from self._filter_steps()
        yield from self._index_steps()


class SortRows(Operator):
    """Reads what to sort by of rows, and the others in the order found."""

    @cached_property
    def _keys(self) -> Operator:
        """What reads the columns to sort by, and where the rows are."""
        with self.plan.meter.within_index(INDICES):
            keys = plan_keys(self.plan)
        return operator_of(keys, is_cold=self.is_cold)

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields to filter and to sort by."""
        schema, order = self.plan.snapshot.schema, self.plan.options.order_by
        keys = [schema.fields_on_path(each.column)[0] for each in order]
        return distinct([*(self.filter_fields if self.plan.is_filtered else ()), *keys])

    @property
    def late_fields(self) -> tuple[Field, ...]:
        """The fields that are returned."""
        return self.plan.projection.fields

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in their order."""
        return sorted_rows(self.plan, self._keys.run(), self._keys.plan.schema)

    def _read(self) -> Estimate:
        keys = self._keys
        found = keys.estimate_reads(keys.early_fields)
        late = keys._take().reads if isinstance(keys, FilterRows) and keys.takes_late else None  # noqa: SLF001 - of this module
        return Estimate(found.fragments, found.rows, found.reads + (late or IoCounts()))

    def _take(self) -> Estimate:
        options = self.plan.options
        rows = rounded_up(self.rows_passing, options.limit)
        batch = sorted_batch_rows(options)
        return self.estimate_take(self.late_fields, rows, batch, one_by_one=True)

    def _own_steps(self) -> Iterator[Step]:
        if self.late_fields:
            yield from self._take_steps("sorted rows", self.with_planning(TAKE, self._take))
        yield sort_step(self.plan)
        yield from self._first_rows_steps()
        if self.plan.is_filtered:
            yield from self._filter_steps()
            yield from self._index_steps()

    def _first_rows_steps(self) -> Iterator[Step]:
        """Yield the step of an index that says which rows come first, if one does."""
        with self.meter.within_index(INDICES):
            bound = bound_of_first_rows(self.plan)
        if bound is not None:
            parts = self._keys.parts
            nodes = (INDICES, *(node for part in parts for node in index_nodes(part)))
            asked = (self.reads_of_part(part.part) for part in parts)
            reads = format_io(sum(asked, self.planning_reads(nodes)))
            yield Step(f"{ASKED} first rows, {bound}, {reads}", nodes, reads=True)


class SearchRows(Operator):
    """Finds the rows that are the best by some score."""

    @cached_property
    def _search(self) -> Search:
        search = self.plan.options.search
        assert search is not None, "the plan has a search"
        return search

    @property
    def filter_selects_rows(self) -> bool:
        """Whether only rows that pass the filter are searched."""
        return self.plan.is_filtered and self.plan.options.prefilter

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields that are read to find rows."""
        early = self.filter_fields if self.filter_selects_rows else ()
        return distinct([*early, *(field for field, _ in self._beside)])

    @cached_property
    def late_fields(self) -> tuple[Field, ...]:
        """The fields that are read of rows that were found."""
        filtered = () if self.plan.options.prefilter else self.filter_fields
        return distinct([*filtered, *self.plan.projection.fields])

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, the best first."""
        return searches.scored.ScoredScan(self.plan).batches()

    @cached_property
    def _beside(self) -> Sequence[tuple[Field, frozenset[int]]]:
        """The fields that a search looks at row by row, and in which fragments."""
        with self.meter.within_index(SEARCH):
            return self._search.looked_at(self.plan)

    @cached_property
    def _shown(self) -> list[str]:
        return self._search.steps(self.plan)

    @property
    def _goes_again(self) -> bool:
        """Whether what a vector index finds is looked at again."""
        return not self._shown[0].startswith("ANN") and any(
            step.startswith("ANN") for step in self._shown
        )

    @property
    def _is_found_by_index(self) -> bool:
        """Whether a search looks at no rows before it has found some."""
        return not self._beside and not self.filter_selects_rows

    def _read(self) -> Estimate:
        found = self.estimate_reads(self.filter_fields) if self.filter_selects_rows else NO_READS
        reads, rows, fragments = found.reads, found.rows, found.fragments
        for field, ids in self._beside:
            beside = [look for look in self.slices if int(look.source.fragment.id) in ids]
            beside = list(self.sample_passing(beside))
            reads += self.reads_at(beside, (field,))
            rows, fragments = max(rows, sum(map(len, beside))), max(fragments, len(ids))
        return Estimate(fragments, rows, reads)

    def _found(self) -> IoCounts:
        """Return what a search will read of its index."""
        if self.plan.is_empty:
            return IoCounts()
        with self.meter.within_index(SEARCH):
            expected = self._search.estimate_reads(self.plan)
            if self._beside and not self.filter_selects_rows:
                expected += self._opened(self.slices)
        return expected + self.planning_reads((SEARCH, INDICES))

    def _opened(self, looks: Iterable[RowSlice]) -> IoCounts:
        return self.opening_reads(looks, distinct([*self.early_fields, *self.late_fields]))

    def _take(self) -> Estimate:
        if not self.late_fields:
            return NO_READS
        found = self._search.expected_rows(self.plan)
        rows = rounded_up(self.rows_passing, self.plan.options.limit, found)
        taken = self.estimate_take(self.late_fields, rows, rows, one_by_one=True)
        is_first = self._is_found_by_index and not self._goes_again
        opened = self._opened(sample_slices(self.slices, rows)) if is_first else IoCounts()
        return Estimate(taken.fragments, rows, taken.reads + opened)

    def _refine(self) -> Estimate:
        """Return what is read to compare rows again that a vector index found."""
        search = self._search
        if not isinstance(search, searches.vector.VectorSearch):
            return NO_READS
        count = search.count * (search.refine_factor or 1) * len(search.queries)
        chosen = list(sources(self.plan.snapshot, self.plan.options.fragments))
        looks = sample_slices(
            [RowSlice(each, RowRange(0, each.num_rows)) for each in chosen], count
        )
        reads = self.reads_at(looks, (search.field,), one_by_one=True)
        if self._is_found_by_index:
            reads += self._opened(looks)
        return Estimate(len(looks), sum(map(len, looks)), reads)

    def _own_steps(self) -> Iterator[Step]:
        plan = self.plan
        yield from self._take_steps("rows that were found", self.with_planning(TAKE, self._take))
        if plan.options.order_by:
            yield sort_step(plan)
        if not plan.options.prefilter:
            yield from self._filter_steps()
        yield from self._search_steps()
        if self.filter_selects_rows:
            yield from self._filter_steps()
            yield from self._index_steps()

    def _search_steps(self) -> Iterator[Step]:
        """Yield the steps of a search; one of vectors may look again at what an index found."""
        found, texts = format_io(self._found()), list(self._shown)
        if len(texts) > 1 and self._goes_again:
            again = self.with_planning(REFINE, self._refine)
            yield Step(f"{texts.pop(0)}, {again}", (REFINE,), reads=True)
        yield Step(f"{texts[0]}, {found}", (SEARCH, INDICES), reads=True)
        yield from map(Step, texts[1:])


def operator_of(plan: ScanPlan, *, is_cold: bool = False) -> Operator:
    """Return what finds the rows of a plan; `is_cold` says that its files are read anew."""
    options = plan.options
    if options.search is not None:
        return SearchRows(plan, is_cold=is_cold)
    if options.order_by:
        return SortRows(plan, is_cold=is_cold)
    return (FilterRows if plan.is_filtered else ReadRows)(plan, is_cold=is_cold)


def sort_step(plan: ScanPlan) -> Step:
    """Return the step that puts rows in order."""
    keys = ", ".join(
        f"{each.column} {'asc' if each.ascending else 'desc'}" for each in plan.options.order_by
    )
    return Step(f"Sort: {keys}", (SORT,))


def rounded_up(rows: float, *most: int | None) -> int:
    """Return about how many rows there will be, of which there are at the most so many."""
    return -int(-min([rows, *(float(each) for each in most if each is not None)]) // 1)


def distinct(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields, each once."""
    return tuple({field.id: field for field in fields}.values())


def _window(
    batches: Iterator[pa.RecordBatch], offset: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield the rows from `offset` on, as many as `limit` says."""
    for batch in batches:
        if offset >= batch.num_rows:
            offset -= batch.num_rows
            continue
        kept = batch.slice(offset, limit)
        offset = 0
        yield kept
        if limit is not None:
            limit -= kept.num_rows
            if limit == 0:
                return
