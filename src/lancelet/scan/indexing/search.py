"""Find the candidate rows of a filter with indices, where that is cheaper than a scan.

    filter        age > 90 AND upper(name) = 'X' AND NOT city = 'Rome'
    indices       age, city
    candidates    rows of age > 90 in covered fragments     then   the rest, for these rows
    uncovered     fragments without an index                then   the whole filter, for all rows

For a negated part, an index returns the rows where the predicate is false, which excludes matches
and nulls. Results are therefore row sets or complements of row sets, with a flag for exactness.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.expr.expression import Expression
from lancelet.index.query import IsNull, OneOf, ScalarQuery
from lancelet.rowids.address import OFFSETS_MAX, UInt64s, distinct, fragments_of, offsets_of
from lancelet.rowids.selection import NO_ROWS, RowSet
from lancelet.scan.indexing.choose import (
    ROWS_ALWAYS,
    ChosenPart,
    IndexLookup,
    Part,
    Usable,
    choose_parts,
    choose_whole,
)
from lancelet.scan.indexing.column_indices import ColumnIndex
from lancelet.scan.indexing.probes import WITHIN, probe_of
from lancelet.scan.indexing.segments import physical_rows_of, warn_unusable
from lancelet.scan.node_meter import PlanMeter, index_node
from lancelet.scan.nodes.source import FragmentSource
from lancelet.scan.plan import FilterStep, ScanPlan, filter_steps
from lancelet.scan.take import take_of_source
from lancelet.values import dataclass

_WORTH_NARROWING: Final = 16
"""Another index is not queried if it would return this many times the remaining rows."""

_VALUES_MAX: Final = 1024
_ROWS_MAX: Final = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Rows of covered fragments that may match, and the remaining filter steps for them."""

    rows: RowSet
    covered: frozenset[int]
    steps: tuple[FilterStep, ...]
    used: tuple[tuple[str, Expression], ...]
    """The names of the indices and the parts of the filter they evaluated."""


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """A row set or the complement of one."""

    of: RowSet
    is_complement: bool
    is_exact: bool

    @property
    def is_unrestricted(self) -> bool:
        return self.is_complement and not self.of


_ALL_ROWS: Final = _Rows(NO_ROWS, is_complement=True, is_exact=True)


def find_candidates(
    plan: ScanPlan, chosen: Sequence[ChosenPart] | None = None, *, counts: bool = False
) -> Candidates | None:
    """Return the candidate rows of a filter, or None if a scan is not more expensive.

    `chosen` are the parts that indices evaluate, by default those of `choose_parts`.
    """
    try:
        chosen = choose_parts(plan, counts=counts) if chosen is None else chosen
        return _query_indices(plan, chosen) if chosen else None
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
        return None


def _query_indices(plan: ScanPlan, chosen: Sequence[ChosenPart]) -> Candidates:
    """Query indices, in order of increasing row estimates, and intersect the results."""
    search = _Search(plan)
    found = _ALL_ROWS
    answered: set[Expression] = set()
    queried: list[ChosenPart] = []
    for part in sorted(chosen, key=lambda part: part.estimate):
        if queried and search.is_scan_cheaper(part.part, found):
            break
        queried.append(part)
        rows = search.rows(part.part)
        found = search.both(found, rows)
        if rows.is_exact:
            answered.update(part.expressions)
    rest = [each for each in plan.conjuncts if each.expression not in answered]
    indices = [index for part in queried for index in part.indices]
    covered = frozenset.intersection(*(index.covered for index in indices))
    rows_left = found.of.restricted(covered)
    if found.is_complement:
        rows_left = RowSet.of_fragments(covered).minus(rows_left, search.physical_rows)
    return Candidates(
        rows_left,
        covered,
        tuple(filter_steps(plan.snapshot, rest)) if answered else plan.steps,
        tuple((index.name, part.expression) for part in queried for index in part.indices),
    )


class _Search:
    """Queries indices for the parts of a filter and combines the results."""

    def __init__(self, plan: ScanPlan) -> None:
        self.physical_rows: Mapping[int, int] = physical_rows_of(plan.snapshot)
        self._meter = plan.meter

    def rows(self, part: Part) -> _Rows:
        """Return the rows that satisfy a part."""
        if isinstance(part, IndexLookup):
            return self._lookup(part)
        joined = self.rows(part.parts[0])
        is_whole = part.is_whole
        for each in part.parts[1:]:
            if part.is_all and self.is_scan_cheaper(each, joined):
                is_whole = False
                break
            rows = self.rows(each)
            joined = self.both(joined, rows) if part.is_all else self.either(joined, rows)
        return joined if is_whole else _Rows(joined.of, joined.is_complement, is_exact=False)

    def is_scan_cheaper(self, part: Part, found: _Rows) -> bool:
        """Return whether scanning the rows found so far is cheaper than another lookup."""
        if found.is_complement:
            return False
        left = found.of.num_rows(self.physical_rows)
        return part.estimate > _WORTH_NARROWING * max(left, ROWS_ALWAYS)

    def _lookup(self, part: IndexLookup) -> _Rows:
        node = index_node(part.index.name)
        with self._meter.within_index(node):
            found, is_exact = part.index.search(part.query)
        is_exact = is_exact and part.is_exact
        if self._meter.is_counting:
            self._meter.count_rows(node, [0], found.num_rows(self.physical_rows))
        if not part.is_negated:
            return _Rows(found, is_complement=False, is_exact=is_exact)
        if isinstance(part.query, IsNull):
            return _Rows(found, is_complement=True, is_exact=is_exact)
        with self._meter.within_index(node):
            nulls = part.index.nulls() if is_exact else None
        if nulls is None:
            return _Rows(NO_ROWS, is_complement=True, is_exact=False)
        return _Rows(found | nulls, is_complement=True, is_exact=True)

    def both(self, first: _Rows, second: _Rows) -> _Rows:
        """Return the intersection."""
        is_exact = first.is_exact and second.is_exact
        if first.is_unrestricted or second.is_unrestricted:
            rows = second if first.is_unrestricted else first
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
        """Return the union, as the complement of the rows in neither set."""
        neither = self.both(_complement(first), _complement(second))
        return _complement(neither)


