"""Cleanups of local tables read manifests and delete files in batches."""

from datetime import timedelta

import pytest

import lancelet
from lancelet.errors import StorageError
from lancelet.io.local import LocalStore
from lancelet.upkeep.cleanup import mentions
from tests.kit.tables import simple_rows


@pytest.fixture
def dataset(tmp_path):
    for _ in range(6):
        dataset = lancelet.write_dataset(simple_rows(0, 3), tmp_path, mode="overwrite")
    return dataset


def test_a_file_that_cannot_be_deleted_is_counted_and_the_others_go(dataset, tmp_path, monkeypatch):
    refused = min(path.name for path in (tmp_path / "data").iterdir())
    if refused in {file.path for file in dataset.snapshot.fragments[0].files}:
        refused = max(path.name for path in (tmp_path / "data").iterdir())
    delete = LocalStore.delete

    def refuse(store, path):
        if path.endswith(refused):
            raise StorageError("refused", path=path)
        delete(store, path)

    monkeypatch.setattr(LocalStore, "delete", refuse)
    stats = dataset.cleanup_old_versions(timedelta(0))
    assert (stats.old_versions, stats.data_files_removed, stats.failed_deletes) == (5, 4, 1)
    assert len(list((tmp_path / "data").iterdir())) == 2
    monkeypatch.undo()
    assert (
        dataset.cleanup_old_versions(timedelta(0), delete_unverified=True).data_files_removed == 1
    )


@pytest.mark.parametrize("batch_bytes", [1, 3000, 1 << 20])
def test_batches_of_any_size_give_the_same_versions(dataset, monkeypatch, batch_bytes):
    monkeypatch.setattr(mentions, "_BATCH_BYTES", batch_bytes)
    assert dataset.cleanup_old_versions(timedelta(0)).old_versions == 5
    assert dataset.to_table() == simple_rows(0, 3)


def test_manifests_are_read_one_by_one_if_they_changed_since_the_listing(dataset, monkeypatch):
    monkeypatch.setattr(LocalStore, "read_together", lambda *_: None)
    assert dataset.cleanup_old_versions(timedelta(0)).old_versions == 5
