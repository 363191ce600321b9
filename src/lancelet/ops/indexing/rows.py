"""The rows of a version as an index is built of them: values of one column, with numbers.

fragment 0   x = 3 1 2     numbers 0 1 2
fragment 4   x = 9         numbers 4<<32|0      or stable ids, for kinds that keep those
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lancelet.index.base import IndexedRows
from lancelet.query import expression as ex
from lancelet.query.execute import execute
from lancelet.query.plan import ScanPlan, plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot

_BATCH_ROWS = 1 << 16


def rows_to_index(
    snapshot: Snapshot, path: tuple[str, ...], fragments: Sequence[int], *, by_address: bool
) -> IndexedRows:
    """Return the live rows of fragments, read whenever they are iterated over."""
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
    return IndexedRows(plan.schema.field("value").type, _Parts(plan, number), num_rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    plan: ScanPlan
    number: str

    def __iter__(self) -> Iterator[tuple[pa.Array, UInt64s]]:
        for batch in execute(self.plan):
            yield batch.column("value"), batch.column(self.number).to_numpy()
