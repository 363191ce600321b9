"""Estimate the requests and bytes that an operator will read.

    planning    an index was opened to estimate its matches          3 requests, counted
    execution   two of its pages, and the ids of the rows between    2 requests, estimated
    total                                                            5 requests

Reads of planning are part of the cost of a scan and counted exactly; they are not repeated by a
second scan. Cached data costs nothing. To analyze a plan, its data files are read without cached
metadata, so the metadata is part of the estimate.

The share of rows that pass a filter is estimated from its form, unless an index provides it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression
from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.scan.indexing.choose import ChosenPart, IndexLookup, Part, choose_parts, is_decided
from lancelet.scan.indexing.search import Candidates, find_candidates
from lancelet.scan.indexing.segments import warn_unusable
from lancelet.scan.node_meter import READ, UNMETERED, NodeMeter, index_node
from lancelet.scan.plan import ScanPlan, filter_steps
from lancelet.scan.row_slices import (
    RowSlice,
    estimate_packed_reads,
    estimate_reads,
    estimate_slices,
    has_statistics,
    sample_slices,
)
from lancelet.scan.selectivity import selectivity
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated reads of an operator."""

    fragments: int
    rows: int
    reads: IoCounts

    def __str__(self) -> str:
        """Return the text for plans."""
        return f"rows={self.rows}, {format_io(self.reads)}"


_ZONE_KINDS: Final = frozenset({"ZONEMAP", "BLOOMFILTER"})
NO_READS = Estimate(0, 0, IoCounts())


def format_io(reads: IoCounts) -> str:
    """Return the text for plans."""
    return f"requests={reads.read_iops}, bytes={reads.read_bytes}"


