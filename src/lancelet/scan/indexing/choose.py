"""Choose the parts of a filter that scalar indices evaluate; a scan evaluates the rest.

    age > 90 AND upper(name) = 'X' AND (city = 'Rome' OR NOT age > 5)

    chosen    age > 90            IndexLookup(by_age, estimate 40)
              city = .. OR ..     Joined(IndexLookup(by_city, 10), IndexLookup(by_age, is_negated))
    rest      upper(name) = 'X'

An index is used up to a share of matching rows that depends on its kind. Indices that store row
sets or zones are cheap at larger shares than indices that collect single rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, assert_never

import pyarrow as pa

from lancelet.expr import expression as ex
from lancelet.expr.expression import Expression, Operator
from lancelet.expr.simplify import Conjunct
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
from lancelet.scan.indexing.column_indices import ColumnIndex, column_indices
from lancelet.scan.indexing.probes import WITHIN, Probe, column_of, join_intervals, probe_of
from lancelet.scan.node_meter import INDICES, PlanMeter, index_node
from lancelet.scan.plan import ScanPlan
from lancelet.values import dataclass

ROWS_ALWAYS: Final = 1 << 13
"""Up to this number of matching rows, an index is always used."""
_SHARES: Final = {"BITMAP": 0.2, "LABEL_LIST": 0.2, "ZONEMAP": 1.0, "BLOOMFILTER": 1.0}
_SHARE: Final = 0.03
"""Share of matching rows up to which other kinds of index are used."""
_ESTIMATE_ROWS_MIN: Final = 8192
"""Smaller estimates rank as equal, because they count whole pages or zones."""

_VALUES_SHOWN: Final = 20
_BYTES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, eq=False)
class Usable:
    """The indices available to a plan, by column path, and the meter for their reads."""

    indices: Mapping[tuple[str, ...], tuple[ColumnIndex, ...]]
    meter: PlanMeter

    @staticmethod
    def of(plan: ScanPlan) -> Usable:
        """Return the indices of the version that a plan reads."""
        with plan.meter.within_index(INDICES):
            return Usable(column_indices(plan.snapshot), plan.meter)

    def on(self, path: tuple[str, ...]) -> tuple[ColumnIndex, ...]:
        """Open and return the indices on a column."""
        with self.meter.within_index(INDICES):
            return self.indices.get(path, ())


@dataclass(frozen=True, slots=True, eq=False)
class IndexLookup:
    """A query of one index; if negated, for the rows where the predicate is false."""

    index: ColumnIndex
    query: ScalarQuery
    estimate: int
    is_exact: bool
    """Whether the index evaluates the predicate exactly, so rows need no recheck."""
    is_negated: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """A conjunction or disjunction of lookups.

    `is_whole` is False if a conjunction lacks operands that no index evaluates.
    """

    parts: tuple[Part, ...]
    is_all: bool
    estimate: int
    is_whole: bool = True


Part: TypeAlias = IndexLookup | Joined


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPart:
    """Conjuncts of a filter that are evaluated together by indices."""

    expressions: tuple[Expression, ...]
    part: Part

    @property
    def estimate(self) -> int:
        """Estimated number of matching rows."""
        return self.part.estimate

    @property
    def expression(self) -> Expression:
        """The conjunction of the expressions."""
        return self.expressions[0] if len(self.expressions) == 1 else ex.And(self.expressions)

    @property
    def indices(self) -> tuple[ColumnIndex, ...]:
        """The distinct indices used."""
        return tuple({lookup.index.name: lookup.index for lookup in lookups_of(self.part)}.values())


def lookups_of(part: Part) -> Iterable[IndexLookup]:
    """Yield the index lookups of a part."""
    if isinstance(part, IndexLookup):
        yield part
    else:
        for each in part.parts:
            yield from lookups_of(each)


def is_decided(part: Part) -> bool:
    """Return whether the indices evaluate a part exactly, without a recheck of rows."""
    if isinstance(part, IndexLookup):
        return part.is_exact
    return part.is_whole and all(map(is_decided, part.parts))


def choose_parts(plan: ScanPlan, *, counts: bool = False) -> list[ChosenPart]:
    """Return the parts of the filter for which an index is cheaper than a scan.

    With `counts`, indices that store row sets are always cheaper.
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
        # The result must not depend on the cost of an index.
        return [each for each in found if each is not None]
    total = plan.snapshot.num_rows
    return [each for each in found if each is not None and _is_cheap(each, total, counts=counts)]


