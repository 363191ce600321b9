"""Write to a shard: rows are stored in memory and in the log, and flushed as tables.

    open     convert unflushed log entries to the schema of the table, then claim the shard
    put      write the rows to the log, then to memory; they are durable on return
    flush    write the rows in memory as a table, and publish it in the state of the shard

Puts are thread-safe. One thread at a time writes to the store, including the pending puts of other
threads, so that many small puts share a log entry:

    thread 1    put a ... entry 7 ... done
    thread 2       put b   waits       entry 8: b c   done
    thread 3         put c   waits                    done

With `durable_write=False`, a put returns when its rows are in memory. They are written to the log
when they reach `max_wal_buffer_size` bytes, and after `max_wal_flush_interval_ms` at the latest. If
the process terminates earlier, they are lost.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from lancelet import surroundings
from lancelet.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    InvalidInputError,
    LanceletError,
    NotFoundError,
    SchemaMismatchError,
    UnsupportedError,
)
from lancelet.format.shard_manifest import TOMBSTONE, ShardManifest
from lancelet.log import LOGGER
from lancelet.memwal.indices import maintained_indices
from lancelet.memwal.memtable import MemTable, MemTableLimits, MemTableSize, Write
from lancelet.memwal.reconcile import (
    IrreconcilableError,
    logged_ids,
    logged_schema,
    plain_schema,
    reconcile_batch,
)
from lancelet.memwal.shard import FencedError, Persistence, Shard, WalEntry
from lancelet.memwal.sstable import write_sstable
from lancelet.memwal.state import (
    WRITER_DEFAULTS,
    MemWalState,
    check_settings,
    mem_wal_state,
    record_shard,
    require_mem_wal,
)
from lancelet.table.commit import refresh_snapshot
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_MS: Final = 1 / 1000


class ClosedWriterError(InvalidInputError, OSError):
    """The writer is closed."""


class LostWriterError(CommitError):
    """The contents of the log are unknown after an error; open a new writer, which replays it."""


class NoKeyError(InvalidInputError, OSError):
    """Deletions require a primary key, and the table has none."""


class PutError(SchemaMismatchError, OSError):
    """The rows do not match the table."""


@dataclass(slots=True)
class WriterCounts:
    """Counters of a writer."""

    puts: int = 0
    put_ns: int = 0
    wal_flushes: int = 0
    wal_bytes: int = 0
    wal_ns: int = 0
    flushes: int = 0
    flushed_rows: int = 0
    flush_ns: int = 0
    failed_flushes: int = 0


@dataclass(frozen=True, slots=True)
class WriterView:
    """A consistent view of a writer: the state of its shard, and the rows in memory."""

    manifest: ShardManifest
    rows: pa.Table


@dataclass(slots=True, eq=False)
class _Pending:
    """A pending put, which is not in the log yet."""

    write: Write
    is_done: bool = False
    error: BaseException | None = None


class MemWalWriter:
    """Writes to a shard until it is closed, or until another writer claims the shard."""

    def __init__(
        self, base: Snapshot, shard_id: uuid.UUID, config: Mapping[str, int | bool | None]
    ) -> None:
        """Replay the log of a shard, and claim the shard.

        Invalid arguments and invalid logs raise before the shard is claimed, so that a current
        writer is not affected.

        Args:
            base: A version of the table. The writer uses the latest version, since the log may
                contain columns that were added later.
            shard_id: The id of the shard.
            config: Options as in `WRITER_DEFAULTS`, which take precedence over those of the table.
        """
        base = refresh_snapshot(base)
        state = require_mem_wal(base)
        self._config = _settings(state, config)
        self.base = base
        self.counts = WriterCounts()
        self._indices = maintained_indices(base, state, self._config)
        self._keys = [key.name for key in base.schema.primary_key]
        self._arrow, self._logged = plain_schema(base.schema), logged_schema(base.schema)
        self._limits = MemTableLimits(
            self._config["max_memtable_rows"],
            self._config["max_memtable_batches"],
            self._config["max_memtable_size"],
        )
        self.shard = Shard(
            base.location,
            shard_id,
            scan_batch_size=self._config["manifest_scan_batch_size"],
            persistence=Persistence(
                self._config["max_wal_persist_retries"],
                self._config["wal_persist_retry_base_delay_ms"],
            ),
        )
        self._lock = surroundings.condition()
        self._is_busy = False
        self._is_closed = False
        self._lost: BaseException | None = None
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._memory = MemTable()
        self._logged_at = surroundings.monotonic()
        self._stop = threading.Event()
        self._claim(state)
        if not self._is_durable and self._config["max_wal_flush_interval_ms"]:
            _start_ticking(self, self._config["max_wal_flush_interval_ms"] * _MS, self._stop)

    @property
    def _is_durable(self) -> bool:
        return bool(self._config["durable_write"])

    @property
    def rows(self) -> pa.Table:
        """The rows in memory, in insertion order."""
        return self.view().rows

    @property
    def num_batches(self) -> int:
        """The number of batches in memory."""
        return len(self._visible())

    @property
    def rows_max(self) -> int:
        """The maximum number of rows of a put."""
        return self._limits.num_rows

    def view(self) -> WriterView:
        """Return a consistent view of the shard for readers."""
        with self._lock:
            return WriterView(self.manifest, pa.Table.from_batches(self._visible(), self._arrow))

    def put(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows; with `durable_write`, they are in the log on return."""
        self._write([self._fitted(batch) for batch in batches if batch.num_rows])

    def delete(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Delete rows by key; other columns are ignored."""
        if not self._keys:
            raise NoKeyError(
                "delete requires a primary key, but this shard has no primary key columns"
            )
        self._write([self._deletion(batch) for batch in batches if batch.num_rows])

    def flush(self) -> None:
        """Write the rows in memory as a table."""
        self._exclusively(self._flush_all)

    def log_pending(self) -> None:
        """Write rows to the log that are only in memory; failures are retried later."""
        if self._queue:
            try:
                self._exclusively(self._log_all)
            except LanceletError as error:
                LOGGER.warning("shard %s: writing the log failed: %s", self.shard.shard_id, error)

    def close(self) -> None:
        """Flush, and close the writer."""
        if self._is_closed:
            return
        try:
            self.flush()
        except LanceletError:
            # A failed close can be repeated, unless the writer was replaced.
            if self._lost is not None:
                self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._stop.set()
        with self._lock:
            self._is_closed = True

    def _claim(self, state: MemWalState) -> None:
        shard, replayed = self.shard, dict[int, tuple[WalEntry, Write]]()
        latest = shard.latest()
        if latest is not None:
            shard.check_active(latest)
            replayed = {
                each.position: (each, self._replayed(each))
                for each in shard.entries(latest.replay_after)
            }
        spec_id = _spec_id(state)
        # Start after the merged generations of this shard id, which may be from an earlier shard.
        first = state.compacted.get(shard.shard_id, 0) + 1
        self.manifest = shard.claim(spec_id, first_generation=first)
        if shard.shard_id not in state.compacted:
            record_shard(self.base, shard.shard_id)
        self._position = self.manifest.replay_after
        generations, logged = set[int | None](), set[int]()
        while (found := replayed.get(self._position + 1)) is not None:
            self._position += 1
            self._memory.add(found[1])
            generations.add(found[0].generation)
            logged |= logged_ids(found[0].schema)
        for entry in shard.entries(self._position):
            if entry.writer_epoch > self.manifest.writer_epoch:
                raise shard.fenced(self.manifest.writer_epoch)
            self._position = entry.position
            self._memory.add(self._replayed(entry))
            generations.add(entry.generation)
            logged |= logged_ids(entry.schema)
        self._check_columns(logged)
        if self._position < self.manifest.last_seen:
            # Entries before the fence of this writer are missing: a later writer flushed them, and
            # they were deleted. The free positions belong to the later writer.
            raise shard.fenced(self.manifest.writer_epoch)
        if generations - {None, self.manifest.current_generation}:
            # The entries of a generation must be contiguous, and new entries belong to the current
            # generation.
            self._flush_memory()

    def _check_columns(self, logged: set[int]) -> None:
        """Raise if log entries contain columns that were added after the version was opened.

        A flush with the older version would lose their values.
        """
        unknown = logged - {node.id for node in self.base.schema.walk()}
        if unknown and unknown & {node.id for node in refresh_snapshot(self.base).schema.walk()}:
            raise IrreconcilableError(
                "columns were added while the writer was being opened; open it again",
                shard=str(self.shard.shard_id),
                field_ids=sorted(unknown),
            )

    def _replayed(self, entry: WalEntry) -> Write:
        try:
            return Write.of([reconcile_batch(each, self.base.schema) for each in entry.batches])
        except SchemaMismatchError as error:
            raise error.with_facts(
                shard=str(self.shard.shard_id), wal_entry=entry.position
            ) from None

    def _write(self, batches: list[pa.RecordBatch]) -> None:
        self._check_usable()
        if not batches:
            return
        began = time.perf_counter_ns()
        write = self._bounded(batches)
        self._make_room(write)
        pending = _Pending(write)
        with self._lock:
            self._check_usable()
            self._queue.append(pending)
            self._queued_bytes += write.num_bytes
        if self._is_durable:
            try:
                self._exclusively(self._log_all, skip_if=lambda: pending.is_done)
            finally:
                self._forget(pending)
            if pending.error is not None:
                raise pending.error
        with self._lock:
            self.counts.puts += 1
            self.counts.put_ns += time.perf_counter_ns() - began
        self._flush_if_full()
        self._log_counts()

    def _bounded(self, batches: list[pa.RecordBatch]) -> Write:
        if len(batches) > self._limits.num_batches:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        write = Write.of(batches)
        if not MemTableSize().fits(write, self._limits):
            raise PutError(
                "a write is never split, and this one exceeds the limits of rows in memory; "
                "split it, or raise max_memtable_rows",
                rows=write.num_rows,
                batches=len(write.batches),
                max_memtable_rows=self._limits.num_rows,
                max_memtable_batches=self._limits.num_batches,
            )
        return write

    def _make_room(self, write: Write) -> None:
        """Wait until flushes and log writes free enough memory."""
        most, most_queued = (
            self._config["max_unflushed_memtable_bytes"],
            self._config["max_wal_buffer_size"],
        )

        def is_room() -> bool:
            used = self._memory.size.num_bytes + self._queued_bytes
            return not used or used + write.num_bytes <= most

        def is_room_in_buffer() -> bool:
            queued = self._queued_bytes
            return self._is_durable or not queued or queued + write.num_bytes <= most_queued

        self._exclusively(self._flush_all, skip_if=is_room)
        self._exclusively(self._log_all, skip_if=is_room_in_buffer)

    def _exclusively(
        self, work: Callable[[], None], *, skip_if: Callable[[], bool] = lambda: False
    ) -> None:
        """Run an action that uses the store exclusively, unless it has become unnecessary."""
        seconds = self._config["backpressure_log_interval_ms"] * _MS or None
        began = surroundings.monotonic()
        with self._lock:
            while not skip_if() and self._is_busy:
                if not self._lock.wait(seconds):
                    LOGGER.warning(
                        "shard %s: a write has waited %.1f s for the log or a flush",
                        self.shard.shard_id,
                        surroundings.monotonic() - began,
                    )
            if skip_if():
                return
            self._is_busy = True
        try:
            work()
        finally:
            with self._lock:
                self._is_busy = False
                self._lock.notify_all()

    def _flush_all(self) -> None:
        self._log_all()
        self._flush_memory()

    def _log_all(self) -> None:
        while self._queue:
            self._log_some()

    def _log_some(self) -> None:
        """Write the oldest pending puts to the log as one entry; requires the turn of this thread.

        A failure is reported to the puts that wait for it; other puts remain pending.
        """
        needs_room = not self._memory.size.fits(self._queue[0].write, self._limits)
        group = self._next_group(MemTableSize() if needs_room else self._memory.size)
        try:
            self._check_not_lost()
            if needs_room:
                # An entry belongs to a single generation, so flush the rows in memory first.
                self._flush_memory()
            self._log_group(group)
        except LanceletError as error:
            self._record_loss(error)
            if not self._is_durable:
                raise
            self._complete(group, error)
        except BaseException as error:
            self._record_loss(error)
            raise

    def _log_group(self, group: list[_Pending]) -> None:
        began = time.perf_counter_ns()
        position, size = self.shard.append(
            self._position + 1,
            [batch for each in group for batch in each.write.batches],
            self._logged,
            epoch=self.manifest.writer_epoch,
            generation=self.manifest.current_generation,
        )
        with self._lock:
            self._position = position
            for each in group:
                self._memory.add(each.write)
            self._complete(group, None)
            self.counts.wal_flushes += 1
            self.counts.wal_bytes += size
            self.counts.wal_ns += time.perf_counter_ns() - began

    def _next_group(self, size: MemTableSize) -> list[_Pending]:
        """Return the pending puts for the next entry, at least one."""
        num_bytes, group = 0, list[_Pending]()
        with self._lock:
            for each in self._queue:
                num_bytes += each.write.num_bytes
                is_over = num_bytes > self._config["max_wal_buffer_size"]
                if group and (is_over or not size.fits(each.write, self._limits)):
                    break
                size = size.plus(each.write)
                group.append(each)
        return group

    def _complete(self, group: list[_Pending], error: BaseException | None) -> None:
        with self._lock:
            for each in group:
                assert self._queue.popleft() is each, "the oldest come first"
                self._queued_bytes -= each.write.num_bytes
                each.error, each.is_done = error, True
            self._lock.notify_all()

    def _forget(self, pending: _Pending) -> None:
        """Remove the rows of interrupted puts from the queue, so that they are not logged later."""
        with self._lock:
            if not pending.is_done:
                self._queue.remove(pending)
                self._queued_bytes -= pending.write.num_bytes

    def _flush_if_full(self) -> None:
        def is_roomy() -> bool:
            return not self._memory.size.is_full(self._limits)

        try:
            self._exclusively(self._flush_memory, skip_if=is_roomy)
        except LanceletError as error:
            # The put is successful, since its rows are in the log. Later puts retry the flush and
            # raise when the memory limit is reached; `flush` and `close` also raise.
            LOGGER.warning("shard %s: flushing failed: %s", self.shard.shard_id, error)

    def _flush_memory(self) -> None:
        """Write the rows in memory as a table; requires the turn of this thread."""
        memory = self._memory
        if not memory.batches:
            return
        self._check_not_lost()
        began = time.perf_counter_ns()
        try:
            self._check_log_is_there()
            rows = pa.Table.from_batches(memory.batches, self._arrow)
            generation = self.manifest.current_generation
            table = write_sstable(self.shard, self.base, rows, generation, self._indices)
            published = self.shard.publish(
                replace(
                    self.manifest,
                    version=self.manifest.version + 1,
                    replay_after=self._position,
                    last_seen=self._position,
                    current_generation=generation + 1,
                    sstables=(*self.manifest.sstables, table),
                )
            )
        except BaseException as error:
            self._record_loss(error)
            with self._lock:
                self.counts.failed_flushes += 1
            raise
        with self._lock:
            self.manifest, self._memory = published, MemTable()
            self.counts.flushes += 1
            self.counts.flushed_rows += memory.size.num_rows
            self.counts.flush_ns += time.perf_counter_ns() - began

    def _check_log_is_there(self) -> None:
        """Raise if the table lost its log, for example because its rows were overwritten.

        This is checked at flushes only, so that puts need no additional request.
        """
        try:
            state = mem_wal_state(refresh_snapshot(self.base))
        except NotFoundError:
            state = None
        if state is None:
            raise FencedError(
                "the table lost its log: it was replaced, or went back to a version without one; "
                "rows that were not merged before are in the files of the shard alone",
                shard=str(self.shard.shard_id),
                uri=self.base.location.uri,
            )

    def _visible(self) -> list[pa.RecordBatch]:
        with self._lock:
            if self._is_durable:
                return list(self._memory.batches)
            queued = (batch for each in self._queue for batch in each.write.batches)
            return [*self._memory.batches, *queued]

    def _record_loss(self, error: BaseException) -> None:
        """Close the writer if it was replaced, or if the result of a write is unknown."""
        is_unknown = isinstance(error, CommitOutcomeUnknownError) or not isinstance(
            error, Exception
        )
        if is_unknown or isinstance(error, FencedError):
            with self._lock:
                self._lost = self._lost or error

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedWriterError("ShardWriter is already closed")
        self._check_not_lost()

    def _check_not_lost(self) -> None:
        if isinstance(self._lost, FencedError):
            raise FencedError(self._lost.args[0], **self._lost.facts)
        if self._lost is not None:
            raise LostWriterError(
                "it is unknown whether the store has the last put; open another writer, "
                "which replays the log",
                shard=str(self.shard.shard_id),
            ) from self._lost

    def _log_counts(self) -> None:
        """Log the counters of the writer, once per interval."""
        seconds = self._config["stats_log_interval_ms"] * _MS
        now = surroundings.monotonic()
        if seconds and now - self._logged_at >= seconds:
            self._logged_at = now
            counts = self.counts
            LOGGER.info(
                "shard %s: %d puts, %d log entries of %d bytes, %d flushes of %d rows, %d failed; "
                "%d rows and %d bytes in memory",
                self.shard.shard_id,
                counts.puts,
                counts.wal_flushes,
                counts.wal_bytes,
                counts.flushes,
                counts.flushed_rows,
                counts.failed_flushes,
                self._memory.size.num_rows,
                self._memory.size.num_bytes,
            )

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows with the columns and types of the table, marked as not deleted."""
        names = {*self._arrow.names} - ({TOMBSTONE} if self._keys else set())
        unknown = [name for name in batch.schema.names if name not in names]
        if unknown or len(set(batch.schema.names)) < batch.num_columns:
            raise PutError(
                "the rows have unknown or duplicate columns",
                unknown=unknown,
                columns=batch.schema.names,
                available=sorted(names),
            )
        columns = []
        for field in self._arrow:
            if field.name == TOMBSTONE and self._keys:
                columns.append(pa.array(np.zeros(len(batch), np.bool_)))
            elif field.name in batch.schema.names:
                columns.append(_column(batch, field))
            else:
                columns.append(pa.nulls(len(batch), field.type))
        for node, column in zip(self.base.schema.fields, columns, strict=False):
            _check_nulls(node.name, column, may_be_null=node.nullable)
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)

    def _deletion(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        missing = [name for name in self._keys if name not in batch.schema.names]
        if missing:
            raise PutError("a deletion requires all columns of the primary key", missing=missing)
        columns = []
        for field in self._arrow:
            if field.name == TOMBSTONE:
                columns.append(pa.array(np.ones(len(batch), np.bool_)))
            elif field.name in self._keys:
                columns.append(_column(batch, field))
                _check_nulls(field.name, columns[-1], may_be_null=field.nullable)
            else:
                columns.append(pa.nulls(len(batch), field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)


def _start_ticking(writer: MemWalWriter, seconds: float, stop: threading.Event) -> None:
    """Write the log periodically while the writer exists and is open."""
    ref = weakref.ref(writer, lambda _: stop.set())

    def tick() -> None:
        while not stop.wait(seconds):
            if (found := ref()) is None:
                return
            found.log_pending()
            del found

    surroundings.start_thread(tick, "lancelet-wal")


def _column(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    try:
        return batch.column(field.name).cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise PutError(
            f"the column {field.name!r} has values that the table cannot hold: {error}",
            type=str(field.type),
            found=str(batch.schema.field(field.name).type),
        ) from error


def _check_nulls(name: str, column: pa.Array, *, may_be_null: bool) -> None:
    if column.null_count and not may_be_null:
        raise PutError("a non-nullable field contains null values", field=name)


def _spec_id(state: MemWalState) -> int:
    if len(state.specs) > 1:
        raise UnsupportedError(
            "tables with several sharding rules are not supported",
            specs=[spec.spec_id for spec in state.specs],
        )
    return state.specs[0].spec_id if state.specs else 0


def _settings(state: MemWalState, config: Mapping[str, int | bool | None]) -> dict[str, int]:
    """Return the options of a writer, from the caller, the table or the defaults."""
    stored = {name: _parsed(name, text) for name, text in state.writer_defaults.items()}
    given = {name: value for name, value in config.items() if value is not None}
    settings = {**WRITER_DEFAULTS, **stored, **given}
    check_settings(settings)
    if not settings["enable_memtable"]:
        raise UnsupportedError("shards are written with rows in memory", enable_memtable=False)
    return settings


def _parsed(name: str, text: str) -> int:
    if text in {"true", "false"}:
        return text == "true"
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(
            "a default writer setting of the table must be a number", name=name, found=text
        ) from None
