"""Operators of scans: each one executes, estimates and explains a way to find rows.

    no filter      ReadRows      the rows within offset and limit
    filter         FilterRows    filter columns, then other columns of rows that pass
    count          CountRows     filter columns, unless indices decide the filter
    order          SortRows      sort keys, then other columns in sorted order
    search         SearchRows    an index or all rows, then columns of the hits

`run` yields batches lazily. `steps` returns the steps of the plan, last step first, with the
estimated reads. Execution and explanation use the same operator, so they cannot differ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

import pyarrow as pa

from lancelet import search as searches
from lancelet.encodings.base import RowRange
from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.scan.estimate import NO_READS, Estimate, RowEstimator, format_io, index_nodes
from lancelet.scan.indexing.choose import render_part
from lancelet.scan.indexing.first_rows import bound_of_first_rows
from lancelet.scan.indexing.search import (
    Candidates,
    count_by_index,
    find_candidates,
    lookup_batches,
)
from lancelet.scan.node_meter import INDICES, READ, REFINE, SEARCH, SORT, TAKE, filter_node
from lancelet.scan.nodes.filter import count_matching, filter_rows, split_batch
from lancelet.scan.nodes.read import read_rows, windows
from lancelet.scan.nodes.sort import plan_keys, sorted_batch_rows, sorted_rows
from lancelet.scan.nodes.source import FragmentSource, sources, waits_for_storage
from lancelet.scan.plan import ScanPlan
from lancelet.scan.row_slices import RowSlice, sample_slices, slices_before_limit
from lancelet.search.hits import Search, search_of
from lancelet.values import cached_property, dataclass

INDEX_QUERY: Final = "ScalarIndexQuery:"


@dataclass(frozen=True, slots=True)
class Step:
    """A line of a plan, and the nodes with its measurements."""

    text: str
    nodes: tuple[str, ...] = ()
    reads: bool = False
    has_result_rows: bool = False

    def was_run(self, nodes: Collection[str]) -> bool:
        """Return whether any node of the step was executed."""
        return any(node in nodes for node in self.nodes)


class Operator(RowEstimator, ABC):
    """Base of operators: finds the rows of a plan and returns them."""

    @abstractmethod
    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows lazily."""

    @property
    @abstractmethod
    def early_fields(self) -> tuple[Field, ...]:
        """The fields read before rows are selected."""

    @property
    @abstractmethod
    def late_fields(self) -> tuple[Field, ...]:
        """The fields read only for selected rows."""

    @abstractmethod
    def _own_steps(self) -> Iterator[Step]:
        """Yield the steps between limit and read, last step first."""

    def _read(self) -> Estimate:
        return self.estimate_reads(self.early_fields)

    @cached_property
    def read(self) -> Estimate:
        """The estimated reads before rows are selected, without late columns."""
        return self.with_planning(READ, self._read)

    def steps(self, *, verbose: bool = False) -> list[Step]:
        """Return the steps, last step first."""
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

    def estimate_reads(self, fields: Sequence[Field]) -> Estimate:
        """Return the estimated reads of the examined rows, including opening files."""
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
        """Yield a step per lookup; metrics of an index belong to its first lookup."""
        seen: set[str] = set()
        for index, part in enumerate(self.parts):
            nodes = [node for node in index_nodes(part) if node not in seen]
            seen.update(nodes)
            if not index:
                nodes.append(INDICES)
            reads = self.reads_of_part(part.part) + self.planning_reads(nodes)
            text = f"query={render_part(part.part)}, estimated_rows={part.estimate}"
            yield Step(f"{INDEX_QUERY} {text}, {format_io(reads)}", tuple(nodes), reads=True)


