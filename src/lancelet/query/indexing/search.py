"""Finding the rows that may match a filter by its indices, where that is cheaper than looking.

    filter        age > 90 AND upper(name) = 'X' AND NOT city = 'Rome'
    indices       age, city
    candidates    rows of age > 90 in covered fragments     then   the rest, for these rows
    elsewhere     fragments that an index lacks             then   the whole filter, for all rows

For a part under NOT an index gives the rows that are false: those that it neither finds nor knows
to be null. So what is kept is a set of rows or the complement of one, and whether it is exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.query import expression as ex
from lancelet.query.expression import Expression
from lancelet.query.indexing.probes import Probe, probe_of
from lancelet.query.indexing.segments import ColumnIndex, column_indices, warn_unusable
from lancelet.query.plan import FilterStep, ScanPlan, filter_steps
from lancelet.query.simplify import Conjunct, split_conjuncts
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.table.snapshot import Snapshot

_ROWS_ALWAYS: Final = 1 << 16
"""So few rows are sooner found by an index than a column of many is read."""
_SHARE_MAX: Final = 0.1
"""Up to this share of the rows an index finds them sooner than a scan does."""
_WORTH_NARROWING: Final = 16
"""An index is not asked for many times the rows that another has left."""


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of some fragments that may match, and what is left to decide for them."""

    rows: RowSet
    covered: frozenset[int]
    steps: tuple[FilterStep, ...]
    used: tuple[tuple[str, Expression], ...]
    """The names of the indices and the parts of the filter they answered."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """A set of rows, or all rows but those of a set."""

    of: RowSet
    is_complement: bool
    is_exact: bool

    @property
    def says_nothing(self) -> bool:
        return self.is_complement and not self.of


_ANY: Final = _Rows(NO_ROWS, is_complement=True, is_exact=False)
_Usable = Mapping[tuple[str, ...], ColumnIndex]


def find_candidates(plan: ScanPlan) -> Candidates | None:
    """Return the rows that indices leave of a filter, or None if a scan is as good."""
    try:
        chosen = choose_parts(plan)
        return _ask(plan, chosen) if chosen else None
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(error)
        return None


def _ask(plan: ScanPlan, chosen: Sequence[ChosenPart]) -> Candidates | None:
    """Return what the indices say, those that leave the least first."""
    search = _Search(plan.snapshot, _indices_of(plan.snapshot))
    found = _Rows(NO_ROWS, is_complement=True, is_exact=True)
    answered: set[Expression] = set()
    left: int | None = None
    for part in sorted(chosen, key=lambda part: part.estimate):
        if left is not None and part.estimate > _WORTH_NARROWING * max(left, _ROWS_ALWAYS):
            break
        rows = search.rows(part.conjunct.expression, wanted=True)
        found = search.both(found, rows)
        if rows.is_exact:
            answered.add(part.conjunct.expression)
        left = found.of.num_rows(search.physical_rows) if not found.is_complement else None
    if found.is_complement:
        return None
    rest = [each for each in split_conjuncts(plan.filter) if each.expression not in answered]
    covered = frozenset.intersection(*(index.covered for index in search.used.values()))
    return Candidates(
        found.of.restricted(covered),
        covered,
        tuple(filter_steps(plan.snapshot, rest)),
        tuple((index.name, part.conjunct.expression) for part in chosen for index in part.indices),
    )


@dataclass(frozen=True, slots=True, eq=False)
class ChosenPart:
    """A part of a filter that indices answer, with about how many rows they will find."""

    conjunct: Conjunct
    estimate: int
    indices: tuple[ColumnIndex, ...]


def choose_parts(plan: ScanPlan) -> list[ChosenPart]:
    """Return the parts of the filter for which an index is cheaper than looking at the rows."""
    if not plan.options.use_indices or not plan.steps:
        return []
    usable = _indices_of(plan.snapshot)
    if not usable:
        return []
    total = plan.snapshot.num_rows
    most = max(_ROWS_ALWAYS, int(_SHARE_MAX * total))
    chosen: list[ChosenPart] = []
    for conjunct in split_conjuncts(plan.filter):
        if usable.keys().isdisjoint(conjunct.columns):
            continue
        indices: dict[str, ColumnIndex] = {}
        estimate = _estimate(conjunct.expression, usable, indices, wanted=True)
        if estimate is not None and estimate <= most:
            chosen.append(ChosenPart(conjunct, estimate, tuple(indices.values())))
    return chosen


def _indices_of(snapshot: Snapshot) -> _Usable:
    """Return one index per column, the one that covers most."""
    return {
        path: max(indices, key=lambda index: len(index.covered))
        for path, indices in column_indices(snapshot).items()
    }


def _estimate(
    expression: Expression, usable: _Usable, indices: dict[str, ColumnIndex], *, wanted: bool
) -> int | None:
    """Return about how many rows an expression is true (or false) for; None if anyone's guess."""
    match expression:
        case ex.Not(operand):
            return _estimate(operand, usable, indices, wanted=not wanted)
        case ex.And(operands) | ex.Or(operands):
            parts = [_estimate(each, usable, indices, wanted=wanted) for each in operands]
            known = [part for part in parts if part is not None]
            if isinstance(expression, ex.And) == wanted:
                return min(known, default=None)
            return sum(known) if len(known) == len(parts) else None
        case _:
            probe = probe_of(expression)
            if probe is None or not wanted or probe.path not in usable:
                return None
            index = usable[probe.path]
            estimate = index.estimate(probe.question)
            if estimate is not None:
                indices[index.name] = index
            return estimate


