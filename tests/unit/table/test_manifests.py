"""The latest version is found however many there are, and whatever the note of it says."""

import os
import time
from dataclasses import replace

import numpy as np
import pytest

from lancelet.errors import CorruptDataError, DatasetNotFoundError
from lancelet.format.index_metadata import IndexSection
from lancelet.format.manifest_file import parse_manifest_file, render_manifest_file
from lancelet.format.operation import Overwrite, ReserveFragments
from lancelet.format.paths import LATEST_VERSION_HINT, ManifestNaming, manifest_path
from lancelet.io.memory import MemoryStore
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.location import TableLocation
from lancelet.table.manifests import find_latest, open_manifest
from lancelet.table.snapshot import open_snapshot
from lancelet.testing.faults import FaultyStore
from lancelet.testing.tables import SIMPLE_SCHEMA, create_table, new_transaction, simple_rows


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
@pytest.mark.parametrize("exact", [False, True])
def test_any_note_leads_to_the_latest_version(location, note, exact):
    location.store.put(LATEST_VERSION_HINT, NOTES[note])
    assert find_latest(location.store, exact=exact).version == 12


def test_no_note_leads_to_the_latest_version(location):
    location.store.delete(LATEST_VERSION_HINT)
    assert find_latest(location.store).version == 12
    assert find_latest(location.store.at("nothing")) is None
    with pytest.raises(DatasetNotFoundError):
        open_snapshot(TableLocation.open(location.uri + "/nothing"))


def test_an_old_note_before_a_gap_is_not_believed(location):
    """Versions behind a noted one are cleaned up, and the writers since left no notes."""
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
    """A copy has files of one time, so that only the manifest tells that the note is old."""
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
    assert find_latest(copy.store).version == 3
    assert open_snapshot(copy).version == 12
    latest = commit(copy, new_transaction(12, ReserveFragments(1)))
    assert latest.version == 13


def test_opening_takes_the_note_or_one_listing(location):
    for folder_is_older, expected in ((True, 0), (False, 1)):
        store = FaultyStore(location.store)
        if not folder_is_older:
            long_ago = time.time() - 60
            os.utime(location.store.root / LATEST_VERSION_HINT, (long_ago, long_ago))
        snapshot = open_snapshot(TableLocation(location.uri, store))
        assert snapshot.version == 12
        operations = [request.operation for request in store.log]
        assert operations.count("list") == expected
        read = [request.path for request in store.log if request.operation == "read"]
        assert read.count(snapshot.entry.path) == 1


def test_a_table_in_a_bucket_is_opened_by_one_listing_and_one_read():
    location = TableLocation("memory://b/t", FaultyStore(MemoryStore("one-list", "t")))
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 1))
    before = len(location.store.log)
    open_snapshot(location)
    operations = [request.operation for request in location.store.log[before:]]
    assert operations == ["last_change", "list", "read"]
    assert first.version == 1


def test_what_was_committed_is_not_read_back():
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


def test_an_unsound_transaction_in_a_manifest_is_looked_up_in_its_file(tmp_path):
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
