"""Counting the rows of a filter from an index alone, without finding them.

    age > 30     BTREE over 1000 rows, 1000 rows in the table     bounds at 400 and 1000: 600 rows

An index may have rows that were deleted since. What it covers is all in it, each row once, so if
it has as many rows as there are live ones in the fragments that it covers, it has no others.
"""

from __future__ import annotations

from lancelet.errors import CorruptDataError, ObjectNotFoundError
from lancelet.index.question import IsNull, Question
from lancelet.query.indexing.choose import Asked, choose_whole
from lancelet.query.indexing.column_indices import ColumnIndex
from lancelet.query.indexing.segments import warn_unusable
from lancelet.query.node_meter import index_node
from lancelet.query.plan import ScanPlan


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
