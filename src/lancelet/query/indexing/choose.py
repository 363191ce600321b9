"""Choosing: which index is asked which part of a filter, and which parts are left to a scan.

    age > 90 AND upper(name) = 'X' AND (city = 'Rome' OR NOT age > 5)

    chosen    age > 90            Asked(by_age, estimate 40)
              city = .. OR ..     Joined(Asked(by_city, 10), Asked(by_age, is_negated, 30))
    left      upper(name) = 'X'

An index is worth its while up to a share of the rows that depends on its kind: one that has its
sets of rows ready, or whole zones, pays longer than one that has to put them together.

What indices are asked, as plans show it.

age BETWEEN 3 AND 7      [age >= 3 && age <= 7]@by_age(BTree)
NOT (city = 'Rome')      NOT([city = Rome]@by_city(Bitmap))
both                     AND(.., ..)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, assert_never

import pyarrow as pa

from lancelet.index.query import (
    Contains,
    HasAll,
    HasAny,
    Intersects,
    Interval,
    IsNull,
    OneOf,
    ScalarQuery,
    StartsWith,
)
from lancelet.query import expression as ex
from lancelet.query.expression import Expression, Operator
from lancelet.query.indexing.column_indices import ColumnIndex, column_indices
from lancelet.query.indexing.probes import WITHIN, Probe, column_of, join_intervals, probe_of
from lancelet.query.node_meter import INDICES, PlanMeter, index_node
from lancelet.query.plan import ScanPlan
from lancelet.query.simplify import Conjunct
from lancelet.values import dataclass

ROWS_ALWAYS: Final = 1 << 13
"""So few rows are sooner found by an index than a column of many is read."""
_SHARES: Final = {"BITMAP": 0.2, "LABEL_LIST": 0.2, "ZONEMAP": 1.0, "BLOOMFILTER": 1.0}
_SHARE: Final = 0.03
"""Up to this share of the rows an index finds them sooner than a scan does."""
_ALIKE: Final = 8192
"""Estimates below this are as good as each other: they are of whole pages or zones."""

_VALUES_SHOWN: Final = 20
_BYTES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class Usable:
    """The indices that a plan can ask, by the path of their column, and who is told of it."""

    indices: Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]
    meter: PlanMeter

    @staticmethod
    def of(plan: ScanPlan) -> Usable:
        """Return the indices of the version of a plan."""
        with plan.meter.within_index(INDICES):
            return Usable(column_indices(plan.snapshot), plan.meter)

    def on(self, path: tuple[str, ...]) -> tuple[ColumnIndex, ...]:
        """Return the indices on a column, which are opened."""
        with self.meter.within_index(INDICES):
            return self.indices.get(path, ())


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A question to one index; if it is negated, about the rows for which the answer is no."""

    index: ColumnIndex
    question: ScalarQuery
    estimate: int
    is_exact: bool
    """Whether the index evaluates the predicate exactly, so that found rows need no recheck."""
    is_negated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """Parts of which all must hold, or any; where all must, some may have been left out."""

    parts: tuple[Part, ...]
    is_all: bool
    estimate: int
    is_whole: bool = True


Part: TypeAlias = Asked | Joined


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPart:
    """Parts of a filter that indices answer together, with about how many rows they will find."""

    expressions: tuple[Expression, ...]
    part: Part

    @property
    def estimate(self) -> int:
        """About how many rows will be found."""
        return self.part.estimate

    @property
    def expression(self) -> Expression:
        """The parts of the filter as one."""
        return self.expressions[0] if len(self.expressions) == 1 else ex.And(self.expressions)

    @property
    def indices(self) -> tuple[ColumnIndex, ...]:
        """The indices that are asked, each once."""
        return tuple({asked.index.name: asked.index for asked in questions_of(self.part)}.values())


def questions_of(part: Part) -> Iterable[Asked]:
    """Yield the questions of a part."""
    if isinstance(part, Asked):
        yield part
    else:
        for each in part.parts:
            yield from questions_of(each)


