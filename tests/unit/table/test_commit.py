"""Commits are atomic, ordered and applied once; conflicts explain their reason."""

import threading
import time
import uuid

import lance
import numpy as np
import pytest

import lancelet
from lancelet.change.publish import commit_transaction
from lancelet.errors import CommitConflictError, DatasetNotFoundError, VersionNotFoundError
from lancelet.format.operation import (
    Append,
    Delete,
    Overwrite,
    ReserveFragments,
    Restore,
    UpdateConfig,
    UpdateMap,
)
from lancelet.format.trailer import with_trailer
from lancelet.io.trace_events import EVENT_SINKS
from lancelet.rowids.deletion import DeletionVector
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.conflict.resolve import Resolver
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
)


@pytest.fixture
def location(tmp_path):
    return TableLocation.open(str(tmp_path / "table.lance"))


def delete_offsets(location, snapshot, offsets, **options):
    """Commit the deletion of rows of fragment 0, computed from a version."""
    fragment = snapshot.fragments.by_id(0)
    deleted = snapshot.deletions(fragment).union(DeletionVector.of(offsets).offsets)
    changed = with_deletions(fragment, deleted, read_version=snapshot.version)
    assert changed.deletion_file is not None
    path = changed.deletion_file.path(0)
    location.store.put(path, deleted.render(path))
    operation = Delete((changed,), (), f"offset in {list(offsets)}")
    return commit(
        location,
        new_transaction(snapshot.version, operation),
        CommitOptions(affected={0: np.asarray(offsets)}, **options),
    )


@pytest.mark.parametrize("stable_row_ids", [False, True])
def test_the_reference_reads_what_was_committed_and_continues(location, stable_row_ids):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 10), stable_row_ids=stable_row_ids)
    append_rows(location, first, simple_rows(10, 15))
    theirs = lance.dataset(location.uri)
    assert theirs.version == 2
    assert theirs.to_table() == simple_rows(0, 15)
    theirs.delete("id = 3")
    ours = open_snapshot(location)
    assert ours.version == 3
    assert ours.manifest.num_rows == 14
    append_rows(location, ours, simple_rows(15, 16))
    theirs = lance.dataset(location.uri)
    theirs.validate()
    assert theirs.to_table(columns=["id"])["id"].to_pylist() == [0, 1, 2, *range(4, 16)]


def test_there_is_no_table_to_append_to(location):
    with pytest.raises(DatasetNotFoundError, match="does not exist"):
        commit(location, new_transaction(0, Append(())))


def test_appends_from_one_version_all_land(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 2))
    threads = [
        threading.Thread(target=append_rows, args=(location, first, simple_rows(i, i + 1)))
        for i in range(2, 10)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    latest = open_snapshot(location)
    assert latest.version == 9
    assert latest.manifest.num_rows == 10
    assert len(set(latest.fragments.ids.tolist())) == 9


def test_one_attempt_follows_what_is_committed_while_it_judges(location, monkeypatch):
    """Otherwise a writer that reads many concurrent commits would be late for every version."""
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    second = append_rows(location, first, simple_rows(1, 2))
    append_rows(location, second, simple_rows(2, 3))
    judge, meanwhile = Resolver.find_own_version, iter(range(3, 5))

    def slowly(resolver, latest):
        found = judge(resolver, latest)
        if resolver.ours is ours and (row := next(meanwhile, None)) is not None:
            append_rows(location, latest, simple_rows(row, row + 1))
        return found

    ours = new_transaction(1, UpdateConfig(config=UpdateMap({"k": "v"})))
    monkeypatch.setattr(Resolver, "find_own_version", slowly)
    assert commit(location, ours, CommitOptions(attempts=2)).version == 6


@pytest.mark.parametrize("more", [1, 3])
def test_a_writer_that_is_held_up_finds_its_version_cleaned_up(location, monkeypatch, more):
    """Its number is free again, but readers do not look there, so the commit must not succeed."""
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    publish = type(location.handler).publish
    held_up = iter([True])

    def late(handler, store, path, data, *, version):
        if next(held_up, False):
            latest = first
            for row in range(1, 1 + more):
                latest = append_rows(location, latest, simple_rows(row, row + 1))
            lancelet.dataset(location.uri).update_config({"a": "b"})
            for old in range(2, 2 + more):
                location.store.delete(open_snapshot(location, old).entry.path)
            time.sleep(0.3)
        publish(handler, store, path, data, version=version)

    monkeypatch.setattr(type(location.handler), "publish", late)
    with pytest.raises(CommitConflictError, match="cleaned up"):
        append_rows(location, first, simple_rows(8, 9))
    latest = open_snapshot(location)
    assert (latest.version, latest.manifest.num_rows) == (2 + more, 1 + more)
    assert [entry["version"] for entry in lancelet.dataset(location.uri).versions()] == [
        1,
        2 + more,
    ]


def test_deletions_of_different_rows_are_joined(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 10))
    delete_offsets(location, first, [1])
    both = delete_offsets(location, first, [8])
    assert both.deletions(both.fragments[0]).to_array().tolist() == [1, 8]
    assert lance.dataset(location.uri).count_rows() == 8


