"""A cleanup deletes unreferenced files, and nothing else."""

import os
import time
import uuid
import warnings
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import CorruptDataError, InvalidInputError
from lancelet.io.local import LocalStore
from lancelet.io.wrapped import WrappedStore
from lancelet.table.handlers import CommitHandler
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.cleanup import (
    CleanupPolicy,
    CleanupWarning,
    auto,
    auto_cleanup,
    parse_duration,
    plan_cleanup,
)
from lancelet.upkeep.cleanup.mentions import Mentions, read_versions
from lancelet.upkeep.cleanup.run import _RateLimiter, run_cleanup

NO_SYNC = {"local_sync": "false"}
ALL = timedelta(0)


def rows(start, stop):
    return pa.table({"id": range(start, stop), "name": [f"row {i}" for i in range(start, stop)]})


def write(data, uri, mode="append", **options):
    return lancelet.write_dataset(data, uri, mode=mode, storage_options=NO_SYNC, **options)


def files_of(root):
    return {str(path.relative_to(root)) for path in Path(root).rglob("*") if path.is_file()}


def needed_by(location, versions=None):
    mentions = Mentions()
    for version in read_versions(location, 0)[1]:
        if versions is None or version.version in versions:
            mentions.add(version)
    return mentions


def old_file(root, path, days=8):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"x" * 10)
    moment = time.time() - days * 86_400
    os.utime(target, (moment, moment))
    return target


def changed(uri):
    """Return a dataset of four versions: 0..10, another 0..10, without 0, without 1."""
    write(rows(0, 10), uri, "create")
    dataset = write(rows(0, 10), uri, "overwrite")
    dataset.delete("id = 0")
    dataset.delete("id = 1")
    return dataset


STEPS = st.sampled_from(["append", "overwrite", "delete", "update", "compact", "tag", "branch"])


@settings(max_examples=15)
@given(st.lists(STEPS, max_size=8), st.integers(1, 4), st.booleans())
def test_cleanup_retains_the_files_of_retained_versions(steps, retained, unverified):
    """Goal: no file too many and none too few, after any history, with tags and branches."""
    uri = f"memory://cleanup/{uuid.uuid4()}"
    dataset = write(rows(0, 10), uri, "create")
    branches = []
    for number, step in enumerate(steps):
        match step:
            case "append":
                dataset = write(rows(100 * number, 100 * number + 5), uri)
            case "overwrite":
                dataset = write(rows(0, 10), uri, "overwrite")
            case "delete":
                dataset.delete(f"id % 7 = {number % 7}")
            case "update":
                dataset.update({"name": "'x'"}, where=f"id % 5 = {number % 5}")
            case "compact":
                dataset.optimize.compact_files()
            case "tag":
                dataset.tags.create(f"t{number}", dataset.version)
            case "branch":
                branches.append((f"b/{number}", dataset.create_branch(f"b/{number}").to_table()))
    expected = {
        version["version"]: dataset.checkout_version(version["version"]).to_table()
        for version in dataset.versions()
    }
    tagged = {tag["version"] for tag in dataset.tags.list().values()}
    started = {branch["parent_version"] for branch in dataset.branches.list().values()}
    dataset.cleanup_old_versions(
        retain_versions=retained,
        error_if_tagged_old_versions=False,
        delete_unverified=unverified,
    )
    last = sorted(expected)[-retained:]
    assert {v["version"] for v in dataset.versions()} == {*last, *tagged, *started}
    for version in dataset.versions():
        number = version["version"]
        again = lancelet.dataset(uri, version=number)
        assert again.to_table().equals(expected[number])
        again.validate()
    for branch, before in branches:
        found = lancelet.dataset(uri).checkout_version((branch, None)).to_table()
        assert found.equals(before)
    if unverified:
        location = TableLocation.open(uri)
        needed = needed_by(location)
        for branch, _ in branches:
            for version in read_versions(location.below(f"tree/{branch}"), 0)[1]:
                needed.add(version)
        for folder in ("data", "_deletions", "_transactions"):
            assert [i.path for i in location.store.list(folder) if i.path not in needed] == []


