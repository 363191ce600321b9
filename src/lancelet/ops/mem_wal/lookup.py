"""Looking a key up in a table and its shards: from the newest to the oldest, until it is found.

    generation 3    bloom filter: not there      nothing else is read
    generation 2    bloom filter: may be         keys: 7 is nowhere
    generation 1    bloom filter: may be         keys: 7 is row 4, deleted    the answer is no row
    base            not asked

The keys of a flushed table lie beside it in their order, with the row of each; every row of a key
is there, of which the last counts. A table without them is scanned. Filters are asked for keys of
types of which they hash the values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.errors import ObjectNotFoundError
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import IsNull, OneOf
from lancelet.index.scalar.btree.kind import BTree
from lancelet.kernels import probe_filters
from lancelet.ops.mem_wal.keys import are_filtered, are_ordered, key_hashes, ordered_keys
from lancelet.ops.mem_wal.merged import MergedRead, Projection, tables_to_read
from lancelet.ops.mem_wal.reconcile import TOMBSTONE
from lancelet.ops.mem_wal.shard import Shard
from lancelet.ops.mem_wal.sstable import BLOOM_FILTER, KEYS_FOLDER, open_sstable
from lancelet.query.execute import execute_to_table
from lancelet.query.plan import plan_scan, projection_of
from lancelet.query.scan_options import ScanOptions
from lancelet.query.take import take_addresses
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.table.snapshot import Snapshot

_NOWHERE: Final = -1
_TOP_BYTES: Final = 1 << 27
"""Larger filters are not asked: no writer makes them."""


def look_up(read: MergedRead, key: pa.Table, where: str, paths: Sequence[str] | None) -> pa.Table:
    """Return columns of the row that has a key, if there is one.

    `key` has the columns of the key with one value each, and `where` is true for it alone.
    """
    schema = read.base.schema.to_arrow()
    projection = Projection.of(read.base.schema, paths, read.keys)
    names = projection.names
    plain = pa.schema([schema.field(name).remove_metadata() for name in names])
    whole = None
    stored = [field.name for field in read.base.schema.primary_key]
    if stored and set(key.column_names) == set(stored):
        columns = [key[name].cast(schema.field(name).type) for name in stored]
        whole = pa.Table.from_arrays(columns, stored)
    for shard, path in _newest_first(read):
        rows = _rows_of_key(read, shard, path, whole, where)
        if len(rows):
            is_gone = TOMBSTONE in rows.column_names and rows[TOMBSTONE][-1].as_py()
            newest = rows.slice(len(rows) - (not is_gone), 1)
            return projection.prune(newest.select(names).cast(plain))
    rows = execute_to_table(plan_scan(read.base, ScanOptions(columns=tuple(names), filter=where)))
    return projection.prune(rows.cast(plain))


def _rows_of_key(
    read: MergedRead, shard: Shard, path: str, key: pa.Table | None, where: str
) -> pa.Table:
    """Return the rows that a flushed table has of a key, deleted or not."""
    if key is not None and are_filtered(key.schema) and not _may_have(shard, path, key_hashes(key)):
        return pa.table({})
    table = open_sstable(shard, path, read.base.schema)
    is_ordered = key is not None and are_ordered(key.schema)
    place = _last_place(table, ordered_keys(key)) if is_ordered else None
    if place is None:
        return execute_to_table(plan_scan(table, ScanOptions(filter=where)))
    if place == _NOWHERE:
        return pa.table({})
    (fragment,) = table.fragments
    addresses = addresses_of(fragment.id, np.array([place], np.int64))
    return take_addresses(table, addresses, projection_of(table, None))


def _last_place(table: Snapshot, key: pa.Array) -> int | None:
    """Return the last row of a key by the keys beside a table; None if there are none."""
    folder = SegmentFolder(table.location.store, KEYS_FOLDER)
    try:
        segment = BTree().open(folder, b"")
    except ObjectNotFoundError:
        return None
    question = IsNull() if key.null_count else OneOf(key)
    places = segment.search(question).rows.listed()
    return int(places.max()) if len(places) else _NOWHERE


def _newest_first(read: MergedRead) -> Iterator[tuple[Shard, str]]:
    """Yield the flushed tables to look in; a key is in one shard only."""
    for shard, generations in tables_to_read(read):
        for _, path in reversed(generations):
            yield shard, path


def _may_have(shard: Shard, path: str, hashes: UInt64s) -> bool:
    """Ask the filter of a flushed table; without one it may have anything."""
    try:
        data = np.frombuffer(shard.store.read(f"{path}/{BLOOM_FILTER}"), np.uint8)
    except ObjectNotFoundError:
        return True
    if not 0 < len(data) <= _TOP_BYTES:
        return True
    answers = probe_filters(data, np.zeros(1, np.int64), np.array([len(data)], np.int64), hashes)
    return bool(answers.any())
