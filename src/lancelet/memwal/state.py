"""The recorded state of a write-ahead log: its shard specifications and merged generations.

The state is the system index `__lance_mem_wal`. It is created once, and merges update the
generation of each shard.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from lancelet import surroundings
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import (
    MEM_WAL_INDEX,
    AnyDetails,
    IndexMetadata,
    uuid_to_proto,
)
from lancelet.format.operation import CreateIndex
from lancelet.format.protos import index_details_pb
from lancelet.format.shard_manifest import TOMBSTONE
from lancelet.format.wire import render_message
from lancelet.memwal.shard import Shard, list_shards
from lancelet.memwal.sharding import ShardingField, ShardingSpec
from lancelet.table.apply.mem_wal import (
    LOG_TYPE_URL,
    generations_by_shard,
    log_details,
    log_entry,
    with_log_details,
)
from lancelet.table.commit import refresh_snapshot
from lancelet.table.snapshot import Snapshot
from lancelet.upkeep.indexing.drop import find_segments
from lancelet.values import dataclass

WRITER_DEFAULTS: Final[Mapping[str, int | bool]] = {
    "enable_memtable": True,
    "durable_write": True,
    "max_wal_buffer_size": 10 << 20,
    "max_wal_flush_interval_ms": 100,
    "max_wal_persist_retries": 3,
    "wal_persist_retry_base_delay_ms": 50,
    "max_memtable_size": 256 << 20,
    "max_memtable_rows": 100_000,
    "max_memtable_batches": 8_000,
    "max_unflushed_memtable_bytes": 1 << 30,
    "manifest_scan_batch_size": 2,
    "backpressure_log_interval_ms": 30_000,
    "stats_log_interval_ms": 60_000,
}
"""The default options of writers."""


_AT_LEAST: Final = {
    "max_memtable_size": 1,
    "max_memtable_rows": 1,
    "max_memtable_batches": 1,
    "manifest_scan_batch_size": 1,
}
"""The minimum values of options; 0 for options that are not listed."""


class AlreadyInitializedError(InvalidInputError, OSError):
    """The table already has a write-ahead log."""


class LeftShardsError(InvalidInputError, OSError):
    """A table without a log contains shards of an earlier log."""


class NotInitializedError(InvalidInputError, OSError):
    """The table has no write-ahead log."""


@dataclass(frozen=True, slots=True)
class MemWalState:
    """The log state of a version.

    Attributes:
        num_shards: The number of shards, 0 if it is not fixed.
        specs: The shard specifications.
        maintained_indexes: The indices that shards build for their rows.
        maintains_all: Whether shards build all indices; None if it is not recorded.
        writer_defaults: The default options of writers, by name.
        compacted: The last merged generation of each shard.
        caught_up: The last indexed generation of each shard, by index name.
    """

    num_shards: int = 0
    specs: tuple[ShardingSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    maintains_all: bool | None = None
    writer_defaults: Mapping[str, str] = field(default_factory=dict)
    compacted: Mapping[uuid.UUID, int] = field(default_factory=dict)
    caught_up: Mapping[str, Mapping[uuid.UUID, int]] = field(default_factory=dict)


def mem_wal_state(snapshot: Snapshot) -> MemWalState | None:
    """Return the log state of a version, or None if the table has no log."""
    entry = log_entry(snapshot.indices.indices)
    if entry is None:
        return None
    proto = log_details(entry)
    return MemWalState(
        proto.num_shards,
        tuple(_spec(each) for each in proto.sharding_specs),
        tuple(proto.maintained_indexes),
        proto.maintain_all_indexes if proto.HasField("maintain_all_indexes") else None,
        dict(proto.writer_config_defaults),
        generations_by_shard(proto.compacted_sstables),
        {
            each.index_name: generations_by_shard(each.caught_up_generations)
            for each in proto.index_catchup
        },
    )


def require_mem_wal(snapshot: Snapshot) -> MemWalState:
    """Return the log state of a version; raise if the table has no log."""
    state = mem_wal_state(snapshot)
    if state is None:
        raise NotInitializedError(
            "MemWAL is not initialized on this dataset. Call initialize_mem_wal() first.",
            uri=snapshot.location.uri,
        )
    return state


def initialize_mem_wal(
    snapshot: Snapshot,
    specs: Sequence[ShardingSpec] = (),
    *,
    num_shards: int = 0,
    maintained: Sequence[str] | None = None,
    writer_config: Mapping[str, int | bool] | None = None,
) -> Snapshot:
    """Create a write-ahead log for a table."""
    check_settings(writer_config or {})
    # Do not fence the shards of a log that was created concurrently.
    snapshot = refresh_snapshot(snapshot)
    if mem_wal_state(snapshot) is not None:
        raise AlreadyInitializedError(
            "MemWAL is already initialized on this dataset.", uri=snapshot.location.uri
        )
    if TOMBSTONE in snapshot.schema.names:
        raise InvalidInputError(
            "the column name is reserved for deletion marks of shards; rename the column first",
            column=TOMBSTONE,
        )
    shards = list_shards(snapshot.location)
    fence_shards(snapshot, shards)
    for each in shards:
        Shard(snapshot.location, each).reopen()
    details = index_details_pb.MemWalIndexDetails(
        snapshot_ts_millis=surroundings.time_ns() // 1_000_000,
        num_shards=num_shards,
        maintained_indexes=maintained or (),
        maintain_all_indexes=maintained is None,
    )
    details.sharding_specs.extend(map(_spec_proto, specs))
    if writer_config:
        for name, value in {**WRITER_DEFAULTS, **writer_config}.items():
            details.writer_config_defaults[name] = str(value).lower()
    entry = IndexMetadata(
        uuid=surroundings.new_uuid(),
        name=MEM_WAL_INDEX,
        fields=(),
        dataset_version=snapshot.version,
        fragment_bitmap=None,
        details=AnyDetails(LOG_TYPE_URL, render_message(details)),
        index_version=0,
    )
    return publish(snapshot, CreateIndex((entry,), ()))


def record_shard(snapshot: Snapshot, shard_id: uuid.UUID) -> None:
    """Record a shard in the table, before its rows are acknowledged.

    Dropping a log lists its shards and commits. Shards that were recorded before are in this list,
    a shard that is recorded concurrently causes a conflict, and a later shard finds no log.
    """

    def attempt(current: Snapshot) -> None:
        recorded = require_mem_wal(current).compacted
        if shard_id in recorded:
            return
        (entry,) = find_segments(current, MEM_WAL_INDEX)
        details = log_details(entry)
        # Record all listed shards, so that concurrent first writes need few commits.
        for each in {shard_id, *list_shards(current.location)} - recorded.keys():
            details.compacted_sstables.add(shard_id=uuid_to_proto(each), generation=0)
        publish(current, CreateIndex((with_log_details(entry, details),), (entry,)))

    with_retries(snapshot, attempt, Retries())


def fence_shards(snapshot: Snapshot, shard_ids: Iterable[uuid.UUID]) -> None:
    """Fence the writers of shards without a log, and raise if such shards contain rows."""
    left = []
    for each in shard_ids:
        shard = Shard(snapshot.location, each)
        latest = shard.latest()
        if latest is not None and latest.is_active:
            latest = shard.claim(latest.spec_id)
        if latest is not None and (
            latest.sstables or any(entry.batches for entry in shard.entries(latest.replay_after))
        ):
            left.append(str(each))
    if left:
        raise LeftShardsError(
            "there are shards of an earlier log, whose merged generations are unknown: "
            "their rows might overwrite newer ones. Restore a version that has the log "
            "and merge them, or delete their folders below _mem_wal",
            uri=snapshot.location.uri,
            shards=left[:10],
        )


def check_settings(settings: Mapping[str, int | bool]) -> None:
    """Raise if an option of writers is invalid."""
    for name, value in settings.items():
        if value < _AT_LEAST.get(name, 0):
            raise InvalidInputError(
                f"{name} must be at least {_AT_LEAST.get(name, 0)}", found=value
            )


def _spec(proto: index_details_pb.ShardingSpec) -> ShardingSpec:
    fields = tuple(
        ShardingField(
            each.field_id,
            tuple(each.source_ids),
            each.transform if each.HasField("transform") else None,
            each.expression if each.HasField("expression") else None,
            each.result_type,
            dict(each.parameters),
        )
        for each in proto.fields
    )
    return ShardingSpec(proto.spec_id, fields)


def _spec_proto(spec: ShardingSpec) -> index_details_pb.ShardingSpec:
    proto = index_details_pb.ShardingSpec(spec_id=spec.spec_id)
    for each in spec.fields:
        proto.fields.add(
            field_id=each.field_id,
            source_ids=each.source_ids,
            transform=each.transform,
            expression=each.expression,
            result_type=each.result_type,
            parameters=dict(each.parameters),
        )
    return proto
