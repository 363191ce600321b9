"""Looking a key up in a table and its shards: from the newest to the oldest, until it is found.

    generation 3    bloom filter: not there      nothing else is read
    generation 2    bloom filter: may be         id = 7: no row
    generation 1    bloom filter: may be         id = 7: deleted        the answer is no row
    base            not asked

Rows of a flushed table are found by its index of the key, if it has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet.errors import ObjectNotFoundError
from lancelet.kernels import ask_filters
from lancelet.ops.mem_wal.keys import key_hashes
from lancelet.ops.mem_wal.merged import MergedRead, tables_to_read
from lancelet.ops.mem_wal.shard import Shard
from lancelet.ops.mem_wal.sstable import BLOOM_FILTER, TOMBSTONE, open_sstable
from lancelet.query.execute import execute_to_table
from lancelet.query.plan import plan_scan
from lancelet.query.scan_options import ScanOptions
from lancelet.rowids.address import UInt64s

_TOP_BYTES: Final = 1 << 27
"""Larger filters are not asked: no writer makes them."""


def look_up(read: MergedRead, key: pa.Table, where: str, names: Sequence[str]) -> pa.Table:
    """Return columns of the row that has a key, if there is one.

    `key` has the columns of the primary key with one value each, and `where` is true for it alone.
    """
    schema = read.base.schema.to_arrow()
    plain = pa.schema([schema.field(name).remove_metadata() for name in names])
    hashes = None
    if set(key.column_names) == set(read.keys):
        columns = [key[name].cast(schema.field(name).type) for name in read.keys]
        hashes = key_hashes(pa.Table.from_arrays(columns, read.keys))
    options = ScanOptions(filter=where)
    for shard, path in _newest_first(read):
        if hashes is not None and not _may_have(shard, path, hashes):
            continue
        rows = execute_to_table(plan_scan(open_sstable(shard, path), options))
        if len(rows):
            is_gone = TOMBSTONE in rows.column_names and rows[TOMBSTONE][-1].as_py()
            return rows.slice(len(rows) - (not is_gone), 1).select(names).cast(plain)
    rows = execute_to_table(plan_scan(read.base, ScanOptions(columns=tuple(names), filter=where)))
    return rows.cast(plain)


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
    answers = ask_filters(data, np.zeros(1, np.int64), np.array([len(data)], np.int64), hashes)
    return bool(answers.any())
