"""Histories of one caller whose writes to a write-ahead log are compared with a model.

    open, put, delete, flush, close            with small limits, also rows that do not fit
    crash, fence                               open another writer, and go on with the first one
    merge, collect, clean up, seal, drop       and begin a log again

Each call must succeed or fail as in the model, and the rows, the log entries, the flushed tables
and the counters are those of the model. Requests may be refused or lose their responses.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar, cast
from uuid import UUID

import pyarrow as pa

import lancelet
from lancelet import surroundings
from lancelet.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    LanceletError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.memwal.discovery import latest_shards
from lancelet.memwal.shard import FencedError, SealedError
from lancelet.memwal.state import AlreadyInitializedError, NotInitializedError, mem_wal_state
from lancelet.memwal.upkeep import UnmergedShardsError
from lancelet.memwal.writer import ClosedWriterError, LostWriterError, NoKeyError, PutError
from tests.kit.simulation.judge import ViolationError
from tests.kit.simulation.machine import EPOCH_NS, without_caches

T = TypeVar("T")

_BUCKET: Final = "compared-log"
_URI: Final = f"memory://{_BUCKET}/t"
_SHARDS: Final = (str(UUID(int=7)), str(UUID(int=8)))
_KEYS: Final = 6
_RETRIES: Final = 3
_ROW_BYTES: Final = 16
_DATA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
_OTHER: Final = pa.field("other_column", pa.int64())
"""A column that all puts omit."""
_KEYED: Final = pa.schema(
    [
        pa.field(
            "id",
            pa.int64(),
            nullable=False,
            metadata={"lance-schema:unenforced-primary-key": "true"},
        ),
        pa.field("v", pa.int64()),
        _OTHER,
    ]
)


class _World(surroundings.Surroundings):
    """Time, random bits and stores that are the same each time; some requests fail."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.now_ns = EPOCH_NS
        self.failures: list[str] = []
        """The outcomes of the next conditional puts of a shard."""

    def time_ns(self) -> int:
        self.now_ns += 10**6
        return self.now_ns

    def monotonic(self) -> float:
        return self.time_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)

    def random_bits(self, count: int) -> int:
        return self._random.getrandbits(count)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def wrap_store(self, store: T) -> T:
        return cast("T", WrappedStore(cast("Any", store), self))

    def request(self, request: Request, action: Callable[[], T]) -> T:
        is_put = request.operation == "put_if_absent" and "wal/" in request.path
        if not is_put or not self.failures:
            return action()
        if self.failures.pop(0) == "lost":
            action()
            raise CommitOutcomeUnknownError("this reply was made to be lost", path=request.path)
        raise StorageUnavailableError("this request was made to fail", path=request.path)


@dataclass(slots=True)
class _Write:
    rows: list[tuple[int, int | None]]
    """Keys with their values; None deletes."""
    batches: int
    num_bytes: int


@dataclass(slots=True)
class _Writer:
    """The model of a writer."""

    raw: Any
    limits: dict[str, int]
    memory: list[_Write] = field(default_factory=list)
    queue: list[_Write] = field(default_factory=list)
    state: str = "open"
    """`open`, `fenced` from the next write on, or `closed`."""
    puts: int = 0
    entries: int = 0
    flushes: int = 0
    flushed_rows: int = 0

    def size(self, name: str) -> int:
        match name:
            case "rows":
                return sum(len(each.rows) for each in self.memory)
            case "batches":
                return sum(each.batches for each in self.memory)
            case _:
                return sum(each.num_bytes for each in self.memory)


@dataclass(slots=True)
class _Shard:
    """The model of a shard."""

    status: str = "none"
    logged: list[_Write] = field(default_factory=list)
    """The writes whose entries are not flushed yet."""
    old_entries: int = 0
    """Entries whose rows are flushed, and which are not deleted yet."""
    new_entries: int = 0
    tables: list[tuple[int, list[tuple[int, int | None]]]] = field(default_factory=list)
    """The flushed tables that are not deleted, by generation."""
    generation: int = 1
    merged: int = 0
    writer: _Writer | None = None
    old: _Writer | None = None


def _require(condition: object, text: str, *facts: object) -> None:
    if not condition:
        raise ViolationError(f"{text}: {facts}")


@contextmanager
def _fails(kind: type[BaseException], what: str) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    except LanceletError as error:
        raise ViolationError(f"{what} failed with another error: {error!r}") from error
    raise ViolationError(f"{what} was not rejected")


