"""The latest version is found for any number of versions and any version hint."""

import contextlib
import itertools
import os
import time
from dataclasses import replace

import lance
import numpy as np
import pytest

import lancelet
from lancelet.errors import (
    CommitOutcomeUnknownError,
    CorruptDataError,
    DatasetNotFoundError,
    StorageError,
    VersionNotFoundError,
)
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest_file import parse_manifest_file, render_manifest_file
from lancelet.format.operation import Overwrite, ReserveFragments, Restore
from lancelet.format.paths import (
    LATEST_VERSION_HINT,
    ManifestNaming,
    VersionRangeError,
    manifest_path,
)
from lancelet.io.memory import MemoryStore
from lancelet.io.wrapped import WrappedStore
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.location import TableLocation
from lancelet.table.manifests import MixedNamesError, find_latest, list_versions, open_manifest
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.rename_manifests import rename_manifests
from tests.kit.faults import FaultyStore
from tests.kit.tables import SIMPLE_SCHEMA, create_table, new_transaction, simple_rows


@pytest.fixture(params=[ManifestNaming.V1, ManifestNaming.V2], ids=["V1", "V2"])
def location(tmp_path, request):
    """A table of twelve versions, so that names of V1 do not sort as numbers."""
    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    operation = Overwrite((), SIMPLE_SCHEMA)
    options = CommitOptions(naming=request.param)
    latest = commit(location, new_transaction(0, operation), options)
    for _ in range(11):
        latest = commit(location, new_transaction(latest.version, ReserveFragments(1)))
    return location


NOTES = {
    "fresh": b'{"version":12}',
    "old": b'{"version":3}',
    "new": b'{"version":13}',
    "far too new": b'{"version":18446744073709551615}',
    "detached": b'{"version":9223372036854775809}',
    "garbage": b"\xff\x00",
    "empty": b"",
    "other JSON": b'{"version":"12"}',
}


@pytest.mark.parametrize("note", NOTES)
def test_any_note_leads_to_the_latest_version(location, note):
    location.store.put(LATEST_VERSION_HINT, NOTES[note])
    assert find_latest(location.store).version == 12


def test_no_note_leads_to_the_latest_version(location):
    location.store.delete(LATEST_VERSION_HINT)
    assert find_latest(location.store).version == 12
    assert find_latest(location.store.at("nothing")) is None
    with pytest.raises(DatasetNotFoundError):
        open_snapshot(TableLocation.open(location.uri + "/nothing"))


def test_an_old_note_before_a_gap_is_not_believed(location):
    """Versions before a hint are cleaned up, and later writers left no hints."""
    location.store.put(LATEST_VERSION_HINT, b'{"version":3}')
    naming = find_latest(location.store).naming
    for version in (4, 5, 6):
        location.store.delete(manifest_path(version, naming))
    folder = location.store.root / "_versions"
    written = time.time() - 60
    os.utime(location.store.root / LATEST_VERSION_HINT, (written, written))
    os.utime(folder)
    assert find_latest(location.store).version == 12


def test_an_old_note_in_a_copied_table_is_not_believed(location, tmp_path):
    """Files of a copy have equal times, so that only the manifest shows that the hint is old."""
    naming = find_latest(location.store).naming
    noted = location.store.read(manifest_path(3, naming))
    stored = parse_manifest_file(np.frombuffer(noted, np.uint8))
    old = replace(stored.manifest, timestamp_ns=stored.manifest.timestamp_ns - 3600 * 10**9)
    copy = TableLocation.open(str(tmp_path / "copy"), {"local_sync": "false"})
    copy.store.put(manifest_path(3, naming), render_manifest_file(old, IndexSection(), None))
    for version in range(8, 13):
        path = manifest_path(version, naming)
        copy.store.put(path, location.store.read(path))
    copy.store.put(LATEST_VERSION_HINT, b'{"version":3}')
    assert open_snapshot(copy).version == 12
    latest = commit(copy, new_transaction(12, ReserveFragments(1)))
    assert latest.version == 13


def test_opening_takes_one_listing_and_one_read(location):
    store = FaultyStore(location.store)
    snapshot = open_snapshot(TableLocation(location.uri, store))
    assert snapshot.version == 12
    assert [request.operation for request in store.log] == ["list", "info", "read"]
    assert store.log[-1].path == snapshot.entry.path


def test_a_table_in_a_bucket_is_opened_by_one_listing_and_one_read():
    location = TableLocation("memory://b/t", FaultyStore(MemoryStore("one-list", "t")))
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    before = len(location.store.log)
    open_snapshot(location)
    operations = [request.operation for request in location.store.log[before:]]
    assert operations == ["list", "read"]
    assert first.version == 1


