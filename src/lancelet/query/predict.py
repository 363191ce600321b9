"""The steps of a plan, and what those that read are expected to read.

    filter k > 5 of 1000 rows      LanceRead    k of 1000 rows                      known
                                   Take         v of the rows that are left         estimated: 1/3

Of rows that a filter leaves a share is guessed by its form, unless an index estimates them; what
is predicted of bytes is of the pages of columns, without what says where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lancelet.encodings.base import RowRange
from lancelet.format.field import Field
from lancelet.query import expression as ex
from lancelet.query import search as searches
from lancelet.query.expression import Expression, Operator
from lancelet.query.indexing.choose import ChosenPart, choose_parts
from lancelet.query.indexing.first_rows import bound_of_first_rows
from lancelet.query.indexing.render import render_part
from lancelet.query.indexing.search import find_candidates
from lancelet.query.measure import goes_through_vectors, takes_late
from lancelet.query.node_meter import (
    INDICES,
    READ,
    REFINE,
    SEARCH,
    SORT,
    TAKE,
    filter_node,
    index_node,
)
from lancelet.query.nodes.source import sources
from lancelet.query.plan import ScanPlan
from lancelet.query.zone_pruning import candidate_ranges

ASKED: Final = "ScalarIndexQuery:"
_EQUAL_SHARE: Final = 0.1
_SHARE: Final = 1 / 3
"""The share of rows that parts of filters are guessed to leave, as databases do."""


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


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected to be read."""

    fragments: int
    rows: int
    requests: int
    bytes: int

    def __str__(self) -> str:
        """Return what plans say of it."""
        return f"rows={self.rows}, requests={self.requests}, bytes={self.bytes}"


def plan_steps(plan: ScanPlan, *, verbose: bool = False, counts: bool = False) -> list[Step]:
    """Return the steps of a scan, the last first."""
    mask = find_candidates(plan, counts=True) if counts and plan.is_filtered else None
    if mask is not None and not mask.steps:
        return _steps_of_count(plan, mask.covered)
    options = plan.options
    steps = [Step(f"Project: {', '.join(plan.schema.names)}", has_result_rows=True)]
    if options.limit is not None or options.offset:
        text = f"Limit: offset={options.offset} limit={options.limit}"
        steps.append(Step(text, has_result_rows=True))
    searched = _search_steps(plan)
    if searched or options.order_by:
        steps += _take_step(plan, "rows that were found" if searched else "sorted rows")
    if options.order_by:
        keys = ", ".join(
            f"{each.column} {'asc' if each.ascending else 'desc'}" for each in options.order_by
        )
        steps.append(Step(f"Sort: {keys}", (SORT,)))
        bound = bound_of_first_rows(plan)
        steps += [] if bound is None else [Step(f"{ASKED} first rows, {bound}", (INDICES,), True)]
    is_found_first = bool(searched) and not options.prefilter
    if is_found_first:
        steps += _filter_steps(plan)
    steps += searched
    if plan.is_filtered and not is_found_first:
        if not (searched or options.order_by) and takes_late(plan):
            steps += _take_step(plan, "stream of rows that match")
        steps += [*_filter_steps(plan), *_index_steps(plan)]
    steps.append(_read_step(plan, predict(plan)))
    if verbose:
        version = f"Version: {plan.snapshot.version} of {plan.snapshot.num_rows} rows"
        steps.append(Step(version))
    return steps


def predict(plan: ScanPlan) -> Prediction:
    """Return what is expected to be read before rows are chosen, late columns not among it."""
    if plan.is_empty:
        return Prediction(0, 0, 0, 0)
    found = _of_rows(plan, fields_read(plan))
    if plan.options.search is not None and not _looks_at_rows(plan):
        return Prediction(0, 0, 0, 0)
    asked = choose_parts(plan) if plan.is_filtered and plan.options.search is None else []
    if not asked:
        return found
    return _share_of(found, min(map(_rows_left, asked)))


def predict_take(plan: ScanPlan) -> Prediction:
    """Return what is expected to be read of late columns, for about as many rows as are left."""
    late = _late_fields(plan)
    if plan.is_empty or not late:
        return Prediction(0, 0, 0, 0)
    return _share_of(_of_rows(plan, late), expected_rows(plan))


