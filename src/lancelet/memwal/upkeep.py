"""Delete files of merged rows, and seal shards.

    log       1 rows   2 fence   3 rows   4 rows       replayed up to 3: 1 and 3 are deleted
        tables    generation 1, 2, 3                       all versions contain 1 and 2: deleted

Flushed tables are removed from the state of a shard before they are deleted. This requires a claim
of the shard; the next write of an open writer fails.

Fences are not deleted, because the fenced writer may still write at their position and must fail.
The states of a shard also remain, even if the log is dropped. A flushed table is deleted when all
versions of the table and all maintained indices contain its rows; each commit records the
generations that indices cover.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import replace
from typing import Final

from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import MEM_WAL_INDEX
from lancelet.format.operation import CreateIndex
from lancelet.format.shard_manifest import (
    SEALED,
    ShardManifest,
    SsTable,
    wal_entry_position,
)
from lancelet.memwal.shard import Shard, list_shards
from lancelet.memwal.state import MemWalState, fence_shards, mem_wal_state, require_mem_wal
from lancelet.table.commit import refresh_snapshot
from lancelet.table.manifests import list_versions
from lancelet.table.snapshot import Snapshot, open_entries
from lancelet.upkeep.indexing.drop import find_segments
from lancelet.values import dataclass

_TABLE: Final = re.compile(r"[0-9a-f]{8}_gen_[0-9]+")


class UnmergedShardsError(InvalidInputError, OSError):
    """Rows of a shard are only in the log or in flushed tables."""


@dataclass(frozen=True, slots=True)
class CollectedLog:
    """The number of deleted log entries and flushed tables."""

    wal_entries: int = 0
    sstables: int = 0


def collect_log(snapshot: Snapshot) -> CollectedLog:
    """Delete unneeded files of all shards."""
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
    """Prevent further writes to a shard, and return its last state.

    Raises:
        InvalidInputError: The log contains rows that are not flushed.
        SealedError: The shard is already sealed.
    """
    shard = Shard(snapshot.location, shard_id)
    if shard.latest() is None:
        raise InvalidInputError("the shard does not exist", shard=str(shard_id))
    # The claim fences a current writer, so that no entries are added after the check.
    claimed = shard.claim(0)
    unflushed = [each.position for each in shard.entries(claimed.replay_after) if not each.is_fence]
    if unflushed:
        raise InvalidInputError(
            "the log of the shard has rows that are in no table; open a writer, which replays "
            "them, and close it",
            shard=str(shard_id),
            entries=unflushed[:10],
        )
    return shard.publish(replace(claimed, version=claimed.version + 1, status=SEALED))


def drop_log(snapshot: Snapshot) -> Snapshot:
    """Drop the log of a table and the files of its shards, and return the version without it.

    Raises:
        UnmergedShardsError: A shard contains unmerged rows; the log is not dropped.
        LeftShardsError: The log was dropped, but another library created a shard concurrently.
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
        # Not retried by the commit: a shard that was recorded concurrently must be checked.
        log = find_segments(current, MEM_WAL_INDEX)
        return publish(current, CreateIndex((), log)), shards

    dropped, shards = with_retries(snapshot, attempt, Retries())
    for shard_id in shards:
        shard = Shard(snapshot.location, shard_id)
        manifest = shard.latest()
        # An active shard belongs to a log that was created concurrently.
        if manifest is not None and not manifest.is_active:
            _delete_tables(shard, manifest, manifest.current_generation)
            _delete_entries(shard, manifest)
    late = set(list_shards(dropped.location)).difference(shards)
    if late and mem_wal_state(refresh_snapshot(dropped)) is None:
        # Other libraries do not record the shards that they create.
        fence_shards(dropped, late)
    return dropped


def _check_merged(snapshot: Snapshot, shard_id: uuid.UUID, merged: int) -> None:
    manifest = Shard(snapshot.location, shard_id).latest()
    tables = () if manifest is None else manifest.sstables
    unmerged = [each.generation for each in tables if each.generation > merged]
    if unmerged:
        raise UnmergedShardsError(
            "flushed tables of the shard are not merged; merge them first",
            shard=str(shard_id),
            generations=unmerged,
        )


def _compacted_everywhere(snapshot: Snapshot) -> dict[uuid.UUID, int]:
    """Return the last generation of each shard that all versions and all indices contain."""
    least: dict[uuid.UUID, int] | None = None
    location = snapshot.location
    for version in open_entries(location, list_versions(location.store)):
        state = mem_wal_state(version)
        if state is None:
            continue  # The version is older than the log.
        own = _in_all_indices(version, state)
        if least is None:
            least = own
        least = {each: min(least[each], own[each]) for each in least.keys() & own.keys()}
    return least or {}


def _in_all_indices(version: Snapshot, state: MemWalState) -> dict[uuid.UUID, int]:
    """Return the last generation of each shard that a version and its indices contain.

    An index without recorded generations may not contain any.
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
    compacted_tables = [table for table in manifest.sstables if table.generation <= compacted]
    if not compacted_tables:
        return 0
    # Remove the tables from the state first, so that readers do not open deleted tables.
    own = manifest if not manifest.is_active else shard.claim(manifest.spec_id)
    left = tuple(table for table in own.sstables if table.generation > compacted)
    shard.publish(replace(own, version=own.version + 1, sstables=left))
    for table in compacted_tables:
        shard.store.delete_folder(table.path)
    _delete_attempts(shard, own, left)
    return len(compacted_tables)


def _delete_attempts(shard: Shard, manifest: ShardManifest, tables: tuple[SsTable, ...]) -> None:
    """Delete flushed tables that were never published.

    The shard was just claimed, so that earlier writers can no longer publish a table.
    """
    referenced = {each.path for each in (*manifest.sstables, *tables)}
    for folder in shard.store.list_delimited("").folders:
        path = folder.rstrip("/").rpartition("/")[2]
        if _TABLE.fullmatch(path) and path not in referenced:
            shard.store.delete_folder(path)
