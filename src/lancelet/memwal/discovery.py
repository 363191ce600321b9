"""Find the shards of a table, by listing them or from a snapshot in the table.

    list        _mem_wal/*/manifest, one or two requests per shard      the current states
    snapshot    a small Lance file in the entry of the system index     earlier states, no request

A snapshot contains one row per shard with the fields of its state. Up to 100 shards are stored in
the entry itself, more in a file in the folder of the entry. A snapshot may be stale: shards may
have flushed since, and merged generations are skipped.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Final

import pyarrow as pa

from lancelet import surroundings
from lancelet.change.publish import Retries, publish, with_retries
from lancelet.errors import CorruptDataError, corrupt_within
from lancelet.format.index_metadata import MEM_WAL_INDEX, IndexFile, IndexMetadata
from lancelet.format.operation import CreateIndex
from lancelet.format.shard_manifest import ShardManifest, SsTable, is_below_shard
from lancelet.index.folder import SegmentFolder, StoredFile
from lancelet.io.memory import MemoryStore
from lancelet.io.pool import run_requests
from lancelet.io.store import Store
from lancelet.memwal.shard import Shard, list_shards
from lancelet.memwal.state import mem_wal_state, require_mem_wal
from lancelet.table.apply.mem_wal import log_details, log_entry, with_log_details
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

INLINE_MAX: Final = 100
"""The maximum number of shards in an inline snapshot."""
_FILE: Final = "shards.lance"
_INLINE: Final = "_indices/inline"
"""The placeholder for the folder in the details, since details move to entries with other ids."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("region_id", pa.binary(16), nullable=False),
        pa.field("version", pa.uint64(), nullable=False),
        pa.field("region_spec_id", pa.uint32(), nullable=False),
        pa.field("writer_epoch", pa.uint64(), nullable=False),
        pa.field("replay_after_wal_entry_position", pa.uint64(), nullable=False),
        pa.field("wal_entry_position_last_seen", pa.uint64(), nullable=False),
        pa.field("current_generation", pa.uint64(), nullable=False),
        pa.field("merged_generation", pa.uint64(), nullable=False),
        pa.field(
            "flushed_generations",
            pa.list_(pa.struct([("generation", pa.uint64()), ("path", pa.string())])),
            nullable=False,
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class ShardsAt:
    """The recorded shards of a table, and the time of the record in milliseconds since 1970."""

    taken_ms: int
    shards: tuple[ShardManifest, ...]


def latest_shards(snapshot: Snapshot) -> list[ShardManifest]:
    """Return the current states of all shards of a table."""
    shards = [Shard(snapshot.location, each) for each in list_shards(snapshot.location)]
    states = run_requests([each.latest for each in shards])
    return [each for each in states if each is not None]


def noted_shards(snapshot: Snapshot) -> ShardsAt | None:
    """Return the shards recorded in a version, or None if none are recorded."""
    entry = log_entry(snapshot.indices.indices)
    if entry is None:
        return None
    details = log_details(entry)
    if details.HasField("inline_snapshots"):
        store: Store = MemoryStore.unnamed()
        folder = _INLINE
        store.put(f"{folder}/{_FILE}", details.inline_snapshots)
    elif any(file.path == _FILE for file in entry.files):
        store, folder = snapshot.location.store, entry.directory
    else:
        return None
    with corrupt_within(uri=snapshot.location.uri, index=MEM_WAL_INDEX):
        file = SegmentFolder(store, folder).open(_FILE)
        return ShardsAt(details.snapshot_ts_millis, tuple(_read(file)))


def record_shards(snapshot: Snapshot) -> Snapshot:
    """Record the current shards of a table, and return the resulting version."""
    require_mem_wal(snapshot)

    def attempt(current: Snapshot) -> Snapshot:
        require_mem_wal(current)
        entry = log_entry(current.indices.indices)
        assert entry is not None, "the table has a log"
        noted = _with_shards(current, entry, latest_shards(current))
        return publish(current, CreateIndex((noted,), (entry,)))

    return with_retries(snapshot, attempt, Retries())


def _with_shards(
    snapshot: Snapshot, entry: IndexMetadata, shards: list[ShardManifest]
) -> IndexMetadata:
    details = log_details(entry)
    details.snapshot_ts_millis = surroundings.time_ns() // 1_000_000
    # A specification with a fixed number of shards counts shards that were never written.
    if not any(
        field.transform in {"bucket", "unsharded"}
        for spec in details.sharding_specs
        for field in spec.fields
    ):
        details.num_shards = len(shards)
    noted = replace(entry, uuid=surroundings.new_uuid(), files=(), dataset_version=snapshot.version)
    state = mem_wal_state(snapshot)
    merged = {} if state is None else state.compacted
    table = pa.Table.from_pylist(
        [_row(each, merged.get(each.shard_id, 0)) for each in shards], _SCHEMA
    )
    is_inline = len(shards) <= INLINE_MAX
    store = MemoryStore.unnamed() if is_inline else snapshot.location.store
    folder = _INLINE if is_inline else noted.directory
    with SegmentFolder(store, folder).create(_FILE, _SCHEMA) as file:
        file.write(table)
    size = store.info(f"{folder}/{_FILE}").size
    if is_inline:
        details.inline_snapshots = bytes(store.read(f"{folder}/{_FILE}"))
    else:
        details.ClearField("inline_snapshots")
        noted = replace(noted, files=(IndexFile(_FILE, size),))
    return with_log_details(noted, details)


def _row(shard: ShardManifest, merged: int) -> dict[str, object]:
    return {
        "region_id": shard.shard_id.bytes,
        "version": shard.version,
        "region_spec_id": shard.spec_id,
        "writer_epoch": shard.writer_epoch,
        "replay_after_wal_entry_position": shard.replay_after,
        "wal_entry_position_last_seen": shard.last_seen,
        "current_generation": shard.current_generation,
        "merged_generation": merged,
        "flushed_generations": [
            {"generation": each.generation, "path": each.path} for each in shard.sstables
        ],
    }


def _read(file: StoredFile) -> list[ShardManifest]:
    """Return the shards in a file; only their ids if it contains no other columns."""
    names = file.schema.names
    table = pa.Table.from_arrays(file.read(names), names)
    found = []
    for row in table.to_pylist():
        shard_id = row.get("region_id", row.get("shard_id"))
        try:
            shard = uuid.UUID(shard_id) if isinstance(shard_id, str) else uuid.UUID(bytes=shard_id)
        except (TypeError, ValueError) as error:
            raise CorruptDataError("a recorded shard has no id", found=shard_id) from error
        tables = tuple(
            SsTable(each["generation"], each["path"])
            for each in row.get("flushed_generations") or ()
        )
        if not all(is_below_shard(each.path) for each in tables):
            raise CorruptDataError("a flushed table is outside of its shard", shard=str(shard))
        found.append(
            ShardManifest(
                shard,
                row.get("version", 0),
                row.get("writer_epoch", 0),
                row.get("replay_after_wal_entry_position", 0),
                row.get("wal_entry_position_last_seen", 0),
                row.get("current_generation", 0),
                tables,
                row.get("region_spec_id", row.get("shard_spec_id", 0)),
            )
        )
    return found
