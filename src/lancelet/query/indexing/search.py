"""Finding the rows that may match a filter by its indices, where that is cheaper than looking.

    filter        age > 90 AND upper(name) = 'X' AND NOT city = 'Rome'
    indices       age, city
    candidates    rows of age > 90 in covered fragments     then   the rest, for these rows
    elsewhere     fragments that an index lacks             then   the whole filter, for all rows

For a part under NOT an index gives the rows that are false: those that it neither finds nor knows
to be null. So what is kept is a set of rows or the complement of one, and whether it is exact.

What one index says alone: few rows that are taken at once, and how many rows there are.

    id IN (7, 9)    an index on id over all fragments      7 -> 3<<32|5   9 -> 0<<32|2
    taken           row 2 of fragment 0, row 5 of fragment 3
    age > 30        BTREE over 1000 rows, 1000 rows in the table
    counted         bounds at 400 and 1000: 600 rows

What a scan does to find out where rows may be costs more than reading one. To be counted, an index
must have no rows that were deleted since: what it covers is all in it, each row once, so if it has
as many rows as there are live ones in the fragments that it covers, it has no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.index.query import IsNull, OneOf, ScalarQuery
from lancelet.query.expression import Expression
from lancelet.query.indexing.choose import (
    ROWS_ALWAYS,
    Asked,
    ChosenPart,
    Part,
    Usable,
    choose_parts,
    choose_whole,
)
from lancelet.query.indexing.column_indices import ColumnIndex
from lancelet.query.indexing.probes import WITHIN, probe_of
from lancelet.query.indexing.segments import physical_rows_of, warn_unusable
from lancelet.query.node_meter import PlanMeter, index_node
from lancelet.query.nodes.source import FragmentSource
from lancelet.query.plan import FilterStep, ScanPlan, filter_steps
from lancelet.query.take import take_of_source
from lancelet.rowids.address import OFFSETS_MAX, UInt64s, fragments_of, offsets_of
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.values import dataclass

_WORTH_NARROWING: Final = 16
"""An index is not asked for many times the rows that another has left."""

_VALUES_MAX: Final = 1024
_ROWS_MAX: Final = 1024


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


_ALL_ROWS: Final = _Rows(NO_ROWS, is_complement=True, is_exact=True)


def find_candidates(plan: ScanPlan, *, counts: bool = False) -> Candidates | None:
    """Return the rows that indices leave of a filter, or None if a scan is as good."""
    try:
        chosen = choose_parts(plan, counts=counts)
        return _ask(plan, chosen) if chosen else None
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
        return None


def _ask(plan: ScanPlan, chosen: Sequence[ChosenPart]) -> Candidates:
    """Return what the indices say, those that leave the least first."""
    search = _Search(plan)
    found = _ALL_ROWS
    answered: set[Expression] = set()
    asked: list[ChosenPart] = []
    for part in sorted(chosen, key=lambda part: part.estimate):
        if asked and search.is_too_many(part.part, found):
            break
        asked.append(part)
        rows = search.rows(part.part)
        found = search.both(found, rows)
        if rows.is_exact:
            answered.update(part.expressions)
    rest = [each for each in plan.conjuncts if each.expression not in answered]
    indices = [index for part in asked for index in part.indices]
    covered = frozenset.intersection(*(index.covered for index in indices))
    rows_left = found.of.restricted(covered)
    if found.is_complement:
        rows_left = RowSet.of_fragments(covered).minus(rows_left, search.physical_rows)
    return Candidates(
        rows_left,
        covered,
        tuple(filter_steps(plan.snapshot, rest)) if answered else plan.steps,
        tuple((index.name, part.expression) for part in asked for index in part.indices),
    )


class _Search:
    """Asks the indices for the parts of a filter and joins their answers."""

    def __init__(self, plan: ScanPlan) -> None:
        self.physical_rows: Mapping[int, int] = physical_rows_of(plan.snapshot)
        self._meter = plan.meter

    def rows(self, part: Part) -> _Rows:
        """Return the rows for which a part holds."""
        if isinstance(part, Asked):
            return self._asked(part)
        joined = self.rows(part.parts[0])
        is_whole = part.is_whole
        for each in part.parts[1:]:
            if part.is_all and self.is_too_many(each, joined):
                is_whole = False
                break
            rows = self.rows(each)
            joined = self.both(joined, rows) if part.is_all else self.either(joined, rows)
        return joined if is_whole else _Rows(joined.of, joined.is_complement, is_exact=False)

    def is_too_many(self, part: Part, found: _Rows) -> bool:
        """Return whether looking at the rows that were found is cheaper than another answer."""
        if found.is_complement:
            return False
        left = found.of.num_rows(self.physical_rows)
        return part.estimate > _WORTH_NARROWING * max(left, ROWS_ALWAYS)

    def _asked(self, part: Asked) -> _Rows:
        node = index_node(part.index.name)
        with self._meter.within_index(node):
            found, is_exact = part.index.search(part.question)
        is_exact = is_exact and part.is_exact
        if self._meter.is_counting:
            self._meter.count_rows(node, [0], found.num_rows(self.physical_rows))
        if not part.is_negated:
            return _Rows(found, is_complement=False, is_exact=is_exact)
        if isinstance(part.question, IsNull):
            return _Rows(found, is_complement=True, is_exact=is_exact)
        with self._meter.within_index(node):
            nulls = part.index.nulls() if is_exact else None
        if nulls is None:
            return _Rows(NO_ROWS, is_complement=True, is_exact=False)
        return _Rows(found | nulls, is_complement=True, is_exact=True)

    def both(self, first: _Rows, second: _Rows) -> _Rows:
        """Return the rows that are in two sets."""
        is_exact = first.is_exact and second.is_exact
        if first.says_nothing or second.says_nothing:
            rows = second if first.says_nothing else first
            return _Rows(rows.of, rows.is_complement, is_exact)
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


def rows_at_once(plan: ScanPlan) -> Iterator[pa.RecordBatch] | None:
    """Return the rows that match, by fragment, if an index names each of them; else None."""
    options = plan.options
    if not options.use_indices or options.fragments is not None or options.with_deleted:
        return None
    try:
        usable = Usable.of(plan)
        probe = probe_of(plan.filter) if usable.indices else None
        if probe is None or not probe.is_exact or WITHIN in probe.path:
            return None
        if not isinstance(probe.question, OneOf):
            return None
        if len(probe.question.values) > _VALUES_MAX:
            return None
        for index in usable.on(probe.path):
            found = _named(index, probe.question, plan.meter)
            if found is not None:
                return _taken(plan, found)
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
    return None


def _named(index: ColumnIndex, question: OneOf, meter: PlanMeter) -> UInt64s | None:
    """Return the addresses of all rows that answer a question, if they are few."""
    if index.num_rows_elsewhere:
        return None
    node, found = index_node(index.name), list[UInt64s]()
    for segment in index.segments:
        with meter.within_index(node):
            own = segment.named_rows(question, _ROWS_MAX)
        if own is None:
            return None
        meter.count_rows(node, [0], len(own))
        found.append(own)
    return found[0] if len(found) == 1 else np.concatenate(found)


def _taken(plan: ScanPlan, addresses: UInt64s) -> Iterator[pa.RecordBatch]:
    for source, offsets in _by_fragment(plan, addresses):
        live = source.without_hidden(offsets) if source.hidden else offsets
        if len(live):
            yield take_of_source(plan.projection, (source, live))


def _by_fragment(plan: ScanPlan, addresses: UInt64s) -> Iterator[tuple[FragmentSource, Int64s]]:
    """Yield fragments in the order of the table, with the offsets of rows in theirs."""
    snapshot = plan.snapshot
    if not len(addresses):
        return
    if len(addresses) == 1:
        fragment_id, offset = divmod(int(addresses[0]), OFFSETS_MAX)
        fragment = snapshot.fragments.by_id(fragment_id)
        source = FragmentSource(snapshot, fragment, with_deleted=False)
        yield source, np.array([offset], np.int64)
        return
    ordered = np.unique(addresses)
    which, offsets = fragments_of(ordered), offsets_of(ordered)
    if which[0] == which[-1]:
        groups = [(int(which[0]), offsets)]
    else:
        starts = np.flatnonzero(np.diff(which, prepend=-1))
        ids = which[starts].tolist()
        groups = list(zip(ids, np.split(offsets, starts[1:]), strict=True))
        groups.sort(key=lambda group: snapshot.fragments.index_of(group[0]))
    for fragment_id, own in groups:
        fragment = snapshot.fragments.by_id(fragment_id)
        yield FragmentSource(snapshot, fragment, with_deleted=False), own


def count_by_index(plan: ScanPlan) -> int | None:
    """Return how many rows match, if the bounds of one index that has all rows tell."""
    options = plan.options
    if options.fragments is not None or options.with_deleted:
        return None
    try:
        part = choose_whole(plan)
        if not isinstance(part, Asked) or not part.is_exact or part.index.num_rows_elsewhere:
            return None
        found = _count(plan, part.index, part.question)
        if found is None or not part.is_negated:
            return found
        nulls = 0 if isinstance(part.question, IsNull) else _count(plan, part.index, IsNull())
        return None if nulls is None else part.index.num_rows - found - nulls
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
        return None


def _count(plan: ScanPlan, index: ColumnIndex, question: ScalarQuery) -> int | None:
    node = index_node(index.name)
    with plan.meter.within_index(node):
        found = index.count(question)
    if found is not None:
        plan.meter.count_rows(node, [0], found)
    return found
