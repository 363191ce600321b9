"""Read rows by address, in any order and with duplicates.

For example:

    addresses   2<<32|5, 7, 2<<32|1        grouped   fragment 2: 5, 1   fragment 0: 7
    rows read   by fragment, then returned in the requested order
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from lancelet.buffers import Int64s
from lancelet.encodings.take import (
    binary_of,
    empty_bytes,
    is_binary,
    scatter_rows,
    vector_bytes,
    vectors_of,
)
from lancelet.errors import InvalidInputError, NotFoundError
from lancelet.file.pool import PARALLEL_TASKS_MIN, map_ordered
from lancelet.file.rows import StoredValues
from lancelet.rowids.address import (
    NO_ADDRESS,
    OFFSET_BITS,
    UInt64s,
    addresses_of,
    group_by_fragment,
    offsets_by_fragment,
    offsets_of,
)
from lancelet.scan.nodes.source import FragmentSource, waits_for_storage
from lancelet.scan.projection import Projection, without_columns
from lancelet.scan.row_columns import live_rows_before
from lancelet.table.lineage import row_id_index_of
from lancelet.table.snapshot import Snapshot

_FEW_ROWS: Final = 256
"""Up to this number of rows, fragments are read in the calling thread."""


_NO_COLUMNS: Final[Mapping[str, pa.Array]] = {}


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


def take_stored(snapshot: Snapshot, indices: Int64s, projection: Projection) -> StoredRows:
    """Return rows by their indices among the live rows of the version, in storage order."""
    found = _within_one(snapshot, indices)
    if found is None:
        with snapshot.translating_missing_files():
            return _taken(snapshot, addresses_at(snapshot, indices), projection)
    fragment_index, offsets = found
    with snapshot.translating_missing_files():
        source = FragmentSource(snapshot, snapshot.fragments[fragment_index], with_deleted=False)
        if source.fragment.deletion_file is not None:
            offsets = source.hidden.physical_offsets(offsets)
        return _stored_of_source(projection, source, offsets)


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
        return _taken(snapshot, addresses, projection).to_table()


class StoredRows(NamedTuple):
    """Rows read in storage order, and their order in the request.

    Row i of the batches is row `positions[i]` of the request. The rows of a request that is already
    in storage order have no positions. Columns in `ordered` are not in the batches; they have the
    order of the request.
    """

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    positions: Int64s | None
    ordered: Mapping[str, pa.Array] = _NO_COLUMNS

    @property
    def nbytes(self) -> int:
        """The size in memory."""
        return sum(each.nbytes for each in (*self.batches, *self.ordered.values()))

    def chunks(self, name: str) -> list[pa.Array]:
        """Return the values of a column in storage order."""
        return [batch.column(name) for batch in self.batches]

    def column(self, name: str) -> pa.Array | pa.ChunkedArray:
        """Return the values of a column in the requested order."""
        if name in self.ordered:
            return self.ordered[name]
        chunks = self.chunks(name)
        if self.positions is None:
            return pa.chunked_array(chunks, self.schema.field(name).type)
        return scatter_rows(chunks, self.positions)

    def to_table(self) -> pa.Table:
        """Return the rows in the requested order."""
        if not self.ordered and (self.positions is None or not self.schema.names):
            return pa.Table.from_batches(self.batches, self.schema)
        columns = [self.column(name) for name in self.schema.names]
        return pa.Table.from_arrays(columns, schema=self.schema)


def _taken(snapshot: Snapshot, addresses: UInt64s, projection: Projection) -> StoredRows:
    if not len(addresses):
        return _no_rows(projection.schema)
    only = int(addresses[0]) >> OFFSET_BITS
    offsets = addresses - np.uint64(only << OFFSET_BITS)  # wraps around for smaller addresses
    if len(addresses) == 1 or int(offsets.max()) >> OFFSET_BITS == 0:
        source = FragmentSource(snapshot, snapshot.fragments.by_id(only), with_deleted=False)
        return _stored_of_source(projection, source, offsets.view(np.int64))
    positions = _storage_order(addresses)
    addresses = addresses if positions is None else addresses[positions]
    tasks = [
        (FragmentSource(snapshot, snapshot.fragments.by_id(number), with_deleted=False), within)
        for number, within in offsets_by_fragment(addresses).items()
    ]
    few = len(tasks) + 1 if len(addresses) <= _FEW_ROWS else PARALLEL_TASKS_MIN
    return _stored_of_tasks(
        projection, tasks, positions, waits=waits_for_storage(snapshot), few=few
    )


def _stored_of_source(
    projection: Projection, source: FragmentSource, offsets: Int64s
) -> StoredRows:
    # Kernels read few rows in any order at once.
    positions = _storage_order(offsets) if len(offsets) > _FEW_ROWS else None
    if positions is None:
        batch = take_of_source(projection, (source, offsets))
        return StoredRows(batch.schema, [batch], None)
    return _stored_of_tasks(projection, [(source, offsets[positions])], positions, waits=False)


def _stored_of_tasks(
    projection: Projection,
    tasks: Sequence[tuple[FragmentSource, Int64s]],
    positions: Int64s | None,
    *,
    waits: bool,
    few: int = PARALLEL_TASKS_MIN,
) -> StoredRows:
    """Read the rows of each fragment, in storage order."""
    ordered = {} if positions is None else _ordered_columns(projection, tasks, positions)
    rest = projection.without(ordered) if ordered else projection
    batches: list[pa.RecordBatch] = []
    if rest.columns or not ordered:
        batches += map_ordered(partial(take_of_source, rest), tasks, waits=waits, few=few)
    schema = projection.schema if ordered else batches[0].schema
    return StoredRows(schema, batches, positions, ordered)


def _ordered_columns(
    projection: Projection, tasks: Sequence[tuple[FragmentSource, Int64s]], positions: Int64s
) -> dict[str, pa.Array]:
    """Return vectors and binary values that are stored in the Arrow layout.

    They are copied once, from the files to the requested order.
    """
    found: dict[str, pa.Array] = {}
    if not projection.is_plain:
        return found
    for field, column in zip(projection.fields, projection.columns, strict=False):
        data_type = column.field.type
        if not (vector_bytes(data_type) or is_binary(data_type)):
            continue
        values: list[StoredValues] = []
        for source, offsets in tasks:
            stored = source.reader.stored_values(field, offsets)
            if stored is None:
                break
            values.append(stored)
        array = _ordered_array(data_type, values, positions) if len(values) == len(tasks) else None
        if array is not None:
            found[column.field.name] = array
    return found


def _ordered_array(
    data_type: pa.DataType, values: Sequence[StoredValues], positions: Int64s
) -> pa.Array | None:
    """Copy stored values to the requested order; None if their offsets would overflow."""
    sizes = np.empty(len(positions), np.int64)
    sizes[positions] = np.concatenate([each.slices.size for each in values])
    ends = np.zeros(len(positions) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    if pa.types.is_binary(data_type) and ends[-1] > np.iinfo(np.int32).max:
        return None
    data, first = empty_bytes(int(ends[-1])), 0
    starts = ends[positions]
    for each in values:
        stop = first + len(each.slices)
        each.copy_to(data, starts[first:stop])
        first = stop
    return (
        vectors_of(data_type, data) if vector_bytes(data_type) else binary_of(data_type, ends, data)
    )


def _storage_order(rows: Int64s | UInt64s) -> Int64s | None:
    """Return the permutation that sorts rows, or None if they are ascending.

    Ascending rows are decoded without another permutation per fragment.
    """
    return None if (rows[1:] >= rows[:-1]).all() else np.argsort(rows)


def _no_rows(schema: pa.Schema) -> StoredRows:
    if not schema.names:
        return StoredRows(schema, [without_columns(0)], None)
    # Empty tables created by Arrow lose extension types within lists.
    columns = [pa.nulls(0, each.type) for each in schema]
    return StoredRows(schema, [pa.RecordBatch.from_arrays(columns, schema=schema)], None)


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
        return projection.compute(without_columns(len(offsets)))
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return projection.compute(batch)
