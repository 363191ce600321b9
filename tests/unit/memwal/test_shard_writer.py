"""A shard's writer does the same work for every put, takes them from any thread, and waits for
the log as it is told to."""

import logging
import threading
import time
import uuid
from dataclasses import replace

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    StorageUnavailableError,
    UnsupportedError,
)
from lancelet.format.schema import Schema
from lancelet.format.shard_manifest import wal_entry_path
from lancelet.io.wrapped import WrappedStore
from lancelet.memwal import memtable
from lancelet.memwal.reconcile import stored_schema
from lancelet.memwal.shard import FencedError, Shard
from lancelet.memwal.sharding import ShardingField, ShardingSpec
from lancelet.memwal.state import initialize_mem_wal
from lancelet.memwal.writer import LostWriterError, MemWalWriter, PutError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore

SHARD = uuid.UUID(int=7)
KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=KEY), ("v", pa.string())])
QUICK = {"wal_persist_retry_base_delay_ms": 0}


def batch(*ids, v="x"):
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "v": [v] * len(ids)})


def table(path, **how):
    uri = str(path / "t")
    lancelet.write_dataset(pa.table({"id": [0], "v": ["a"]}, SCHEMA), uri)
    lancelet.dataset(uri).initialize_mem_wal(unsharded=True, **how)
    return open_snapshot(TableLocation.open(uri, {"local_sync": "false"}))


def with_store(snapshot, store):
    return replace(snapshot, location=replace(snapshot.location, store=store))


def entries(snapshot):
    shard = Shard(snapshot.location, SHARD)
    return [each for each in shard.entries(0) if not each.is_fence]


def ids_of(found):
    return [key for each in found for part in each.batches for key in part["id"].to_pylist()]


def test_the_cost_of_a_put_does_not_depend_on_earlier_puts(tmp_path, monkeypatch):
    """Goal: 1,000 puts are linear. Method: count looks at batches, and requests, of each put."""
    seen = []

    class Counted:
        """A list that counts how often all of it is walked."""

        def __init__(self):
            self.items = []

        def __iter__(self):
            seen.append(len(self.items))
            return iter(self.items)

        def __len__(self):
            return len(self.items)

        def __bool__(self):
            return bool(self.items)

        def __iadd__(self, more):
            self.items.extend(more)
            return self

    snapshot = table(tmp_path)
    store = FaultyStore(snapshot.location.store)
    writer = MemWalWriter(with_store(snapshot, store), SHARD, {})
    monkeypatch.setattr(writer, "_memory", memtable.MemTable(Counted()))
    requests = []
    for key in range(1000):
        before = store.requests
        writer.put([batch(key)])
        requests.append(store.requests - before)
    assert set(requests) == {1}
    assert seen == []
    assert writer.num_batches == 1000
    assert seen == [1000]