def test_each_file_that_goes_has_a_reason_and_the_plan_deletes_nothing(tmp_path):
    dataset = changed(str(tmp_path))
    old_file(tmp_path, "data/" + "1" * 24 + "f" * 26 + ".lance")
    before = files_of(tmp_path)
    explained = dataset.explain_cleanup_old_versions(older_than=ALL, include_files=True)
    assert files_of(tmp_path) == before
    reasons = {file.reason for file in explained.candidate_files if file.kind == "manifest"}
    assert reasons == {f"version {number} is removed" for number in (1, 2, 3)}
    others = {(f.unverified, f.reason) for f in explained.candidate_files if f.kind != "manifest"}
    assert others == {
        (False, "only removed versions refer to it"),
        (True, "no version refers to it, and it is 8 days old"),
    }
    stats = dataset.cleanup_old_versions(older_than=ALL)
    assert stats == explained.stats
    assert before - files_of(tmp_path) == {file.path for file in explained.candidate_files}
    assert stats.bytes_removed == sum(file.size_bytes for file in explained.candidate_files)
    assert (stats.old_versions, stats.data_files_removed) == (3, 2)
    assert (stats.transaction_files_removed, stats.deletion_files_removed) == (3, 1)
    few = dataset.explain_cleanup_old_versions(
        older_than=ALL, include_files=True, max_files=1, delete_unverified=True
    )
    assert len(few.candidate_files) == min(1, few.stats.data_files_removed)
    with pytest.raises(InvalidInputError, match="max_files"):
        dataset.explain_cleanup_old_versions(max_files=0)


def test_only_names_of_the_format_are_touched(tmp_path):
    dataset = write(rows(0, 10), str(tmp_path), "create")
    strange = [
        "data/notes.txt",
        "README.md",
        "_indices/mine/a.idx",
        "_transactions/x.txt",
        "_deletions/0.json",
        "_refs/tags/old.json.bak",
        "elsewhere/" + "0" * 50 + ".lance",
        "_versions/notes.md",
    ]
    ours = [
        "data/" + "0" * 50 + ".lance",
        "data/" + "0" * 50 + "/1000.blob",
        "_deletions/9-9-9.arrow",
        "_deletions/9-9-9.bin",
        f"_transactions/9-{uuid.uuid4()}.txn",
        f"_indices/{uuid.uuid4()}/a.idx",
        "_versions/.tmp_1",
    ]
    for path in (*strange, *ours):
        old_file(tmp_path, path)
    before = files_of(tmp_path)
    dataset.cleanup_old_versions(older_than=ALL)
    assert before - files_of(tmp_path) == set(ours)


def test_new_files_that_no_version_mentions_may_be_in_the_making(tmp_path):
    dataset = write(rows(0, 10), str(tmp_path), "create")
    young = old_file(tmp_path, "data/" + "0" * 50 + ".lance", days=6)
    temporary = old_file(tmp_path, "data/.lancelet-tmp-1", days=6)
    dataset.cleanup_old_versions(older_than=ALL)
    assert young.exists()
    assert temporary.exists()
    dataset.cleanup_old_versions(older_than=ALL, delete_unverified=True)
    assert not young.exists()
    assert not temporary.exists()


def test_tags_retain_versions_and_are_an_error_by_default(tmp_path):
    dataset = changed(str(tmp_path))
    expected = dataset.checkout_version(1).to_table()
    dataset.tags.create("first", 1)
    with pytest.raises(OSError, match=r"1 tagged version.*first") as caught:
        dataset.cleanup_old_versions(older_than=ALL)
    assert isinstance(caught.value, InvalidInputError)
    assert len(dataset.versions()) == 4
    dataset.cleanup_old_versions(older_than=ALL, error_if_tagged_old_versions=False)
    assert [version["version"] for version in dataset.versions()] == [1, 4]
    assert dataset.checkout_version("first").to_table().equals(expected)


def test_files_of_branches_and_clones_are_retained(tmp_path):
    root, clone = str(tmp_path / "t"), str(tmp_path / "clone")
    dataset = changed(root)
    expected = dataset.checkout_version(3).to_table()
    first = dataset.checkout_version(1).to_table()
    dataset.create_branch("dev/x", 3)
    dataset.checkout_version(1).shallow_clone(clone, 1)
    explained = dataset.explain_cleanup_old_versions(older_than=ALL, clones=[clone])
    assert [(b.name, b.referenced_version) for b in explained.referenced_branches] == [("dev/x", 3)]
    assert not any(branch.cleanup_candidate for branch in explained.referenced_branches)
    assert list(explained.warnings) == []
    dataset.cleanup_old_versions(older_than=ALL, delete_unverified=True, clones=[clone])
    assert [version["version"] for version in dataset.versions()] == [3, 4]
    branch = lancelet.dataset(root).checkout_version(("dev/x", None))
    assert branch.to_table().equals(expected)
    assert lancelet.dataset(clone).to_table().equals(first)
    # Cleaning up a branch retains files of the main table.
    branch.delete("id = 5")
    branch.cleanup_old_versions(older_than=ALL, delete_unverified=True)
    assert [version["version"] for version in branch.versions()] == [4]
    lancelet.dataset(root).validate()


