"""The rows of a version as an index is built of them: values of one column, with numbers.

fragment 0   x = 3 1 2     numbers 0 1 2
fragment 4   x = 9         numbers 4<<32|0      or stable ids, for kinds that keep those
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lancelet.index.base import IndexedRows
from lancelet.query import expression as ex
from lancelet.query.execute import execute
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s
from lancelet.table.snapshot import Snapshot

_BATCH_ROWS = 1 << 16


def rows_to_index(
    snapshot: Snapshot, path: tuple[str, ...], fragments: Sequence[int], *, by_address: bool
) -> IndexedRows:
    """Return the live rows of fragments, to be read once."""
    number = "_rowaddr" if by_address else "_rowid"
    options = ScanOptions(
        columns={"value": ex.Column(path)},
        fragments=tuple(fragments),
        batch_size=_BATCH_ROWS,
        with_row_address=by_address,
        with_row_id=not by_address,
    )
    plan = plan_scan(snapshot, options)

    def parts() -> Iterator[tuple[pa.Array, UInt64s]]:
        for batch in execute(plan):
            yield batch.column("value"), batch.column(number).to_numpy()

    return IndexedRows(plan.schema.field("value").type, parts())