class _History:
    """A table with a log, its model, and the calls of one history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = _World(Random(seed + 1))
        self.is_keyed = bool(seed % 4)
        self.shards = {name: _Shard() for name in _SHARDS}
        self.has_log = True
        self.rows: list[tuple[int, int]] = []
        """The rows of the table."""
        self.merged_at: dict[int, dict[str, int]] = {}
        """The merged generations of each version."""
        self.trace: list[str] = []
        self._numbers = iter(range(1, 1 << 30))

    def run(self, num_steps: int) -> None:
        with surroundings.replaced_by(self.world), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MemoryStore.reset(_BUCKET)
            schema = _KEYED if self.is_keyed else _DATA.append(_OTHER)
            dataset = lancelet.write_dataset(schema.empty_table(), _URI)
            dataset.initialize_mem_wal(unsharded=True)
            try:
                for number in range(num_steps):
                    name = self.random.choices(list(_CALLS), list(_CALLS.values()))[0]
                    self.trace.append(name)
                    getattr(self, f"_{name}")()
                    self._check(is_full=number % 4 == 0)
                self._finish()
            except BaseException as error:
                error.add_note(f"{self.is_keyed} " + " ".join(self.trace))
                raise

    # --- writers ----------------------------------------------------------------------------------

    def _dataset(self) -> lancelet.LanceDataset:
        return lancelet.dataset(_URI)

    def _shard(self) -> tuple[str, _Shard]:
        name = self.random.choice([_SHARDS[0], *_SHARDS])
        return name, self.shards[name]

    def _open(self) -> None:
        name, shard = self._shard()
        random = self.random
        limits = {
            "durable_write": random.random() < 0.6,
            "max_memtable_rows": random.choice([3, 5, 1000]),
            "max_memtable_batches": random.choice([1, 2, 1000]),
            "max_memtable_size": random.choice([1 << 20, 1 << 20, 90]),
            "max_wal_buffer_size": random.choice([1 << 20, 60, 90]),
            "max_unflushed_memtable_bytes": random.choice([1 << 20, 90]),
        }
        given: dict[str, Any] = {**limits, "max_wal_flush_interval_ms": 0}
        if not self.has_log:
            with _fails(NotInitializedError, "a writer of a table without a log"):
                self._dataset().mem_wal_writer(name, **given)
            return
        if shard.status == "sealed":
            with _fails(SealedError, "a writer of a sealed shard"):
                self._dataset().mem_wal_writer(name, **given)
            return
        raw = self._dataset().mem_wal_writer(name, **given)
        self._fence(shard)
        shard.status = "active"
        shard.writer = _Writer(raw, limits, [*shard.logged])
        if self.random.random() < 0.3:
            with _fails(InvalidInputError, "invalid options"):
                bad = random.choice(["max_memtable_rows", "max_wal_buffer_size"])
                wrong: dict[str, Any] = {bad: -1}
                self._dataset().mem_wal_writer(name, **wrong)
            for bad in ("max_memtable_rows", "max_memtable_size", "manifest_scan_batch_size"):
                with _fails(InvalidInputError, "invalid options"):
                    wrong = {bad: 0}
                    self._dataset().mem_wal_writer(name, **wrong)

    def _fence(self, shard: _Shard) -> None:
        if shard.writer is not None:
            shard.old, shard.writer = shard.writer, None
            if shard.old.state == "open":
                shard.old.state = "fenced"

    def _crash(self) -> None:
        _, shard = self._shard()
        shard.writer = None

    def _batch_of(self, rows: list[tuple[int, int | None]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [
                pa.array([key for key, _ in rows], pa.int64()),
                pa.array([v for _, v in rows], pa.int64()),
            ],
            schema=_DATA,
        )

    def _bytes_of(self, count: int) -> int:
        marks = (count + 7) // 8 if self.is_keyed else 0
        return _ROW_BYTES * count + marks + int(pa.nulls(count, pa.int64()).nbytes)

    def _put(self) -> None:
        _, shard = self._shard()
        writer = shard.writer
        if writer is None:
            return
        count, batches = self.random.choice([1, 1, 1, 2, 3, 4]), self.random.choice([1, 1, 2])
        rows: list[tuple[int, int | None]] = [
            (self.random.randrange(_KEYS), next(self._numbers)) for _ in range(count)
        ]
        parts = [rows[: count // 2], rows[count // 2 :]] if batches > 1 else [rows]
        parts = [each for each in parts if each]
        write = _Write(rows, len(parts), sum(self._bytes_of(len(each)) for each in parts))
        data = pa.Table.from_batches([self._batch_of(each) for each in parts])
        self._do(shard, writer, write, lambda: writer.raw.put(data))

    def _delete(self) -> None:
        _, shard = self._shard()
        writer = shard.writer
        if writer is None:
            return
        keys = sorted({self.random.randrange(_KEYS) for _ in range(2)})
        data = pa.table({"id": pa.array(keys, pa.int64())})
        if not self.is_keyed:
            with _fails(NoKeyError, "a deletion without a key"):
                writer.raw.delete(data)
            return
        rows: list[tuple[int, int | None]] = [(key, None) for key in keys]
        nulls = [pa.nulls(len(keys), pa.int64()) for _ in range(2)]
        columns = [data["id"].chunk(0), *nulls, pa.array([True] * len(keys))]
        batch = pa.RecordBatch.from_arrays(columns, ["id", "v", "other_column", "mark"])
        write = _Write(rows, 1, batch.nbytes)
        self._do(shard, writer, write, lambda: writer.raw.delete(data))

    def _do(self, shard: _Shard, writer: _Writer, write: _Write, call: Callable[[], None]) -> None:
        """Put rows, and do the same in the model."""
        limits = writer.limits
        if write.batches > limits["max_memtable_batches"]:
            write.batches = 1
            write.num_bytes = self._bytes_of(len(write.rows))
        if len(write.rows) > limits["max_memtable_rows"]:
            with _fails(PutError, "more rows than fit"):
                call()
            return
        if limits["durable_write"] and self.random.random() < 0.15:
            self._put_with_failures(shard, writer, write, call)
            return
        call()
        self._put_in_model(shard, writer, write)

    def _put_in_model(self, shard: _Shard, writer: _Writer, write: _Write) -> None:
        limits = writer.limits
        self._make_room(shard, writer, write)
        writer.queue.append(write)
        if limits["durable_write"]:
            self._log_all(shard, writer)
        writer.puts += 1
        if (
            writer.size("rows") >= limits["max_memtable_rows"]
            or writer.size("batches") >= limits["max_memtable_batches"]
            or writer.size("bytes") >= limits["max_memtable_size"]
        ):
            self._flush_memory(shard, writer)

    def _make_room(self, shard: _Shard, writer: _Writer, write: _Write) -> None:
        limits = writer.limits
        queued = sum(each.num_bytes for each in writer.queue)
        used = writer.size("bytes") + queued
        if used and used + write.num_bytes > limits["max_unflushed_memtable_bytes"]:
            self._log_all(shard, writer)
            self._flush_memory(shard, writer)
        queued = sum(each.num_bytes for each in writer.queue)
        is_over = queued and queued + write.num_bytes > limits["max_wal_buffer_size"]
        if is_over and not limits["durable_write"]:
            self._log_all(shard, writer)

    def _put_with_failures(
        self, shard: _Shard, writer: _Writer, write: _Write, call: Callable[[], None]
    ) -> None:
        """Put rows while the store does not answer, or not in time."""
        count = self.random.choice([1, _RETRIES, _RETRIES + 1])
        kind = self.random.choice(["refused", "lost"])
        self.world.failures = [kind] * count
        if kind == "lost":
            self.world.failures = ["lost"]
            call()
        elif count <= _RETRIES:
            call()
        else:
            with _fails(StorageUnavailableError, "a put that the store refused"):
                call()
            self.world.failures = []
            self._make_room(shard, writer, write)
            # A write that needs room has flushed the rows in memory before.
            if not self._fits(writer, write):
                self._flush_memory(shard, writer)
            return
        _require(not self.world.failures, "the request was not repeated", kind, count)
        self._put_in_model(shard, writer, write)

    def _fits(self, writer: _Writer, write: _Write, group: tuple[_Write, ...] = ()) -> bool:
        limits = writer.limits
        rows = writer.size("rows") + sum(len(each.rows) for each in group)
        batches = writer.size("batches") + sum(each.batches for each in group)
        return (
            rows + len(write.rows) <= limits["max_memtable_rows"]
            and batches + write.batches <= limits["max_memtable_batches"]
        )

    def _log_all(self, shard: _Shard, writer: _Writer) -> None:
        while writer.queue:
            if not self._fits(writer, writer.queue[0]):
                self._flush_memory(shard, writer)
            group: list[_Write] = []
            num_bytes = 0
            for each in writer.queue:
                num_bytes += each.num_bytes
                is_over = num_bytes > writer.limits["max_wal_buffer_size"]
                if group and (is_over or not self._fits(writer, each, tuple(group))):
                    break
                group.append(each)
            del writer.queue[: len(group)]
            writer.memory += group
            shard.logged += group
            shard.new_entries += 1
            writer.entries += 1

    def _flush_memory(self, shard: _Shard, writer: _Writer) -> None:
        if not writer.memory:
            return
        rows = [row for each in writer.memory for row in each.rows]
        shard.tables.append((shard.generation, rows))
        shard.generation += 1
        shard.old_entries += shard.new_entries
        shard.new_entries = 0
        shard.logged = []
        writer.memory = []
        writer.flushes += 1
        writer.flushed_rows += len(rows)

    def _put_wrongly(self) -> None:
        _, shard = self._shard()
        writer = shard.writer
        if writer is None:
            return
        key = pa.array([1], pa.int64())
        wrong: list[Any] = [
            pa.table({"id": key, "other": key}),
            pa.table([key, key, key], ["id", "v", "v"]),
            pa.table({"id": pa.array([None], pa.int64())}),
            pa.table({"v": key}),
            pa.table({"id": ["one"]}),
        ]
        for data in wrong:
            with _fails(PutError, f"rows that do not fit: {data.schema}"):
                writer.raw.put(data)
        writer.raw.put(self._batch_of([]))
        if self.is_keyed:
            with _fails(PutError, "a deletion without the key"):
                writer.raw.delete(pa.table({"v": key}))
            with _fails(PutError, "a deletion of a null key"):
                writer.raw.delete(pa.table({"id": pa.array([None], pa.int64())}))

    def _flush(self) -> None:
        _, shard = self._shard()
        if shard.writer is not None:
            shard.writer.raw._writer.flush()
            self._log_all(shard, shard.writer)
            self._flush_memory(shard, shard.writer)

    def _log(self) -> None:
        _, shard = self._shard()
        if shard.writer is not None:
            shard.writer.raw._writer.log_pending()
            self._log_all(shard, shard.writer)

    def _close(self) -> None:
        _, shard = self._shard()
        writer = shard.writer
        if writer is None:
            return
        writer.raw.close()
        writer.raw.close()
        self._log_all(shard, writer)
        self._flush_memory(shard, writer)
        with _fails(ClosedWriterError, "a put by a closed writer"):
            writer.raw.put(self._batch_of([(1, 1)]))
        self._check_counts(writer)
        shard.writer = None

    def _use_old_writer(self) -> None:
        """Put and flush by a writer that was replaced."""
        _, shard = self._shard()
        old = shard.old
        if old is None or old.state != "fenced":
            return
        row = self._batch_of([(1, next(self._numbers))])
        if old.limits["durable_write"]:
            with _fails(FencedError, "a put by a writer that was replaced"):
                old.raw.put(row)
            with _fails(FencedError, "another put by a writer that was replaced"):
                old.raw.put(row)
        else:
            if not old.queue and not old.memory:
                return
            with _fails(FencedError, "a flush by a writer that was replaced"):
                old.raw._writer.flush()
        try:
            old.raw.close()
        except FencedError as error:
            facts: Any = error.facts
            latest, epoch = facts.get("latest_epoch", 1), facts.get("epoch", 0)
            _require(latest is not None and latest > epoch, "no later epoch", error.facts)
        except LostWriterError as error:
            raise ViolationError("the writer does not know that it was replaced") from error
        old.state = "closed"

    # --- tables -----------------------------------------------------------------------------------

    def _merge(self) -> None:
        if not self.has_log:
            with _fails(NotInitializedError, "a merge without a log"):
                self._dataset().compact_mem_wal()
            return
        pending = [
            (name, generation, rows)
            for name, shard in self.shards.items()
            for generation, rows in shard.tables
            if generation > shard.merged
        ]
        report = self._dataset().compact_mem_wal(dry_run=True)
        done: Any = self._dataset().compact_mem_wal()
        _require(done.sstables == len(pending), "other merged tables", done, pending)
        if pending and all(v is not None for *_, rows in pending for _, v in rows):
            _require(cast("Any", report).rows == done.rows, "other rows reported", report, done)
        for name, generation, rows in pending:
            self.shards[name].merged = generation
            self._apply(rows)

    def _apply(self, rows: list[tuple[int, int | None]]) -> None:
        if not self.is_keyed:
            self.rows += [(key, v) for key, v in rows if v is not None]
            return
        current = dict(self.rows)
        for key, v in rows:
            current.pop(key, None)
            if v is not None:
                current[key] = v
        self.rows = list(current.items())

    def _collect(self) -> None:
        if self.random.random() < 0.7:
            self._dataset().cleanup_old_versions(retain_versions=1)
        dataset = self._dataset()
        everywhere = dict.fromkeys(_SHARDS, 1 << 40)
        for version in dataset.versions():
            merged = self._merged_in(version["version"])
            if merged is not None:
                everywhere = {each: min(everywhere[each], merged.get(each, 0)) for each in _SHARDS}
        if not self.has_log and len(dataset.versions()) == 1:
            everywhere = dict.fromkeys(_SHARDS, 0)
        entries = tables = 0
        for name, shard in self.shards.items():
            entries += shard.old_entries
            shard.old_entries = 0
            gone = [each for each in shard.tables if each[0] <= everywhere[name]]
            tables += len(gone)
            shard.tables = [each for each in shard.tables if each[0] > everywhere[name]]
            if gone and shard.status == "active":
                self._fence(shard)
        report: Any = dataset.collect_mem_wal(dry_run=True)
        done: Any = dataset.collect_mem_wal()
        del report
        _require(
            (done.wal_entries, done.sstables) == (entries, tables),
            "other files",
            done,
            entries,
            tables,
        )

    def _merged_in(self, version: int) -> dict[str, int] | None:
        state = mem_wal_state(self._dataset().checkout_version(version).snapshot)
        return None if state is None else {str(key): each for key, each in state.compacted.items()}

    def _seal_shard(self) -> None:
        name, shard = self._shard()

        def call() -> None:
            self._dataset().seal_mem_wal_shard(name)

        if not self.has_log:
            return
        if shard.status == "none":
            with _fails(InvalidInputError, "sealing a shard that does not exist"):
                call()
        elif shard.status == "sealed":
            with _fails(SealedError, "sealing a shard again"):
                call()
        elif shard.logged:
            with _fails(InvalidInputError, "sealing a shard with rows in its log"):
                call()
            self._fence(shard)
        elif self.random.random() < 0.3:
            call()
            self._fence(shard)
            shard.status = "sealed"

    def _drop(self) -> None:
        if not self.has_log:
            with _fails(NotInitializedError, "dropping a log again"):
                self._dataset().drop_mem_wal()
            return
        if any(each[0] > shard.merged for shard in self.shards.values() for each in shard.tables):
            with _fails(UnmergedShardsError, "dropping a log with rows that are not merged"):
                self._dataset().drop_mem_wal()
            return
        if any(shard.logged for shard in self.shards.values()):
            with _fails(InvalidInputError, "dropping a log with rows"):
                self._dataset().drop_mem_wal()
            for name, shard in self.shards.items():
                if shard.status == "active" and name == next(
                    each for each in sorted(_SHARDS) if self.shards[each].status == "active"
                ):
                    self._fence(shard)
                    if not shard.logged:
                        shard.status = "sealed"
            self._resync()
            return
        self._dataset().drop_mem_wal()
        self.has_log = False
        for shard in self.shards.values():
            self._fence(shard)
            if shard.status == "active":
                shard.status = "sealed"
            shard.tables, shard.old_entries = [], 0

    def _resync(self) -> None:
        """Take the states of the shards from the table, after a call that failed in between."""
        for each in self._raw_shards():
            shard = self.shards[str(each.shard_id)]
            shard.status = "active" if each.is_active else "sealed"
            if shard.status == "sealed":
                self._fence(shard)

    def _raw_shards(self) -> Any:

        return latest_shards(self._dataset().snapshot)

    def _begin(self) -> None:
        if self.has_log:
            with _fails(AlreadyInitializedError, "beginning a log again"):
                self._dataset().initialize_mem_wal(unsharded=True)
            return
        self._dataset().initialize_mem_wal(unsharded=True)
        self.has_log = True
        for shard in self.shards.values():
            shard.status = "active" if shard.status == "sealed" else shard.status
            shard.merged = 0

    def _open_unsupported(self) -> None:
        with _fails(InvalidInputError, "a reserved column"):
            lancelet.write_dataset(
                pa.table({"_tombstone": [True]}), f"memory://{_BUCKET}/reserved", mode="overwrite"
            ).initialize_mem_wal(unsharded=True)
        with _fails(InvalidInputError, "invalid defaults"):
            lancelet.write_dataset(
                pa.table({"a": [1]}), f"memory://{_BUCKET}/reserved", mode="overwrite"
            ).initialize_mem_wal(unsharded=True, max_memtable_rows=0)

    # --- checks -----------------------------------------------------------------------------------

    def _check_counts(self, writer: _Writer) -> None:
        found = writer.raw.stats()
        counts = (
            found["put_count"],
            found["wal_flush_count"],
            found["memtable_flush_count"],
            found["memtable_flush_rows"],
            found["memtable_flush_failures"],
        )
        expected = (writer.puts, writer.entries, writer.flushes, writer.flushed_rows, 0)
        _require(counts == expected, "other counts", counts, expected)

    def _check(self, *, is_full: bool = True) -> None:
        if is_full:
            table = self._dataset().to_table()
            found = Counter(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))
            _require(found == Counter(self.rows), "other rows", found, self.rows)
        published = {str(each.shard_id): each.sstables for each in self._raw_shards()}
        for name, shard in self.shards.items():
            listed = [info.path for info in MemoryStore(_BUCKET).list(f"t/_mem_wal/{name}")]
            tables = {path.split("/")[3] for path in listed if "_gen_" in path}
            # A writer that was replaced may leave a table that it could not publish.
            own = {each.path for each in published.get(name, ())}
            _require(len(own) == len(shard.tables), "other tables", own, shard.tables)
            _require(own <= tables, "missing tables", own, tables)
            writer = shard.writer
            if writer is None:
                continue
            self._check_counts(writer)
            queued = [] if writer.limits["durable_write"] else writer.queue
            rows = [row for each in (*writer.memory, *queued) for row in each.rows]
            seen = writer.raw._writer.rows
            memory = list(zip(seen["id"].to_pylist(), seen["v"].to_pylist(), strict=True))
            _require(memory == rows, "other rows in memory", name, memory, rows)
            if not is_full:
                continue
            present = {each["version"] for each in self._dataset().versions()}
            if self.is_keyed and writer.raw._writer.base.version in present:
                self._check_scan(writer, shard, rows)

    def _check_scan(
        self, writer: _Writer, shard: _Shard, memory: list[tuple[int, int | None]]
    ) -> None:
        base = self._dataset().checkout_version(writer.raw._writer.base.version).to_table()
        current = dict(zip(base["id"].to_pylist(), base["v"].to_pylist(), strict=True))
        merged = self._merged_in(writer.raw._writer.base.version) or {}
        mine = merged.get(writer.raw.shard_id, 0)
        tables = [rows for generation, rows in shard.tables if generation > mine]
        for key, v in [row for rows in [*tables, memory] for row in rows]:
            current.pop(key, None)
            if v is not None:
                current[key] = v
        seen = writer.raw.lsm_scanner().to_table()
        found = dict(zip(seen["id"].to_pylist(), seen["v"].to_pylist(), strict=True))
        _require(found == current, "another scan", found, current)

    def _finish(self) -> None:
        """Replay all logs, and merge and drop them."""
        self._begin() if not self.has_log else None
        for name, shard in self.shards.items():
            shard.writer = None
            if shard.status == "active":
                raw = self._dataset().mem_wal_writer(name)
                rows = [row for each in shard.logged for row in each.rows]
                seen = raw._writer.rows
                replayed = list(zip(seen["id"].to_pylist(), seen["v"].to_pylist(), strict=True))
                _require(replayed == rows, "other rows replayed", name, replayed, rows)
                shard.writer = _Writer(raw, {"durable_write": True}, [*shard.logged])
                raw.close()
                self._flush_memory(shard, shard.writer)
                shard.writer = None
        self._merge()
        self._check()
        self._drop()
        left = [info.path for info in MemoryStore(_BUCKET).list("t/_mem_wal")]
        tables = [each.sstables for each in self._raw_shards()]
        _require(not any(tables), "tables are left", tables, left)
        self._check()


def run(seed: int, num_steps: int = 40) -> None:
    """Run a history; raise `ViolationError` if a result differs from the model."""
    with without_caches():
        _History(seed).run(num_steps)


_UNSUPPORTED: Final = UnsupportedError
_CALLS: Final = {
    "open": 6,
    "crash": 1,
    "put": 20,
    "delete": 4,
    "put_wrongly": 1,
    "flush": 2,
    "log": 2,
    "close": 2,
    "use_old_writer": 4,
    "merge": 3,
    "collect": 3,
    "seal_shard": 1,
    "drop": 1,
    "begin": 2,
    "open_unsupported": 0.2,
}