def is_decided(part: Part) -> bool:
    """Return whether the answers to a part are its rows, none of which need a recheck."""
    if isinstance(part, Asked):
        return part.is_exact
    return part.is_whole and all(map(is_decided, part.parts))


def choose_parts(plan: ScanPlan, *, counts: bool = False) -> list[ChosenPart]:
    """Return the parts of the filter for which an index is cheaper than looking at the rows.

    Where rows are only counted, sets that are ready are never dearer.
    """
    if not plan.options.use_indices or not plan.steps:
        return []
    usable = Usable.of(plan)
    if not usable.indices:
        return []
    columns = {column_of(path) for path in usable.indices}
    conjuncts = [each for each in plan.conjuncts if not columns.isdisjoint(each.columns)]
    found = (_chosen(group, usable) for group in _groups(conjuncts))
    if plan.options.indexed_only:
        # Which rows are left out must not depend on what an index costs.
        return [each for each in found if each is not None]
    total = plan.snapshot.num_rows
    return [each for each in found if each is not None and _is_cheap(each, total, counts=counts)]


def choose_whole(plan: ScanPlan) -> Part | None:
    """Return what to ask for all of the filter, whatever it costs; None if it cannot be asked."""
    if not plan.options.use_indices or not plan.steps:
        return None
    usable = Usable.of(plan)
    if not usable.indices:
        return None
    groups = _groups(plan.conjuncts)
    chosen = _chosen(groups[0], usable) if len(groups) == 1 else None
    return None if chosen is None else chosen.part


def _is_cheap(chosen: ChosenPart, total: int, *, counts: bool) -> bool:
    kinds = {kind for index in chosen.indices for kind in index.kinds}
    if counts and kinds <= {"BITMAP", "LABEL_LIST"}:
        return True
    share = min(_SHARES.get(kind, _SHARE) for kind in kinds)
    return chosen.estimate <= max(ROWS_ALWAYS, int(share * total))


def _groups(conjuncts: Iterable[Conjunct]) -> list[list[Expression]]:
    """Return parts of a filter, those together that are about one column and nothing else."""
    groups: dict[object, list[Expression]] = {}
    for conjunct in conjuncts:
        alone = probe_of(conjunct.expression)
        groups.setdefault(conjunct if alone is None else alone.path, []).append(conjunct.expression)
    return list(groups.values())


def _chosen(expressions: list[Expression], usable: Usable) -> ChosenPart | None:
    if len(expressions) == 1:
        part = part_of(expressions[0], usable)
    else:
        part = part_of(ex.And(tuple(expressions)), usable)
    return None if part is None else ChosenPart(tuple(expressions), part)


def part_of(expression: Expression, usable: Usable, *, wanted: bool = True) -> Part | None:
    """Return what to ask for the rows where an expression is true, or is false, if anything."""
    match expression:
        case ex.Not(operand):
            return part_of(operand, usable, wanted=not wanted)
        case ex.IsTrue(operand) if wanted:
            return part_of(operand, usable)
        case ex.Comparison(Operator.NOT_EQUAL, left, right):
            equal = ex.Comparison(Operator.EQUAL, left, right)
            return part_of(equal, usable, wanted=not wanted)
        case ex.And(operands) if wanted:
            return _all_of(operands, usable)
        case ex.And(operands) | ex.Or(operands):
            parts = [part_of(each, usable, wanted=wanted) for each in operands]
            if isinstance(expression, ex.And) == wanted:
                return _joined_all([part for part in parts if part], len(parts))
            known = [part for part in parts if part]
            if len(known) < len(parts):
                return None
            return Joined(tuple(known), False, sum(part.estimate for part in known))
        case ex.In(operand, values) if not wanted and values.null_count:
            # What is not in a list with a null is unknown, never false.
            return part_of(ex.In(operand, values.slice(0, 0)), usable)
        case _:
            probe = probe_of(expression)
            return None if probe is None else _asked(probe, usable, is_negated=not wanted)