def test_a_clone_without_a_table_is_an_error(tmp_path):
    dataset = changed(str(tmp_path / "t"))
    with pytest.raises(InvalidInputError, match=r"clone has no table.*missing"):
        dataset.cleanup_old_versions(older_than=ALL, clones=[str(tmp_path / "missing")])
    assert len(dataset.versions()) == 4


def test_cleanup_from_an_older_version_retains_newer_ones(tmp_path):
    dataset = changed(str(tmp_path))
    dataset.checkout_version(2).cleanup_old_versions(older_than=ALL)
    assert [version["version"] for version in dataset.versions()] == [2, 3, 4]


def test_versions_by_age_number_and_name(tmp_path):
    dataset = changed(str(tmp_path))
    dataset.cleanup_old_versions()
    dataset.cleanup_old_versions(older_than=timedelta(hours=1))
    assert len(dataset.versions()) == 4
    dataset.cleanup_old_versions(older_than=ALL, retain_versions=3)
    assert [version["version"] for version in dataset.versions()] == [2, 3, 4]
    dataset.cleanup_old_versions(versions=[3, 4, 99])
    assert [version["version"] for version in dataset.versions()] == [2, 4]
    for wrong in ({"retain_versions": 0}, {"versions": []}, {"delete_rate_limit": 0}):
        with pytest.raises(InvalidInputError):
            dataset.cleanup_old_versions(**wrong)


def test_a_detached_version_keeps_its_files(tmp_path):
    dataset = write(rows(0, 10), str(tmp_path), "create")
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    overwrite = lancelet.LanceOperation.Overwrite(dataset.schema, fragments)
    detached = lancelet.LanceDataset.commit(dataset, overwrite, detached=True)
    expected = detached.to_table()
    dataset = write(rows(5, 6), str(tmp_path), "overwrite")
    dataset.cleanup_old_versions(older_than=ALL, delete_unverified=True)
    again = lancelet.dataset(str(tmp_path), version=detached.version)
    assert again.to_table().equals(expected)


def test_a_version_that_cannot_be_read_stops_everything(tmp_path):
    dataset = changed(str(tmp_path))
    manifest = tmp_path / "_versions" / f"{2**64 - 1 - 2}.manifest"
    manifest.write_bytes(b"garbage that is no manifest at all" * 3)
    before = files_of(tmp_path)
    with pytest.raises(CorruptDataError, match="manifest") as caught:
        dataset.cleanup_old_versions(older_than=ALL)
    assert "nothing was cleaned up" in caught.value.__notes__[0]
    assert files_of(tmp_path) == before


def test_a_version_that_is_restored_meanwhile_keeps_its_files(tmp_path):
    """Between planning and deletion, another writer restores version 2."""
    dataset = changed(str(tmp_path))
    expected = dataset.checkout_version(2).to_table()
    policy = CleanupPolicy(delete_unverified=True)
    plan = plan_cleanup(dataset.snapshot, policy)
    dataset.checkout_version(2).restore()
    lancelet.upkeep.cleanup.run_cleanup(plan, policy)
    again = lancelet.dataset(str(tmp_path))
    assert again.version == 5
    assert again.to_table().equals(expected)


def test_commits_clean_up_as_configured(tmp_path):
    uri = str(tmp_path)
    options = {"interval": 3, "older_than_seconds": 0}
    write(rows(0, 10), uri, "create", auto_cleanup_options=options)
    dataset = write(rows(10, 12), uri)
    assert [version["version"] for version in dataset.versions()] == [1, 2]
    dataset = write(rows(12, 14), uri)
    assert [version["version"] for version in dataset.versions()] == [2, 3]
    dataset.delete("id = 1")
    dataset.delete("id = 2")
    assert [version["version"] for version in dataset.versions()] == [2, 3, 4, 5]
    dataset.update_config({"lance.auto_cleanup.retain_versions": "2"})
    assert [version["version"] for version in dataset.versions()] == [5, 6]
    broken = {"lance.auto_cleanup.older_than": "soon", "lance.auto_cleanup.interval": "1"}
    with pytest.warns(CleanupWarning, match="was committed, but automatic cleanup failed"):
        dataset.update_config(broken)
    assert lancelet.dataset(uri).version == dataset.version


