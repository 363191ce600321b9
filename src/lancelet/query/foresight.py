"""What the nodes of a plan are expected to ask of storage, before it runs.

    planned     an index was opened to see what it would find        3 requests, counted
    expected    two of its pages, and the ids of the rows between    2 requests, foreseen
    predicted                                                        5 requests

What planning reads is a part of what a scan takes, and known exactly; it is nothing the second
time. What is in memory costs nothing. A plan that is to be analysed reads its data files as if
nothing were known of them, so what describes them is expected once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property

from lancelet.encodings.base import RowRange
from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.query import search as searches
from lancelet.query.expression import Expression
from lancelet.query.indexing.choose import Asked, ChosenPart, Part, choose_parts
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.indexing.search import Candidates, find_candidates
from lancelet.query.looks import (
    Look,
    has_statistics,
    looks_of,
    packed_reads,
    reads_of,
    share_of,
    spread,
)
from lancelet.query.node_meter import (
    INDICES,
    READ,
    REFINE,
    SEARCH,
    TAKE,
    UNMETERED,
    NodeMeter,
    index_node,
    meter_for,
)
from lancelet.query.nodes.read import windows
from lancelet.query.nodes.sort import plan_keys, sorted_batch_rows
from lancelet.query.nodes.source import FragmentSource, sources
from lancelet.query.plan import ScanPlan, filter_steps
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected to be read."""

    fragments: int
    rows: int
    reads: IoCounts

    def __str__(self) -> str:
        """Return what plans say of it."""
        return f"rows={self.rows}, {told(self.reads)}"


def told(reads: IoCounts) -> str:
    """Return what plans say of reads."""
    return f"requests={reads.read_iops}, bytes={reads.read_bytes}"


def predict(plan: ScanPlan) -> Prediction:
    """Return what is expected to be read before rows are chosen, late columns not among it."""
    return Foresight(plan, is_anew=False).read


