"""Merge flushed rows into the table, one generation at a time.

    generation 1    1 a   2 b             upsert 1 2, recorded as merged up to 1 by the same commit
    generation 2    2 deleted   3 c       delete 2, then upsert 3, recorded up to 2

Deletions are committed first, in a separate commit. The flushed table, which contains the same
deletions, remains visible until the second commit. Concurrent merges of a shard are supported:
generations that are already merged are skipped and do not delete newer rows. After a conflict, the
flushed table is read again, since its columns may have been renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

import pyarrow as pa

from lancelet.change.dry_run import ChangeReport, dry_run
from lancelet.change.merge.execute import merge_rows, report_merge
from lancelet.change.merge.spec import Matched, MergeSpec
from lancelet.change.moved_rows import RowFiles, write_rows
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.change.rows import RowStream
from lancelet.errors import CommitConflictError, NotFoundError
from lancelet.format.operation import CompactedSsTable, Update
from lancelet.format.shard_manifest import TOMBSTONE, ShardManifest, SsTable
from lancelet.memwal.discovery import latest_shards
from lancelet.memwal.shard import Shard
from lancelet.memwal.sstable import open_sstable
from lancelet.memwal.state import mem_wal_state, require_mem_wal
from lancelet.scan.execute import execute_to_table
from lancelet.scan.plan import plan_scan
from lancelet.scan.scan_options import ScanOptions
from lancelet.table.apply.mem_wal import StaleCompactionError, check_generations
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.values import dataclass

_NO_RETRIES: Final = Retries(max_retries=0)
"""Conflicts are not retried by the commit, because the flushed table must be read again."""


@dataclass(frozen=True, slots=True)
class CompactedLog:
    """The merged flushed tables, and the number of their rows and deletions."""

    sstables: int = 0
    rows: int = 0
    deletions: int = 0


def compact_log(snapshot: Snapshot) -> tuple[Snapshot, CompactedLog]:
    """Merge all flushed rows into the table, and return the resulting version."""
    require_mem_wal(snapshot)
    current, done = open_snapshot(snapshot.location), CompactedLog()
    for shard in latest_shards(current):
        for table in sorted(shard.sstables, key=lambda each: each.generation):
            current, merged = _merge(current, shard, table)
            done = CompactedLog(
                done.sstables + merged.sstables,
                done.rows + merged.rows,
                done.deletions + merged.deletions,
            )
    return current, done


def unmerged_tables(snapshot: Snapshot) -> list[SsTable]:
    """Return the flushed tables that are not merged into a version; none without a log."""
    state = mem_wal_state(snapshot)
    if state is None:
        return []
    return [
        table
        for shard in latest_shards(snapshot)
        for table in shard.sstables
        if table.generation > state.compacted.get(shard.shard_id, 0)
    ]


def report_compaction(snapshot: Snapshot) -> ChangeReport:
    """Return the effect of a merge, computed separately for each flushed table."""
    require_mem_wal(snapshot)
    current = open_snapshot(snapshot.location)
    reports = []
    for shard in latest_shards(current):
        for table in shard.sstables:
            if _is_merged(current, shard, table):
                continue
            live, deleted = _rows(current, shard, table)
            merged = CompactedSsTable(shard.shard_id, table.generation)
            if not current.schema.primary_key:
                append = partial(_append, live=live, sstable=merged)
                reports.append(dry_run(current, append, len(live)))
                continue
            merges = _merges(current, live, deleted, merged)
            reports += [report_merge(current, stream, spec) for stream, spec in merges]
    return ChangeReport(
        "CompactMemWal",
        sum(each.rows for each in reports),
        sum(each.files for each in reports),
        sum(each.bytes for each in reports),
        tuple(reason for each in reports for reason in each.conflicts),
    )


def _merge(
    current: Snapshot, shard: ShardManifest, table: SsTable
) -> tuple[Snapshot, CompactedLog]:
    def attempt(latest: Snapshot) -> tuple[Snapshot, CompactedLog]:
        if _is_merged(latest, shard, table):
            return latest, CompactedLog()
        live, deleted = _rows(latest, shard, table)
        merged = CompactedSsTable(shard.shard_id, table.generation)
        return _publish(latest, live, deleted, merged), CompactedLog(1, len(live), len(deleted))

    try:
        return with_retries(current, attempt, Retries())
    except (StaleCompactionError, CommitConflictError, NotFoundError):
        latest = open_snapshot(current.location)
        if not _is_merged(latest, shard, table):
            raise
        return latest, CompactedLog()


def _rows(current: Snapshot, shard: ShardManifest, table: SsTable) -> tuple[pa.Table, pa.Table]:
    """Return the rows and the deleted keys of a flushed table, in the schema of the table."""
    schema = current.schema.to_arrow()
    opened = open_sstable(Shard(current.location, shard.shard_id), table.path, current.schema)
    rows = execute_to_table(plan_scan(opened, ScanOptions()))
    tombstones = rows.column(TOMBSTONE) if TOMBSTONE in rows.schema.names else None
    deleted = rows.slice(0, 0) if tombstones is None else rows.filter(tombstones)
    live = rows if tombstones is None else rows.filter(pa.compute.invert(tombstones))
    return live.select(schema.names).cast(schema), deleted


def _publish(
    current: Snapshot, live: pa.Table, deleted: pa.Table, sstable: CompactedSsTable
) -> Snapshot:
    if not current.schema.primary_key:
        return _append(current, live, sstable)
    for stream, spec in _merges(current, live, deleted, sstable):
        merged = merge_rows(current, stream, spec, retries=_NO_RETRIES).snapshot
        if spec.unmerged and merged.schema.fields != current.schema.fields:
            raise CommitConflictError(
                "the columns of the table changed while a flushed table was merged",
                retryable=True,
                generation=sstable.generation,
                shard=str(sstable.shard_id),
            )
        current = merged
    return current


def _merges(
    current: Snapshot, live: pa.Table, deleted: pa.Table, sstable: CompactedSsTable
) -> Iterator[tuple[RowStream, MergeSpec]]:
    """Yield the commits that merge a flushed table: deletions, then the recorded upsert."""
    keys = tuple(field.name for field in current.schema.primary_key)
    if len(deleted):
        found = deleted.select(keys).cast(live.select(keys).schema)
        yield _stream(found), MergeSpec(keys, matched=Matched.DELETE, unmerged=(sstable,))
    yield (
        _stream(live),
        MergeSpec(keys, matched=Matched.UPDATE, inserts=True, compacted=(sstable,)),
    )


def _append(snapshot: Snapshot, live: pa.Table, sstable: CompactedSsTable) -> Snapshot:
    """Append rows without a key, and record their generation as merged in the same commit."""
    check_generations(snapshot.indices.indices, (sstable,))
    fragments = write_rows(snapshot, live.to_batches(), RowFiles()) if len(live) else ()
    return publish(snapshot, Update(new_fragments=fragments, compacted_sstables=(sstable,)))


def _stream(rows: pa.Table) -> RowStream:
    return RowStream(rows.schema, iter(rows.to_batches()), is_in_memory=True)


def _is_merged(snapshot: Snapshot, shard: ShardManifest, table: SsTable) -> bool:
    return require_mem_wal(snapshot).compacted.get(shard.shard_id, 0) >= table.generation
