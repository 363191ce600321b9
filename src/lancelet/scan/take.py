"""Read rows by address, in any order and with duplicates.

For example:

    addresses   2<<32|5, 7, 2<<32|1        grouped   fragment 2: 5, 1   fragment 0: 7
    rows read   by fragment, then returned in the requested order
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
from lancelet.rowids.address import (
    NO_ADDRESS,
    OFFSET_BITS,
    UInt64s,
    addresses_of,
    group_by_fragment,
    offsets_of,
)
from lancelet.scan.nodes.source import FragmentSource, waits_for_storage
from lancelet.scan.projection import Projection, without_columns
from lancelet.scan.row_columns import live_rows_before
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot

_FEW_ROWS: Final = 256
"""Up to this number of rows, fragments are read in the calling thread."""


class RowNotFoundError(InvalidInputError, NotFoundError, IndexError, OverflowError, OSError):
    """A row index, id or address does not refer to a live row."""


def addresses_at(snapshot: Snapshot, indices: Int64s) -> UInt64s:
    """Return the addresses of rows, given as indices among the live rows of the version."""
    before = live_rows_before(snapshot)
    if len(indices) and (indices.min() < 0 or indices.max() >= before[-1]):
        outside = indices[(indices < 0) | (indices >= before[-1])]
        raise RowNotFoundError(
            "row index out of range", row=int(outside[0]), num_rows=int(before[-1])
        )
    if len(before) == 2 and snapshot.fragments[0].deletion_file is None:
        return addresses_of(snapshot.fragments[0].id, indices)
    fragment_indices = np.searchsorted(before, indices, side="right") - 1
    addresses = np.empty(len(indices), np.uint64)
    for fragment_index in np.unique(fragment_indices).tolist():
        fragment = snapshot.fragments[fragment_index]
        chosen = fragment_indices == fragment_index
        offsets = indices[chosen] - before[fragment_index]
        if fragment.deletion_file is not None:
            offsets = snapshot.deletions(fragment).physical_offsets(offsets)
        addresses[chosen] = addresses_of(fragment.id, offsets)
    return addresses


def take_indices(snapshot: Snapshot, indices: Int64s, projection: Projection) -> pa.Table:
    """Return rows in the given order, by their indices among the live rows of the version."""
    found = _within_one(snapshot, indices)
    if found is None:
        return take_addresses(snapshot, addresses_at(snapshot, indices), projection)
    fragment_index, offsets = found
    with snapshot.translating_missing_files():
        source = FragmentSource(snapshot, snapshot.fragments[fragment_index], with_deleted=False)
        if source.fragment.deletion_file is not None:
            offsets = source.hidden.physical_offsets(offsets)
        return pa.Table.from_batches([take_of_source(projection, (source, offsets))])


def _within_one(snapshot: Snapshot, indices: Int64s) -> tuple[int, Int64s] | None:
    """Return the index of the fragment that contains all rows, and the row indices within it.

    None if the rows are in several fragments.
    """
    if not len(indices):
        return None
    before = live_rows_before(snapshot)
    low, high = (indices[0], indices[0]) if len(indices) == 1 else (indices.min(), indices.max())
    fragment_index = int(before.searchsorted(low, side="right")) - 1
    if low < 0 or high >= before[-1] or high >= before[fragment_index + 1]:
        return None
    return fragment_index, indices - before[fragment_index] if fragment_index else indices


def live_addresses(snapshot: Snapshot, row_ids: UInt64s) -> UInt64s:
    """Return the addresses of the live rows with the given row ids, in order."""
    if snapshot.manifest.uses_stable_row_ids:
        found = row_id_index_of(snapshot).addresses(row_ids)
        present: UInt64s = found[found != NO_ADDRESS]
        return present
    is_live = np.zeros(len(row_ids), np.bool_)
    fragment_ids = set(snapshot.fragments.ids.tolist())
    offsets = offsets_of(row_ids)
    for fragment_id, indices in group_by_fragment(row_ids).items():
        if fragment_id in fragment_ids:
            fragment = snapshot.fragments.by_id(fragment_id)
            live = offsets[indices] < snapshot.physical_rows(fragment)
            live &= ~np.isin(offsets[indices], snapshot.deletions(fragment).to_array())
            is_live[indices] = live
    live_ids: UInt64s = row_ids[is_live]
    return live_ids


def take_addresses(snapshot: Snapshot, addresses: UInt64s, projection: Projection) -> pa.Table:
    """Return the rows at addresses, in the given order."""
    with snapshot.translating_missing_files():
        return _taken(snapshot, addresses, projection)


def _taken(snapshot: Snapshot, addresses: UInt64s, projection: Projection) -> pa.Table:
    schema = projection.schema
    if len(addresses):
        only = int(addresses[0]) >> OFFSET_BITS
        offsets = addresses - np.uint64(only << OFFSET_BITS)  # wraps around for smaller addresses
        if len(addresses) == 1 or int(offsets.max()) >> OFFSET_BITS == 0:
            task = only, offsets.view(np.int64)
            return pa.Table.from_batches([_take_of_fragment(snapshot, projection, task)])
    groups = group_by_fragment(addresses)
    if not groups:
        if not schema.names:
            return pa.Table.from_batches([without_columns(0)])
        # Empty tables created by Arrow lose extension types within lists.
        return pa.Table.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)
    waits = waits_for_storage(snapshot)
    within = offsets_of(addresses)
    tasks = ((number, within[indices]) for number, indices in groups.items())
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
    """Return rows of a fragment, in any order and with duplicates."""
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
