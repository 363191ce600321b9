"""What a table says of its write-ahead log: how rows are split into shards, and what is compacted.

It is the system index `__lance_mem_wal`. A table gets it once; merges record in it how far each
shard has come.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from lancelet import surroundings
from lancelet.errors import InvalidInputError
from lancelet.format.index_metadata import (
    MEM_WAL_INDEX,
    AnyDetails,
    IndexMetadata,
    uuid_to_proto,
)
from lancelet.format.operation import CreateIndex
from lancelet.format.protos import index_details_pb
from lancelet.format.wire import render_message
from lancelet.ops.indexing.drop import find_segments
from lancelet.ops.mem_wal.reconcile import TOMBSTONE
from lancelet.ops.mem_wal.shard import Shard, list_shards
from lancelet.ops.mem_wal.sharding import ShardingField, ShardingSpec
from lancelet.ops.publish import Retries, publish, with_retries
from lancelet.table.apply.mem_wal import (
    LOG_TYPE_URL,
    generations_by_shard,
    log_details,
    log_entry,
    with_log_details,
)
from lancelet.table.commit import refresh_snapshot
from lancelet.table.snapshot import Snapshot
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
"""How a writer behaves unless it is told otherwise."""


_AT_LEAST: Final = {
    "max_memtable_size": 1,
    "max_memtable_rows": 1,
    "max_memtable_batches": 1,
    "manifest_scan_batch_size": 1,
}
"""The least values of settings; those of others are 0."""


class AlreadyInitializedError(InvalidInputError, OSError):
    """The table has a write-ahead log already."""


class LeftShardsError(InvalidInputError, OSError):
    """A table without a log has shards of an earlier one."""


class NotInitializedError(InvalidInputError, OSError):
    """The table has no write-ahead log."""


@dataclass(frozen=True, slots=True)
class MemWalState:
    """What a version says of its log.

    Attributes:
        num_shards: How many shards there are, 0 where nobody counts them.
        specs: How rows are split into shards.
        maintained_indexes: The indices that shards build of their own rows.
        maintains_all: Whether these are all indices; None where it is not said.
        writer_defaults: How writers behave, by name.
        compacted: The last generation of each shard that is in the table.
        caught_up: The last generation of each shard that an index has, by its name.
    """

    num_shards: int = 0
    specs: tuple[ShardingSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    maintains_all: bool | None = None
    writer_defaults: Mapping[str, str] = field(default_factory=dict)
    compacted: Mapping[uuid.UUID, int] = field(default_factory=dict)
    caught_up: Mapping[str, Mapping[uuid.UUID, int]] = field(default_factory=dict)


def mem_wal_state(snapshot: Snapshot) -> MemWalState | None:
    """Return what a version says of its log, or None if it has none."""
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
    """Return what a version says of its log, or raise if it has none."""
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
    """Give a table a write-ahead log."""
    check_settings(writer_config or {})
    # The shards of a log that there is by now are left alone.
    snapshot = refresh_snapshot(snapshot)
    if mem_wal_state(snapshot) is not None:
        raise AlreadyInitializedError(
            "MemWAL is already initialized on this dataset.", uri=snapshot.location.uri
        )
    if TOMBSTONE in snapshot.schema.names:
        raise InvalidInputError(
            "shards mark deleted rows in a column of that name; rename the table's first",
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


def note_shard(snapshot: Snapshot, shard_id: uuid.UUID) -> None:
    """See to it that the log of a table knows of a shard, before rows of it are acknowledged.

    Who drops a log lists its shards, and commits. A shard that is noted before was listed; one that
    is noted meanwhile makes that commit conflict, and one that comes after finds no log.
    """

    def attempt(current: Snapshot) -> None:
        known = require_mem_wal(current).compacted
        if shard_id in known:
            return
        (entry,) = find_segments(current, MEM_WAL_INDEX)
        details = log_details(entry)
        # With those of others, so that many who begin shards at once do not wait for each other.
        for each in {shard_id, *list_shards(current.location)} - known.keys():
            details.compacted_sstables.add(shard_id=uuid_to_proto(each), generation=0)
        publish(current, CreateIndex((with_log_details(entry, details),), (entry,)))

    with_retries(snapshot, attempt, Retries())


def fence_shards(snapshot: Snapshot, shard_ids: Iterable[uuid.UUID]) -> None:
    """Fence the writers of shards that belong to no log, and raise if these have rows."""
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
            "their rows might take the place of newer ones. Restore a version that has the log "
            "and merge them, or delete their folders below _mem_wal",
            uri=snapshot.location.uri,
            shards=left[:10],
        )


def check_settings(settings: Mapping[str, int | bool]) -> None:
    """Raise if no writer could behave so."""
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