def choose_whole(plan: ScanPlan) -> Part | None:
    """Return the lookups for the whole filter regardless of cost, or None if not possible."""
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
    """Group conjuncts that refer to the same single column."""
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


def part_of(expression: Expression, usable: Usable, *, value: bool = True) -> Part | None:
    """Return the lookups for rows where an expression equals `value`, or None."""
    match expression:
        case ex.Not(operand):
            return part_of(operand, usable, value=not value)
        case ex.IsTrue(operand) if value:
            return part_of(operand, usable)
        case ex.Comparison(Operator.NOT_EQUAL, left, right):
            equal = ex.Comparison(Operator.EQUAL, left, right)
            return part_of(equal, usable, value=not value)
        case ex.And(operands) if value:
            return _all_of(operands, usable)
        case ex.And(operands) | ex.Or(operands):
            parts = [part_of(each, usable, value=value) for each in operands]
            if isinstance(expression, ex.And) == value:
                return _intersect([part for part in parts if part], len(parts))
            indexed = [part for part in parts if part]
            if len(indexed) < len(parts):
                return None
            return Joined(tuple(indexed), False, sum(part.estimate for part in indexed))
        case ex.In(operand, values) if not value and values.null_count:
            # NOT IN with a null in the list is never true.
            return part_of(ex.In(operand, values.slice(0, 0)), usable)
        case _:
            probe = probe_of(expression)
            return None if probe is None else _best_lookup(probe, usable, is_negated=not value)


def _all_of(operands: Iterable[Expression], usable: Usable) -> Part | None:
    probes: list[Probe] = []
    parts: list[Part | None] = []
    for operand in operands:
        probe = probe_of(operand)
        if probe is None:
            parts.append(part_of(operand, usable))
        else:
            probes.append(probe)
    parts += [_best_lookup(probe, usable) for probe in join_intervals(probes)]
    return _intersect([part for part in parts if part], len(parts))


def _intersect(lookups: list[Part], num_predicates: int) -> Part | None:
    if not lookups:
        return None
    if num_predicates == 1:
        return lookups[0]
    ordered = tuple(sorted(lookups, key=lambda part: part.estimate))
    return Joined(ordered, True, ordered[0].estimate, is_whole=len(lookups) == num_predicates)


def _best_lookup(probe: Probe, usable: Usable, *, is_negated: bool = False) -> IndexLookup | None:
    """Return the lookup with the fewest remaining rows to examine, or None."""
    best: tuple[tuple[int, bool], IndexLookup] | None = None
    query = probe.query
    for index in usable.on(probe.path):
        is_exact = probe.is_exact and index.is_exact(query)
        if is_negated and not is_exact:
            continue
        with usable.meter.within_index(index_node(index.name)):
            estimate = index.estimate(query, is_negated=is_negated)
        if estimate is None:
            continue
        left = max(estimate, _ESTIMATE_ROWS_MIN) + index.num_unindexed_rows
        rank = (left, not is_exact)
        if best is None or rank < best[0]:
            best = rank, IndexLookup(index, query, estimate, is_exact, is_negated)
    return None if best is None else best[1]


def render_part(part: Part) -> str:
    """Return the text of index lookups for plans.

    For example:

        age BETWEEN 3 AND 7      [age >= 3 && age <= 7]@by_age(BTree)
        NOT (city = 'Rome')      NOT([city = Rome]@by_city(Bitmap))
        both                     AND(.., ..)
    """
    if isinstance(part, IndexLookup):
        column = ".".join(part.index.path).replace(f".{WITHIN}.", "->")
        query = f"[{_render_query(part.query, column)}]@{part.index.name}"
        shown = f"{query}({part.index.segments[0].kind.title})"
        return f"NOT({shown})" if part.is_negated else shown
    joined = render_part(part.parts[0])
    for each in part.parts[1:]:
        joined = f"{'AND' if part.is_all else 'OR'}({joined},{render_part(each)})"
    return joined


def _render_query(query: ScalarQuery, column: str) -> str:
    match query:
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
    assert_never(query)


def _listed(values: pa.Array) -> str:
    shown = [_shown(value) for value in values[:_VALUES_SHOWN]]
    rest = len(values) - len(shown)
    return ", ".join([*shown, f"and {rest} more"] if rest else shown)


def _shown(value: pa.Scalar) -> str:
    found = value.as_py()
    if isinstance(found, bytes):
        return found[:_BYTES_SHOWN].hex() + "..." * (len(found) > _BYTES_SHOWN)
    return str(value).lower() if isinstance(found, bool) else str(value)
