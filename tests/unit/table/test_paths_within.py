"""Paths in manifests and references stay below the table in all operations."""

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import LanceletError
from lancelet.format.fragment import External
from lancelet.format.fragment_list import FragmentList
from lancelet.format.manifest_file import write_manifest_file

UP = "../../outside/secret.lance"


def with_data_file(manifest, fragment, path):
    files = (replace(fragment.files[0], path=path), *fragment.files[1:])
    return replace(manifest, fragments=FragmentList.of([replace(fragment, files=files)]))


def with_sequence(manifest, fragment, path):
    stored = replace(fragment, row_ids=External(path, 0, 8))
    return replace(manifest, fragments=FragmentList.of([stored]))


def with_transaction(manifest, fragment, path):
    del fragment
    return replace(manifest, transaction_file=path)


CHANGES = {
    "data file": with_data_file,
    "sequence": with_sequence,
    "transaction": with_transaction,
}


def everything(uri):
    """Run all operations that read, clean up, repair or drop; return their errors."""
    said = []
    for call in (
        lambda d: d.to_table(with_row_id=True),
        lambda d: d.get_transactions(5),
        lambda d: d.delete("a = 1"),
        lambda d: d.optimize.compact_files(),
        lambda d: d.check(),
        lambda d: d.repair(dry_run=False),
        lambda d: d.cleanup_old_versions(dt.timedelta(0), delete_unverified=True),
        lambda d: d.shallow_clone(f"{uri}-clone", d.version).to_table(),
        lambda d: lancelet.LanceDataset.drop(d.uri),
    ):
        try:
            said.append(str(call(lancelet.dataset(uri))))
        except LanceletError as error:
            said.append(str(error))
    return said


@pytest.fixture
def outside(tmp_path):
    """A valid data file of another table."""
    folder = tmp_path / "outside"
    own = lancelet.write_dataset(pa.table({"a": [4711], "s": ["secret"]}), str(folder / "own"))
    (only,) = (folder / "own" / "data").iterdir()
    secret = folder / "secret.lance"
    secret.write_bytes(only.read_bytes())
    del own
    return secret


@pytest.mark.parametrize(
    "path", [UP, "data/../../../outside/secret.lance", "absolute", "a\0b", ".."]
)
@pytest.mark.parametrize("what", CHANGES)
def test_paths_of_a_manifest_are_below_its_table(tmp_path, outside, what, path):
    uri = str(tmp_path / "t" / "t.lance")
    rows = pa.table({"a": [1, 2], "s": ["x", "y"]})
    lancelet.write_dataset(rows, uri, enable_stable_row_ids=True)
    snapshot = lancelet.dataset(uri).snapshot
    wrong = str(outside) if path == "absolute" else path
    manifest = CHANGES[what](snapshot.manifest, snapshot.fragments[0], wrong)
    data, _ = write_manifest_file(manifest, snapshot.indices, None)
    snapshot.location.store.put(snapshot.entry.path, data)
    before = {each: each.read_bytes() for each in outside.parent.rglob("*") if each.is_file()}
    said = everything(uri)
    assert {each: each.read_bytes() for each in before} == before
    assert not any("4711" in each or "secret," in each for each in said)


@pytest.mark.parametrize("name", ["../../outside", "..", "a/../../../outside", "/etc", "a\0b"])
def test_names_of_tags_and_branches_are_names(tmp_path, outside, name):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t" / "t.lance"))
    before = sorted(os.walk(outside.parent))
    for call in (
        lambda: dataset.tags.create(name, 1),
        lambda: dataset.tags.delete(name),
        lambda: dataset.create_branch(name),
        lambda: dataset.branches.delete(name),
        lambda: dataset.checkout_version(name),
        lambda: dataset.checkout_version((name, None)),
    ):
        with pytest.raises(LanceletError):
            call()
    assert sorted(os.walk(outside.parent)) == before


def test_a_tag_of_a_branch_elsewhere_opens_nothing(tmp_path, outside):
    dataset = lancelet.write_dataset(pa.table({"a": [1]}), str(tmp_path / "t" / "t.lance"))
    dataset.tags.create("first", 1)
    file = next(Path(dataset.uri, "_refs", "tags").iterdir())
    entries = json.loads(file.read_text())
    entries = {key: value for key, value in entries.items() if "checksum" not in key}
    file.write_text(json.dumps({**entries, "branch": "../../../outside/own"}))
    for call in (
        lambda d: d.checkout_version("first").to_table(),
        lambda d: d.cleanup_old_versions(dt.timedelta(0)),
        lambda d: d.tags.delete("first"),
    ):
        try:
            said = str(call(lancelet.dataset(dataset.uri)))
        except LanceletError as error:
            said = str(error)
        assert "4711" not in said
    assert lancelet.dataset(str(outside.parent / "own")).count_rows() == 1


@pytest.mark.parametrize("folder", ["data", "_versions", "_indices", "_deletions", "_transactions"])
def test_targets_of_links_are_not_deleted(tmp_path, outside, folder):
    dataset = lancelet.write_dataset(pa.table({"a": range(9)}), str(tmp_path / "t" / "t.lance"))
    dataset.create_scalar_index("a", "BTREE")
    dataset.delete("a = 3")
    link = Path(dataset.uri, folder, "linked")
    link.symlink_to(outside.parent / "own" / "data", target_is_directory=True)
    os.utime(outside, (0, 0))
    dataset.insert(pa.table({"a": [7]}))
    dataset.cleanup_old_versions(dt.timedelta(0), delete_unverified=True)
    dataset.repair(dry_run=False)
    assert lancelet.dataset(str(outside.parent / "own")).count_rows() == 1
    lancelet.LanceDataset.drop(dataset.uri)
    assert lancelet.dataset(str(outside.parent / "own")).count_rows() == 1