def test_an_empty_manifest_is_no_version(location):
    naming = find_latest(location.store).naming
    location.store.put(manifest_path(13, naming), b"")
    assert open_snapshot(location).version == 12
    with pytest.raises(VersionNotFoundError):
        open_snapshot(location, 13)
    assert [entry.version for entry in list_versions(location.store)] == list(range(1, 13))


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
def test_a_change_of_names_that_is_cut_short_reads_and_is_finished(tmp_path, fault):
    for request in itertools.count():
        location = TableLocation.open(str(tmp_path / str(request)), {"local_sync": "false"})
        options = CommitOptions(naming=ManifestNaming.V1)
        commit(location, new_transaction(0, Overwrite((), SIMPLE_SCHEMA)), options)
        for version in range(1, 5):
            commit(location, new_transaction(version, ReserveFragments(1)))
        store = FaultyStore(location.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            rename_manifests(replace(location, store=store))
        assert open_snapshot(location).version == 5
        assert commit(location, new_transaction(5, ReserveFragments(1))).version == 6
        rename_manifests(location)
        entries = list_versions(location.store)
        assert [entry.version for entry in entries] == list(range(1, 7))
        assert {entry.naming for entry in entries} == {ManifestNaming.V2}
        assert lance.dataset(location.uri).version == 6
        if not store.fired:
            break
    assert request > 8


def test_names_of_both_schemes_are_rejected_with_the_way_out(tmp_path):
    """As left by another library that was interrupted; it rejects them too."""
    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    options = CommitOptions(naming=ManifestNaming.V1)
    commit(location, new_transaction(0, Overwrite((), SIMPLE_SCHEMA)), options)
    for version in range(1, 5):
        commit(location, new_transaction(version, ReserveFragments(1)))
    for version in (2, 5, 1):
        old, new = (manifest_path(version, naming) for naming in ManifestNaming)
        location.store.rename_if_absent(old, new)
        for fails in (open_snapshot, lambda at: commit(at, new_transaction(4, Restore(1)))):
            with pytest.raises(MixedNamesError, match="migrate_manifest_paths_v2"):
                fails(location)
        with pytest.raises(ValueError, match="multiple manifest naming schemes"):
            lance.dataset(location.uri)
    lancelet.dataset(location.uri, version=3).migrate_manifest_paths_v2()
    assert lance.dataset(location.uri).version == open_snapshot(location).version == 5


def test_the_newest_may_be_cleaned_up_while_it_is_opened(location):
    """A reader that listed it lists again, since a newer version exists then."""

    class Busy:
        times = 0

        def request(self, request, action):
            answer = action()
            if request.operation == "list" and Busy.times < 3:
                Busy.times += 1
                latest = open_snapshot(location)
                commit(location, new_transaction(latest.version, ReserveFragments(1)))
                location.store.delete(latest.entry.path)
            return answer

    busy = TableLocation(location.uri, WrappedStore(location.store, Busy()))
    assert open_snapshot(busy).version == 15


def test_the_highest_version_is_not_followed(location):
    """The next name has the number of a detached version, which is not listed."""
    highest = 2**63 - 1
    latest = open_snapshot(location)
    manifest = replace(latest.manifest, version=highest)
    path = manifest_path(highest, latest.entry.naming)
    location.store.put(path, render_manifest_file(manifest, IndexSection(), None))
    with pytest.raises(VersionRangeError, match="highest version"):
        commit(location, new_transaction(highest, ReserveFragments(1)))


def test_committed_manifests_are_not_read_back():
    location = TableLocation("memory://b/u", FaultyStore(MemoryStore("no-read", "u")))
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    before = len(location.store.log)
    published = commit(location, new_transaction(1, ReserveFragments(1)))
    assert published.transaction.operation == ReserveFragments(1)
    assert published.indices.indices == ()
    paths = [request.path for request in location.store.log[before:] if not request.is_change]
    assert published.entry.path not in paths
    read = open_snapshot(location)
    assert read.manifest == published.manifest
    assert read.stored == published.stored


def test_an_invalid_transaction_in_a_manifest_is_looked_up_in_its_file(tmp_path):
    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    created = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    expected = created.transaction
    data = bytearray(location.store.read(created.entry.path))
    data[4:12] = b"\xff" * 8
    location.store.put(created.entry.path, bytes(data))
    assert open_snapshot(location).transaction == expected
    location.store.delete(f"_transactions/{expected.file_name}")
    with pytest.raises(CorruptDataError):
        assert open_snapshot(location).transaction


def test_a_version_without_any_transaction_is_readable(tmp_path):
    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    created = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    data = render_manifest_file(created.manifest, created.indices, None)
    location.store.put(created.entry.path, data)
    location.store.delete(f"_transactions/{created.transaction.file_name}")
    assert open_snapshot(location).transaction is None


def test_a_manifest_that_did_not_change_is_parsed_once(location):
    entry = find_latest(location.store)
    while location.store.open_reader(entry.path).identity is None:
        time.sleep(0.01)
    first = open_manifest(location.store, entry)
    second = open_manifest(location.store, entry)
    assert first is second
    other = replace(first.manifest, tag="other")
    data = render_manifest_file(other, IndexSection(), None)
    location.store.put(entry.path, data)
    for _ in range(2):
        again = open_manifest(location.store, replace(entry, size=len(data)))
        assert again.manifest.tag == "other"
        while location.store.open_reader(entry.path).identity is None:
            time.sleep(0.01)
