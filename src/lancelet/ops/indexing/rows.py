"""The rows of a version as an index is built of them: values of one column, with numbers.

fragment 0   x = 3 1 2     numbers 0 1 2
fragment 4   x = 9         numbers 4<<32|0      or stable ids, for kinds that keep those
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancelet.index.base import IndexedRows, indexed_type
from lancelet.ops.indexing.json_values import values_within
from lancelet.query import expression as ex
from lancelet.query.execute import execute
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot

_BATCH_ROWS = 1 << 16


def rows_to_index(
    snapshot: Snapshot,
    path: tuple[str, ...],
    fragments: Sequence[int],
    *,
    by_address: bool,
    within: str | None = None,
    value_type: pa.DataType | None = None,
) -> IndexedRows:
    """Return the live rows of fragments, read whenever they are iterated over.

    With `within` values are what is found there in the documents of the column, of a type that
    the first one has if it is not given.
    """
    number = "_rowaddr" if by_address else "_rowid"
    options = ScanOptions(
        columns={"value": ex.Column(path)},
        fragments=tuple(fragments),
        batch_size=_BATCH_ROWS,
        with_row_address=by_address,
        with_row_id=not by_address,
    )
    plan = plan_scan(snapshot, options)
    num_rows = sum(snapshot.live_rows(snapshot.fragments.by_id(each)) for each in fragments)
    data_type = indexed_type(plan.schema.field("value").type)
    rows = IndexedRows(data_type, _Parts(plan, number, data_type), num_rows)
    return rows if within is None else values_within(rows, within, value_type)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    plan: ScanPlan
    number: str
    data_type: pa.DataType

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        for batch in execute(self.plan):
            values = batch.column("value")
            stored = values if values.type == self.data_type else values.storage
            yield stored, batch.column(self.number).to_numpy()
