"""What one index says alone: few rows that are taken at once, and how many rows there are.

    id IN (7, 9)    an index on id over all fragments      7 -> 3<<32|5   9 -> 0<<32|2
    taken           row 2 of fragment 0, row 5 of fragment 3
    age > 30        BTREE over 1000 rows, 1000 rows in the table
    counted         bounds at 400 and 1000: 600 rows

What a scan does to find out where rows may be costs more than reading one. To be counted, an index
must have no rows that were deleted since: what it covers is all in it, each row once, so if it has
as many rows as there are live ones in the fragments that it covers, it has no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.index.question import IsNull, OneOf, Question
from lancelet.query.indexing.choose import Asked, Usable, choose_whole
from lancelet.query.indexing.column_indices import ColumnIndex
from lancelet.query.indexing.probes import WITHIN, probe_of
from lancelet.query.indexing.segments import warn_unusable
from lancelet.query.node_meter import PlanMeter, index_node
from lancelet.query.nodes.source import FragmentSource
from lancelet.query.plan import ScanPlan
from lancelet.query.take import take_of_source
from lancelet.rowids.address import OFFSETS_MAX, UInt64s, fragments_of, offsets_of

_VALUES_MAX: Final = 1024
_ROWS_MAX: Final = 1024


def rows_at_once(plan: ScanPlan) -> Iterator[pa.RecordBatch] | None:
    """Return the rows that match, by fragment, if an index names each of them; else None."""
    options = plan.options
    if not options.use_indices or options.fragments is not None or options.with_deleted:
        return None
    try:
        usable = Usable.of(plan)
        probe = probe_of(plan.filter) if usable.indices else None
        if probe is None or not isinstance(probe.question, OneOf) or WITHIN in probe.path:
            return None
        if len(probe.question.values) > _VALUES_MAX:
            return None
        for index in usable.on(probe.path):
            found = _named(index, probe.question, plan.meter)
            if found is not None:
                return _taken(plan, found)
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(error)
    return None


def _named(index: ColumnIndex, question: OneOf, meter: PlanMeter) -> UInt64s | None:
    """Return the addresses of all rows that answer a question, if they are few."""
    if index.num_rows_elsewhere:
        return None
    node, found = index_node(index.name), list[UInt64s]()
    for segment in index.segments:
        with meter.asking(node):
            own = segment.named_rows(question, _ROWS_MAX)
        if own is None:
            return None
        meter.saw(node, [0], len(own))
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
        groups.sort(key=lambda group: snapshot.fragments.place_of(group[0]))
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
        if not isinstance(part, Asked) or part.index.num_rows_elsewhere:
            return None
        found = _count(plan, part.index, part.question)
        if found is None or not part.is_negated:
            return found
        nulls = 0 if isinstance(part.question, IsNull) else _count(plan, part.index, IsNull())
        return None if nulls is None else part.index.num_rows - found - nulls
    except (ObjectNotFoundError, CorruptDataError) as error:
        warn_unusable(error)
        return None


def _count(plan: ScanPlan, index: ColumnIndex, question: Question) -> int | None:
    node = index_node(index.name)
    with plan.meter.asking(node):
        found = index.count(question)
    if found is not None:
        plan.meter.saw(node, [0], found)
    return found