class RowEstimator:
    """Estimates the rows that a plan examines, and the reads for them."""

    def __init__(self, plan: ScanPlan, *, is_cold: bool = False) -> None:
        """Create an estimator; `is_cold` if metadata of data files is not cached.

        The meter of the plan counts the reads of the estimation itself.
        """
        self.plan = plan
        self.is_cold = is_cold

    @property
    def meter(self) -> NodeMeter:
        """The meter of the plan, which counts by node."""
        assert isinstance(self.plan.meter, NodeMeter), "only metered plans can be estimated"
        return self.plan.meter

    @property
    def filter_selects_rows(self) -> bool:
        """Whether the filter selects the rows to examine, instead of filtering the results."""
        return self.plan.is_filtered

    @property
    def retained_fields(self) -> Sequence[Field]:
        """The filter columns that are passed on for the remaining rows."""
        return ()

    @cached_property
    def parts(self) -> Sequence[ChosenPart]:
        """The parts of the filter that indices answer."""
        if not self.filter_selects_rows:
            return ()
        try:
            return choose_parts(self.plan)
        except (ObjectNotFoundError, CorruptDataError) as error:
            warn_unusable(self.plan.snapshot, error)
            return ()

    @cached_property
    def slices(self) -> tuple[RowSlice, ...]:
        """The slices of rows to examine."""
        plan = self.plan
        if plan.is_empty:
            return ()
        if not self.filter_selects_rows:
            plan = replace(plan, steps=())
        with self.meter.within_index(READ):
            return self._slices_until_limit(
                estimate_slices(plan, self._candidates, self.parts, self.retained_fields)
            )

    def _slices_until_limit(self, slices: tuple[RowSlice, ...]) -> tuple[RowSlice, ...]:
        """Return the slices that are examined until the limit is reached."""
        return slices

    @cached_property
    def filter_fields(self) -> list[Field]:
        """The fields read by the filter, without parts that indices decide exactly."""
        undecided = set(self.undecided)
        conjuncts = [each for each in self.plan.conjuncts if each.expression in undecided]
        steps = filter_steps(self.plan.snapshot, conjuncts) if self.plan.is_filtered else ()
        return [field for step in steps for field in step.fields]

    @property
    def rows_certain(self) -> int:
        """The number of examined rows that pass the filter by their statistics."""
        return sum(len(each) for each in self.slices if each.is_certain)

    @property
    def rows_passing(self) -> float:
        """Estimated number of examined rows that pass the filter."""
        if not self.plan.is_filtered:
            return float(sum(map(len, self.slices)))
        others = [each for each in self.slices if not each.is_certain]
        return self.rows_certain + sum(map(len, others)) * self.share(self.undecided, others)

    def share(self, expressions: Iterable[Expression], slices: Sequence[RowSlice]) -> float:
        """Return the estimated share of rows of slices that satisfy all expressions.

        Rows that an index found pass its condition, unless the index only finds zones.
        """
        found = {
            each
            for part in self.parts
            if _ZONE_KINDS.isdisjoint(kind for index in part.indices for kind in index.kinds)
            for each in part.expressions
        }
        conjuncts = [part for each in expressions for part in _conjuncts(each)]
        return selectivity([each for each in conjuncts if each not in found], slices)

    @property
    def stepwise_slices(self) -> tuple[RowSlice, ...]:
        """The slices whose fields are read filter step by filter step."""
        return tuple(each for each in self.slices if not (each.eager_fields or each.is_certain))

    def reads_of_part(self, part: Part) -> IoCounts:
        """Return the estimated reads of the indices for a part of the filter."""
        if isinstance(part, IndexLookup):
            return part.index.estimate_reads(part.query, is_negated=part.is_negated)
        return sum((self.reads_of_part(each) for each in part.parts), IoCounts())

    def planning_reads(self, nodes: Iterable[str]) -> IoCounts:
        """Return the reads of planning so far for nodes."""
        nodes_read = self.meter.nodes
        return sum(
            (
                IoCounts(nodes_read[name].requests, nodes_read[name].bytes)
                for name in nodes
                if name in nodes_read
            ),
            IoCounts(),
        )

    def with_planning(self, node: str, work: Callable[[], Estimate]) -> Estimate:
        """Return an estimate for a node, including the reads of planning."""
        if self.plan.is_empty:
            return NO_READS
        with self.meter.within_index(node):
            estimate = work()
        return Estimate(
            estimate.fragments, estimate.rows, estimate.reads + self.planning_reads((node,))
        )

    def estimate_reads(self, fields: Sequence[Field]) -> Estimate:
        """Return the estimate for reading `fields` of all examined rows, after the filter."""
        slices, reads = self.slices, self._metadata_reads()
        rows, fragments = (
            sum(map(len, slices)),
            len({row_slice.source.fragment.id for row_slice in slices}),
        )
        for row_slice in slices:
            reads += self.reads_at([row_slice], row_slice.eager_fields)
        slices = self.stepwise_slices
        filtered = set(self.undecided if self.filter_selects_rows else ())
        read_ids: set[int] = set()
        output_ids = {field.id for field in fields}
        conjuncts = [each for each in self.plan.conjuncts if each.expression in filtered]
        for step in filter_steps(self.plan.snapshot, conjuncts):
            step_fields = [each for each in step.fields if each.id in output_ids - read_ids]
            read_ids.update(field.id for field in step_fields)
            reads += self.reads_at(slices, step_fields)
            rows_passing = sum(map(len, slices)) * self.share([step.expression], slices)
            slices = sample_slices(slices, -int(-rows_passing // 1))
        reads += self.reads_at(slices, [field for field in fields if field.id not in read_ids])
        return Estimate(fragments, rows, reads)

    def estimate_take(
        self,
        fields: Sequence[Field],
        rows: int,
        batch_rows: int,
        *,
        one_by_one: bool,
        among: Sequence[RowSlice] | None = None,
    ) -> Estimate:
        """Return the estimate for taking fields of `rows` rows in batches.

        The rows are a sample of `among`, by default of all examined rows.
        """
        slices = sample_slices(self.slices if among is None else among, min(rows, batch_rows))
        reads = self.reads_at(slices, fields, one_by_one=one_by_one)
        batches = max(1.0, rows / max(1, batch_rows))
        reads = IoCounts(round(reads.read_iops * batches), round(reads.read_bytes * batches))
        return Estimate(len({row_slice.source.fragment.id for row_slice in slices}), rows, reads)

    def reads_at(
        self, slices: Sequence[RowSlice], fields: Sequence[Field], *, one_by_one: bool = False
    ) -> IoCounts:
        """Return the reads of fields at slices of rows."""
        if not fields:
            return IoCounts()
        unpacked, packed = estimate_packed_reads(self.plan, slices)
        return packed + estimate_reads(unpacked, fields, one_by_one=one_by_one)

    def opening_reads(self, slices: Iterable[RowSlice], fields: Sequence[Field]) -> IoCounts:
        """Return the reads to open the data files of slices, 0 if their metadata is cached."""
        sources = {row_slice.source: None for row_slice in slices} if self.is_cold else ()
        return sum((source.reader.opening_reads(fields) for source in sources), IoCounts())

    def sample_passing(self, slices: Sequence[RowSlice]) -> tuple[RowSlice, ...]:
        """Return a sample of the estimated passing rows if the filter selects the rows."""
        share = self.share(self.undecided, self.slices) if self.filter_selects_rows else 1.0
        return sample_slices(slices, int(sum(map(len, slices)) * share))

    @cached_property
    def undecided(self) -> list[Expression]:
        """The conjuncts that indices do not decide."""
        decided = {
            each for part in self.parts if is_decided(part.part) for each in part.expressions
        }
        return [each.expression for each in self.plan.conjuncts if each.expression not in decided]

    @cached_property
    def _candidates(self) -> Candidates | None:
        """The rows that indices match, if the indices are cached."""
        parts = self.parts
        if not parts or any(self.reads_of_part(part.part) != IoCounts() for part in parts):
            return None
        # These lookups must not be counted.
        return find_candidates(replace(self.plan, meter=UNMETERED))

    def _metadata_reads(self) -> IoCounts:
        """Return the reads of statistics and deletion files that are not cached."""
        reads = IoCounts()
        if not self.is_cold:
            return reads
        fields = [field for step in self.plan.steps for field in step.fields]
        for source in {row_slice.source: None for row_slice in self.slices}:
            if source.fragment.deletion_file is not None:
                reads += IoCounts(1, 4 * len(source.hidden))
            # Cached file metadata includes the statistics.
            is_cached = source.reader.opening_reads(fields) == IoCounts()
            if not is_cached and has_statistics(self.plan, source):
                reads += source.reader.statistics_reads(fields)
        return reads


def _conjuncts(expression: Expression) -> tuple[Expression, ...]:
    return expression.operands if isinstance(expression, ex.And) else (expression,)


def index_nodes(part: ChosenPart) -> tuple[str, ...]:
    """Return the plan nodes of the indices that evaluate a part."""
    return tuple(index_node(index.name) for index in part.indices)
