"""Batches of streams in the log: ordered, stored once per key, and readable immediately."""

import threading
import uuid

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitError, InvalidInputError
from lancelet.mem_wal import LsmScanner
from lancelet.memwal.ingest import flush_logs, log_batch
from lancelet.memwal.shard import Shard, list_shards
from lancelet.memwal.writer import MemWalWriter

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), False, KEY), pa.field("v", pa.string())])


def rows(ids, text="a"):
    return pa.table({"id": list(ids), "v": [f"{text}{each}" for each in ids]}, SCHEMA)


@pytest.fixture
def table(tmp_path):
    dataset = lancelet.write_dataset(rows(range(5), "base"), str(tmp_path / "t"))
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=3)
    return dataset


def fresh(dataset):
    found = LsmScanner.fresh(dataset).to_table()
    return dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True))


def test_a_batch_is_read_at_once_and_commits_no_rows(table):
    assert log_batch(table.snapshot, rows([3, 4, 5, 6]), "s", 0)
    expected = {n: f"base{n}" for n in range(3)} | {n: f"a{n}" for n in range(3, 7)}
    assert fresh(table) == expected
    assert lancelet.dataset(table.uri).count_rows() == 5
    # Each key is in the shard of its bucket, and stays there.
    assert 1 < len(list_shards(table.snapshot.location)) <= 3


def test_a_batch_is_logged_for_all_writer_settings_of_the_table(tmp_path):
    dataset = lancelet.write_dataset(rows(range(2), "base"), str(tmp_path / "t"))
    dataset.initialize_mem_wal(unsharded=True, durable_write=False)
    assert log_batch(dataset.snapshot, rows([2]), "s", 0)
    assert fresh(dataset) == {0: "base0", 1: "base1", 2: "a2"}


def test_a_batch_that_comes_again_changes_nothing(table):
    log_batch(table.snapshot, rows([5, 6]), "s", 0)
    log_batch(table.snapshot, rows([6, 7], "b"), "s", 1)
    assert log_batch(table.snapshot, rows([6, 7], "b"), "s", 1)
    assert fresh(table) == {n: f"base{n}" for n in range(5)} | {5: "a5", 6: "b6", 7: "b7"}


def test_an_earlier_batch_is_left_out_once_a_later_one_began(table):
    log_batch(table.snapshot, rows([5], "late"), "s", 8)
    assert not log_batch(table.snapshot, rows([5, 6], "early"), "s", 7)
    assert fresh(table)[5] == "late5"
    assert 6 not in fresh(table)
    # Another stream has its own count.
    assert log_batch(table.snapshot, rows([6], "other"), "of others/..", 0)
    assert fresh(table)[6] == "other6"


def test_a_run_that_was_stopped_before_it_put_comes_too_late(table, monkeypatch):
    held, go_on = threading.Event(), threading.Event()
    opened = MemWalWriter.__init__
    first = []

    def stopped(self, *arguments):
        if not first:
            first.append(self)
            held.set()
            assert go_on.wait(60)
        opened(self, *arguments)

    monkeypatch.setattr(MemWalWriter, "__init__", stopped)
    outcome = []
    early = threading.Thread(
        target=lambda: outcome.append(log_batch(table.snapshot, rows([5], "early"), "s", 7))
    )
    early.start()
    assert held.wait(60)
    assert log_batch(table.snapshot, rows([5], "late"), "s", 8)
    go_on.set()
    early.join()
    assert outcome == [False]
    assert fresh(table)[5] == "late5"


def test_a_run_that_was_stopped_while_it_put_is_rejected_by_the_shard(table, monkeypatch):
    held, go_on = threading.Event(), threading.Event()
    put = MemWalWriter.put
    first = []

    def stopped(self, batches):
        if not first:
            first.append(self)
            held.set()
            assert go_on.wait(60)
        put(self, batches)

    monkeypatch.setattr(MemWalWriter, "put", stopped)
    outcome = []
    early = threading.Thread(
        target=lambda: outcome.append(log_batch(table.snapshot, rows([5], "early"), "s", 7))
    )
    early.start()
    assert held.wait(60)
    assert log_batch(table.snapshot, rows([5], "late"), "s", 8)
    go_on.set()
    early.join()
    assert outcome == [False]
    assert fresh(table)[5] == "late5"


