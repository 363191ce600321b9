"""Cleanup works on a full disk: it frees some bytes before it writes its record."""

import errno
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import StorageError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.cleanup.policy import CleanupPolicy
from lancelet.upkeep.cleanup.run import cleanup_old_versions
from tests.kit.faults import FullStore

POLICY = CleanupPolicy(before_version=4, delete_unverified=True)


@pytest.fixture
def table(tmp_path):
    """Return a table with old versions and a file that no version mentions."""
    uri = str(tmp_path / "t.lance")
    for number in range(4):
        lancelet.write_dataset(pa.table({"x": [number]}), uri, mode="overwrite")
    (tmp_path / "t.lance" / "data" / "unknown.lance").write_bytes(b"x" * 100)
    return uri


def snapshot_on(uri, store):
    plain = TableLocation.open(uri)
    return open_snapshot(replace(plain, store=store(plain.store)))


def test_a_full_disk_is_cleaned_up(table):
    full = []

    def fill(store):
        full.append(FullStore(store))
        return full[0]

    stats = cleanup_old_versions(snapshot_on(table, fill), POLICY)
    assert full[0].refused > 0
    assert (stats.old_versions, stats.data_files_removed, stats.failed_deletes) == (3, 4, 0)
    for module in (lancelet, lance):
        assert module.dataset(table).to_table()["x"].to_pylist() == [3]
    lancelet.write_dataset(pa.table({"x": [4]}), table, mode="append")
    assert lancelet.dataset(table).version == 5


def test_nothing_is_deleted_that_needs_a_record_if_none_can_be_written(table, tmp_path):
    files = set((tmp_path / "t.lance" / "data").iterdir())
    with pytest.raises(StorageError) as caught:
        cleanup_old_versions(
            snapshot_on(table, lambda store: FullStore(store, frees=False)), POLICY
        )
    assert caught.value.facts["errno"] == errno.ENOSPC
    assert "free some disk space" in caught.value.__notes__[0]
    assert set((tmp_path / "t.lance" / "data").iterdir()) == files
    for version in range(1, 5):
        assert lancelet.dataset(table, version=version).count_rows() == 1
