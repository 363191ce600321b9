"""The write-ahead log of a dataset, with the API of pylance: shards and their writers.

dataset.initialize_mem_wal(bucket_column="id", num_buckets=4)
with dataset.mem_wal_writer(shard_id) as writer:
    writer.put(rows)
    writer.lsm_scanner().to_table()      the table, including the new rows
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa

from lancelet import change, memwal
from lancelet.dataset.dry_runs import previews
from lancelet.dataset.handle import Handle
from lancelet.dataset.mem_wal.readers import LsmScanner, ShardSnapshot, parse_shard_id
from lancelet.dataset.write.schema import LanceSchema
from lancelet.errors import InvalidInputError
from lancelet.expr.data_types import print_arrow_type

if TYPE_CHECKING:
    from lancelet.change.dry_run import ChangeReport
    from lancelet.format.schema import Schema
    from lancelet.format.shard_manifest import ShardManifest
    from lancelet.memwal.compact import CompactedLog
    from lancelet.memwal.sharding import ShardingSpec
    from lancelet.memwal.upkeep import CollectedLog
    from lancelet.memwal.writer import MemWalWriter

_SPEC_ID: Final = 1
_FIELD_ID: Final = "bucket"
_MILLION: Final = 1_000_000


class ShardingTypeError(InvalidInputError, TypeError):
    """The rows to assign to shards are not a record batch."""


@dataclass
class CompactedSsTable:
    """A flushed SSTable that was merged into the base table."""

    shard_id: str
    generation: int


def evaluate_sharding_spec(
    batch: pa.RecordBatch, spec: ShardingSpec | Mapping[str, Any], schema: LanceSchema
) -> pa.RecordBatch:
    """Return the sharding values of the rows of a batch."""
    if not isinstance(batch, pa.RecordBatch):
        raise ShardingTypeError(f"Expected pyarrow.RecordBatch, got {type(batch)!r}")
    return memwal.sharding.evaluate_spec(batch, _spec_of(spec), schema.stored)


def _spec_of(spec: ShardingSpec | Mapping[str, Any]) -> ShardingSpec:
    if not isinstance(spec, Mapping):
        return spec
    return memwal.sharding.ShardingSpec(
        spec["spec_id"], [memwal.sharding.ShardingField(**each) for each in spec["fields"]]
    )


def _checked_spec(spec: ShardingSpec | Mapping[str, Any], schema: Schema) -> ShardingSpec:
    """Validate a sharding rule against the columns of a table."""
    found = _spec_of(spec)
    names = [each.field_id for each in found.fields]
    if found.spec_id < 1 or not names or len(set(names)) < len(names):
        raise InvalidInputError(
            "a sharding rule requires a positive id and unique field names",
            spec_id=found.spec_id,
            fields=names,
        )
    arrow = schema.to_arrow()
    empty = pa.RecordBatch.from_arrays(
        [pa.nulls(0, each.type) for each in arrow], names=arrow.names
    )
    memwal.sharding.evaluate_spec(empty, found, schema)
    return found


class ShardWriter:
    """Writes rows to one shard. A context manager closes it."""

    def __init__(self, _raw: MemWalWriter) -> None:
        """Wrap a writer that has claimed the shard; see `mem_wal_writer`."""
        self._writer = _raw

    @property
    def shard_id(self) -> str:
        """The id of the shard."""
        return str(self._writer.shard.shard_id)

    def put(self, data: Any, *, schema: pa.Schema | None = None) -> None:
        """Write rows; they are in the log when the call returns."""
        self._writer.put(change.rows.read_rows(data, schema).batches)

    def delete(self, keys: Any, *, schema: pa.Schema | None = None) -> None:
        """Delete rows by key."""
        self._writer.delete(change.rows.read_rows(keys, schema).batches)

    def close(self) -> None:
        """Flush the rows in memory and close the writer."""
        self._writer.close()

    def stats(self) -> dict[str, int]:
        """Return statistics of the rows written so far."""
        counts = self._writer.counts
        return {
            "put_count": counts.puts,
            "put_time_ms": counts.put_ns // _MILLION,
            "wal_flush_count": counts.wal_flushes,
            "wal_flush_bytes": counts.wal_bytes,
            "wal_flush_time_ms": counts.wal_ns // _MILLION,
            "memtable_flush_count": counts.flushes,
            "memtable_flush_rows": counts.flushed_rows,
            "memtable_flush_failures": counts.failed_flushes,
            "memtable_flush_time_ms": counts.flush_ns // _MILLION,
        }

    def memtable_stats(self) -> dict[str, int]:
        """Return statistics of the rows in memory."""
        rows = self._writer.rows
        return {
            "row_count": len(rows),
            "batch_count": self._writer.num_batches,
            "estimated_size_bytes": rows.nbytes,
            "generation": self._writer.manifest.current_generation,
            "frozen_count": 0,
            "frozen_bytes": 0,
        }

    def lsm_scanner(self, shard_snapshots: Sequence[ShardSnapshot] | None = None) -> LsmScanner:
        """Return a scanner of the table, this shard including its memory, and other shards."""
        writer = self._writer
        others = tuple(each.tables for each in shard_snapshots or ())
        view = writer.view()
        own = memwal.merged.tables_of(view.manifest)
        memory = memwal.merged.MemoryRows(view.manifest.current_generation, view.rows)
        shards = (own, *(each for each in others if each.shard_id != own.shard_id))
        read = memwal.merged.MergedRead(writer.base, shards, (memory,))
        read.keys  # noqa: B018 - raises if there is no key to merge by
        return LsmScanner(read)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MemWalMethods:
    """Methods that manage the write-ahead log of a dataset."""

    _handle: Handle

    def initialize_mem_wal(
        self,
        *,
        maintained_indexes: Sequence[str] | None = None,
        bucket_column: str | None = None,
        num_buckets: int | None = None,
        identity_column: str | None = None,
        unsharded: bool = False,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
        sharding_spec: ShardingSpec | Mapping[str, Any] | None = None,
        dry_run: bool = False,
    ) -> ChangeReport | None:
        """Add a write-ahead log to the dataset, for many small writes.

        The schema needs an unenforced primary key. The writer options are defaults that each writer
        may override.

        Args:
            maintained_indexes: The indices to build for flushed rows; by default all.
            bucket_column: The column that selects the shard by hash.
            num_buckets: The number of shards for `bucket_column`.
            identity_column: The column that selects the shard by value.
            unsharded: Whether to use a single shard.
            durable_write: Whether a put returns after its rows are in the log, as by default, or
                already when they are in memory.
            max_wal_buffer_size: The size of a log entry shared by several puts. Without
                `durable_write`, also the maximum size of unlogged rows.
            max_wal_flush_interval_ms: The maximum time until rows without a blocked put are logged;
                0 for none.
            max_memtable_size: The number of bytes in memory that triggers a flush.
            max_memtable_rows: The maximum number of rows in memory.
            max_memtable_batches: The maximum number of batches in memory.
            max_unflushed_memtable_bytes: The number of unflushed bytes that blocks puts.
            manifest_scan_batch_size: The number of concurrent requests for shard manifests.
            backpressure_log_interval_ms: The interval of log messages on blocked puts; 0 for never.
            stats_log_interval_ms: The interval of log messages about write statistics; 0 for never.
            hnsw_params: HNSW parameters by index for flushed rows: `num_edges`, `ef_construction`
                and `max_level`.
            sharding_spec: Any other sharding rule. pylance does not route rows by year or
                expression.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If an argument is invalid.
            CommitConflictError: If a concurrent commit made a conflicting change.
            AlreadyExistsError: If the name already exists.

        Example:
            ```python
            key = {"lance-schema:unenforced-primary-key": "true"}
            id_field = pa.field("id", pa.int64(), nullable=False, metadata=key)
            rows = pa.table({"id": [1]}, pa.schema([id_field]))
            counted = lance.write_dataset(rows, "counted.lance")
            counted.initialize_mem_wal(bucket_column="id", num_buckets=4)
            ```
        """
        config: dict[str, int | bool | None] = {
            **memwal.indices.graph_settings(hnsw_params),
            "durable_write": durable_write,
            "max_wal_buffer_size": max_wal_buffer_size,
            "max_wal_flush_interval_ms": max_wal_flush_interval_ms,
            "max_memtable_size": max_memtable_size,
            "max_memtable_rows": max_memtable_rows,
            "max_memtable_batches": max_memtable_batches,
            "max_unflushed_memtable_bytes": max_unflushed_memtable_bytes,
            "manifest_scan_batch_size": manifest_scan_batch_size,
            "backpressure_log_interval_ms": backpressure_log_interval_ms,
            "stats_log_interval_ms": stats_log_interval_ms,
        }
        modes = [bucket_column or num_buckets, identity_column, unsharded, sharding_spec]
        if sum(mode is not None and mode is not False for mode in modes) > 1:
            raise InvalidInputError(
                "at most one of bucket sharding, `identity_column`, `unsharded`, or "
                "`sharding_spec` may be set"
            )
        if (bucket_column is None) != (num_buckets is None):
            raise InvalidInputError(
                "bucket sharding requires both `bucket_column` and `num_buckets`"
            )
        memwal.indices.check_maintained(self._handle.snapshot, maintained_indexes or ())
        spec, shards = self._spec(bucket_column, num_buckets, identity_column, unsharded)
        if sharding_spec is not None:
            spec = _checked_spec(sharding_spec, self._handle.snapshot.schema)
        initialize = partial(
            memwal.state.initialize_mem_wal,
            specs=() if spec is None else (spec,),
            num_shards=shards,
            maintained=maintained_indexes,
            writer_config={name: value for name, value in config.items() if value is not None},
        )
        return self._handle.change(initialize, dry_run=dry_run)

    @previews
    def collect_mem_wal(self, *, dry_run: bool = False) -> CollectedLog | ChangeReport:
        """Delete log entries and SSTables that were merged into all versions of the table.

        Older versions need their SSTables: clean them up first. Writers of the affected shards have
        to be reopened.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            The deletion counts; with `dry_run`, the `ChangeReport`.

        Example:
            ```python
            people.compact_mem_wal()
            people.collect_mem_wal()
            ```
        """
        snapshot = self._handle.snapshot
        if dry_run:
            return change.dry_run.dry_run_without_commit(
                snapshot.location,
                "CollectMemWal",
                lambda location: memwal.upkeep.collect_log(replace(snapshot, location=location)),
            )
        return memwal.upkeep.collect_log(snapshot)

    @previews
    def compact_mem_wal(
        self, *, flush: bool = False, dry_run: bool = False
    ) -> CompactedLog | ChangeReport:
        """Merge flushed rows of the shards into the dataset, generation by generation.

        Several processes can merge concurrently.

        Args:
            flush: Whether to flush logged rows first; by default they remain in the log. Flushing
                claims the shards with such rows, so their writers have to be reopened.
            dry_run: If True, return a `ChangeReport` without committing, as if each flushed table
                were merged alone.

        Returns:
            The merge counts; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.
            InvalidInputError: If `flush` and `dry_run` are combined.

        Example:
            ```python
            people.compact_mem_wal()
            people.count_rows()  # 2
            ```
        """
        handle = self._handle
        if dry_run:
            if flush:
                raise InvalidInputError("flush and dry_run cannot be combined")
            return memwal.compact.report_compaction(handle.snapshot)
        if flush:
            memwal.ingest.flush_logs(handle.snapshot)
        handle.snapshot, done = memwal.compact.compact_log(handle.snapshot)
        return done

    def seal_mem_wal_shard(self, shard_id: str, *, dry_run: bool = False) -> ChangeReport | None:
        """Seal a shard, which prevents further writes. Close its writer first.

        Args:
            shard_id: The UUID of the shard.
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            (shard,) = people.mem_wal_shards()
            people.seal_mem_wal_shard(shard.shard_id)
            ```
        """
        snapshot, shard = self._handle.snapshot, parse_shard_id(shard_id)
        if dry_run:
            return change.dry_run.dry_run_without_commit(
                snapshot.location,
                "SealMemWalShard",
                lambda location: memwal.upkeep.seal_shard(
                    replace(snapshot, location=location), shard
                ),
            )
        memwal.upkeep.seal_shard(snapshot, shard)
        return None

    def mem_wal_shards(self, *, noted: bool = False) -> list[ShardSnapshot]:
        """Return the shards with their flushed SSTables, for reads that include them.

        Args:
            noted: Whether to return the shards recorded by `note_mem_wal_shards`, without a
                request. Otherwise, or if no shards are recorded, the shards are listed.

        Returns:
            A snapshot per shard.

        Example:
            ```python
            (shard,) = people.mem_wal_shards()
            ```
        """
        snapshot = self._handle.snapshot
        at = memwal.discovery.noted_shards(snapshot) if noted else None
        found: Sequence[ShardManifest] = (
            memwal.discovery.latest_shards(snapshot) if at is None else at.shards
        )
        return [ShardSnapshot.of(memwal.merged.tables_of(each)) for each in found]

    def note_mem_wal_shards(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Record the shards in a new version, so readers need not list them.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            people.note_mem_wal_shards()
            people.mem_wal_shards(noted=True)
            ```
        """
        return self._handle.change(memwal.discovery.record_shards, dry_run=dry_run)

    def drop_mem_wal(self, *, dry_run: bool = False) -> ChangeReport | None:
        """Remove the write-ahead log. All rows must be merged and all shards sealed.

        Older versions retain their log, but lose the SSTables flushed for it.

        Args:
            dry_run: If True, return a `ChangeReport` without committing.

        Returns:
            None; with `dry_run`, the `ChangeReport`.

        Raises:
            InvalidInputError: If an argument is invalid.
            CommitConflictError: If a concurrent commit made a conflicting change.

        Example:
            ```python
            people.compact_mem_wal()
            for shard in people.mem_wal_shards():
                people.seal_mem_wal_shard(shard.shard_id)
            people.drop_mem_wal()
            ```
        """
        snapshot = self._handle.snapshot
        if dry_run:
            return change.dry_run.dry_run_without_commit(
                snapshot.location,
                "DropMemWal",
                lambda location: memwal.upkeep.drop_log(replace(snapshot, location=location)),
            )
        self._handle.snapshot = memwal.upkeep.drop_log(snapshot)
        return None

    def mem_wal_index_details(self) -> dict[str, Any] | None:
        """Return the settings of the write-ahead log.

        Returns:
            The settings, or None if the dataset has no write-ahead log.

        Example:
            ```python
            dataset.mem_wal_index_details()  # None
            ```
        """
        state = memwal.state.mem_wal_state(self._handle.snapshot)
        if state is None:
            return None
        specs = [
            {
                "spec_id": spec.spec_id,
                "fields": [
                    {**asdict(each), "source_ids": list(each.source_ids)} for each in spec.fields
                ],
            }
            for spec in state.specs
        ]
        return {
            "num_shards": state.num_shards,
            "maintained_indexes": list(state.maintained_indexes),
            "maintain_all_indexes": bool(state.maintains_all),
            "writer_config_defaults": dict(state.writer_defaults),
            "sharding_specs": specs,
        }

    def mem_wal_writer(
        self,
        shard_id: str,
        *,
        durable_write: bool | None = None,
        max_wal_buffer_size: int | None = None,
        max_wal_flush_interval_ms: int | None = None,
        max_memtable_size: int | None = None,
        max_memtable_rows: int | None = None,
        max_memtable_batches: int | None = None,
        max_unflushed_memtable_bytes: int | None = None,
        manifest_scan_batch_size: int | None = None,
        backpressure_log_interval_ms: int | None = None,
        stats_log_interval_ms: int | None = None,
        hnsw_params: Mapping[str, Mapping[str, int]] | None = None,
    ) -> ShardWriter:
        """Open the writer of a shard.

        Fences an earlier writer of the shard: its next write raises.

        Args:
            shard_id: The UUID of the shard; an unknown id creates a shard.
            durable_write: Whether a put returns after its rows are in the log.
            max_wal_buffer_size: The size of a log entry, and the maximum size of unlogged rows.
            max_wal_flush_interval_ms: The maximum time until rows without a blocked put are logged.
            max_memtable_size: The number of bytes in memory that triggers a flush.
            max_memtable_rows: The maximum number of rows in memory.
            max_memtable_batches: The maximum number of batches in memory.
            max_unflushed_memtable_bytes: The number of unflushed bytes that blocks puts.
            manifest_scan_batch_size: The number of concurrent requests for shard manifests.
            backpressure_log_interval_ms: The interval of log messages about blocked puts.
            stats_log_interval_ms: The interval of log messages about write statistics.
            hnsw_params: HNSW parameters of flushed rows.

        Returns:
            The writer, a context manager.

        Raises:
            InvalidInputError: If an argument is invalid.

        Example:
            ```python
            import uuid

            with people.mem_wal_writer(str(uuid.uuid4())) as writer:
                writer.put(pa.table({"id": [3], "name": ["Joan"]}, people.schema))
            ```
        """
        config = {
            "durable_write": durable_write,
            "max_wal_buffer_size": max_wal_buffer_size,
            "max_wal_flush_interval_ms": max_wal_flush_interval_ms,
            "max_memtable_size": max_memtable_size,
            "max_memtable_rows": max_memtable_rows,
            "max_memtable_batches": max_memtable_batches,
            "max_unflushed_memtable_bytes": max_unflushed_memtable_bytes,
            "manifest_scan_batch_size": manifest_scan_batch_size,
            "backpressure_log_interval_ms": backpressure_log_interval_ms,
            "stats_log_interval_ms": stats_log_interval_ms,
            **memwal.indices.graph_settings(hnsw_params),
        }
        return ShardWriter(
            memwal.writer.MemWalWriter(self._handle.snapshot, parse_shard_id(shard_id), config)
        )

    def _spec(
        self, bucket: str | None, buckets: int | None, identity: str | None, unsharded: bool
    ) -> tuple[ShardingSpec | None, int]:
        """Return the requested sharding rule and its number of shards, 0 for any number."""
        schema = self._handle.snapshot.schema
        if unsharded:
            made = memwal.sharding.ShardingField(_FIELD_ID, (), "unsharded", None, "int32")
            return memwal.sharding.ShardingSpec(_SPEC_ID, (made,)), 1
        if identity is not None:
            source = schema.field_by_path(identity)
            memwal.sharding.check_shard_key(identity, source.arrow_type, "identity")
            kind = print_arrow_type(source.arrow_type).lower().replace("largeutf8", "large_utf8")
            made = memwal.sharding.ShardingField(_FIELD_ID, (source.id,), "identity", None, kind)
            return memwal.sharding.ShardingSpec(_SPEC_ID, (made,)), 0
        if bucket is None or buckets is None:
            return None, 0
        source = schema.field_by_path(bucket)
        memwal.sharding.check_shard_key(bucket, source.arrow_type, "bucket")
        memwal.sharding.buckets_of(pa.array([], source.arrow_type), buckets)
        made = memwal.sharding.ShardingField(
            _FIELD_ID, (source.id,), "bucket", None, "int32", {"num_buckets": str(buckets)}
        )
        return memwal.sharding.ShardingSpec(_SPEC_ID, (made,)), buckets
