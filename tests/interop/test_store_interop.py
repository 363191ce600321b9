"""Goal: the reference finds what our stores wrote, with the same options, and is not disturbed.

Method: the reference writes and reads datasets on disk and on an S3 server, while our stores
look at the same objects.
"""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.io import open_folder
from lancelet.io.local import LocalStore
from tests.kit.s3_server import S3Server

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server("shelf") as running:
        yield running


def test_reference_ignores_our_unfinished_files(tmp_path: Path):
    root = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"a": [1, 2]}), root)
    store = LocalStore(root)
    folders = ("_versions", "data", "_transactions", "_deletions", "_indices")
    unfinished = [store.open_writer(f"{folder}/x") for folder in folders]
    lance.write_dataset(pa.table({"a": [3]}), root, mode="append")
    dataset = lance.dataset(root)
    assert dataset.to_table().column("a").to_pylist() == [1, 2, 3]
    assert len(dataset.versions()) == 2
    dataset.cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert lance.dataset(root).count_rows() == 3
    for writer in unfinished:
        writer.abort()


def test_same_options_reach_the_same_objects_both_ways(server: S3Server, tmp_path: Path):
    options = server.storage_options
    written = tmp_path / "t.lance"
    lance.write_dataset(pa.table({"a": [1, 2]}), written)
    local, remote = LocalStore(written), open_folder("s3://shelf/ours.lance", options)
    for info in local.list():
        remote.put_if_absent(info.path, local.read(info.path))
    dataset = lance.dataset("s3://shelf/ours.lance", storage_options=options)
    assert dataset.to_table().column("a").to_pylist() == [1, 2]

    lance.write_dataset(
        pa.table({"a": [3]}), "s3://shelf/ours.lance", mode="append", storage_options=options
    )
    copied = LocalStore(tmp_path / "copy.lance")
    for info in remote.list():
        assert remote.size(info.path) == info.size
        copied.put(info.path, remote.read(info.path))
    assert lance.dataset(copied.root).to_table().column("a").to_pylist() == [1, 2, 3]
    shutil.rmtree(copied.root)


@pytest.mark.parametrize("name", ["a%20b", "c d", "100%", "99%25", "ü+1"])
def test_a_uri_names_the_same_place_to_both(server: S3Server, name: str):
    options = server.storage_options
    uri = f"s3://shelf/names/{name}"
    written = lancelet.write_dataset(pa.table({"a": [1, 2]}), uri, storage_options=options)
    lance.write_dataset(pa.table({"a": [3]}), uri, mode="append", storage_options=options)
    assert lancelet.dataset(uri, storage_options=options).count_rows() == 3
    clone = f"s3://shelf/clones/{name}"
    written.shallow_clone(clone, 2, storage_options=options)
    for each in (lance, lancelet):
        assert each.dataset(clone, storage_options=options).count_rows() == 3


def test_commit_of_the_reference_meets_ours_at_one_name(server: S3Server):
    """Whoever comes second to a version is told, in both orders."""
    options = server.storage_options
    uri = "s3://shelf/race.lance"
    lance.write_dataset(pa.table({"a": [1]}), uri, storage_options=options)
    lance.write_dataset(pa.table({"a": [2]}), uri, mode="append", storage_options=options)
    store = open_folder(uri, options)
    newest = next(info for info in store.list("_versions") if info.path.endswith(".manifest"))
    with pytest.raises(FileExistsError):
        store.put_if_absent(newest.path, b"")
    # Version 3 is taken by bytes that are no manifest: the reference must not replace them.
    taken = f"_versions/{2**64 - 1 - 3:020}.manifest"
    store.put_if_absent(taken, b"ours")
    with pytest.raises((OSError, ValueError)):
        lance.write_dataset(pa.table({"a": [3]}), uri, mode="append", storage_options=options)
    assert store.read(taken) == b"ours"