def expected_rows(plan: ScanPlan) -> int:
    """Return about how many rows a scan will return."""
    options, rows = plan.options, float(plan.snapshot.num_rows)
    if options.fragments is not None:
        rows = float(
            sum(source.num_visible for source in sources(plan.snapshot, options.fragments))
        )
    for conjunct in plan.conjuncts if plan.is_filtered else ():
        rows *= _share(conjunct.expression)
    if plan.is_filtered:
        rows = min([rows, *(_rows_left(part) for part in choose_parts(plan))])
    count = getattr(options.search, "count", None)
    if count is not None:
        rows = min(rows, float(count))
    if options.limit is not None:
        rows = min(rows, float(options.limit))
    return -int(-rows // 1)


def fields_read(plan: ScanPlan) -> tuple[Field, ...]:
    """Return the fields that are read before rows are chosen."""
    early = [field for step in plan.steps for field in step.fields]
    options = plan.options
    if options.search is not None:
        own = getattr(options.search, "field", None)
        searched = [] if own is None or goes_through_vectors(plan) else [own]
        return _distinct([*(early if options.prefilter else []), *searched])
    if options.order_by:
        schema = plan.snapshot.schema
        keys = [schema.fields_on_path(each.column)[0] for each in options.order_by]
        return _distinct([*early, *keys])
    if plan.is_filtered and takes_late(plan):
        return _distinct(early)
    return _distinct([*early, *plan.projection.fields])


def _distinct(fields: Iterable[Field]) -> tuple[Field, ...]:
    return tuple({field.id: field for field in fields}.values())


def _late_fields(plan: ScanPlan) -> tuple[Field, ...]:
    """Return the fields that are read of chosen rows alone."""
    if plan.options.search is not None or plan.options.order_by:
        return plan.projection.fields
    early = {field.id for step in plan.steps for field in step.fields}
    return tuple(field for field in plan.projection.fields if field.id not in early)


def _looks_at_rows(plan: ScanPlan) -> bool:
    """Say whether a search reads columns of all rows: its own, or those of a filter before it."""
    return bool(fields_read(plan))


def _of_rows(plan: ScanPlan, fields: Sequence[Field]) -> Prediction:
    fragments = rows = requests = size = 0
    for source in sources(plan.snapshot, plan.options.fragments):
        ranges = [RowRange(0, source.num_rows)]
        if plan.is_filtered and plan.options.use_statistics and plan.options.search is None:
            ranges = candidate_ranges(source.reader, plan.steps, plan.snapshot)
        if not ranges:
            continue
        fragments += 1
        rows += sum(map(len, ranges))
        size += sum(source.reader.encoded_bytes(fields, part) for part in ranges)
        requests += source.reader.num_files(fields) * (1 + len(ranges))
    return Prediction(fragments, rows, requests, size)


def _share_of(whole: Prediction, rows: int) -> Prediction:
    """Return what is expected if only some rows are read, whose files are open."""
    rows = min(rows, whole.rows)
    if not rows:
        return Prediction(0, 0, 0, 0)
    size = -(-whole.bytes * rows // whole.rows)
    return Prediction(min(whole.fragments, rows), rows, min(whole.requests, rows), size)


def _rows_left(part: ChosenPart) -> int:
    """Return about how many rows are looked at after indices were asked."""
    return part.estimate + max(index.num_rows_elsewhere for index in part.indices)


def _share(expression: Expression) -> float:
    match expression:
        case ex.Comparison(Operator.EQUAL, _, _):
            return _EQUAL_SHARE
    return _SHARE


def _steps_of_count(plan: ScanPlan, covered: frozenset[int]) -> list[Step]:
    """Return the steps of a count that indices answer for the fragments they cover."""
    text = f"CountFromMask: num_fragments={len(covered)}"
    steps = [Step(text, has_result_rows=True), *_index_steps(plan)]
    if not covered.issuperset(plan.snapshot.fragments.ids.tolist()):
        steps.append(_read_step(plan, predict(plan)))
    return steps


def _filter_steps(plan: ScanPlan) -> list[Step]:
    return [
        Step(f"Filter: {step.expression}", (filter_node(step.expression),))
        for step in reversed(plan.steps)
    ]


def _search_steps(plan: ScanPlan) -> list[Step]:
    """Return the steps of a search; one of an index of vectors may look again at what it found."""
    search = plan.options.search
    if not isinstance(search, searches.hits.Explained):
        return []
    texts = search.steps(plan)
    steps: list[Step] = []
    for place, text in enumerate(texts):
        if text.startswith("ANNIvfPartition"):
            steps.append(Step(text))
        elif place == 0 and len(texts) > 1 and goes_through_vectors(plan):
            is_again = not text.startswith("ANN")
            steps.append(Step(text, (REFINE,) if is_again else (SEARCH, INDICES), True))
        else:
            steps.append(Step(text, (SEARCH, INDICES), True))
    return steps


def _index_steps(plan: ScanPlan) -> list[Step]:
    """Return a step for each question; what an index did is told where it is first asked."""
    steps: list[Step] = []
    told: set[str] = set()
    for part in choose_parts(plan):
        text = f"{ASKED} query={render_part(part.part)}, estimated_rows={part.estimate}"
        names = [index.name for index in part.indices if index.name not in told]
        told.update(names)
        nodes = (*map(index_node, names), INDICES)
        steps.append(Step(text, nodes, reads=True))
    return steps


def _take_step(plan: ScanPlan, source: str) -> list[Step]:
    late = _late_fields(plan)
    if not late:
        return []
    names = ", ".join(field.name for field in late)
    text = f"{TAKE}: projection=[{names}], source={source}, {predict_take(plan)}"
    return [Step(text, (TAKE,), reads=True)]


def _read_step(plan: ScanPlan, predicted: Prediction) -> Step:
    names = ", ".join(field.name for field in fields_read(plan))
    text = (
        f"{READ}: uri={plan.snapshot.location.uri}, projection=[{names}], "
        f"num_fragments={predicted.fragments}, {predicted}"
    )
    return Step(text, (READ,), reads=True)