def test_deletions_of_the_same_row_conflict(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 10))
    delete_offsets(location, first, [1, 2])
    with pytest.raises(CommitConflictError, match="same rows") as caught:
        delete_offsets(location, first, [2, 3])
    facts = caught.value.facts
    assert facts["retryable"] is True
    assert (facts["ours"], facts["theirs"]) == ("Delete", "Delete")
    assert facts["fragments"] == [0]
    assert (facts["version"], facts["attempts"]) == (2, 1)


def test_joined_deletions_of_all_rows_remove_the_fragment(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 4))
    delete_offsets(location, first, [0, 1])
    emptied = delete_offsets(location, first, [2, 3])
    assert len(emptied.fragments) == 0
    assert emptied.manifest.max_fragment_id == 0


def test_commits_based_on_versions_before_an_overwrite_conflict(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 4))
    commit(location, new_transaction(first.version, Overwrite((), SIMPLE_SCHEMA)))
    with pytest.raises(CommitConflictError) as caught:
        append_rows(location, first, simple_rows(4, 5))
    assert caught.value.facts["retryable"] is False


def test_a_restored_version_keeps_counting(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 4))
    second = append_rows(location, first, simple_rows(4, 8))
    restored = commit(location, new_transaction(second.version, Restore(1)))
    assert restored.manifest.num_rows == 4
    third = append_rows(location, restored, simple_rows(8, 9))
    assert third.fragments.ids.tolist() == [0, 2]


def test_a_detached_commit_is_on_no_history(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 4))
    detached = commit(
        location,
        new_transaction(first.version, ReserveFragments(3)),
        CommitOptions(detached=True),
    )
    assert detached.version >> 63 == 1
    assert open_snapshot(location).version == 1
    assert lance.dataset(location.uri, version=detached.version).count_rows() == 4


def test_config_changes_of_different_keys_are_joined(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    for key in ("a", "b"):
        operation = UpdateConfig(config=UpdateMap({key: "1"}))
        latest = commit(location, new_transaction(first.version, operation))
    assert latest.manifest.config == {"a": "1", "b": "1"}
    operation = UpdateConfig(config=UpdateMap({"a": "2"}))
    with pytest.raises(CommitConflictError, match="same settings"):
        commit(location, new_transaction(first.version, operation))


def test_transactions_record_what_was_committed(location):
    snapshot = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    found = snapshot.transaction
    assert isinstance(found.operation, Overwrite)
    uuid.UUID(found.uuid)
    stored = location.store.read(f"_transactions/{found.file_name}")
    assert stored == with_trailer(found.render())


def test_a_table_that_is_dropped_before_the_put_stays_dropped(location):
    read = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))

    def drop():
        location.store.delete_folder("")

    with pytest.raises(VersionNotFoundError, match="deleted, moved or created again") as caught:
        commit(location, new_transaction(1, ReserveFragments(1)), CommitOptions(sync=drop))
    assert caught.value.facts["version"] == read.version
    assert not [info for info in location.store.list("_versions") if "manifest" in info.path]


def test_a_commit_without_attempts_is_rebased_unless_it_overwrites(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    append_rows(location, first, simple_rows(3, 5))
    options = CommitOptions(attempts=0)
    done = commit(location, new_transaction(1, ReserveFragments(1)), options)
    assert done.version == 3
    with pytest.raises(CommitConflictError, match="directly follow"):
        commit(location, new_transaction(1, Overwrite((), SIMPLE_SCHEMA)), options)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_commit_emits_that_it_loads_a_table_that_the_caller_has_not_read(location, is_known):
    read = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    events = []
    EVENT_SINKS.add(events.append)
    try:
        options = CommitOptions(snapshot=read) if is_known else None
        commit_transaction(location, new_transaction(1, ReserveFragments(1)), options)
    finally:
        EVENT_SINKS.clear()
    said = [event.args["event"] for event in events if "event" in event.args]
    assert said == ["committed"] if is_known else ["loading", "committed"]


def test_a_transaction_that_read_a_detached_version_is_committed(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 4))
    options = CommitOptions(detached=True)
    detached = commit(location, new_transaction(first.version, ReserveFragments(3)), options)
    again = commit(location, new_transaction(detached.version, ReserveFragments(2)), options)
    assert again.version not in {first.version, detached.version}
    assert again.manifest.max_fragment_id == detached.manifest.max_fragment_id + 2
