"""Reads of a removed version report the cleanup; other missing files are named."""

import random
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import ObjectNotFoundError, VersionNotFoundError, VersionRemovedError
from lancelet.io.memory import MemoryStore
from lancelet.table.removals import Removals, record_removals, retain_versions
from tests.kit.s3_server import S3Server

ROWS = pa.table({"k": range(100), "s": [f"w{k}" for k in range(100)]})

READS = {
    "table": lambda d: d.to_table(),
    "batches": lambda d: list(d.to_batches(filter="k > 4")),
    "count": lambda d: d.count_rows("k > 4"),
    "take": lambda d: d.take([5, 70]),
    "fragment": lambda d: d.get_fragments()[0].to_table(),
    "delete": lambda d: d.delete("k = 3"),
    "update": lambda d: d.update({"s": "'x'"}),
    "merge": lambda d: d.merge_insert("k").when_matched_update_all().execute(ROWS),
    "index": lambda d: d.create_scalar_index("k", "BTREE"),
    "compact": lambda d: d.optimize.compact_files(),
}


def clean_up(uri, options=None):
    latest = lancelet.write_dataset(ROWS[:1], uri, mode="overwrite", storage_options=options)
    latest.cleanup_old_versions(timedelta(0))


@pytest.mark.parametrize("name", READS)
def test_a_removed_version_is_reported_with_a_suggestion(tmp_path, name):
    uri = str(tmp_path / "t")
    reader = lancelet.write_dataset(ROWS, uri, max_rows_per_file=30)
    reader.delete("k = 1")
    clean_up(uri)
    with pytest.raises(VersionRemovedError, match="was cleaned up while it was read") as caught:
        READS[name](lancelet.dataset(uri).at(reader.snapshot))
    assert caught.value.facts["version"] == 2
    assert caught.value.facts["uri"] == reader.uri
    assert isinstance(caught.value, VersionNotFoundError | FileNotFoundError | ValueError)
    assert isinstance(caught.value.__cause__, ObjectNotFoundError)


def test_files_of_a_bucket_that_are_open_are_missed_too():
    with S3Server() as server:
        server.make_bucket("removed")
        uri, options = "s3://removed/t", server.storage_options
        more = ROWS.append_column("b", [[random.randbytes(4096) for _ in range(len(ROWS))]])
        reader = lancelet.write_dataset(more, uri, storage_options=options)
        reader.take([0])
        clean_up(uri, options)
        for name in ("table", "count", "take"):
            with pytest.raises(VersionRemovedError):
                READS[name](reader)


def test_indices_of_a_version_that_was_cleaned_up_are_missed_too(tmp_path):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(ROWS, uri).create_scalar_index("k", "BTREE")
    reader = lancelet.dataset(uri)
    clean_up(uri)
    reader.snapshot.stored.indices.clear()  # as in a process that has not read them
    with pytest.raises(VersionRemovedError) as caught:
        reader.describe_indices()
    assert caught.value.facts["version"] == 2


def test_a_missing_file_of_a_version_that_is_there_is_an_error_of_its_own(tmp_path):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(ROWS, uri)
    (file,) = Path(uri, "data").glob("*.lance")
    file.unlink()
    with pytest.raises(ObjectNotFoundError) as caught:
        lancelet.dataset(uri).to_table()
    assert not isinstance(caught.value, VersionNotFoundError)
    assert caught.value.facts["path"] == f"data/{file.name}"


def test_a_version_whose_manifest_got_another_name_is_there(tmp_path):
    uri = str(tmp_path / "t")
    reader = lancelet.write_dataset(ROWS, uri, enable_v2_manifest_paths=False)
    lancelet.dataset(uri).migrate_manifest_paths_v2()
    next(Path(uri, "data").glob("*.lance")).unlink()
    with pytest.raises(ObjectNotFoundError) as caught:
        lancelet.dataset(uri).at(reader.snapshot).to_table()
    assert not isinstance(caught.value, VersionNotFoundError)


def test_a_tag_of_a_version_that_is_being_cleaned_up_is_reported(tmp_path):
    dataset = lancelet.write_dataset(ROWS, str(tmp_path / "t"))
    dataset.delete("k = 1")
    record_removals(dataset.snapshot.location.store, {1: "0-x.txn"})
    assert dataset.checkout_version(1).count_rows() == 100
    with pytest.raises(VersionRemovedError, match="being cleaned up"):
        dataset.tags.create("first", 1)
    with pytest.raises(VersionNotFoundError, match="main:7 does not exist"):
        dataset.tags.create("seventh", 7)


@pytest.mark.parametrize(
    "read",
    [
        lambda d: d.to_table(filter="k = 7"),
        lambda d: d.to_table(filter="k > 90"),
        lambda d: d.count_rows("k = 7"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_errors_for_removed_versions_do_not_suggest_dropping_an_index(tmp_path, read, is_known):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(ROWS, uri).create_scalar_index("k", "BTREE")
    reader = lancelet.dataset(uri)
    if is_known:
        assert [each.name for each in reader.describe_indices()] == ["k_idx"]
    clean_up(uri)
    with pytest.raises(VersionRemovedError, match="was cleaned up while it was read"):
        read(reader)


def test_a_version_that_another_cleanup_removes_remains_recorded_when_records_are_merged():
    """The other cleanup may have read the references before this one existed, and deletes it."""
    store = MemoryStore("merged-records")
    for version in range(1, 5):
        record_removals(store, {version: f"{version}.txn"})
    merged = record_removals(store, {4: "4.txn", 5: "5.txn", 6: "6.txn"})
    retain_versions(store, merged, {4, 5})
    assert Removals.load(store).transactions.keys() == {1, 2, 3, 4, 6}


def test_each_cleanup_records_the_versions_that_it_removes():
    """The other cleanup may retain version 1 because of a reference that this one did not see."""
    store = MemoryStore("recorded-twice")
    theirs = record_removals(store, {1: "1.txn", 2: "2.txn"})
    record_removals(store, {1: "1.txn"})
    retain_versions(store, theirs, {1})
    assert Removals.load(store).transactions.keys() == {1, 2}


def test_a_record_that_another_cleanup_merged_is_retained():
    store = MemoryStore("merged-by-others")
    for version in range(1, 4):
        record_removals(store, {version: f"{version}.txn"})
    ours = record_removals(store, {4: "4.txn"})
    record_removals(store, {5: "5.txn"})
    retain_versions(store, ours, {4})
    assert Removals.load(store).transactions.keys() == {1, 2, 3, 4, 5}
