"""Commit handlers publish a version for one writer, and complete unfinished commits."""

import contextlib
import itertools
import pickle
import threading
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    CommitContentionError,
    CommitOutcomeUnknownError,
    CorruptDataError,
    DatasetNotFoundError,
    InvalidInputError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
    VersionNotFoundError,
)
from lancelet.format.operation import ReserveFragments
from lancelet.format.paths import ManifestNaming, manifest_path
from lancelet.io.wrapped import WrappedStore
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.handlers import (
    ExternalStore,
    ManifestRecord,
    PutIfAbsent,
    RenameIfAbsent,
    UserLock,
    handler_of,
)
from lancelet.table.handlers.external import UnfinishedCommitError
from lancelet.table.handlers.sqlite import SqliteRecords
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.faults import FaultyStore
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
)


class Died(BaseException):
    """Ends a writer immediately, without its cleanup."""


class Deadly:
    """Lets `count` requests pass, then ends the writer and rejects further requests."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.fired = False

    def request(self, request, action):
        if self.left == 0:
            self.fired = True
            raise Died(request)
        self.left -= 1
        return action()


class DeadlyRecords:
    """Records of a writer that may die at each of them too."""

    def __init__(self, inner, around) -> None:
        self._inner = inner
        self._around = around

    def __getattr__(self, name):
        method = getattr(self._inner, name)
        return lambda *args: self._around.request(name, lambda: method(*args))


@pytest.fixture
def location(tmp_path):
    options = {"local_sync": "false", "manifest_store": f"sqlite:{tmp_path}/versions.db"}
    return TableLocation.open(str(tmp_path / "t.lance"), options)


def test_the_next_reader_finishes_the_commit_of_a_dead_writer(tmp_path):
    """The writer dies before every request in turn; readers and writers see a whole version."""
    decided = []
    for at in itertools.count():
        options = {"local_sync": "false", "manifest_store": f"sqlite:{tmp_path}/{at}.db"}
        location = TableLocation.open(str(tmp_path / f"{at}.lance"), options)
        first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
        deadly = Deadly(at)
        handler = location.handler
        dying = replace(
            location,
            store=WrappedStore(location.store, deadly),
            handler=replace(handler, records=DeadlyRecords(handler.records, deadly)),
        )
        with contextlib.suppress(Died):
            commit(dying, new_transaction(first.version, ReserveFragments(5)))
        found = open_snapshot(location)
        record = handler.records.latest(handler.table)
        assert record.version == found.version
        assert record.is_final
        # The folder lists the version too, for readers without the database.
        assert lance.dataset(location.uri).version == found.version
        staged = [i for i in location.store.list("_versions") if "manifest-" in i.path]
        # A file that was never recorded, or not deleted in the last step, remains for cleanup.
        assert len(staged) <= 1
        decided.append(found.version)
        assert append_rows(location, found, simple_rows(3, 4)).version == found.version + 1
        if not deadly.fired:
            break
    assert decided == sorted(decided)
    assert decided[0] == 1
    assert decided[-5:] == [2] * 5


@pytest.mark.parametrize("request_name", ["copy", "info"])
def test_an_unfinishable_commit_is_not_read_or_followed(location, request_name):
    def stopped():
        store = FaultyStore(
            location.store, "refuse", at=0, only=lambda each: each.operation == request_name
        )
        return replace(location, store=store)

    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    assert append_rows(stopped(), first, simple_rows(3, 4)).version == 2
    for fails in (
        lambda: open_snapshot(stopped()),
        lambda: open_snapshot(stopped(), 2),
        lambda: stopped().handler.list_versions(stopped().store),
        lambda: append_rows(stopped(), first, simple_rows(4, 5)),
    ):
        with pytest.raises(UnfinishedCommitError, match="before renaming the manifest") as raised:
            fails()
        assert raised.value.facts["version"] == 2
    found = [entry.version for entry in location.handler.list_versions(location.store)]
    assert found == [1, 2]
    assert lance.dataset(location.uri).version == 2
    assert append_rows(location, first, simple_rows(4, 5)).version == 3


def test_an_undeletable_staged_manifest_does_not_block_commits(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    store = FaultyStore(location.store, "refuse", at=0, only=lambda r: r.operation == "delete")
    assert append_rows(replace(location, store=store), first, simple_rows(3, 4)).version == 2
    assert location.handler.records.latest(location.handler.table).is_final


def test_a_version_that_was_never_recorded_is_found_and_recorded(location):
    plain = replace(location, handler=PutIfAbsent())
    first = create_table(plain, SIMPLE_SCHEMA, simple_rows(0, 3))
    assert location.handler.records.latest(location.handler.table) is None
    assert open_snapshot(location).version == 1
    assert open_snapshot(location, 1).version == 1
    assert location.handler.records.latest(location.handler.table).version == 1
    assert append_rows(location, first, simple_rows(3, 4)).version == 2
    with pytest.raises(VersionNotFoundError):
        open_snapshot(location, 9)


def test_a_record_under_a_wrong_version_is_corrupt(location):
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    record = location.handler.records.get(location.handler.table, 1)
    location.handler.records.put_if_absent(location.handler.table, replace(record, version=2))
    with pytest.raises(CorruptDataError, match="wrong version"):
        open_snapshot(location)


def test_records_are_made_once(tmp_path):
    records = SqliteRecords(str(tmp_path / "versions.db"))
    record = ManifestRecord(7, "t/_versions/7.manifest", 5, '"tag"')
    records.put_if_absent("t", record)
    with pytest.raises(AlreadyExistsError):
        records.put_if_absent("t", replace(record, path="other"))
    records.put_if_absent("u", record)
    assert records.get("t", 7) == records.latest("t") == record
    assert records.get("t", 8) is None
    assert records.latest("v") is None
    records.update("t", replace(record, size=6))
    assert records.get("t", 7).size == 6
    assert pickle.loads(pickle.dumps(records)).get("u", 7) == record
    with pytest.raises(StorageError, match="cannot be used"):
        SqliteRecords(str(tmp_path / "missing" / "versions.db")).latest("t")


@pytest.mark.parametrize("name", ["put", "rename", "lock", "sqlite"])
def test_appends_of_threads_all_land(tmp_path, name):
    lock = threading.Lock()
    handler = {
        "put": PutIfAbsent(),
        "rename": RenameIfAbsent(),
        "lock": UserLock(lambda _: lock),
        "sqlite": ExternalStore(SqliteRecords(str(tmp_path / "versions.db")), "t"),
    }[name]
    location = replace(
        TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"}), handler=handler
    )
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    threads = [
        threading.Thread(target=append_rows, args=(location, first, simple_rows(i, i + 1)))
        for i in range(1, 7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latest = open_snapshot(location)
    assert (latest.version, latest.num_rows) == (7, 7)
    assert not [i for i in location.store.list("_versions") if "manifest-" in i.path]


def test_a_commit_lock_receives_the_version_and_is_released_when_the_put_fails(tmp_path):
    held = []

    @contextlib.contextmanager
    def lock(version):
        held.append(version)
        yield
        held.append("left")

    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    options = CommitOptions(handler=UserLock(lock), attempts=1)
    commit(location, new_transaction(first.version, ReserveFragments(1)), options)
    assert held == [2, "left"]
    handler = UserLock(lock)
    with pytest.raises(AlreadyExistsError):
        handler.publish(location.store, open_snapshot(location).entry.path, b"", version=2)
    silent = FaultyStore(location.store, "lose_reply", at=0, only=lambda r: r.operation == "put")
    with pytest.raises(CommitOutcomeUnknownError):
        handler.publish(silent, "_versions/x.manifest", b"", version=3)


def test_a_race_that_is_lost_every_time_is_contention(tmp_path):
    class Taken(PutIfAbsent):
        def publish(self, store, path, data, *, version):
            raise AlreadyExistsError("taken", at=(store.uri, path, len(data), version))

    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    with pytest.raises(CommitContentionError, match="lost the race"):
        commit(
            location,
            new_transaction(first.version, ReserveFragments(1)),
            CommitOptions(attempts=3, handler=Taken()),
        )


def test_an_unknown_outcome_is_reported(tmp_path):
    class Silent(PutIfAbsent):
        def publish(self, store, path, data, *, version):
            raise CommitOutcomeUnknownError("silence", at=(store.uri, path, len(data), version))

    class SilentThenGone(Silent):
        def find_latest(self, store):
            SilentThenGone.asked += 1
            if SilentThenGone.asked > 1:
                raise StorageUnavailableError("gone")
            return super().find_latest(store)

        asked = 0

    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    transaction = new_transaction(first.version, ReserveFragments(1))
    for handler in (Silent(), SilentThenGone()):
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            commit(location, transaction, CommitOptions(attempts=2, handler=handler))
        assert caught.value.facts["uuid"] == transaction.uuid


def test_handlers_are_chosen_by_uri_and_option():
    assert handler_of("/data/t") == PutIfAbsent()
    chosen = handler_of("s3+ddb://b/data/t?ddbTableName=commits")
    assert chosen.table == "data/t"
    assert chosen.below("tree/x").table == "data/t/tree/x"
    assert pickle.loads(pickle.dumps(chosen)) == chosen
    assert handler_of("/data/t", {"manifest_store": "sqlite:/x"}).records == SqliteRecords("/x")
    for uri in ("s3+ddb://b/t", "s3+ddb://b/t?ddbTableName=a&b=c", "s3+ddb://b/t?other=x"):
        with pytest.raises(InvalidInputError, match="ddbTableName"):
            handler_of(uri)
    with pytest.raises(UnsupportedError, match="unknown kind of database"):
        handler_of("/data/t", {"manifest_store": "redis:x"})


def test_a_path_is_free_again_after_its_table_was_dropped(tmp_path):
    """The database still has records of versions without manifests."""
    options = {"manifest_store": f"sqlite:{tmp_path}/versions.db"}
    uri = str(tmp_path / "t")
    stale = lancelet.write_dataset(pa.table({"id": [1]}), uri, storage_options=options)
    for _ in range(3):
        lancelet.write_dataset(pa.table({"id": [2]}), uri, mode="append", storage_options=options)
    lancelet.LanceDataset.drop(uri, storage_options=options)
    with pytest.raises(DatasetNotFoundError):
        lancelet.dataset(uri, storage_options=options)
    with pytest.raises(DatasetNotFoundError):
        stale.insert(pa.table({"id": [3]}))
    again = lancelet.write_dataset(pa.table({"id": [7]}), uri, storage_options=options)
    assert again.version == 1
    again.insert(pa.table({"id": [8]}))
    assert again.version == 2
    assert lancelet.dataset(uri, storage_options=options).count_rows() == 2


def test_a_delayed_writer_does_not_treat_a_table_as_dropped(tmp_path, monkeypatch):
    """All versions that the database returned are cleaned up before the commit continues."""
    options = {"manifest_store": f"sqlite:{tmp_path}/versions.db"}
    uri = str(tmp_path / "t")

    def append() -> None:
        lancelet.write_dataset(pa.table({"id": [1]}), uri, mode="append", storage_options=options)

    lancelet.write_dataset(pa.table({"id": [1]}), uri, storage_options=options)
    append()
    every = SqliteRecords.every

    def held_up(records, table):
        found = every(records, table)
        append()
        lancelet.dataset(uri, storage_options=options).cleanup_old_versions(retain_versions=1)
        return found

    monkeypatch.setattr(SqliteRecords, "every", held_up)
    location = TableLocation.open(uri, options)
    path = manifest_path(2, ManifestNaming.V2)
    with pytest.raises(AlreadyExistsError):
        location.handler.publish(location.store, path, b"too late", version=2)
    assert location.handler.find_latest(location.store).version == 3


def test_a_stale_handle_continues_where_versions_were_cleaned_up(tmp_path):
    options = {"manifest_store": f"sqlite:{tmp_path}/versions.db"}
    uri = str(tmp_path / "t")
    stale = lancelet.write_dataset(pa.table({"id": [1, 2]}), uri, storage_options=options)
    for row in (3, 4):
        latest = lancelet.write_dataset(
            pa.table({"id": [row]}), uri, mode="append", storage_options=options
        )
    latest.cleanup_old_versions(retain_versions=1)
    stale.delete("id = 1")
    found = lancelet.dataset(uri, storage_options=options).to_table()["id"].to_pylist()
    assert sorted(found) == [2, 3, 4]


def test_records_are_forgotten_only_as_they_were_read(tmp_path):
    database = SqliteRecords(str(tmp_path / "versions.db"))
    first = ManifestRecord(1, "t/_versions/1.manifest", 5)
    database.put_if_absent("t", first)
    database.forget("t", replace(first, path="t/_versions/other.manifest"))
    assert database.every("t") == [first]
    database.forget("t", first)
    assert database.every("t") == []