def test_cleanup_from_a_detached_version_matches_the_latest(tmp_path):
    dataset = changed(str(tmp_path))
    operation = lancelet.LanceOperation.Append([])
    detached = lancelet.LanceDataset.commit(
        dataset, operation, read_version=dataset.version, detached=True
    )
    detached.cleanup_old_versions(older_than=ALL)
    assert [each["version"] for each in dataset.versions()] == [4]
    assert lancelet.dataset(str(tmp_path)).to_table() == dataset.to_table()


class NothingAround:
    def request(self, _request, action):
        return action()


@pytest.mark.parametrize("empty", [{1}, {2}, {3}, {2, 3, 4}, {2, 4, 5}, set(range(1, 9999))])
def test_versions_that_go_while_they_are_listed_are_still_needed(tmp_path, empty):
    """A process that is stopped between the names in a folder and their sizes sees no version."""
    uri, listings = str(tmp_path), []

    class Slow(WrappedStore):
        def list(self, folder="", start_after=None):
            listings.append(folder) if folder == "_versions" else None
            is_late = folder == "_versions" and len(listings) in empty
            return iter(()) if is_late else super().list(folder, start_after)

    dataset = write(rows(0, 10), uri, "create")
    settings = {"interval": "1", "retain_versions": "2", "older_than": "0s"}
    dataset.update_config({f"lance.auto_cleanup.{key}": value for key, value in settings.items()})
    for path in (tmp_path / "data").iterdir():
        os.utime(path, (time.time() - 9 * 86_400,) * 2)
    snapshot = open_snapshot(dataset.snapshot.location)
    location = replace(snapshot.location, store=Slow(snapshot.location.store, NothingAround()))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        auto_cleanup(snapshot.with_location(location))
    assert [each.category for each in caught] == [CleanupWarning] * (len(empty) > 9)
    assert lancelet.dataset(uri).to_table() == rows(0, 10)


@pytest.mark.parametrize("late", [{1}, {2}, {1, 2}])
def test_files_of_a_clone_are_retained_when_its_versions_are_removed(tmp_path, monkeypatch, late):
    """The clone is changed and cleaned up while the cleanup of the table is paused."""
    dataset = write(rows(0, 10), str(tmp_path / "t"), "create")
    clone = dataset.shallow_clone(str(tmp_path / "clone"), 1)
    dataset = write(rows(0, 3), str(tmp_path / "t"), "overwrite")
    listings, list_all = [], LocalStore.list

    def list_slowly(self, folder="", start_after=None):
        found = list(list_all(self, folder, start_after))
        if folder == "_versions" and self.root == tmp_path / "clone":
            listings.append(folder)
            if len(listings) in late:
                with monkeypatch.context() as patch:
                    patch.setattr(LocalStore, "list", list_all)
                    clone.update_config({"a": str(len(listings))})
                    clone.cleanup_old_versions(older_than=ALL)
        return iter(found)

    monkeypatch.setattr(LocalStore, "list", list_slowly)
    policy = CleanupPolicy(clones=(clone.uri,))
    run_cleanup(plan_cleanup(dataset.snapshot, policy), policy)
    assert len(listings) >= 2
    assert lancelet.dataset(clone.uri).to_table() == rows(0, 10)


def test_a_version_that_goes_after_it_was_listed_is_left_out(tmp_path, monkeypatch):
    dataset = changed(str(tmp_path))
    second = dataset.checkout_version(2)
    manifest = second.snapshot.entry.path
    list_all = CommitHandler.list_versions

    def list_and_lose(self, store):
        entries = list_all(self, store)
        store.delete(manifest)
        return entries

    monkeypatch.setattr(CommitHandler, "list_versions", list_and_lose)
    restore = (tmp_path / manifest).read_bytes()
    assert [each["version"] for each in dataset.versions()] == [1, 3, 4]
    (tmp_path / manifest).write_bytes(restore)
    assert list(dataset.check("present", all_versions=True)) == []
    (tmp_path / manifest).write_bytes(restore)
    moment = second.snapshot.manifest.timestamp
    assert lancelet.dataset(str(tmp_path), asof=moment).version == 1


