"""Read unmerged rows from the flushed tables and logs of shards, without claiming the shards."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from lancelet.io.pool import run_requests
from lancelet.memwal.merged import MemoryRows, MergedRead, ShardTables, tables_of
from lancelet.memwal.reconcile import plain_schema, reconcile_batch
from lancelet.memwal.shard import Shard, list_shards
from lancelet.memwal.state import require_mem_wal
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot


def fresh_read(location: TableLocation) -> MergedRead:
    """Return the latest version together with the current rows of its shards.

    Rows in the memory of a writer are included if they are in the log.

    Raises:
        NotInitializedError: The table lost its log because it was overwritten or restored, and its
            shards contain rows of the earlier log.
    """
    shards = [Shard(location, each) for each in list_shards(location)]
    seen = run_requests([partial(_seen, shard) for shard in shards])
    # Read the version last, so that generations that were merged in between are skipped.
    base = open_snapshot(location)
    if any(tables.sstables or logged for tables, logged in seen):
        require_mem_wal(base)
    schema = plain_schema(base.schema)
    memory = []
    for tables, logged in seen:
        rows = [reconcile_batch(batch, base.schema) for batch in logged]
        memory.append(MemoryRows(tables.current_generation, pa.Table.from_batches(rows, schema)))
    return MergedRead(base, tuple(tables for tables, _ in seen), tuple(memory))


def _seen(shard: Shard) -> tuple[ShardTables, list[pa.RecordBatch]]:
    """Return the flushed tables of a shard and the log entries that are not flushed."""
    latest = shard.latest()
    while latest is not None:
        entries = shard.entries(latest.replay_after)
        logged = [batch for entry in entries for batch in entry.batches]
        again = shard.latest()
        # A concurrent flush may have removed entries from the log, so that they cannot be replayed.
        if again is not None and again.replay_after == latest.replay_after:
            return tables_of(latest), logged
        latest = again
    return ShardTables(shard.shard_id), []