class _Search:
    """Asks the indices for the parts of an expression and joins their answers."""

    def __init__(self, snapshot: Snapshot, usable: _Usable) -> None:
        self._snapshot = snapshot
        self._usable = usable
        self.used: dict[str, ColumnIndex] = {}
        self.physical_rows: Mapping[int, int] = _PhysicalRows(snapshot)

    def rows(self, expression: Expression, *, wanted: bool) -> _Rows:
        """Return the rows for which an expression is true, or is false."""
        match expression:
            case ex.Not(operand):
                return self.rows(operand, wanted=not wanted)
            case ex.And(operands) | ex.Or(operands):
                parts = [self.rows(each, wanted=wanted) for each in operands]
                joined = parts[0]
                for part in parts[1:]:
                    is_narrowing = isinstance(expression, ex.And) == wanted
                    joined = self.both(joined, part) if is_narrowing else self.either(joined, part)
                return joined
            case _:
                probe = probe_of(expression)
                if probe is None or probe.path not in self._usable:
                    return _ANY
                has_null = isinstance(expression, ex.In) and expression.values.null_count > 0
                return self._asked(probe, wanted=wanted, has_null=has_null)

    def _asked(self, probe: Probe, *, wanted: bool, has_null: bool) -> _Rows:
        index = self._usable[probe.path]
        if index.estimate(probe.question) is None:
            return _ANY
        self.used[index.name] = index
        if not wanted and has_null:
            # What is not in a list with a null is unknown, never false.
            return _Rows(NO_ROWS, is_complement=False, is_exact=True)
        found, is_exact = index.search(probe.question)
        if wanted:
            return _Rows(found, is_complement=False, is_exact=is_exact)
        nulls = index.nulls() if is_exact else None
        if nulls is None:
            return _ANY
        return _Rows(found | nulls, is_complement=True, is_exact=True)

    def both(self, first: _Rows, second: _Rows) -> _Rows:
        """Return the rows that are in two sets."""
        if first.says_nothing or second.says_nothing:
            rows = second if first.says_nothing else first
            return _Rows(rows.of, rows.is_complement, first.is_exact and second.is_exact)
        is_exact = first.is_exact and second.is_exact
        match first.is_complement, second.is_complement:
            case False, False:
                return _Rows(first.of & second.of, is_complement=False, is_exact=is_exact)
            case True, True:
                return _Rows(first.of | second.of, is_complement=True, is_exact=is_exact)
            case True, False:
                first, second = second, first
        rest = first.of.minus(second.of, self.physical_rows)
        return _Rows(rest, is_complement=False, is_exact=is_exact)

    def either(self, first: _Rows, second: _Rows) -> _Rows:
        """Return the rows that are in one of two sets: all but those in neither."""
        neither = self.both(_complement(first), _complement(second))
        return _complement(neither)


def _complement(rows: _Rows) -> _Rows:
    return _Rows(rows.of, not rows.is_complement, rows.is_exact)


class _PhysicalRows(Mapping[int, int]):
    """How many rows each fragment has, looked up one by one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, fragment_id: int) -> int:
        return self._snapshot.physical_rows(self._snapshot.fragments.by_id(fragment_id))

    def __iter__(self) -> Iterator[int]:
        return iter(self._snapshot.fragments.ids.tolist())

    def __len__(self) -> int:
        return len(self._snapshot.fragments)