@pytest.mark.parametrize(
    ("name", "text", "is_refused"),
    [
        ("older_than", "3000 years", False),
        ("older_than", "99999999999999 days", False),
        ("older_than", "9" * 5000 + " days", True),
        ("interval", "9" * 5000, True),
        ("interval", "\u00b2", True),
        ("retain_versions", "9" * 20, False),
    ],
)
def test_a_commit_succeeds_with_any_cleanup_settings(tmp_path, name, text, is_refused):
    dataset = write(rows(0, 10), tmp_path, "create")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dataset.update_config(
            {"lance.auto_cleanup.interval": "1", f"lance.auto_cleanup.{name}": text}
        )
        dataset = write(rows(10, 12), tmp_path)
    assert {each.category for each in caught} == ({CleanupWarning} if is_refused else set())
    assert [each["version"] for each in dataset.versions()] == [1, 2, 3]


def test_a_cleanup_that_fails_unexpectedly_fails_no_commit(tmp_path, monkeypatch):
    config = {"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0s"}
    dataset = write(rows(0, 10), tmp_path, "create")

    def fail(snapshot, policy):
        raise IndexError("of no list")

    monkeypatch.setattr(auto, "cleanup_old_versions", fail)
    with pytest.warns(CleanupWarning, match="version 2 was committed.*IndexError: of no list"):
        dataset.update_config(config)
    assert dataset.version == 2


def test_no_version_is_older_than_time_itself(tmp_path):
    dataset = changed(str(tmp_path))
    dataset.cleanup_old_versions(older_than=timedelta.max)
    assert len(dataset.versions()) == 4


def test_lengths_of_time_are_read_as_people_write_them():
    assert parse_duration("14days") == timedelta(days=14)
    assert parse_duration(" 1h 30min ") == timedelta(hours=1, minutes=30)
    assert parse_duration("2w3ms") == timedelta(weeks=2, milliseconds=3)
    for wrong in ("", "7", "1 lightyear", "h", "1h!"):
        with pytest.raises(InvalidInputError, match="duration"):
            parse_duration(wrong)


def test_deleting_keeps_to_the_rate(monkeypatch):
    slept = []
    monkeypatch.setattr(time, "sleep", slept.append)
    pace = _RateLimiter(10, now=lambda: 100.0)
    for _ in range(4):
        pace.wait()
    assert slept == pytest.approx([0, 0.1, 0.2, 0.3])


def test_snapshots_open_after_every_cleanup(tmp_path):
    dataset = changed(str(tmp_path))
    dataset.cleanup_old_versions(older_than=ALL, delete_concurrency=1, delete_rate_limit=1000)
    assert open_snapshot(TableLocation.open(str(tmp_path))).version == 4


def test_versions_are_known_by_their_outline(tmp_path):
    uri = str(tmp_path)
    dataset = changed(uri)
    dataset.create_scalar_index("id", "BTREE")
    found = read_versions(TableLocation.open(uri), 0)[1]
    assert sorted(each.version for each in found) == [1, 2, 3, 4, 5]
    for each in found:
        snapshot = open_snapshot(TableLocation.open(uri), each.version)
        assert each.outline.timestamp == snapshot.manifest.timestamp
        assert each.outline.transaction_file == snapshot.manifest.transaction_file
        assert each.outline.fragments.wire.tobytes() == snapshot.fragments.wire.tobytes()
        assert each.indices == snapshot.indices


def test_versions_that_are_retained_are_counted_in_the_one_listing(tmp_path):
    location = changed(str(tmp_path / "t")).snapshot.location
    listed = []

    class Listed(WrappedStore):
        def list(self, folder="", start_after=None):
            listed.append(folder)
            return super().list(folder, start_after)

    class Nothing:
        def request(self, _request, action):
            return action()

    seen = open_snapshot(replace(location, store=Listed(location.store, Nothing())))
    asked = []
    for policy in (CleanupPolicy(), CleanupPolicy(retain_versions=3)):
        listed.clear()
        plan = plan_cleanup(seen, policy)
        asked.append(listed.count("_versions"))
    assert plan.versions == (1,)
    assert asked[0] == asked[1]


def test_files_of_a_branch_without_a_name_are_retained(tmp_path):
    """As after a creation that was interrupted: the branch refers to the files of a version."""
    dataset = lancelet.write_dataset(rows(0, 2), str(tmp_path / "t"))
    dataset.create_branch("b", 1)
    (tmp_path / "t/_refs/branches/b.json").unlink()
    old = {file.path for file in dataset.get_fragments()[0].data_files()}
    lancelet.write_dataset(rows(5, 6), str(tmp_path / "t"), mode="overwrite")
    latest = lancelet.dataset(str(tmp_path / "t"))
    latest.cleanup_old_versions(ALL, delete_unverified=True)
    left = {path.name for path in (tmp_path / "t/data").iterdir()}
    assert old <= left