class Foresight:
    """What a plan is expected to read, node by node; `is_anew` says that files are read anew."""

    def __init__(self, plan: ScanPlan, *, is_anew: bool, meter: NodeMeter | None = None) -> None:
        """Look ahead in a plan; the meter counts what that reads."""
        self.meter = meter or meter_for(plan.snapshot)
        self.plan = replace(plan, meter=self.meter)
        self.is_anew = is_anew

    # --- indices ------------------------------------------------------------------------------

    @cached_property
    def parts(self) -> Sequence[ChosenPart]:
        """The parts of the filter that indices are asked for."""
        if not self.plan.is_filtered or not self._looks_at_filter:
            return ()
        return choose_parts(self.plan)

    @cached_property
    def bound(self) -> Expression | None:
        """What an index says of the rows that come first in the order that is asked for."""
        with self.meter.asking(INDICES):
            return bound_of_first_rows(self.plan)

    @cached_property
    def of_keys(self) -> Foresight:
        """The same of the plan that reads what to sort by."""
        with self.meter.asking(INDICES):
            keys = plan_keys(self.plan)
        return Foresight(keys, is_anew=self.is_anew, meter=self.meter)

    def of_part(self, part: Part) -> IoCounts:
        """Return what indices will read to answer a part of the filter."""
        if isinstance(part, Asked):
            return part.index.expected_reads(part.question, is_negated=part.is_negated)
        return sum((self.of_part(each) for each in part.parts), IoCounts())

    def planned(self, nodes: Iterable[str]) -> IoCounts:
        """Return what planning has read for nodes so far."""
        known = self.meter.nodes
        return sum(
            (IoCounts(known[name].requests, known[name].bytes) for name in nodes if name in known),
            IoCounts(),
        )

    def of_search(self) -> IoCounts:
        """Return what a search will read of its index."""
        search = self.plan.options.search
        if not isinstance(search, searches.hits.Explained) or self.plan.is_empty:
            return IoCounts()
        with self.meter.asking(SEARCH):
            expected = search.expected_reads(self.plan)
            if self._beside and not (self.plan.options.prefilter and self.plan.is_filtered):
                expected += self._opened(self.looks)
        return expected + self.planned((SEARCH, INDICES))

    # --- rows ---------------------------------------------------------------------------------

    @cached_property
    def read(self) -> Prediction:
        """What is expected to be read before rows are chosen, late columns not among it."""
        return self._counted(READ, self._read)

    def unsorted(self) -> Prediction:
        """Return what is read of rows in no order, late columns among it."""
        found = self._read_rows(self.early_fields)
        late = self._take().reads if self.takes_late else IoCounts()
        return Prediction(found.fragments, found.rows, found.reads + late)

    @cached_property
    def take(self) -> Prediction:
        """What is expected to be read of late columns, for about as many rows as are left."""
        return self._counted(TAKE, self._take)

    @cached_property
    def refine(self) -> Prediction:
        """What is expected to be read to compare rows again that an index of vectors found."""
        return self._counted(REFINE, self._refine)

    @cached_property
    def late_fields(self) -> tuple[Field, ...]:
        """The fields that are read of chosen rows alone."""
        plan = self.plan
        if plan.options.search is not None:
            filtered = [] if plan.options.prefilter else self._filter_fields
            return _distinct([*filtered, *plan.projection.fields])
        if plan.options.order_by:
            return plan.projection.fields
        early = {field.id for field in self._filter_fields}
        return tuple(field for field in plan.projection.fields if field.id not in early)

    @cached_property
    def early_fields(self) -> tuple[Field, ...]:
        """The fields that are read before rows are chosen."""
        plan, options = self.plan, self.plan.options
        if options.search is not None:
            early = self._filter_fields if options.prefilter and plan.is_filtered else []
            return _distinct([*early, *(field for field, _ in self._beside)])
        if options.order_by:
            schema = plan.snapshot.schema
            keys = [schema.fields_on_path(each.column)[0] for each in options.order_by]
            return _distinct([*self._filter_fields, *keys])
        if plan.is_filtered and self.takes_late:
            return _distinct(self._filter_fields)
        return _distinct([*self._filter_fields, *plan.projection.fields])

    @cached_property
    def takes_late(self) -> bool:
        """Whether columns are read apart for the rows that pass the filter."""
        # Where indices are asked for all of a filter, rows are read with all of their columns.
        asked = {each for part in self.parts for each in part.expressions}
        return self.plan.is_filtered and any(
            each.expression not in asked for each in self.plan.conjuncts
        )

    @cached_property
    def expected_rows(self) -> int:
        """About how many rows the scan will return."""
        options, rows = self.plan.options, float(sum(map(len, self.looks)))
        if self.plan.is_filtered:
            rows *= share_of(self._left_to_filter)
        found = None
        if isinstance(options.search, searches.hits.Explained):
            found = options.search.expected_rows(self.plan)
        most = [float(each) for each in (found, options.limit) if each is not None]
        return -int(-min([rows, *most]) // 1)

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        """The rows that are looked at."""
        plan, options = self.plan, self.plan.options
        if plan.is_empty:
            return ()
        if not plan.is_filtered and not options.order_by and options.search is None:
            return tuple(
                Look(each.source, each.rows)
                for each in windows(plan)
                if isinstance(each.source, FragmentSource)
            )
        if not self._looks_at_filter:
            plan = replace(plan, steps=())
        with self.meter.asking(READ):
            return looks_of(plan, self._candidates, self.parts)

    # --- how ----------------------------------------------------------------------------------

    @property
    def _looks_at_filter(self) -> bool:
        """Whether the filter says which rows are looked at, and not which of those found stay."""
        return self.plan.options.search is None or self.plan.options.prefilter

    @cached_property
    def _filter_fields(self) -> list[Field]:
        """The fields that are read for the filter, but for parts that indices decide."""
        left = set(self._left_to_filter)
        kept = [each for each in self.plan.conjuncts if each.expression in left]
        steps = filter_steps(self.plan.snapshot, kept)
        return [field for step in steps for field in step.fields]

    @cached_property
    def _left_to_filter(self) -> list[Expression]:
        decided = {
            each
            for part in self.parts
            if all(_is_exact(own) for own in _asked(part.part))
            for each in part.expressions
        }
        return [each.expression for each in self.plan.conjuncts if each.expression not in decided]

    @cached_property
    def _candidates(self) -> Candidates | None:
        """The rows that indices find, if it takes nothing to find out."""
        parts = self.parts
        if not parts or any(self.of_part(part.part) != IoCounts() for part in parts):
            return None
        # Nobody is to count what is asked here.
        return find_candidates(replace(self.plan, meter=UNMETERED))

    @cached_property
    def _beside(self) -> Sequence[tuple[Field, frozenset[int]]]:
        """The fields that a search looks at row by row, and in which fragments."""
        search = self.plan.options.search
        if not isinstance(search, searches.hits.Explained):
            return ()
        with self.meter.asking(SEARCH):
            return search.looked_at(self.plan)

    def _read(self) -> Prediction:
        plan, options = self.plan, self.plan.options
        if plan.is_empty:
            return Prediction(0, 0, IoCounts())
        if options.search is not None:
            return self._read_for_search()
        if options.order_by:
            return self.of_keys.unsorted()
        return self._read_rows(self.early_fields)

    def _read_for_search(self) -> Prediction:
        found = Prediction(0, 0, IoCounts())
        if self.plan.options.prefilter and self.plan.is_filtered:
            found = self._read_rows(self._filter_fields)
        reads, rows, fragments = found.reads, found.rows, found.fragments
        for field, ids in self._beside:
            beside = [look for look in self.looks if int(look.source.fragment.id) in ids]
            share = share_of(self._left_to_filter) if self._looks_at_filter else 1.0
            beside = list(spread(beside, int(sum(map(len, beside)) * share)))
            reads += self._reads(beside, (field,))
            rows, fragments = max(rows, sum(map(len, beside))), max(fragments, len(ids))
        return Prediction(fragments, rows, reads)

    def _read_rows(self, fields: Sequence[Field]) -> Prediction:
        """Return what is read of rows that are looked at: the filter step by step, then others."""
        looks, reads = self.looks, self._described()
        rows, fragments = sum(map(len, looks)), len({look.source.fragment.id for look in looks})
        filtered = self._left_to_filter if self._looks_at_filter else []
        known: set[int] = set()
        wanted = {field.id for field in fields}
        chosen = [each for each in self.plan.conjuncts if each.expression in set(filtered)]
        for step in filter_steps(self.plan.snapshot, chosen) if self.plan.is_filtered else ():
            own = [each for each in step.fields if each.id in wanted - known]
            known.update(field.id for field in own)
            reads += self._reads(looks, own)
            looks = spread(looks, -int(-sum(map(len, looks)) * share_of([step.expression]) // 1))
        reads += self._reads(looks, [field for field in fields if field.id not in known])
        return Prediction(fragments, rows, reads)

    def _described(self) -> IoCounts:
        """Return what is read anew of statistics and of which rows are deleted."""
        found = IoCounts()
        if not self.is_anew:
            return found
        fields = [field for step in self.plan.steps for field in step.fields]
        for source in {look.source: None for look in self.looks}:
            if source.fragment.deletion_file is not None:
                found += IoCounts(1, 4 * len(source.hidden))
            if has_statistics(self.plan, source):
                found += source.reader.statistics_reads(fields)
        return found + self._opened(self.looks)

    def _opened(self, looks: Iterable[Look]) -> IoCounts:
        """Return what is read anew to open the files of rows that nobody looked at before."""
        found = IoCounts()
        if not self.is_anew:
            return found
        fields = _distinct([*self.early_fields, *self.late_fields])
        for source in {look.source: None for look in looks}:
            found += source.reader.opening_reads(fields)
        return found

    @property
    def _is_found_by_index(self) -> bool:
        """Whether a search looks at no rows before it has found some."""
        options = self.plan.options
        is_filtered_first = options.prefilter and self.plan.is_filtered
        return options.search is not None and not self._beside and not is_filtered_first

    def _take(self) -> Prediction:
        if self.plan.is_empty or not self.late_fields:
            return Prediction(0, 0, IoCounts())
        options, rows = self.plan.options, self.expected_rows
        # Where an order chooses, rows of all fragments are taken batch by batch.
        batch = sorted_batch_rows(options) if options.order_by and options.search is None else rows
        looks = spread(self.looks, min(rows, batch))
        fragments = len({look.source.fragment.id for look in looks})
        # Rows that are chosen one by one are taken so, however near they are.
        one_by_one = options.search is not None or bool(options.order_by)
        reads = self._reads(looks, self.late_fields, one_by_one=one_by_one)
        if self._is_found_by_index and not goes_again(self.plan):
            reads += self._opened(looks)
        times = max(1.0, rows / max(1, batch))
        reads = IoCounts(round(reads.read_iops * times), round(reads.read_bytes * times))
        return Prediction(fragments, rows, reads)

    def _refine(self) -> Prediction:
        search = self.plan.options.search
        if self.plan.is_empty or not isinstance(search, searches.vector.VectorSearch):
            return Prediction(0, 0, IoCounts())
        count = search.count * (search.refine_factor or 1) * len(search.queries)
        chosen = list(sources(self.plan.snapshot, self.plan.options.fragments))
        looks = spread([Look(each, RowRange(0, each.num_rows)) for each in chosen], count)
        rows = sum(map(len, looks))
        reads = self._reads(looks, (search.field,), one_by_one=True)
        if self._is_found_by_index:
            reads += self._opened(looks)
        return Prediction(len(looks), rows, reads)

    def _reads(
        self, looks: Sequence[Look], fields: Sequence[Field], *, one_by_one: bool = False
    ) -> IoCounts:
        if not fields:
            return IoCounts()
        rest, together = packed_reads(self.plan, looks)
        return together + reads_of(rest, fields, one_by_one=one_by_one)

    def _counted(self, node: str, work: Callable[[], Prediction]) -> Prediction:
        """Return what is expected of a node, with what planning read for it."""
        with self.meter.asking(node):
            found = work()
        reads = found.reads + self.planned((node,))
        return Prediction(found.fragments, found.rows, reads)


def index_nodes(part: ChosenPart) -> tuple[str, ...]:
    """Return the nodes that ask the indices of a part."""
    return tuple(index_node(index.name) for index in part.indices)


def goes_again(plan: ScanPlan) -> bool:
    """Say whether what an index of vectors finds is looked at again."""
    search = plan.options.search
    return (
        isinstance(search, searches.hits.Explained)
        and goes_through_vectors(plan)
        and not search.steps(plan)[0].startswith("ANN")
    )


def goes_through_vectors(plan: ScanPlan) -> bool:
    """Say whether a search asks an index of vectors."""
    search = plan.options.search
    if not isinstance(search, searches.hits.Explained):
        return False
    return any(step.startswith("ANN") for step in search.steps(plan))


def _distinct(fields: Iterable[Field]) -> tuple[Field, ...]:
    return tuple({field.id: field for field in fields}.values())


def _asked(part: Part) -> Iterable[Asked]:
    if isinstance(part, Asked):
        yield part
    else:
        for each in part.parts:
            yield from _asked(each)


def _is_exact(asked: Asked) -> bool:
    return asked.index.is_exact(asked.question)
