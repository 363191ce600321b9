"""What shards have beyond the table, in flushed tables and in the log, without claiming them."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from lancelet.io.pool import run_requests
from lancelet.ops.mem_wal.merged import MemoryRows, MergedRead, ShardTables, tables_of
from lancelet.ops.mem_wal.reconcile import plain_schema, reconcile_batch
from lancelet.ops.mem_wal.shard import Shard, list_shards
from lancelet.ops.mem_wal.state import require_mem_wal
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot


def fresh_read(location: TableLocation) -> MergedRead:
    """Return the latest version with all that its shards have at this moment.

    Of rows that a writer holds in memory, those that are in the log are there.

    Raises:
        NotInitializedError: The table lost its log, by being overwritten or restored, and shards
            have rows of what it was.
    """
    shards = [Shard(location, each) for each in list_shards(location)]
    seen = run_requests([partial(_seen, shard) for shard in shards])
    # The version comes last: what was merged since is known to it, and passed over.
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
    """Return the flushed tables of a shard and what its log has behind them."""
    latest = shard.latest()
    while latest is not None:
        entries = shard.entries(latest.replay_after)
        logged = [batch for entry in entries for batch in entry.batches]
        again = shard.latest()
        # What was flushed meanwhile may have been collected, and is no more in the log.
        if again is not None and again.replay_after == latest.replay_after:
            return tables_of(latest), logged
        latest = again
    return ShardTables(shard.shard_id), []