def test_threads_put_at_the_same_time(tmp_path):
    """All rows are acknowledged, and in the log once; what waits together shares an entry."""
    snapshot = table(tmp_path)
    store = FaultyStore(snapshot.location.store, delay_seconds=0.002)
    writer = MemWalWriter(with_store(snapshot, store), SHARD, {"max_memtable_rows": 70})
    failed = []

    def put(number):
        try:
            for key in range(25):
                writer.put([batch(number * 1000 + key)])
        except BaseException as error:  # noqa: BLE001 - told to the test
            failed.append(error)

    threads = [threading.Thread(target=put, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = sorted(number * 1000 + key for number in range(4) for key in range(25))
    assert failed == []
    assert writer.counts.puts == 100
    assert sorted(ids_of(entries(snapshot))) == expected
    assert writer.counts.wal_flushes < 100
    assert writer.counts.flushes == 1
    again = MemWalWriter(snapshot, SHARD, {})
    assert len(again.rows) + sum(x.physical_rows for x in again.manifest.sstables) == 100
    order = [key for key in ids_of(entries(snapshot)) if key < 1000]
    assert order == sorted(order)


def test_rows_stay_in_memory_without_durable_writes(tmp_path):
    snapshot = table(tmp_path)
    lazy = {"durable_write": False, "max_wal_flush_interval_ms": 0, "max_wal_buffer_size": 200}
    writer = MemWalWriter(snapshot, SHARD, lazy)
    size = writer_bytes(batch(1))
    for key in range(3):
        writer.put([batch(key)])
    assert entries(snapshot) == []
    assert writer.rows["id"].to_pylist() == [0, 1, 2]
    for key in range(3, 3 + 200 // size + 1):
        writer.put([batch(key)])
    logged = entries(snapshot)
    assert len(logged) == 1
    assert len(ids_of(logged)) == 200 // size
    assert writer.rows["id"].to_pylist() == list(range(len(writer.rows)))
    writer.close()
    assert len(entries(snapshot)) == 2
    assert sum(each.physical_rows for each in writer.manifest.sstables) == len(
        ids_of(entries(snapshot))
    )


def writer_bytes(rows):
    return rows.nbytes + 1


def test_rows_of_non_durable_writes_are_logged_after_an_interval(tmp_path):
    snapshot = table(tmp_path)
    lazy = {"durable_write": False, "max_wal_flush_interval_ms": 1}
    writer = MemWalWriter(snapshot, SHARD, lazy)
    writer.put([batch(1)])
    while not entries(snapshot):
        time.sleep(0.001)
    assert ids_of(entries(snapshot)) == [1]
    writer.close()


def test_writers_flush_before_they_hold_more_than_they_may(tmp_path):
    snapshot = table(tmp_path)
    most = {"max_unflushed_memtable_bytes": 3 * writer_bytes(batch(1))}
    writer = MemWalWriter(snapshot, SHARD, most)
    for key in range(7):
        writer.put([batch(key)])
    assert writer.counts.flushes == 2
    assert len(writer.rows) == 1


def test_a_put_is_in_one_generation(tmp_path):
    snapshot = table(tmp_path)
    writer = MemWalWriter(snapshot, SHARD, {"max_memtable_rows": 5})
    writer.put([batch(1, 2, 3)])
    writer.put([batch(4, 5, 6)])
    assert [each.generation for each in entries(snapshot)] == [1, 2]
    assert [each.physical_rows for each in writer.manifest.sstables] == [3]
    with pytest.raises(PutError, match="never split"):
        writer.put([batch(*range(6))])
    few = MemWalWriter(snapshot, uuid.UUID(int=8), {"max_memtable_batches": 2})
    few.put([batch(key) for key in range(9)])
    assert len(few.rows) == 9


def test_long_waits_are_logged(tmp_path, caplog):
    snapshot = table(tmp_path)
    writer = MemWalWriter(
        snapshot, SHARD, {"backpressure_log_interval_ms": 1, "stats_log_interval_ms": 1}
    )
    begun, goes_on = threading.Event(), threading.Event()

    def hold():
        begun.set()
        goes_on.wait()

    holder = threading.Thread(target=writer._exclusively, args=(hold,))
    holder.start()
    begun.wait()
    putter = threading.Thread(target=writer.put, args=([batch(1)],))
    with caplog.at_level(logging.INFO, logger="pylance"):
        putter.start()
        while "has waited" not in caplog.text:
            time.sleep(0.001)
        goes_on.set()
        holder.join()
        putter.join()
        time.sleep(0.002)
        writer.put([batch(2)])
    assert "2 puts" in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_memtable_rows": 0},
        {"max_memtable_size": 0},
        {"max_memtable_batches": 0},
        {"manifest_scan_batch_size": 0},
        {"max_wal_buffer_size": -1},
    ],
    ids=str,
)
def test_settings_without_sense_are_rejected_before_the_shard_is_claimed(tmp_path, wrong):
    snapshot = table(tmp_path)
    with pytest.raises(InvalidInputError, match="at least"):
        MemWalWriter(snapshot, SHARD, wrong)
    assert Shard(snapshot.location, SHARD).latest() is None


def test_defaults_of_the_table_count(tmp_path):
    snapshot = table(
        tmp_path, max_memtable_rows=2, durable_write=False, max_wal_flush_interval_ms=0
    )
    writer = MemWalWriter(snapshot, SHARD, {})
    writer.put([batch(1)])
    assert entries(snapshot) == []
    writer.put([batch(2), batch(3)])
    writer.close()
    assert [each.physical_rows for each in writer.manifest.sstables] == [1, 2]


def test_tables_that_split_rows_by_several_rules_are_not_written(tmp_path):
    snapshot = table(tmp_path)
    field = ShardingField("b", (), "unsharded", None, "int32")
    uri = str(tmp_path / "two")
    lancelet.write_dataset(pa.table({"id": [0], "v": ["a"]}, SCHEMA), uri)
    plain = open_snapshot(TableLocation.open(uri))
    made = initialize_mem_wal(
        plain, [ShardingSpec(1, (field,)), ShardingSpec(2, (field,))], maintained=None
    )
    with pytest.raises(UnsupportedError, match="several sharding rules"):
        MemWalWriter(made, SHARD, {})
    assert Shard(made.location, SHARD).latest() is None
    assert MemWalWriter(snapshot, SHARD, {}).manifest.spec_id == 1


class _Answers(WrappedStore):
    """A store that fails puts of the log as it is told, for as long as it is told."""

    def __init__(self, inner):
        self.fails = None
        super().__init__(inner, self)

    def request(self, request, action):
        if self.fails is None or request.operation != "put_if_absent":
            return action()
        if self.fails is CommitOutcomeUnknownError:
            action()
        raise self.fails("made to fail")


def test_rejected_puts_are_absent_and_the_writer_continues(tmp_path):
    snapshot = table(tmp_path)
    store = _Answers(snapshot.location.store)
    writer = MemWalWriter(with_store(snapshot, store), SHARD, QUICK)
    writer.put([batch(1)])
    store.fails = StorageUnavailableError
    with pytest.raises(StorageUnavailableError):
        writer.put([batch(2)])
    store.fails = None
    writer.put([batch(3)])
    assert writer.rows["id"].to_pylist() == [1, 3]
    assert ids_of(entries(snapshot)) == [1, 3]


def test_a_writer_with_an_unknown_outcome_reports_it_and_stops(tmp_path):
    snapshot = table(tmp_path)
    broken = _Unreadable(snapshot.location.store)
    writer = MemWalWriter(with_store(snapshot, broken), SHARD, QUICK)
    broken.is_broken = True
    with pytest.raises(CommitOutcomeUnknownError):
        writer.put([batch(2)])
    broken.is_broken = False
    with pytest.raises(LostWriterError, match="replays the log"):
        writer.put([batch(3)])
    assert MemWalWriter(snapshot, SHARD, {}).rows["id"].to_pylist() == [2]


class _Unreadable(WrappedStore):
    """A store that loses replies of puts, and does not read."""

    def __init__(self, inner):
        self.is_broken = False
        super().__init__(inner, self)

    def request(self, request, action):
        if not self.is_broken:
            return action()
        if request.operation == "put_if_absent":
            action()
            raise CommitOutcomeUnknownError("made to fail")
        raise StorageUnavailableError("made to fail")


def test_flushes_that_fail_do_not_fail_the_put_that_filled_the_memory(tmp_path):
    snapshot = table(tmp_path)
    store = FaultyStore(
        snapshot.location.store, at=0, only=lambda request: request.path.startswith("data/")
    )
    writer = MemWalWriter(with_store(snapshot, store), SHARD, {**QUICK, "max_memtable_rows": 2})
    writer.put([batch(1, 2)])
    assert (writer.counts.puts, writer.counts.failed_flushes, len(writer.rows)) == (1, 1, 2)
    writer.put([batch(3)])
    assert [each.physical_rows for each in writer.manifest.sstables] == [2]
    assert writer.rows["id"].to_pylist() == [3]


def test_a_mark_that_was_left_late_does_not_stop_the_later_writer(tmp_path):
    """A claimer stops between its state and its mark; another claims and writes; it goes on."""
    snapshot = table(tmp_path)
    MemWalWriter(snapshot, SHARD, {}).put([batch(1)])
    slow = Shard(snapshot.location, SHARD)
    claimed = slow._claim(1, 1)
    writer = MemWalWriter(snapshot, SHARD, {})
    writer.put([batch(2)])
    position = slow._write_fence(claimed)
    with pytest.raises(FencedError) as raised:
        slow.publish(replace(claimed, version=claimed.version + 1, last_seen=position))
    latest = slow.latest()
    assert latest is not None
    assert raised.value.facts["latest_epoch"] == latest.writer_epoch > claimed.writer_epoch
    writer.put([batch(3)])
    assert writer.rows["id"].to_pylist() == [1, 2, 3]
    assert slow.is_fence(position)
    assert MemWalWriter(snapshot, SHARD, {}).rows["id"].to_pylist() == [1, 2, 3]
    with pytest.raises(FencedError):
        writer.put([batch(4)])


def test_logs_of_several_generations_are_flushed_when_they_are_opened(tmp_path):
    """Entries of one generation must follow each other, or readers of the log misjudge it."""
    snapshot = table(tmp_path)
    first = MemWalWriter(snapshot, SHARD, {})
    first.put([batch(1)])
    first.shard.append(2, [first.rows.to_batches()[0]], first._logged, epoch=1, generation=2)
    again = MemWalWriter(snapshot, SHARD, {})
    assert (again.manifest.current_generation, len(again.rows)) == (2, 0)
    assert again.manifest.replay_after == 3


def test_nothing_is_walked_by_numbers_that_a_shard_claims(tmp_path):
    """Entries are deleted as they are listed: a state that claims 2^60 of them costs nothing."""
    snapshot = table(tmp_path)
    writer = MemWalWriter(snapshot, SHARD, {})
    writer.put([batch(1)])
    writer.shard.publish(
        replace(writer.manifest, version=writer.manifest.version + 1, replay_after=1 << 60)
    )
    assert lancelet.dataset(snapshot.location.uri).collect_mem_wal().wal_entries == 1
    assert not snapshot.location.store.exists(f"{writer.shard.folder}/{wal_entry_path(1)}")


def test_columns_of_rows_in_a_shard_are_nullable_except_for_the_key():
    fields = [
        pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64(), nullable=False),
    ]
    stored = stored_schema(Schema.from_arrow(pa.schema(fields)))
    assert {field.name: field.nullable for field in stored.fields[:2]} == {"id": False, "v": True}


def test_deletions_are_replayed_where_other_columns_are_not_nullable(tmp_path):
    fields = [
        pa.field("id", pa.int64(), False, {"lance-schema:unenforced-primary-key": "true"}),
        pa.field("v", pa.int64(), nullable=False),
    ]
    schema = pa.schema(fields)
    dataset = lancelet.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True)
    writer = dataset.mem_wal_writer(str(SHARD))
    writer.put(pa.table({"id": [1, 2], "v": [3, 4]}, schema))
    writer.delete(pa.table({"id": [1]}, pa.schema(fields[:1])))
    again = lancelet.dataset(dataset.uri).mem_wal_writer(str(SHARD))
    assert again.lsm_scanner().to_table().to_pylist() == [{"id": 2, "v": 4}]
