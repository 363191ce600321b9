"""What an operator is expected to ask of storage, before it runs.

    planned     an index was opened to see what it would find        3 requests, counted
    expected    two of its pages, and the ids of the rows between    2 requests, estimated
    in all                                                           5 requests

What planning reads is a part of what a scan takes, and known exactly; it is nothing the second
time. What is in memory costs nothing. A plan that is to be analysed reads its data files as if
nothing were known of them, so what describes them is expected once more.

Of rows that a filter leaves a share is guessed by its form, unless an index knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from lancelet.format.field import Field
from lancelet.io.metered import IoCounts
from lancelet.query.expression import Expression
from lancelet.query.indexing.choose import Asked, ChosenPart, Part, choose_parts, is_decided
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
from lancelet.query.node_meter import READ, UNMETERED, NodeMeter, index_node
from lancelet.query.plan import ScanPlan, filter_steps
from lancelet.values import cached_property, dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is expected to be read."""

    fragments: int
    rows: int
    reads: IoCounts

    def __str__(self) -> str:
        """Return what plans say of it."""
        return f"rows={self.rows}, {format_io(self.reads)}"


NOTHING = Estimate(0, 0, IoCounts())


def format_io(reads: IoCounts) -> str:
    """Return what plans say of reads."""
    return f"requests={reads.read_iops}, bytes={reads.read_bytes}"


