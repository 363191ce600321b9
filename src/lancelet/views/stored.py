"""Rows of the table of a view: new rows, which replace others.

view       address 4: "Rome", 10 people
new rows   "Rome", 11 people, which replaces 4      "Oslo", 5 people
version    4 deleted, a fragment with both rows; the row id of Rome is the same
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lancelet.change.moved_rows import RowFiles, with_moved_ids, write_rows
from lancelet.format.field_path import format_path
from lancelet.format.fragment import Fragment
from lancelet.rowids.address import NO_ADDRESS, UInt64s
from lancelet.scan.plan import projection_of
from lancelet.scan.projection import scan_schema
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class WrittenRows:
    """New fragments of a view, and the addresses of replaced and deleted rows."""

    fragments: tuple[Fragment, ...]
    replaced: UInt64s


def write_replacing(
    view: Snapshot, parts: Iterable[tuple[pa.RecordBatch, UInt64s]]
) -> tuple[Fragment, ...]:
    """Write rows, given with the addresses of the rows that they replace, as fragments.

    The addresses of other rows are `NO_ADDRESS`; these rows come last.
    """
    moved = [np.empty(0, np.uint64)]

    def rows() -> Iterator[pa.RecordBatch]:
        for batch, addresses in parts:
            if batch.num_rows:
                moved.append(addresses[addresses != NO_ADDRESS])
                yield _as_stored(view, batch, addresses)

    fragments = write_rows(view, rows(), RowFiles())
    return with_moved_ids(view, fragments, np.concatenate(moved))


def _as_stored(view: Snapshot, batch: pa.RecordBatch, addresses: UInt64s) -> pa.RecordBatch:
    """Return rows with the columns of the table of a view; columns added to it are copied."""
    schema = scan_schema(view.schema)
    names = view.schema.names
    others = [name for name in names if name not in batch.schema.names]
    values: dict[str, pa.Array] = {}
    if others:
        columns = {name: format_path([name]) for name in others}
        is_moved = addresses != NO_ADDRESS
        table = take_addresses(view, addresses[is_moved], projection_of(view, columns))
        slots = pa.array(np.cumsum(is_moved) - 1, mask=~is_moved)
        values = {name: table.column(name).combine_chunks().take(slots) for name in others}
    arrays = list[pa.Array]()
    for name in names:
        array = values[name] if name in others else batch.column(name)
        data_type = schema.field(name).type
        arrays.append(array if array.type == data_type else array.cast(data_type))
    return pa.RecordBatch.from_arrays(arrays, names)
