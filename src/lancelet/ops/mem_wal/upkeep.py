"""What is left of a write-ahead log when its rows are in the table: deleting files, and sealing.

    log       1 rows   2 fence   3 rows   4 rows       replayed up to 3: 1 and 3 are deleted
    tables    generation 1, 2, 3                       every version has up to 2: these are deleted

The state of a shard forgets its tables before they are deleted. For that the shard is claimed, as
by a writer; one that is open finds out when it writes next.

A fence stays, since the writer it is for may still try to write at its position and has to find
it taken; so do the states of a shard, also when the log is dropped. A flushed table stays while any
version of the table has not its rows, and as long as an index that shards maintain may not have
them: each commit notes how far indices are.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Final

from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import MEM_WAL_INDEX
from lancelet.format.operation import CreateIndex
from lancelet.format.shard_manifest import (
    SEALED,
    ShardManifest,
    SsTable,
    wal_entry_position,
)
from lancelet.ops.indexing.drop import find_segments
from lancelet.ops.mem_wal.shard import Shard, list_shards
from lancelet.ops.mem_wal.state import (
    MemWalState,
    fence_shards,
    mem_wal_state,
    require_mem_wal,
)
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.table.commit import refresh_snapshot
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import Snapshot, open_entries
from lancelet.values import dataclass

_TABLE: Final = re.compile(r"[0-9a-f]{8}_gen_[0-9]+")


class UnmergedShardsError(InvalidInputError, OSError):
    """Rows of a shard are in the log or in flushed tables alone."""


@dataclass(frozen=True, slots=True)
class CollectedLog:
    """What was deleted: entries of logs, and flushed tables."""

    wal_entries: int = 0
    sstables: int = 0


def collect_log(snapshot: Snapshot) -> CollectedLog:
    """Delete the files of all shards that nobody will read any more."""
    entries = tables = 0
    compacted = _compacted_everywhere(snapshot)
    for shard_id in list_shards(snapshot.location):
        shard = Shard(snapshot.location, shard_id)
        manifest = shard.latest()
        if manifest is None:
            continue
        entries += _delete_entries(shard, manifest)
        tables += _delete_tables(shard, manifest, compacted.get(shard_id, 0))
    return CollectedLog(entries, tables)


def seal_shard(snapshot: Snapshot, shard_id: uuid.UUID) -> ShardManifest:
    """See to it that nobody writes a shard any more, and return its last state.

    Raises:
        InvalidInputError: The log has rows that are in no table yet.
        SealedError: The shard is sealed already.
    """
    shard = Shard(snapshot.location, shard_id)
    if shard.latest() is None:
        raise InvalidInputError("there is no such shard", shard=str(shard_id))
    # Claiming fences a writer there may be, so nothing is added behind what is looked at.
    claimed = shard.claim(0)
    waiting = [each.position for each in shard.entries(claimed.replay_after) if not each.is_fence]
    if waiting:
        raise InvalidInputError(
            "the log of the shard has rows that are in no table; open a writer, which replays "
            "them, and close it",
            shard=str(shard_id),
            entries=waiting[:10],
        )
    return shard.publish(replace(claimed, version=claimed.version + 1, status=SEALED))


def drop_log(snapshot: Snapshot) -> Snapshot:
    """Take the log from a table, with what its shards hold, and return the version without it.

    Raises:
        UnmergedShardsError: Rows of a shard are not in the table, which keeps its log.
        LeftShardsError: The log is gone, but another library began a shard meanwhile.
    """

    def attempt(current: Snapshot) -> tuple[Snapshot, list[uuid.UUID]]:
        merged = require_mem_wal(current).compacted
        shards = list_shards(current.location)
        for shard_id in shards:
            _check_merged(current, shard_id, merged.get(shard_id, 0))
        for shard_id in shards:
            manifest = Shard(current.location, shard_id).latest()
            if manifest is not None and manifest.is_active:
                seal_shard(current, shard_id)
                _check_merged(current, shard_id, merged.get(shard_id, 0))
        # Not done again on its own: a shard that was noted meanwhile has to be looked at.
        log = find_segments(current, MEM_WAL_INDEX)
        return publish(current, CreateIndex((), log)), shards

    dropped, shards = with_retries(snapshot, attempt, Retries())
    for shard_id in shards:
        shard = Shard(snapshot.location, shard_id)
        manifest = shard.latest()
        # One that is active is of a log that others began meanwhile.
        if manifest is not None and not manifest.is_active:
            _delete_tables(shard, manifest, manifest.current_generation)
            _delete_entries(shard, manifest)
    late = set(list_shards(dropped.location)).difference(shards)
    if late and mem_wal_state(refresh_snapshot(dropped)) is None:
        # Other libraries do not note the shards that they begin.
        fence_shards(dropped, late)
    return dropped


def _check_merged(snapshot: Snapshot, shard_id: uuid.UUID, merged: int) -> None:
    manifest = Shard(snapshot.location, shard_id).latest()
    tables = () if manifest is None else manifest.sstables
    waiting = [each.generation for each in tables if each.generation > merged]
    if waiting:
        raise UnmergedShardsError(
            "flushed tables of the shard are not merged; merge them first",
            shard=str(shard_id),
            generations=waiting,
        )


def _compacted_everywhere(snapshot: Snapshot) -> dict[uuid.UUID, int]:
    """Return the last generation of each shard that is in all versions and all indices."""
    least: dict[uuid.UUID, int] | None = None
    location = snapshot.location
    for version in open_entries(location, list_versions(location.store)):
        state = mem_wal_state(version)
        if state is None:
            continue  # from before the table had a log
        own = _in_all_indices(version, state)
        if least is None:
            least = own
        least = {each: min(least[each], own[each]) for each in least.keys() & own.keys()}
    return least or {}


def _in_all_indices(version: Snapshot, state: MemWalState) -> dict[uuid.UUID, int]:
    """Return the last generation of each shard that is in a version and the indices it needs.

    An index of which nothing is noted may lack anything.
    """
    names = {index.name for index in version.indices.indices if not index.is_system}
    if state.maintains_all is False or state.maintained_indexes:
        names &= set(state.maintained_indexes)
    return {
        shard: min([generation, *(state.caught_up.get(name, {}).get(shard, 0) for name in names)])
        for shard, generation in state.compacted.items()
    }


def _delete_entries(shard: Shard, manifest: ShardManifest) -> int:
    deleted = 0
    for info in list(shard.store.list("wal")):
        position = wal_entry_position(info.path)
        if position is None or position > manifest.replay_after or shard.is_fence(position):
            continue
        shard.store.delete(info.path)
        deleted += 1
    return deleted


def _delete_tables(shard: Shard, manifest: ShardManifest, compacted: int) -> int:
    gone = [table for table in manifest.sstables if table.generation <= compacted]
    if not gone:
        return 0
    # Nobody may be led to a table that is not there, so the state forgets them first.
    own = manifest if not manifest.is_active else shard.claim(manifest.spec_id)
    left = tuple(table for table in own.sstables if table.generation > compacted)
    shard.publish(replace(own, version=own.version + 1, sstables=left))
    for table in gone:
        shard.store.delete_folder(table.path)
    _delete_attempts(shard, own, left)
    return len(gone)


def _delete_attempts(shard: Shard, manifest: ShardManifest, tables: tuple[SsTable, ...]) -> None:
    """Delete what writers left that could not publish what they flushed.

    The shard was just claimed, so whoever still flushes to a folder cannot publish it any more.
    """
    known = {each.path for each in (*manifest.sstables, *tables)}
    for folder in shard.store.list_delimited("").folders:
        path = folder.rstrip("/").rpartition("/")[2]
        if _TABLE.fullmatch(path) and path not in known:
            shard.store.delete_folder(path)
