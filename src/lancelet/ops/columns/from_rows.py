"""New columns that are there already: a stream with one row for each live row of the table.

table    fragment 0: rows a b c     fragment 1: rows d e
stream   [1 2] [3 4 5]
written  fragment 0: 1 2 3          fragment 1: 4 5
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from lancelet.format.fragment import Fragment
from lancelet.ops.columns.fields import keeps_nullability
from lancelet.ops.columns.nested import GivenRows
from lancelet.ops.columns.plan import ColumnPlan, grown_schema, guides_of, plain_projection, shaped
from lancelet.ops.columns.rows import read_live
from lancelet.ops.columns.sources import Rows
from lancelet.ops.columns.supply import RowSupply
from lancelet.table.snapshot import Snapshot


def plan_rows(snapshot: Snapshot, source: Rows) -> ColumnPlan:
    """Return how the columns of a stream are added to a version."""
    supply = RowSupply(source.stream.batches, source.stream.schema.names)
    grown = grown_schema(snapshot, source.stream.schema)
    guides = guides_of(snapshot.schema, grown.added)
    projection = plain_projection(guides)

    def values(current: Snapshot, fragment: Fragment) -> Iterator[pa.RecordBatch]:
        if not guides:
            yield from supply.take(current.live_rows(fragment))
            return
        for present in read_live(current, fragment, projection):
            yield shaped(grown.added, present, GivenRows(supply.take_batch(present.num_rows)))

    return ColumnPlan(
        grown.schema,
        grown.added,
        values,
        keeps_nullability=keeps_nullability(grown.added, snapshot.schema),
        is_repeatable=False,
        is_sequential=True,
        check_ended=supply.check_ended,
        guides=guides,
    )
