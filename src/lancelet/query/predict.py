"""The steps of a plan, and what those that read are expected to read.

    filter k > 5 of 1000 rows      LanceRead    k of 1000 rows                      known
                                   Take         v of the rows that are left         estimated: 1/3

Of rows that a filter leaves a share is guessed by its form, unless an index knows them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from lancelet.query import search as searches
from lancelet.query.foresight import Foresight, goes_again, index_nodes, told
from lancelet.query.indexing.render import render_part
from lancelet.query.indexing.search import find_candidates
from lancelet.query.node_meter import INDICES, READ, REFINE, SEARCH, SORT, TAKE, filter_node
from lancelet.query.plan import ScanPlan
from lancelet.values import dataclass

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


def plan_steps(foresight: Foresight, *, verbose: bool = False, counts: bool = False) -> list[Step]:
    """Return the steps of a scan, the last first."""
    plan = foresight.plan
    mask = find_candidates(plan, counts=True) if counts and plan.is_filtered else None
    if mask is not None and not mask.steps:
        return _steps_of_count(foresight, mask.covered)
    options = plan.options
    steps = [Step(f"Project: {', '.join(plan.schema.names)}", has_result_rows=True)]
    if options.limit is not None or options.offset:
        text = f"Limit: offset={options.offset} limit={options.limit}"
        steps.append(Step(text, has_result_rows=True))
    searched = _search_steps(foresight)
    if searched or options.order_by:
        steps += _take_step(foresight, "rows that were found" if searched else "sorted rows")
    if options.order_by:
        keys = ", ".join(
            f"{each.column} {'asc' if each.ascending else 'desc'}" for each in options.order_by
        )
        steps.append(Step(f"Sort: {keys}", (SORT,)))
        steps += _first_rows_steps(foresight)
    is_found_first = bool(searched) and not options.prefilter
    if is_found_first:
        steps += _filter_steps(plan)
    steps += searched
    if plan.is_filtered and not is_found_first:
        if not (searched or options.order_by) and foresight.takes_late:
            steps += _take_step(foresight, "stream of rows that match")
        steps += [*_filter_steps(plan), *_index_steps(foresight)]
    steps.append(_read_step(foresight))
    if verbose:
        version = f"Version: {plan.snapshot.version} of {plan.snapshot.num_rows} rows"
        steps.append(Step(version))
    return steps


def _steps_of_count(foresight: Foresight, covered: frozenset[int]) -> list[Step]:
    """Return the steps of a count that indices answer for the fragments they cover."""
    text = f"CountFromMask: num_fragments={len(covered)}"
    steps = [Step(text, has_result_rows=True), *_index_steps(foresight)]
    if not covered.issuperset(foresight.plan.snapshot.fragments.ids.tolist()):
        steps.append(_read_step(foresight))
    return steps


def _filter_steps(plan: ScanPlan) -> list[Step]:
    return [
        Step(f"Filter: {step.expression}", (filter_node(step.expression),))
        for step in reversed(plan.steps)
    ]


def _search_steps(foresight: Foresight) -> list[Step]:
    """Return the steps of a search; one of an index of vectors may look again at what it found."""
    search = foresight.plan.options.search
    if not isinstance(search, searches.hits.Explained):
        return []
    reads = foresight.of_search()
    texts = search.steps(foresight.plan)
    steps: list[Step] = []
    if len(texts) > 1 and goes_again(foresight.plan):
        again = texts.pop(0)
        steps.append(Step(f"{again}, {foresight.refine}", (REFINE,), reads=True))
    first = Step(f"{texts[0]}, {told(reads)}", (SEARCH, INDICES), reads=True)
    return [*steps, first, *map(Step, texts[1:])]


def _index_steps(foresight: Foresight) -> list[Step]:
    """Return a step for each question; what an index did is told where it is first asked."""
    steps: list[Step] = []
    seen: set[str] = set()
    for place, part in enumerate(foresight.parts):
        nodes = [node for node in index_nodes(part) if node not in seen]
        seen.update(nodes)
        if not place:
            nodes.append(INDICES)
        reads = foresight.of_part(part.part) + foresight.planned(nodes)
        text = f"query={render_part(part.part)}, estimated_rows={part.estimate}, {told(reads)}"
        steps.append(Step(f"{ASKED} {text}", tuple(nodes), reads=True))
    return steps


def _first_rows_steps(foresight: Foresight) -> list[Step]:
    """Return the step of an index that says which rows come first, if one does."""
    if foresight.bound is None:
        return []
    parts = foresight.of_keys.parts
    nodes = (INDICES, *(node for part in parts for node in index_nodes(part)))
    reads = sum((foresight.of_part(part.part) for part in parts), foresight.planned(nodes))
    return [Step(f"{ASKED} first rows, {foresight.bound}, {told(reads)}", nodes, reads=True)]


def _take_step(foresight: Foresight, source: str) -> list[Step]:
    late = foresight.late_fields
    if not late:
        return []
    names = ", ".join(field.name for field in late)
    text = f"{TAKE}: projection=[{names}], source={source}, {foresight.take}"
    return [Step(text, (TAKE,), reads=True)]


def _read_step(foresight: Foresight) -> Step:
    names = ", ".join(field.name for field in foresight.early_fields)
    text = (
        f"{READ}: uri={foresight.plan.snapshot.location.uri}, projection=[{names}], "
        f"num_fragments={foresight.read.fragments}, {foresight.read}"
    )
    return Step(text, (READ,), reads=True)
