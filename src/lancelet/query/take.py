"""Reading single rows, by address, in any order and as often as they are named.

addresses   2<<32|5, 7, 2<<32|1        grouped   fragment 2: 5, 1   fragment 0: 7
rows read   fragment by fragment, then put into the order that was asked for
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.take import scatter_rows
from lancelet.errors import InvalidInputError, NotFoundError
from lancelet.file.pool import PARALLEL_TASKS_MIN, map_ordered
from lancelet.query.nodes.source import FragmentSource, waits_for_storage
from lancelet.query.projection import Projection, without_columns
from lancelet.query.row_columns import live_rows_before
from lancelet.rowids.address import (
    NO_ADDRESS,
    OFFSET_BITS,
    UInt64s,
    addresses_of,
    group_by_fragment,
    offsets_of,
)
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot

_FEW_ROWS: Final = 256
"""So few rows are read by the thread that asks: to give them to others takes longer."""


class RowNotFoundError(InvalidInputError, NotFoundError, IndexError, OverflowError, OSError):
    """No live row has the number that was given."""


def addresses_at(snapshot: Snapshot, places: Int64s) -> UInt64s:
    """Return the addresses of rows, given their places among the live rows of the version."""
    before = live_rows_before(snapshot)
    if len(places) and (places.min() < 0 or places.max() >= before[-1]):
        outside = places[(places < 0) | (places >= before[-1])]
        raise RowNotFoundError(
            "row index out of range", row=int(outside[0]), num_rows=int(before[-1])
        )
    if len(before) == 2 and snapshot.fragments[0].deletion_file is None:
        return addresses_of(snapshot.fragments[0].id, places)
    which = np.searchsorted(before, places, side="right") - 1
    addresses = np.empty(len(places), np.uint64)
    for place in np.unique(which).tolist():
        fragment = snapshot.fragments[place]
        chosen = which == place
        offsets = places[chosen] - before[place]
        if fragment.deletion_file is not None:
            offsets = snapshot.deletions(fragment).physical_offsets(offsets)
        addresses[chosen] = addresses_of(fragment.id, offsets)
    return addresses


def take_places(snapshot: Snapshot, places: Int64s, projection: Projection) -> pa.Table:
    """Return the rows at places among the live rows of the version, in their order."""
    found = _within_one(snapshot, places)
    if found is None:
        return take_addresses(snapshot, addresses_at(snapshot, places), projection)
    place, offsets = found
    with snapshot.translating_missing_files():
        source = FragmentSource(snapshot, snapshot.fragments[place], with_deleted=False)
        if source.fragment.deletion_file is not None:
            offsets = source.hidden.physical_offsets(offsets)
        return pa.Table.from_batches([take_of_source(projection, (source, offsets))])


def _within_one(snapshot: Snapshot, places: Int64s) -> tuple[int, Int64s] | None:
    """Return the fragment, by its place, that has all rows, and which of its live rows they are.

    None if there is none.
    """
    if not len(places):
        return None
    before = live_rows_before(snapshot)
    low, high = (places[0], places[0]) if len(places) == 1 else (places.min(), places.max())
    place = int(before.searchsorted(low, side="right")) - 1
    if low < 0 or high >= before[-1] or high >= before[place + 1]:
        return None
    return place, places - before[place] if place else places


def live_addresses(snapshot: Snapshot, row_ids: UInt64s) -> UInt64s:
    """Return the addresses of the live rows with these ids, in order; others are left out."""
    if snapshot.manifest.uses_stable_row_ids:
        found = row_id_index_of(snapshot).addresses(row_ids)
        present: UInt64s = found[found != NO_ADDRESS]
        return present
    kept = np.zeros(len(row_ids), np.bool_)
    known = set(snapshot.fragments.ids.tolist())
    offsets = offsets_of(row_ids)
    for fragment_id, places in group_by_fragment(row_ids).items():
        if fragment_id in known:
            fragment = snapshot.fragments.by_id(fragment_id)
            live = offsets[places] < snapshot.physical_rows(fragment)
            live &= ~np.isin(offsets[places], snapshot.deletions(fragment).to_array())
            kept[places] = live
    live_ids: UInt64s = row_ids[kept]
    return live_ids


def take_addresses(snapshot: Snapshot, addresses: UInt64s, projection: Projection) -> pa.Table:
    """Return the rows at these addresses, in their order."""
    with snapshot.translating_missing_files():
        return _taken(snapshot, addresses, projection)


def _taken(snapshot: Snapshot, addresses: UInt64s, projection: Projection) -> pa.Table:
    schema = projection.schema
    if len(addresses):
        only = int(addresses[0]) >> OFFSET_BITS
        offsets = addresses - np.uint64(only << OFFSET_BITS)  # below the first is far behind it
        if len(addresses) == 1 or int(offsets.max()) >> OFFSET_BITS == 0:
            task = only, offsets.view(np.int64)
            return pa.Table.from_batches([_take_of_fragment(snapshot, projection, task)])
    groups = group_by_fragment(addresses)
    if not groups:
        if not schema.names:
            return pa.Table.from_batches([without_columns(0)])
        # Arrow's own empty tables have no extensions within lists.
        return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    waits = waits_for_storage(snapshot)
    within = offsets_of(addresses)
    tasks = ((number, within[places]) for number, places in groups.items())
    few = len(groups) + 1 if len(addresses) <= _FEW_ROWS else PARALLEL_TASKS_MIN
    take = partial(_take_of_fragment, snapshot, projection)
    batches = list(map_ordered(take, tasks, waits=waits, few=few))
    read_order = np.concatenate(list(groups.values()))
    if bool((read_order[1:] > read_order[:-1]).all()):
        return pa.Table.from_batches(batches)
    if not batches[0].num_columns:
        return pa.Table.from_batches(batches)
    columns = [
        scatter_rows([batch.column(number) for batch in batches], read_order)
        for number in range(batches[0].num_columns)
    ]
    return pa.Table.from_arrays(columns, schema=batches[0].schema)


def _take_of_fragment(
    snapshot: Snapshot, projection: Projection, task: tuple[int, Int64s]
) -> pa.RecordBatch:
    fragment_id, offsets = task
    source = FragmentSource(snapshot, snapshot.fragments.by_id(fragment_id), with_deleted=False)
    return take_of_source(projection, (source, offsets))


def take_of_source(projection: Projection, task: tuple[FragmentSource, Int64s]) -> pa.RecordBatch:
    """Return rows of a fragment, in any order and as often as they are named."""
    source, offsets = task
    columns: dict[str, pa.Array] = {}
    if projection.fields:
        arrays = source.take(projection.fields, offsets)
        if projection.is_plain and not projection.row_columns:
            return pa.RecordBatch.from_arrays(arrays, schema=projection.schema)
        columns.update(zip((field.name for field in projection.fields), arrays, strict=True))
    columns |= source.row_columns_at(projection.row_columns, offsets)
    if not columns:
        return without_columns(len(offsets))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return projection.compute(batch)