def _complement(rows: _Rows) -> _Rows:
    return _Rows(rows.of, not rows.is_complement, rows.is_exact)


def lookup_batches(plan: ScanPlan) -> Iterator[pa.RecordBatch] | None:
    """Yield the matching rows by fragment if one index locates all of them; None otherwise.

        id IN (7, 9)    an index on id over all fragments      7 -> 3<<32|5   9 -> 0<<32|2
        rows read       row 2 of fragment 0, row 5 of fragment 3

    This path exists because planning a scan costs more than reading one row.
    """
    options = plan.options
    if not options.use_indices or options.fragments is not None or options.with_deleted:
        return None
    try:
        usable = Usable.of(plan)
        probe = probe_of(plan.filter) if usable.indices else None
        if probe is None or not probe.is_exact or WITHIN in probe.path:
            return None
        if not isinstance(probe.query, OneOf):
            return None
        if len(probe.query.values) > _VALUES_MAX:
            return None
        for index in usable.on(probe.path):
            found = _lookup_addresses(index, probe.query, plan.meter)
            if found is not None:
                return _taken(plan, found)
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
    return None


def _lookup_addresses(index: ColumnIndex, query: OneOf, meter: PlanMeter) -> UInt64s | None:
    """Return the addresses of all matching rows, or None if there are many."""
    if index.num_unindexed_rows:
        return None
    node, found = index_node(index.name), list[UInt64s]()
    for segment in index.segments:
        with meter.within_index(node):
            own = segment.lookup_addresses(query, _ROWS_MAX)
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
    """Yield fragments in table order, with the offsets of their rows."""
    snapshot = plan.snapshot
    if not len(addresses):
        return
    if len(addresses) == 1:
        fragment_id, offset = divmod(int(addresses[0]), OFFSETS_MAX)
        fragment = snapshot.fragments.by_id(fragment_id)
        source = FragmentSource(snapshot, fragment, with_deleted=False)
        yield source, np.array([offset], np.int64)
        return
    ordered = distinct(addresses)
    fragment_ids, offsets = fragments_of(ordered), offsets_of(ordered)
    if fragment_ids[0] == fragment_ids[-1]:
        groups = [(int(fragment_ids[0]), offsets)]
    else:
        starts = np.flatnonzero(np.diff(fragment_ids, prepend=-1))
        ids = fragment_ids[starts].tolist()
        groups = list(zip(ids, np.split(offsets, starts[1:]), strict=True))
        groups.sort(key=lambda group: snapshot.fragments.index_of(group[0]))
    for fragment_id, own in groups:
        fragment = snapshot.fragments.by_id(fragment_id)
        yield FragmentSource(snapshot, fragment, with_deleted=False), own


def count_by_index(plan: ScanPlan) -> int | None:
    """Return the number of matching rows if one index over all rows can count them, else None.

        age > 30        BTREE over 1000 rows, 1000 rows in the table
        result          bounds at 400 and 1000: 600 rows

    An index can count rows only if it contains no deleted rows. It contains every row of its
    fragments exactly once, so it suffices that its number of rows equals the number of live rows
    in these fragments.
    """
    options = plan.options
    if options.fragments is not None or options.with_deleted:
        return None
    try:
        part = choose_whole(plan)
        if not isinstance(part, IndexLookup) or not part.is_exact or part.index.num_unindexed_rows:
            return None
        found = _count(plan, part.index, part.query)
        if found is None or not part.is_negated:
            return found
        nulls = 0 if isinstance(part.query, IsNull) else _count(plan, part.index, IsNull())
        return None if nulls is None else part.index.num_rows - found - nulls
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(plan.snapshot, error)
        return None


def _count(plan: ScanPlan, index: ColumnIndex, query: ScalarQuery) -> int | None:
    node = index_node(index.name)
    with plan.meter.within_index(node):
        found = index.count(query)
    if found is not None:
        plan.meter.count_rows(node, [0], found)
    return found
