"""A table with a writer flag of a newer release is read, and nothing changes it."""

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import UnsupportedError
from lancelet.format.manifest_file import write_manifest_file
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.repair import RepairOptions, repair

UNKNOWN = 1 << 40
ROWS = pa.table({"x": [1, 2, 3]})

CHANGES = {
    "append": lambda d: d.insert(ROWS),
    "overwrite": lambda d: lancelet.write_dataset(ROWS, d.uri, mode="overwrite"),
    "delete": lambda d: d.delete("x = 1"),
    "config": lambda d: d.update_config({"a": "b"}),
    "restore": lambda d: d.checkout_version(1).restore(),
    "cleanup": lambda d: d.cleanup_old_versions(timedelta(0), delete_unverified=True),
    "tag": lambda d: d.tags.create("new", 1),
    "move tag": lambda d: d.tags.update("old", 2),
    "delete tag": lambda d: d.tags.delete("old"),
    "branch": lambda d: d.create_branch("new"),
    "delete branch": lambda d: d.branches.delete("dev"),
    "shallow clone": lambda d: d.shallow_clone(d.uri + ".clone", d.version),
    "deep clone": lambda d: d.deep_clone(d.uri + ".clone", d.version),
    "migrate names": lambda d: d.migrate_manifest_paths_v2(),
    "repair": lambda d: repair(d.snapshot, RepairOptions(drop_fragments=(0,)), dry_run=False),
    "compact": lambda d: d.optimize.compact_files(),
    "index": lambda d: d.create_scalar_index("x", "BTREE"),
}


def files_below(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def dataset(tmp_path):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(ROWS, uri)
    lancelet.dataset(uri).tags.create("old", 1)
    lancelet.dataset(uri).create_branch("dev")
    lancelet.dataset(uri).insert(ROWS)
    set_flag(tmp_path / "t.lance", 2)
    return lancelet.dataset(uri)


def set_flag(root, version):
    snapshot = open_snapshot(TableLocation.open(str(root)), version)
    flags = snapshot.manifest.writer_flags | UNKNOWN
    manifest = replace(snapshot.manifest, writer_flags=flags)
    data, _ = write_manifest_file(manifest, snapshot.indices, None)
    (root / snapshot.entry.path).write_bytes(data)


@pytest.mark.parametrize("name", CHANGES)
def test_nothing_changes_a_table_that_needs_a_newer_writer(dataset, tmp_path, name):
    assert dataset.count_rows() == 6
    kept = {path: data for path, data in files_below(tmp_path).items() if "/_versions/" in path}
    refs = {path: data for path, data in files_below(tmp_path).items() if "/_refs/" in path}
    with pytest.raises(UnsupportedError, match="a newer release is needed to write"):
        CHANGES[name](dataset)
    after = files_below(tmp_path)
    assert {path: data for path, data in after.items() if "/_versions/" in path} == kept
    assert {path: data for path, data in after.items() if "/_refs/" in path} == refs
    assert not list(tmp_path.glob("*.clone"))


def test_a_version_that_needs_a_newer_writer_is_not_restored(tmp_path):
    uri = str(tmp_path / "t.lance")
    lancelet.write_dataset(ROWS, uri)
    lancelet.dataset(uri).insert(ROWS)
    set_flag(tmp_path / "t.lance", 1)
    with pytest.raises(UnsupportedError, match="a newer release is needed to write"):
        lancelet.dataset(uri).checkout_version(1).restore()
