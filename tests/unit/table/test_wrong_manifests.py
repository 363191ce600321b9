"""A manifest under the name of another version is refused by everything that opens versions."""

import shutil
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CorruptDataError
from lancelet.format.paths import ManifestNaming, manifest_path
from lancelet.table.location import TableLocation
from lancelet.table.manifests import WrongManifestError
from lancelet.table.snapshot import latest_snapshot

VERSIONS = 4


@pytest.fixture(params=list(ManifestNaming))
def table(tmp_path, request):
    """Return the URI of a table with four versions, and how its manifests are named."""
    root = tmp_path / "t"
    for number in range(VERSIONS):
        lancelet.write_dataset(
            pa.table({"id": [number]}),
            root,
            mode="append",
            enable_v2_manifest_paths=request.param is ManifestNaming.V2,
        )
    return str(root), request.param


def copy_manifest(table, source: int, target: int) -> None:
    uri, naming = table
    root = Path(uri)
    shutil.copy(root / manifest_path(source, naming), root / manifest_path(target, naming))


USES = {
    "open": lancelet.dataset,
    "location": lambda uri: latest_snapshot(TableLocation.open(uri)),
    "append": lambda uri: lancelet.write_dataset(pa.table({"id": [9]}), uri, mode="append"),
    "overwrite": lambda uri: lancelet.write_dataset(pa.table({"id": [9]}), uri, mode="overwrite"),
    "create": lambda uri: lancelet.write_dataset(pa.table({"id": [9]}), uri, mode="create"),
}


@pytest.mark.parametrize("target", [VERSIONS, VERSIONS + 1])
@pytest.mark.parametrize("use", USES)
def test_old_manifest_under_the_newest_name_is_rejected(table, use, target):
    copy_manifest(table, 2, target)
    with pytest.raises(
        WrongManifestError, match=f"contains version 2, but its name is that of version {target}"
    ):
        USES[use](table[0])


HANDLE_USES = {
    "refresh": lambda dataset: dataset.checkout_latest(),
    "insert": lambda dataset: dataset.insert(pa.table({"id": [9]})),
    "delete": lambda dataset: dataset.delete("id = 1"),
    "clean up": lambda dataset: dataset.cleanup_old_versions(timedelta(0)),
    "compact": lambda dataset: dataset.optimize.compact_files(),
}


@pytest.mark.parametrize("use", HANDLE_USES)
def test_handle_refuses_an_old_manifest_under_a_newer_name(table, use):
    dataset = lancelet.dataset(table[0])
    copy_manifest(table, 2, VERSIONS + 1)
    files = sorted(Path(table[0]).rglob("*.lance"))
    with pytest.raises(CorruptDataError, match="its name is that of version"):
        HANDLE_USES[use](dataset)
    assert set(files) <= set(Path(table[0]).rglob("*.lance"))


OLD_USES = {
    "time travel": lambda uri: lancelet.dataset(uri, version=3),
    "tag": lambda uri: lancelet.dataset(uri, version="tagged"),
    "branch": lambda uri: lancelet.dataset(uri).create_branch("side", 3),
    "restore": lambda uri: lancelet.dataset(uri, version=3).restore(),
    "clone": lambda uri: lancelet.dataset(uri).shallow_clone(f"{uri}-clone", 3),
    "clean up": lambda uri: lancelet.dataset(uri).cleanup_old_versions(
        timedelta(0), error_if_tagged_old_versions=False
    ),
}


@pytest.mark.parametrize("use", OLD_USES)
def test_manifest_under_the_name_of_an_older_version_is_rejected(table, use):
    lancelet.dataset(table[0]).tags.create("tagged", 3)
    copy_manifest(table, 1, 3)
    with pytest.raises(
        WrongManifestError, match="contains version 1, but its name is that of version 3"
    ):
        OLD_USES[use](table[0])


def test_latest_version_can_be_restored_after_the_wrong_manifest_is_deleted(table):
    copy_manifest(table, 2, VERSIONS + 1)
    (Path(table[0]) / manifest_path(VERSIONS + 1, table[1])).unlink()
    assert lancelet.dataset(table[0]).count_rows() == VERSIONS
