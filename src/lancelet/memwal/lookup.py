"""Look up a key in a table and its shards, from the newest to the oldest rows.

    generation 3    Bloom filter: absent         no keys are read
    generation 2    Bloom filter: may contain    keys: 7 is absent
    generation 1    Bloom filter: may contain    keys: 7 is row 4, deleted    the result is no row
    base            not searched

The sorted keys of a flushed table are stored in its folder, with the row offset of each. They
include all rows of a key, and the last row is the newest. A table without stored keys is scanned.
Bloom filters are only probed for key types whose values they hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.errors import ObjectNotFoundError
from lancelet.format.shard_manifest import TOMBSTONE
from lancelet.index.folder import SegmentFolder
from lancelet.index.query import IsNull, OneOf
from lancelet.index.scalar.btree.kind import BTree
from lancelet.kernels import probe_filters
from lancelet.memwal.keys import are_filtered, are_ordered, key_hashes, ordered_keys
from lancelet.memwal.merged import MergedRead, Projection, tables_to_read
from lancelet.memwal.shard import Shard
from lancelet.memwal.sstable import BLOOM_FILTER, KEYS_FOLDER, open_sstable
from lancelet.rowids.address import UInt64s, addresses_of
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan, projection_of
from lancelet.scan.scan_options import ScanOptions
from lancelet.scan.take import take_addresses
from lancelet.table.snapshot import Snapshot

_NOWHERE: Final = -1
_TOP_BYTES: Final = 1 << 27
"""The maximum size of a filter; larger filters are ignored, since no writer creates them."""


def lookup_row(
    read: MergedRead, key: pa.Table, condition: str, paths: Sequence[str] | None
) -> pa.Table:
    """Return columns of the row with a key, or an empty table.

    `key` contains one value for each key column, and `where` is a predicate that selects this key.
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
        rows = _rows_of_key(read, shard, path, whole, condition)
        if len(rows):
            is_deleted = TOMBSTONE in rows.column_names and rows[TOMBSTONE][-1].as_py()
            newest = rows.slice(len(rows) - (not is_deleted), 1)
            return projection.prune(newest.select(names).cast(plain))
    rows = execute_to_table(
        plan_scan(read.base, ScanOptions(columns=tuple(names), filter=condition))
    )
    return projection.prune(rows.cast(plain))


def _rows_of_key(
    read: MergedRead, shard: Shard, path: str, key: pa.Table | None, where: str
) -> pa.Table:
    """Return the rows of a flushed table with a key, including deleted rows."""
    if key is not None and are_filtered(key.schema) and not _may_have(shard, path, key_hashes(key)):
        return pa.table({})
    table = open_sstable(shard, path, read.base.schema)
    is_ordered = key is not None and are_ordered(key.schema)
    offset = _last_offset(table, ordered_keys(key)) if is_ordered else None
    if offset is None:
        return execute_to_table(plan_scan(table, ScanOptions(filter=where)))
    if offset == _NOWHERE:
        return pa.table({})
    (fragment,) = table.fragments
    addresses = addresses_of(fragment.id, np.array([offset], np.int64))
    return take_addresses(table, addresses, projection_of(table, None))


def _last_offset(table: Snapshot, key: pa.Array) -> int | None:
    """Return the last row offset of a key from the stored keys, or None if they do not exist."""
    folder = SegmentFolder(table.location.store, KEYS_FOLDER)
    try:
        segment = BTree().open(folder, b"")
    except ObjectNotFoundError:
        return None
    query = IsNull() if key.null_count else OneOf(key)
    offsets = segment.search(query).rows.listed()
    return int(offsets.max()) if len(offsets) else _NOWHERE


def _newest_first(read: MergedRead) -> Iterator[tuple[Shard, str]]:
    """Yield the flushed tables to search; each key belongs to a single shard."""
    for shard, generations in tables_to_read(read):
        for _, path in reversed(generations):
            yield shard, path


def _may_have(shard: Shard, path: str, hashes: UInt64s) -> bool:
    """Return whether a flushed table may contain a key, according to its Bloom filter if any."""
    try:
        data = np.frombuffer(shard.store.read(f"{path}/{BLOOM_FILTER}"), np.uint8)
    except ObjectNotFoundError:
        return True
    if not 0 < len(data) <= _TOP_BYTES:
        return True
    answers = probe_filters(data, np.zeros(1, np.int64), np.array([len(data)], np.int64), hashes)
    return bool(answers.any())
