"""Goal: acknowledged rows of a shard writer are never lost or duplicated.

Method: every storage request of a writer's life is refused once, and once done without a reply.
What failed is tried once more by the same writer; then another one replays the log. The table has
no key, so a row that was written twice would be seen.
"""

import contextlib
import itertools
import uuid
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    NotFoundError,
    StorageError,
)
from lancelet.format.shard_manifest import SEALED
from lancelet.io.wrapped import WrappedStore
from lancelet.memwal.compact import compact_log
from lancelet.memwal.discovery import record_shards
from lancelet.memwal.shard import Shard
from lancelet.memwal.upkeep import collect_log, seal_shard
from lancelet.memwal.writer import MemWalWriter
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore

SHARD = uuid.UUID(int=7)
NO_SYNC = {"local_sync": "false"}
FAULTS = pytest.mark.parametrize("fault", ["refuse", "lose_reply"])


def batch(key):
    return pa.record_batch({"id": pa.array([key], pa.int64())})


def begun(uri):
    dataset = lancelet.write_dataset(pa.table({"id": pa.array([], pa.int64())}), uri)
    dataset.initialize_mem_wal(unsharded=True, max_memtable_batches=3)


def flushed(uri):
    """Return how often each row is in the tables of the shard, by the reference."""
    shard = Shard(TableLocation.open(uri, NO_SYNC), SHARD)
    found = Counter()
    for table in shard.latest().sstables:
        folder = f"{uri}/_mem_wal/{SHARD}/{table.path}"
        found.update(lance.dataset(folder).to_table()["id"].to_pylist())
    return found


def write(writer, keys, confirmed):
    """Put rows one by one, each once more if it fails without having reached the log."""
    for key in keys:
        before = writer.counts.puts
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            writer.put([batch(key)])
        if writer.counts.puts == before:
            writer.put([batch(key)])
        confirmed.append(key)


@FAULTS
def test_put_rows_exist_once_after_any_failure(tmp_path, fault):
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        begun(uri)
        plain = TableLocation.open(uri, NO_SYNC)
        store = FaultyStore(plain.store, fault, at=request)
        confirmed = []
        snapshot = open_snapshot(plain)
        faulty = replace(snapshot, location=replace(plain, store=store))
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            writer = MemWalWriter(faulty, SHARD, {})
            write(writer, range(5), confirmed)
            with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
                writer.flush()
            write(writer, [5], confirmed)  # no close: the process ended here
        last = MemWalWriter(snapshot, SHARD, {})
        last.put([batch(6)])
        last.close()
        assert flushed(uri) == Counter([*confirmed, 6]), request
        if not store.fired:
            break
    assert confirmed == list(range(6))
    assert request > 25


@FAULTS
def test_collecting_and_sealing_lose_nothing_after_any_failure(tmp_path, fault):
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        begun(uri)
        plain = TableLocation.open(uri, NO_SYNC)
        snapshot = open_snapshot(plain)
        first = MemWalWriter(snapshot, SHARD, {})
        for key in range(4):
            first.put([batch(key)])
        first.close()
        store = FaultyStore(plain.store, fault, at=request)
        faulty = replace(snapshot, location=replace(plain, store=store))
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            collect_log(faulty)
            seal_shard(faulty, SHARD)
        collect_log(snapshot)
        assert flushed(uri) == Counter(range(4)), request
        assert not list((tmp_path / str(request)).glob("_mem_wal/*/wal/00*"))
        if not store.fired:
            break
    assert request > 10
    assert Shard(plain, SHARD).latest().status == SEALED


class _Paused(WrappedStore):
    """A store at whose request `at` its client is stopped, while `others` do what they like."""

    def __init__(self, inner, at, others):
        self.place, self.others, self.seen, self.fired = at, others, 0, False
        super().__init__(inner, self)

    def request(self, request, action):
        del request
        number, self.seen = self.seen, self.seen + 1
        if number == self.place:
            self.fired = True
            self.others()
        return action()


def merged(uri):
    """Return how often each row is in the table, once all that shards have is merged."""
    snapshot = open_snapshot(TableLocation.open(uri, NO_SYNC))
    last = MemWalWriter(snapshot, SHARD, {})
    last.close()
    compact_log(snapshot)
    return Counter(lance.dataset(uri).to_table()["id"].to_pylist())


def live(store, snapshot, confirmed):
    """Write, flush and write again, and note what was confirmed."""
    writer = MemWalWriter(store(snapshot), SHARD, {})
    for key in range(3):
        writer.put([batch(key)])
        confirmed.append(key)
    writer.flush()
    writer.put([batch(3)])
    confirmed.append(3)


WORK = {
    "write": live,
    "merge": lambda store, snapshot, _: compact_log(store(snapshot)),
    "collect": lambda store, snapshot, _: collect_log(store(snapshot)),
    "note": lambda store, snapshot, _: record_shards(store(snapshot)),
}


@pytest.mark.slow
@pytest.mark.parametrize("work", WORK)
def test_a_paused_writer_loses_or_duplicates_nothing(tmp_path, work):
    """Goal: a writer, merger or collector may be stopped at any request, while others write, flush,
    merge, clean up and collect. Method: that happens at request 0, then at 1, and so on."""
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        begun(uri)
        plain = TableLocation.open(uri, NO_SYNC)
        snapshot = open_snapshot(plain)
        confirmed, fresh = [], itertools.count(100)

        def put_one(snapshot=snapshot, confirmed=confirmed, fresh=fresh):
            key = next(fresh)
            writer = MemWalWriter(snapshot, SHARD, {})
            writer.put([batch(key)])
            confirmed.append(key)
            writer.close()

        def others(uri=uri, put_one=put_one, snapshot=snapshot):
            put_one()
            compact_log(snapshot)
            put_one()
            lancelet.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
            collect_log(open_snapshot(TableLocation.open(uri, NO_SYNC)))

        put_one()
        put_one()
        paused = _Paused(plain.store, request, others)
        with contextlib.suppress(CommitError, StorageError, NotFoundError):
            WORK[work](
                lambda s, p=paused, plain=plain: replace(s, location=replace(plain, store=p)),
                snapshot,
                confirmed,
            )
        assert merged(uri) == Counter(confirmed), request
        if not paused.fired:
            break
    assert request > 5


@FAULTS
def test_merges_run_once_after_any_failure(tmp_path, fault):
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        begun(uri)
        plain = TableLocation.open(uri, NO_SYNC)
        snapshot = open_snapshot(plain)
        for key in range(2):
            writer = MemWalWriter(snapshot, SHARD, {})
            writer.put([batch(key)])
            writer.close()
        store = FaultyStore(plain.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitError):
            compact_log(replace(snapshot, location=replace(plain, store=store)))
        assert merged(uri) == Counter(range(2)), request
        if not store.fired:
            break
    assert request > 10