class ReadRows(Operator):
    """Reads rows in table order."""

    late_fields = ()

    @property
    def early_fields(self) -> tuple[Field, ...]:
        """The output fields."""
        return distinct(self.plan.projection.fields)

    @cached_property
    def slices(self) -> tuple[RowSlice, ...]:
        """The rows within offset and limit."""
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
    """Reads the filter columns, and the other columns for rows that pass."""

    @cached_property
    def takes_late(self) -> bool:
        """Whether output columns are read separately, for rows that pass the filter."""
        # If indices evaluate the whole filter, rows are read with all columns.
        indexed = {each for part in self.parts for each in part.expressions}
        has_rest = any(each.expression not in indexed for each in self.plan.conjuncts)
        return has_rest and (bool(self.stepwise_slices) or not self.slices)

    @property
    def retained_fields(self) -> Sequence[Field]:
        """The output fields."""
        return self.plan.projection.fields

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The filter fields, or all fields if columns are read together."""
        late = () if self.takes_late else self.plan.projection.fields
        return distinct([*self.filter_fields, *late])

    @cached_property
    def late_fields(self) -> tuple[Field, ...]:
        """The output fields that the filter does not read."""
        early = {field.id for field in self.filter_fields}
        return tuple(field for field in self.plan.projection.fields if field.id not in early)

    @cached_property
    def take(self) -> Estimate:
        """The estimated reads of late columns, for the estimated number of passing rows."""
        return self.with_planning(TAKE, self._take)

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        options = self.plan.options
        rows = None if options.memory_limit is not None else lookup_batches(self.plan)
        if rows is None:
            rows = filter_rows(self.plan, self.parts)
        else:
            rows = (part for batch in rows for part in split_batch(batch, options.batch_size))
        is_all = not options.offset and options.limit is None
        return rows if is_all else _window(rows, options.offset, options.limit)

    def _slices_until_limit(self, slices: tuple[RowSlice, ...]) -> tuple[RowSlice, ...]:
        options = self.plan.options
        if options.limit is None:
            return slices
        share = self.share(self.undecided, slices)
        waits = waits_for_storage(self.plan.snapshot)
        return slices_before_limit(slices, options.offset + options.limit, share, waits=waits)

    def _take(self) -> Estimate:
        if not self.late_fields:
            return NO_READS
        late_slices = self.stepwise_slices
        others = sum(map(len, self.slices)) - self.rows_certain
        share = sum(map(len, late_slices)) / max(1, others)
        rows = rounded_up((self.rows_passing - self.rows_certain) * share)
        return self.estimate_take(self.late_fields, rows, rows, one_by_one=False, among=late_slices)

    def _own_steps(self) -> Iterator[Step]:
        if self.takes_late:
            yield from self._take_steps("stream of rows that match", self.take)
        yield from self._filter_steps()
        yield from self._index_steps()


class CountRows(FilterRows):
    """Counts the rows that pass the filter, without reading rows that indices decide."""

    @cached_property
    def candidates(self) -> Candidates | None:
        """The rows that indices match, or None if they do not help."""
        return find_candidates(self.plan, counts=True)

    def count(self) -> int:
        """Return the number of rows."""
        count = count_by_index(self.plan)
        return count_matching(self.plan, self.candidates) if count is None else count

    def steps(self, *, verbose: bool = False) -> list[Step]:
        """Return the steps, last step first; no rows are read if indices return exact sets."""
        found = self.candidates
        if found is None or found.steps:
            return super().steps(verbose=verbose)
        text = f"CountFromMask: num_fragments={len(found.covered)}"
        steps = [Step(text, has_result_rows=True), *self._index_steps()]
        if not found.covered.issuperset(self.plan.snapshot.fragments.ids.tolist()):
            steps.append(self._read_step())
        return steps


class SortRows(Operator):
    """Reads the sort keys, and the other columns in sorted order."""

    @cached_property
    def _keys(self) -> Operator:
        """The operator that reads the sort keys and row addresses."""
        with self.plan.meter.within_index(INDICES):
            keys = plan_keys(self.plan)
        return operator_of(keys, is_cold=self.is_cold)

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The filter fields and sort keys."""
        schema, order = self.plan.snapshot.schema, self.plan.options.order_by
        keys = [schema.fields_on_path(each.column)[0] for each in order]
        return distinct([*(self.filter_fields if self.plan.is_filtered else ()), *keys])

    @property
    def late_fields(self) -> tuple[Field, ...]:
        """The output fields."""
        return self.plan.projection.fields

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in sorted order."""
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
        """Yield the step of a sorted index that bounds the first rows, if there is one."""
        with self.meter.within_index(INDICES):
            bound = bound_of_first_rows(self.plan)
        if bound is not None:
            parts = self._keys.parts
            nodes = (INDICES, *(node for part in parts for node in index_nodes(part)))
            part_reads = (self.reads_of_part(part.part) for part in parts)
            reads = format_io(sum(part_reads, self.planning_reads(nodes)))
            yield Step(f"{INDEX_QUERY} first rows, {bound}, {reads}", nodes, reads=True)


class SearchRows(Operator):
    """Finds the rows with the best scores."""

    @cached_property
    def _search(self) -> Search:
        return search_of(self.plan)

    @property
    def filter_selects_rows(self) -> bool:
        """Whether the search is limited to rows that pass the filter."""
        return self.plan.is_filtered and self.plan.options.prefilter

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields read to find rows."""
        early = self.filter_fields if self.filter_selects_rows else ()
        return distinct([*early, *(field for field, _ in self._unindexed_fields)])

    @cached_property
    def late_fields(self) -> tuple[Field, ...]:
        """The fields read for the hits."""
        filtered = () if self.plan.options.prefilter else self.filter_fields
        return distinct([*filtered, *self.plan.projection.fields])

    def run(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, best first."""
        return searches.scored.ScoredScan(self.plan).batches()

    @cached_property
    def _unindexed_fields(self) -> Sequence[tuple[Field, frozenset[int]]]:
        """The fields scanned by the search without an index, with their fragments."""
        with self.meter.within_index(SEARCH):
            return self._search.unindexed_fields(self.plan)

    @cached_property
    def _search_lines(self) -> list[str]:
        return self._search.steps(self.plan)

    @property
    def _is_refined(self) -> bool:
        """Whether hits of a vector index are refined with exact distances."""
        return not self._search_lines[0].startswith("ANN") and any(
            step.startswith("ANN") for step in self._search_lines
        )

    @property
    def _is_found_by_index(self) -> bool:
        """Whether the search reads no rows except through an index."""
        return not self._unindexed_fields and not self.filter_selects_rows

    def _read(self) -> Estimate:
        found = self.estimate_reads(self.filter_fields) if self.filter_selects_rows else NO_READS
        reads, rows, fragments = found.reads, found.rows, found.fragments
        for field, ids in self._unindexed_fields:
            slices = [each for each in self.slices if int(each.source.fragment.id) in ids]
            slices = list(self.sample_passing(slices))
            reads += self.reads_at(slices, (field,))
            rows, fragments = max(rows, sum(map(len, slices))), max(fragments, len(ids))
        return Estimate(fragments, rows, reads)

    def _found(self) -> IoCounts:
        """Return the estimated index reads of the search."""
        if self.plan.is_empty:
            return IoCounts()
        with self.meter.within_index(SEARCH):
            expected = self._search.estimate_reads(self.plan)
            if self._unindexed_fields and not self.filter_selects_rows:
                expected += self._opened(self.slices)
        return expected + self.planning_reads((SEARCH, INDICES))

    def _opened(self, slices: Iterable[RowSlice]) -> IoCounts:
        return self.opening_reads(slices, distinct([*self.early_fields, *self.late_fields]))

    def _take(self) -> Estimate:
        if not self.late_fields:
            return NO_READS
        found = self._search.expected_rows(self.plan)
        rows = rounded_up(self.rows_passing, self.plan.options.limit, found)
        taken = self.estimate_take(self.late_fields, rows, rows, one_by_one=True)
        is_first = self._is_found_by_index and not self._is_refined
        opened = self._opened(sample_slices(self.slices, rows)) if is_first else IoCounts()
        return Estimate(taken.fragments, rows, taken.reads + opened)

    def _refine(self) -> Estimate:
        """Return the estimated reads to refine the hits of a vector index."""
        search = self._search
        if not isinstance(search, searches.vector.VectorSearch):
            return NO_READS
        count = search.count * (search.refine_factor or 1) * len(search.queries)
        chosen = list(sources(self.plan.snapshot, self.plan.options.fragments))
        slices = sample_slices(
            [RowSlice(each, RowRange(0, each.num_rows)) for each in chosen], count
        )
        reads = self.reads_at(slices, (search.field,), one_by_one=True)
        if self._is_found_by_index:
            reads += self._opened(slices)
        return Estimate(len(slices), sum(map(len, slices)), reads)

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
        """Yield the steps of a search; a vector search may refine the hits of an index."""
        found, texts = format_io(self._found()), list(self._search_lines)
        if len(texts) > 1 and self._is_refined:
            again = self.with_planning(REFINE, self._refine)
            yield Step(f"{texts.pop(0)}, {again}", (REFINE,), reads=True)
        yield Step(f"{texts[0]}, {found}", (SEARCH, INDICES), reads=True)
        yield from map(Step, texts[1:])


def operator_of(plan: ScanPlan, *, is_cold: bool = False) -> Operator:
    """Return the operator of a plan; `is_cold` if metadata of data files is not cached."""
    options = plan.options
    if options.search is not None:
        return SearchRows(plan, is_cold=is_cold)
    if options.order_by:
        return SortRows(plan, is_cold=is_cold)
    return (FilterRows if plan.is_filtered else ReadRows)(plan, is_cold=is_cold)


def sort_step(plan: ScanPlan) -> Step:
    """Return the sort step of a plan."""
    keys = ", ".join(
        f"{each.column} {'asc' if each.ascending else 'desc'}" for each in plan.options.order_by
    )
    return Step(f"Sort: {keys}", (SORT,))


def rounded_up(rows: float, *most: int | None) -> int:
    """Round an estimated row count up, limited by the given maxima."""
    return -int(-min([rows, *(float(each) for each in most if each is not None)]) // 1)


def distinct(fields: Iterable[Field]) -> tuple[Field, ...]:
    """Return fields without duplicates."""
    return tuple({field.id: field for field in fields}.values())


def _window(
    batches: Iterator[pa.RecordBatch], offset: int, limit: int | None
) -> Iterator[pa.RecordBatch]:
    """Yield up to `limit` rows from `offset` on."""
    for batch in batches:
        if offset >= batch.num_rows:
            offset -= batch.num_rows
            continue
        window = batch.slice(offset, limit)
        offset = 0
        yield window
        if limit is not None:
            limit -= window.num_rows
            if limit == 0:
                return