class RowEstimator:
    """Estimates which rows of a plan are looked at, and what that reads."""

    def __init__(self, plan: ScanPlan, *, is_anew: bool = False) -> None:
        """Take a plan, whose meter counts what estimating reads; `is_anew` if files are."""
        self.plan = plan
        self.is_anew = is_anew

    @property
    def meter(self) -> NodeMeter:
        """What counts for the nodes of the plan."""
        assert isinstance(self.plan.meter, NodeMeter), "only metered plans are estimated"
        return self.plan.meter

    @property
    def filter_chooses(self) -> bool:
        """Whether the filter says which rows are looked at, and not which of those found stay."""
        return self.plan.is_filtered

    @property
    def kept_fields(self) -> Sequence[Field]:
        """The fields that the filter hands on with the rows that pass."""
        return ()

    @cached_property
    def parts(self) -> Sequence[ChosenPart]:
        """The parts of the filter that indices are asked for."""
        return choose_parts(self.plan) if self.filter_chooses else ()

    @cached_property
    def looks(self) -> tuple[Look, ...]:
        """The rows that are looked at."""
        plan = self.plan
        if plan.is_empty:
            return ()
        if not self.filter_chooses:
            plan = replace(plan, steps=())
        with self.meter.asking(READ):
            return looks_of(plan, self._candidates, self.parts, self.kept_fields)

    @cached_property
    def filter_fields(self) -> list[Field]:
        """The fields that are read for the filter, but for parts that indices decide."""
        left = set(self._left_to_filter)
        kept = [each for each in self.plan.conjuncts if each.expression in left]
        steps = filter_steps(self.plan.snapshot, kept) if self.plan.is_filtered else ()
        return [field for step in steps for field in step.fields]

    @property
    def rows_left(self) -> float:
        """About how many of the rows that are looked at pass the filter."""
        rows = float(sum(map(len, self.looks)))
        return rows * share_of(self._left_to_filter) if self.plan.is_filtered else rows

    @property
    def looks_apart(self) -> tuple[Look, ...]:
        """The rows that are looked at step by step, and not with all of their fields at once."""
        return tuple(look for look in self.looks if not look.at_once)

    def reads_of_part(self, part: Part) -> IoCounts:
        """Return what indices will read to answer a part of the filter."""
        if isinstance(part, Asked):
            return part.index.expected_reads(part.question, is_negated=part.is_negated)
        return sum((self.reads_of_part(each) for each in part.parts), IoCounts())

    def planned(self, nodes: Iterable[str]) -> IoCounts:
        """Return what planning has read for nodes so far."""
        known = self.meter.nodes
        return sum(
            (IoCounts(known[name].requests, known[name].bytes) for name in nodes if name in known),
            IoCounts(),
        )

    def counted(self, node: str, work: Callable[[], Estimate]) -> Estimate:
        """Return what is expected of a node, with what planning read for it."""
        if self.plan.is_empty:
            return NOTHING
        with self.meter.asking(node):
            found = work()
        return Estimate(found.fragments, found.rows, found.reads + self.planned((node,)))

    def rows_read(self, fields: Sequence[Field]) -> Estimate:
        """Return what is read of rows that are looked at: the filter step by step, then others."""
        looks, reads = self.looks, self._described()
        rows, fragments = sum(map(len, looks)), len({look.source.fragment.id for look in looks})
        for look in looks:
            reads += self.reads_at([look], look.at_once)
        looks = self.looks_apart
        filtered = set(self._left_to_filter if self.filter_chooses else ())
        known: set[int] = set()
        wanted = {field.id for field in fields}
        chosen = [each for each in self.plan.conjuncts if each.expression in filtered]
        for step in filter_steps(self.plan.snapshot, chosen):
            own = [each for each in step.fields if each.id in wanted - known]
            known.update(field.id for field in own)
            reads += self.reads_at(looks, own)
            looks = spread(looks, -int(-sum(map(len, looks)) * share_of([step.expression]) // 1))
        reads += self.reads_at(looks, [field for field in fields if field.id not in known])
        return Estimate(fragments, rows, reads)

    def rows_taken(
        self,
        fields: Sequence[Field],
        rows: int,
        batch: int,
        *,
        one_by_one: bool,
        among: Sequence[Look] | None = None,
    ) -> Estimate:
        """Return what is read to take fields of some of the rows, batch by batch.

        They are `among` all rows that are looked at, or among those given.
        """
        looks = spread(self.looks if among is None else among, min(rows, batch))
        reads = self.reads_at(looks, fields, one_by_one=one_by_one)
        times = max(1.0, rows / max(1, batch))
        reads = IoCounts(round(reads.read_iops * times), round(reads.read_bytes * times))
        return Estimate(len({look.source.fragment.id for look in looks}), rows, reads)

    def reads_at(
        self, looks: Sequence[Look], fields: Sequence[Field], *, one_by_one: bool = False
    ) -> IoCounts:
        """Return what is read of fields at rows that are looked at."""
        if not fields:
            return IoCounts()
        rest, together = packed_reads(self.plan, looks)
        return together + reads_of(rest, fields, one_by_one=one_by_one)

    def opened(self, looks: Iterable[Look], fields: Sequence[Field]) -> IoCounts:
        """Return what is read anew to open the files of rows that nobody looked at before."""
        sources = {look.source: None for look in looks} if self.is_anew else ()
        return sum((source.reader.opening_reads(fields) for source in sources), IoCounts())

    def share_left(self, looks: Sequence[Look]) -> tuple[Look, ...]:
        """Return about as many rows as pass the filter, if it chooses which are looked at."""
        share = share_of(self._left_to_filter) if self.filter_chooses else 1.0
        return spread(looks, int(sum(map(len, looks)) * share))

    @cached_property
    def _left_to_filter(self) -> list[Expression]:
        decided = {
            each for part in self.parts if is_decided(part.part) for each in part.expressions
        }
        return [each.expression for each in self.plan.conjuncts if each.expression not in decided]

    @cached_property
    def _candidates(self) -> Candidates | None:
        """The rows that indices find, if it takes nothing to find out."""
        parts = self.parts
        if not parts or any(self.reads_of_part(part.part) != IoCounts() for part in parts):
            return None
        # Nobody is to count what is asked here.
        return find_candidates(replace(self.plan, meter=UNMETERED))

    def _described(self) -> IoCounts:
        """Return what is read anew of statistics and of which rows are deleted."""
        found = IoCounts()
        if not self.is_anew:
            return found
        fields = [field for step in self.plan.steps for field in step.fields]
        for source in {look.source: None for look in self.looks}:
            if source.fragment.deletion_file is not None:
                found += IoCounts(1, 4 * len(source.hidden))
            # What is kept of a file has its statistics.
            is_kept = source.reader.opening_reads(fields) == IoCounts()
            if not is_kept and has_statistics(self.plan, source):
                found += source.reader.statistics_reads(fields)
        return found


def index_nodes(part: ChosenPart) -> tuple[str, ...]:
    """Return the nodes that ask the indices of a part."""
    return tuple(index_node(index.name) for index in part.indices)