def _all_of(operands: Iterable[Expression], usable: Usable) -> Part | None:
    probes: list[Probe] = []
    parts: list[Part | None] = []
    for operand in operands:
        probe = probe_of(operand)
        if probe is None:
            parts.append(part_of(operand, usable))
        else:
            probes.append(probe)
    parts += [_asked(probe, usable) for probe in join_intervals(probes)]
    return _joined_all([part for part in parts if part], len(parts))


def _joined_all(known: list[Part], number: int) -> Part | None:
    if not known:
        return None
    if number == 1:
        return known[0]
    ordered = tuple(sorted(known, key=lambda part: part.estimate))
    return Joined(ordered, True, ordered[0].estimate, is_whole=len(known) == number)


def _asked(probe: Probe, usable: Usable, *, is_negated: bool = False) -> Asked | None:
    """Return the question to the index of a column that leaves the least to look at."""
    best: tuple[tuple[int, bool], Asked] | None = None
    question = probe.question
    for index in usable.on(probe.path):
        is_exact = probe.is_exact and index.is_exact(question)
        if is_negated and not is_exact:
            continue
        with usable.meter.within_index(index_node(index.name)):
            estimate = index.estimate(question, is_negated=is_negated)
        if estimate is None:
            continue
        left = max(estimate, _ALIKE) + index.num_rows_elsewhere
        rank = (left, not is_exact)
        if best is None or rank < best[0]:
            best = rank, Asked(index, question, estimate, is_exact, is_negated)
    return None if best is None else best[1]


def render_part(part: Part) -> str:
    """Return what is asked of which indices."""
    if isinstance(part, Asked):
        column = ".".join(part.index.path).replace(f".{WITHIN}.", "->")
        asked = f"[{_question(part.question, column)}]@{part.index.name}"
        shown = f"{asked}({part.index.segments[0].kind.title})"
        return f"NOT({shown})" if part.is_negated else shown
    joined = render_part(part.parts[0])
    for each in part.parts[1:]:
        joined = f"{'AND' if part.is_all else 'OR'}({joined},{render_part(each)})"
    return joined


def _question(question: ScalarQuery, column: str) -> str:
    match question:
        case Interval(lower, upper, includes_lower, includes_upper):
            bounds = []
            if lower is not None:
                bounds.append(f"{column} {'>=' if includes_lower else '>'} {_shown(lower)}")
            if upper is not None:
                bounds.append(f"{column} {'<=' if includes_upper else '<'} {_shown(upper)}")
            return " && ".join(bounds)
        case OneOf(values):
            if len(values) == 1:
                return f"{column} = {_shown(values[0])}"
            return f"{column} IN [{_listed(values)}]"
        case IsNull():
            return f"{column} IS NULL"
        case StartsWith(prefix):
            return f"{column} LIKE '{prefix.decode(errors='replace')}%'"
        case Contains(text):
            return f'contains({column}, Utf8("{text}"))'
        case HasAny(values):
            return f"array_has_any({column}, List([{_listed(values)}]))"
        case HasAll(values):
            return f"array_has_all({column}, List([{_listed(values)}]))"
        case Intersects(xmin, ymin, xmax, ymax):
            return f"{column} meets BOX({xmin} {ymin}, {xmax} {ymax})"
    assert_never(question)


def _listed(values: pa.Array) -> str:
    shown = [_shown(value) for value in values[:_VALUES_SHOWN]]
    rest = len(values) - len(shown)
    return ", ".join([*shown, f"and {rest} more"] if rest else shown)


def _shown(value: pa.Scalar) -> str:
    found = value.as_py()
    if isinstance(found, bytes):
        return found[:_BYTES_SHOWN].hex() + "..." * (len(found) > _BYTES_SHOWN)
    return str(value).lower() if isinstance(found, bool) else str(value)