def test_logs_are_flushed_and_merged_during_a_stream(table):
    for number in range(40):
        log_batch(table.snapshot, rows(range(number, number + 10), f"{number}-"), "s", number)
        if number % 7 == 3:
            dataset = lancelet.dataset(table.uri)
            dataset.compact_mem_wal(flush=True)
            dataset.cleanup_old_versions(older_than=None, retain_versions=1)
            dataset.collect_mem_wal()
    expected = {n: f"base{n}" for n in range(0)}
    for number in range(40):
        expected |= {n: f"{number}-{n}" for n in range(number, number + 10)}
    assert fresh(table) == expected
    dataset = lancelet.dataset(table.uri)
    assert flush_logs(dataset.snapshot) > 0
    assert flush_logs(dataset.snapshot) == 0
    dataset.compact_mem_wal()
    found = lance.dataset(table.uri).to_table()
    assert dict(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    noted = table.snapshot.location.store.list_names("_streams/s")
    assert noted == ["39"]


def test_logs_are_flushed_where_a_stream_claims_their_shards_meanwhile(table, monkeypatch):
    log_batch(table.snapshot, rows(range(10), "first"), "s", 0)
    close, numbers = MemWalWriter.close, iter((1, 2))

    def beside_a_batch(self):
        number = next(numbers, None)
        if number is not None:
            log_batch(table.snapshot, rows(range(10), f"{number}-"), "s", number)
        close(self)

    monkeypatch.setattr(MemWalWriter, "close", beside_a_batch)
    table.compact_mem_wal(flush=True)
    found = lance.dataset(table.uri).to_table()
    assert sorted(found["v"].to_pylist()) == [f"2-{each}" for each in range(10)]


def test_many_batches_leave_a_short_log(table):
    for number in range(70):
        log_batch(table.snapshot, rows([5], f"{number}-"), "s", number)
    (shard,) = list_shards(table.snapshot.location)
    log = Shard(table.snapshot.location, shard)
    assert len(list(log.entries(log.latest().replay_after))) < 70
    assert fresh(table)[5] == "69-5"


def test_a_batch_larger_than_the_memory_limit_is_put_in_parts(table):
    ids = np.arange(250_000)
    large = pa.table({"id": ids, "v": pa.array(ids).cast(pa.string())}, SCHEMA)
    assert log_batch(table.snapshot, large, "s", 0)
    assert LsmScanner.fresh(table).count_rows() == 250_000


def test_fresh_rows_follow_a_change_of_the_table(table):
    log_batch(table.snapshot, rows([7]), "s", 0)
    table.add_columns(pa.schema([pa.field("w", pa.float64())]))
    found = LsmScanner.fresh(table).filter("id = 7").to_table()
    assert found.to_pylist() == [{"id": 7, "v": "a7", "w": None}]


def test_a_stream_needs_a_key_and_a_log(tmp_path, table):
    plain = lancelet.write_dataset(pa.table({"id": [1]}), str(tmp_path / "plain"))
    with pytest.raises(InvalidInputError, match="primary key"):
        log_batch(plain.snapshot, pa.table({"id": [2]}), "s", 0)
    keyed = lancelet.write_dataset(rows([1]), str(tmp_path / "keyed"))
    with pytest.raises(InvalidInputError, match=r"log|mem_wal|MemWAL"):
        log_batch(keyed.snapshot, rows([2]), "s", 0)
    with pytest.raises(InvalidInputError, match="flush"):
        table.compact_mem_wal(flush=True, dry_run=True)


def test_a_writer_of_a_shard_is_rejected_once_a_batch_claims_it(table):
    log_batch(table.snapshot, rows([5]), "s", 0)
    (shard,) = list_shards(table.snapshot.location)
    writer = table.mem_wal_writer(str(shard))
    log_batch(table.snapshot, rows([5], "b"), "s", 1)
    with pytest.raises(CommitError):
        writer.put(rows([5], "mine"))
    assert fresh(table)[5] == "b5"
    assert uuid.UUID(str(shard)) == shard
