"""The one writer of a shard: rows in memory, safe in the log, and flushed as tables.

open     the entries that are in no table yet are brought to the schema of the table, and if that
         can be done the shard is claimed
put      the rows go to the log, then into memory: what returned is not lost
flush    the rows in memory become a table, and the shard says so

Any number of threads may put. One of them at a time talks to the store; it takes along what others
brought meanwhile, so that many small puts share an entry of the log:

    thread 1    put a ... entry 7 ... done
    thread 2       put b   waits       entry 8: b c   done
    thread 3         put c   waits                    done

With `durable_write=False` a put returns when its rows are in memory. They go to the log when there
are `max_wal_buffer_size` bytes of them, and after `max_wal_flush_interval_ms` at the latest; a
process that ends before has lost them.
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
from lancelet.format.shard_manifest import ShardManifest
from lancelet.log import LOGGER
from lancelet.ops.mem_wal.indices import maintained_indices
from lancelet.ops.mem_wal.memtable import Held, MemTable, MemTableLimits, Write
from lancelet.ops.mem_wal.reconcile import (
    TOMBSTONE,
    IrreconcilableError,
    logged_ids,
    logged_schema,
    plain_schema,
    reconcile_batch,
)
from lancelet.ops.mem_wal.shard import FencedError, Persistence, Shard, WalEntry
from lancelet.ops.mem_wal.sstable import write_sstable
from lancelet.ops.mem_wal.state import (
    WRITER_DEFAULTS,
    MemWalState,
    check_settings,
    mem_wal_state,
    note_shard,
    require_mem_wal,
)
from lancelet.table.commit import refresh_snapshot
from lancelet.table.snapshot import Snapshot
from lancelet.values import dataclass

_MS: Final = 1 / 1000


class ClosedWriterError(InvalidInputError, OSError):
    """The writer was closed."""


class LostWriterError(CommitError):
    """Nobody knows what the log has of this writer; open another one, which replays it."""


class NoKeyError(InvalidInputError, OSError):
    """Rows are deleted by their primary key, and there is none."""


class PutError(SchemaMismatchError, OSError):
    """Rows do not fit the table."""


@dataclass(slots=True)
class WriterCounts:
    """What a writer did so far."""

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
    """What a writer holds at one moment: the state of its shard, and the rows in memory."""

    manifest: ShardManifest
    rows: pa.Table


@dataclass(slots=True, eq=False)
class _Pending:
    """A put whose rows are not in the log yet."""

    write: Write
    is_done: bool = False
    error: BaseException | None = None


class MemWalWriter:
    """Writes a shard until it is closed, or another writer claims the shard."""

    def __init__(
        self, base: Snapshot, shard_id: uuid.UUID, config: Mapping[str, int | bool | None]
    ) -> None:
        """Replay the log of a shard, and claim it.

        Whatever is wrong with the call or the log raises before the shard is claimed, and leaves
        the writer that it has alone.

        Args:
            base: A version of the table. The writer is for the latest one, whose columns rows
                that were logged meanwhile may have.
            shard_id: Which shard.
            config: How to behave, by the names of `WRITER_DEFAULTS`, before those of the table.
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
        self._lock = threading.Condition()
        self._is_busy = False
        self._is_closed = False
        self._lost: BaseException | None = None
        self._queue: deque[_Pending] = deque()
        self._queued_bytes = 0
        self._memory = MemTable()
        self._told_at = surroundings.monotonic()
        self._stop = threading.Event()
        self._claim(state)
        if not self._is_durable and self._config["max_wal_flush_interval_ms"]:
            _start_ticking(self, self._config["max_wal_flush_interval_ms"] * _MS, self._stop)

    @property
    def _is_durable(self) -> bool:
        return bool(self._config["durable_write"])

    @property
    def rows(self) -> pa.Table:
        """The rows in memory, in the order they came."""
        return self.view().rows

    @property
    def num_batches(self) -> int:
        """In how many batches they came."""
        return len(self._visible())

    @property
    def rows_max(self) -> int:
        """How many rows a put takes at most."""
        return self._limits.num_rows

    def view(self) -> WriterView:
        """Return what readers are to see of the shard at this moment."""
        with self._lock:
            return WriterView(self.manifest, pa.Table.from_batches(self._visible(), self._arrow))

    def put(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write rows; unless the writer was told otherwise they are in the log on return."""
        self._write([self._fitted(batch) for batch in batches if batch.num_rows])

    def delete(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Delete rows by their keys; other columns are left alone."""
        if not self._keys:
            raise NoKeyError(
                "delete requires a primary key, but this shard has no primary key columns"
            )
        self._write([self._deletion(batch) for batch in batches if batch.num_rows])

    def flush(self) -> None:
        """Make a table of the rows in memory."""
        self._in_turn(self._flush_all)

    def log_pending(self) -> None:
        """Put rows into the log that are in memory alone; what fails is tried again later."""
        if self._queue:
            try:
                self._in_turn(self._log_all)
            except LanceletError as error:
                LOGGER.warning("shard %s: writing the log failed: %s", self.shard.shard_id, error)

    def close(self) -> None:
        """Flush, and write no more."""
        if self._is_closed:
            return
        try:
            self.flush()
        except LanceletError:
            # A writer that was replaced can do no more; any other may be closed again.
            if self._lost is not None:
                self._end()
            raise
        self._end()

    def _end(self) -> None:
        self._stop.set()
        with self._lock:
            self._is_closed = True

    def _claim(self, state: MemWalState) -> None:
        shard, known = self.shard, dict[int, tuple[WalEntry, Write]]()
        latest = shard.latest()
        if latest is not None:
            shard.check_active(latest)
            known = {
                each.position: (each, self._replayed(each))
                for each in shard.entries(latest.replay_after)
            }
        spec_id = _spec_id(state)
        # Counted from behind what the table has of a shard of that id, be it another table's.
        first = state.compacted.get(shard.shard_id, 0) + 1
        self.manifest = shard.claim(spec_id, first_generation=first)
        if shard.shard_id not in state.compacted:
            note_shard(self.base, shard.shard_id)
        self._position = self.manifest.replay_after
        generations, logged = set[int | None](), set[int]()
        while (found := known.get(self._position + 1)) is not None:
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
            # Entries are missing before our own mark: a later writer flushed them, and they were
            # collected. Positions that are free now are not for us.
            raise shard.fenced(self.manifest.writer_epoch)
        if generations - {None, self.manifest.current_generation}:
            # Entries of one generation must follow each other, and those that are to come have
            # the one that is counted now.
            self._flush_memory()

    def _check_columns(self, logged: set[int]) -> None:
        """Raise if rows of the log have columns that were added since the version was opened.

        A flush under that version would lose what they hold.
        """
        unknown = logged - {node.id for node in self.base.schema.walk()}
        if unknown and unknown & {node.id for node in refresh_snapshot(self.base).schema.walk()}:
            raise IrreconcilableError(
                "columns were added while the writer was opened; open it again",
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
                self._in_turn(self._log_all, unless=lambda: pending.is_done)
            finally:
                self._forget(pending)
            if pending.error is not None:
                raise pending.error
        with self._lock:
            self.counts.puts += 1
            self.counts.put_ns += time.perf_counter_ns() - began
        self._flush_if_full()
        self._tell()

    def _bounded(self, batches: list[pa.RecordBatch]) -> Write:
        if len(batches) > self._limits.num_batches:
            batches = pa.Table.from_batches(batches).combine_chunks().to_batches()
        write = Write.of(batches)
        if not Held().fits(write, self._limits):
            raise PutError(
                "a write is never split, and this one exceeds what is held in memory; split it, "
                "or raise max_memtable_rows",
                rows=write.num_rows,
                batches=len(write.batches),
                max_memtable_rows=self._limits.num_rows,
                max_memtable_batches=self._limits.num_batches,
            )
        return write

    def _make_room(self, write: Write) -> None:
        """Wait until what is in no table, or not even in the log, leaves room for more."""
        most, most_queued = (
            self._config["max_unflushed_memtable_bytes"],
            self._config["max_wal_buffer_size"],
        )

        def is_room() -> bool:
            held = self._memory.held.num_bytes + self._queued_bytes
            return not held or held + write.num_bytes <= most

        def is_room_in_buffer() -> bool:
            queued = self._queued_bytes
            return self._is_durable or not queued or queued + write.num_bytes <= most_queued

        self._in_turn(self._flush_all, unless=is_room)
        self._in_turn(self._log_all, unless=is_room_in_buffer)

    def _in_turn(
        self, work: Callable[[], None], *, unless: Callable[[], bool] = lambda: False
    ) -> None:
        """Do what talks to the store when no other thread does, unless it is needless by then."""
        seconds = self._config["backpressure_log_interval_ms"] * _MS or None
        began = surroundings.monotonic()
        with self._lock:
            while not unless() and self._is_busy:
                if not self._lock.wait(seconds):
                    LOGGER.warning(
                        "shard %s: a write has waited %.1f s for the log or a flush",
                        self.shard.shard_id,
                        surroundings.monotonic() - began,
                    )
            if unless():
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
        """Put the oldest rows that are not in the log there, as one entry; it is our turn.

        Who waits for them is told if that fails; rows that nobody waits for stay, and it raises.
        """
        needs_room = not self._memory.held.fits(self._queue[0].write, self._limits)
        group = self._next_group(Held() if needs_room else self._memory.held)
        try:
            self._check_not_lost()
            if needs_room:
                # An entry belongs to one generation, so what is in memory goes first.
                self._flush_memory()
            self._log_group(group)
        except LanceletError as error:
            self._note_loss(error)
            if not self._is_durable:
                raise
            self._settle(group, error)
        except BaseException as error:
            self._note_loss(error)
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
            self._settle(group, None)
            self.counts.wal_flushes += 1
            self.counts.wal_bytes += size
            self.counts.wal_ns += time.perf_counter_ns() - began

    def _next_group(self, held: Held) -> list[_Pending]:
        """Return the rows that one entry takes: as many puts as fit it, and one at least."""
        num_bytes, group = 0, list[_Pending]()
        with self._lock:
            for each in self._queue:
                num_bytes += each.write.num_bytes
                is_over = num_bytes > self._config["max_wal_buffer_size"]
                if group and (is_over or not held.fits(each.write, self._limits)):
                    break
                held = held.plus(each.write)
                group.append(each)
        return group

    def _settle(self, group: list[_Pending], error: BaseException | None) -> None:
        with self._lock:
            for each in group:
                assert self._queue.popleft() is each, "the oldest come first"
                self._queued_bytes -= each.write.num_bytes
                each.error, each.is_done = error, True
            self._lock.notify_all()

    def _forget(self, pending: _Pending) -> None:
        """See to it that rows whose put was interrupted are not logged later."""
        with self._lock:
            if not pending.is_done:
                self._queue.remove(pending)
                self._queued_bytes -= pending.write.num_bytes

    def _flush_if_full(self) -> None:
        def is_roomy() -> bool:
            return not self._memory.held.is_full(self._limits)

        try:
            self._in_turn(self._flush_memory, unless=is_roomy)
        except LanceletError as error:
            # The rows are in the log, so the put that filled the memory has done its work. Later
            # ones try again, and raise when there is no room left; so do `flush` and `close`.
            LOGGER.warning("shard %s: flushing failed: %s", self.shard.shard_id, error)

    def _flush_memory(self) -> None:
        """Make a table of what is in memory; it is our turn."""
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
            self._note_loss(error)
            with self._lock:
                self.counts.failed_flushes += 1
            raise
        with self._lock:
            self.manifest, self._memory = published, MemTable()
            self.counts.flushes += 1
            self.counts.flushed_rows += memory.held.num_rows
            self.counts.flush_ns += time.perf_counter_ns() - began

    def _check_log_is_there(self) -> None:
        """Raise if the table lost its log, as when its rows were replaced: nobody reads the shard.

        Asked when rows are flushed, so a writer notes it late, but what was put costs no request.
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

    def _note_loss(self, error: BaseException) -> None:
        """Write no more if another writer came, or if nobody knows what the store has of us."""
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

    def _tell(self) -> None:
        """Say in the log of the program how it goes, once in an interval."""
        seconds = self._config["stats_log_interval_ms"] * _MS
        now = surroundings.monotonic()
        if seconds and now - self._told_at >= seconds:
            self._told_at = now
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
                self._memory.held.num_rows,
                self._memory.held.num_bytes,
            )

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows in the order and of the types of the table, with a mark that they live."""
        known = {*self._arrow.names} - ({TOMBSTONE} if self._keys else set())
        unknown = [name for name in batch.schema.names if name not in known]
        if unknown or len(set(batch.schema.names)) < batch.num_columns:
            raise PutError(
                "rows have columns that the table has not, or one twice",
                unknown=unknown,
                columns=batch.schema.names,
                known=sorted(known),
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
            raise PutError("rows are deleted by their whole key", missing=missing)
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
    """Let a writer write its log again and again, as long as it is there and open."""
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
            "a table that splits its rows by several rules is not written by shards",
            specs=[spec.spec_id for spec in state.specs],
        )
    return state.specs[0].spec_id if state.specs else 0


def _settings(state: MemWalState, config: Mapping[str, int | bool | None]) -> dict[str, int]:
    """Return how to behave: as the caller says, else as the table does, else by default."""
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
            "a default that the table keeps for writers is no number", name=name, found=text
        ) from None
