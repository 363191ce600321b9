"""Goal: tags, branches, clones, bases and commits of either implementation are those of the other.

Method: one writes, the other reads and goes on, and the first reads that.
"""

import json
from pathlib import Path

import lance
import lance.fragment
import pyarrow as pa
import pytest

import lancelet
import lancelet.fragment

pytestmark = pytest.mark.interop

PAIRS = [
    pytest.param(lancelet, lance, id="ours-theirs"),
    pytest.param(lance, lancelet, id="theirs-ours"),
]


def rows(*values: int) -> pa.Table:
    return pa.table({"a": list(values)})


def read(ds) -> list[int]:
    return ds.to_table()["a"].to_pylist()


def manifests(uri: str) -> list[str]:
    return sorted(path.name for path in Path(uri, "_versions").glob("*.manifest"))


def write_history(library, uri: str):
    library.write_dataset(rows(1), uri)
    library.write_dataset(rows(2), uri, mode="append")
    return library.write_dataset(rows(3), uri, mode="append")


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_tags_and_branches_are_shared(tmp_path: Path, one, other) -> None:
    uri = str(tmp_path / "t")
    ds = write_history(one, uri)
    ds.tags.create("v2", 2)
    branch = ds.create_branch("dev/x", "v2")
    branch.insert(rows(10))
    branch.tags.create("on-branch")
    seen = other.dataset(uri)
    assert read(seen.checkout_version("v2")) == [1, 2]
    assert read(seen.checkout_version(("dev/x", None))) == [1, 2, 10]
    assert read(other.dataset(uri, version="on-branch")) == [1, 2, 10]
    assert seen.tags.list() == ds.tags.list()
    assert seen.branches.list() == ds.branches.list()
    assert [n for n, _ in seen.tags.list_ordered()] == [n for n, _ in ds.tags.list_ordered()]
    seen.tags.update("v2", 3)
    seen.tags.replace_metadata("v2", {"by": "other"})
    seen.create_branch("dev/y", ("dev/x", None)).insert(rows(20))
    assert ds.tags.list()["v2"]["metadata"] == {"by": "other"}
    assert ds.tags.get_version("v2") == 3
    assert read(one.dataset(uri).checkout_version(("dev/y", None))) == [1, 2, 10, 20]
    assert ds.branches.list()["dev/y"]["parent_branch"] == "dev/x"
    seen.branches.delete("dev/y")
    assert set(ds.branches.list()) == {"dev/x"}


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_clones_are_read_and_continued(tmp_path: Path, one, other) -> None:
    uri = str(tmp_path / "t")
    ds = write_history(one, uri)
    ds.shallow_clone(str(tmp_path / "c1"), 2)
    clone = other.dataset(str(tmp_path / "c1"))
    assert (clone.version, read(clone)) == (2, [1, 2])
    clone.insert(rows(9))
    clone.delete("a = 1")
    again = one.dataset(str(tmp_path / "c1"))
    assert read(again) == [2, 9]
    assert [base.path for base in again.base_paths().values()] == [uri]
    again.shallow_clone(str(tmp_path / "c2"), again.version)
    assert read(other.dataset(str(tmp_path / "c2"))) == [2, 9]
    ds.deep_clone(str(tmp_path / "c3"), 3)
    assert read(other.dataset(str(tmp_path / "c3"))) == [1, 2, 3]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_bases_are_read_and_written(tmp_path: Path, one, other) -> None:
    uri = str(tmp_path / "t")

    def bases(library):
        return [
            library.DatasetBasePath(str(tmp_path / "hot"), name="hot"),
            library.DatasetBasePath(str(tmp_path / "cold"), name="cold", is_dataset_root=True),
        ]

    one.write_dataset(rows(1, 2, 3), uri, initial_bases=bases(one), target_bases=["hot"])
    ds = other.write_dataset(rows(4), uri, mode="append", target_bases=["cold"])
    ds.add_bases([other.DatasetBasePath(str(tmp_path / "far"), name="far")])
    last = one.write_dataset(rows(5), uri, mode="append", target_bases=["far"])
    assert read(last) == read(other.dataset(uri)) == [1, 2, 3, 4, 5]
    assert sorted(last.base_paths()) == sorted(other.dataset(uri).base_paths()) == [1, 2, 3]
    other.dataset(uri).delete("a = 2")
    assert read(one.dataset(uri)) == [1, 3, 4, 5]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_fragments_of_one_are_committed_by_the_other(tmp_path: Path, one, other) -> None:
    uri = str(tmp_path / "t")
    ds = write_history(one, uri)
    forms = [fragment.to_json() for fragment in one.fragment.write_fragments(rows(4, 5), uri)]
    sent = [other.fragment.FragmentMetadata.from_json(json.dumps(form)) for form in forms]
    append = other.LanceOperation.Append(sent)
    done = other.LanceDataset.commit(uri, append, read_version=3, commit_message="sent")
    assert read(done) == [1, 2, 3, 4, 5]
    told = ds.read_transaction(4)
    assert told.transaction_properties == {"__lance_commit_message": "sent"}
    assert [f.to_json()["files"] for f in told.operation.fragments] == [
        form["files"] for form in forms
    ]
    left = other.dataset(uri).get_fragment(0).delete("a = 1")
    assert left is None
    delete = one.LanceOperation.Delete([], [0], "a = 1")
    assert read(one.LanceDataset.commit(uri, delete, read_version=4)) == [2, 3, 4, 5]


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_detached_versions_and_renamed_manifests(tmp_path: Path, one, other) -> None:
    uri = str(tmp_path / "t")
    one.write_dataset(rows(1), uri, enable_v2_manifest_paths=False)
    ds = one.write_dataset(rows(2), uri, mode="append", enable_v2_manifest_paths=False)
    assert manifests(uri) == ["1.manifest", "2.manifest"]
    other.dataset(uri).migrate_manifest_paths_v2()
    assert manifests(uri) == ["18446744073709551613.manifest", "18446744073709551614.manifest"]
    assert read(one.dataset(uri)) == [1, 2]
    append = one.LanceOperation.Append(one.fragment.write_fragments(rows(3), uri))
    detached = one.LanceDataset.commit(uri, append, read_version=ds.version, detached=True)
    assert read(other.dataset(uri, version=detached.version)) == [1, 2, 3]
    assert other.dataset(uri).version == 2


OPERATIONS = {
    "Append": lambda lib, f: lib.LanceOperation.Append([f]),
    "Overwrite": lambda lib, f: lib.LanceOperation.Overwrite(rows(1).schema, [f]),
    "Delete": lambda lib, _: lib.LanceOperation.Delete([], [0], "a = 1"),
    "Update": lambda lib, f: lib.LanceOperation.Update(removed_fragment_ids=[1], new_fragments=[f]),
    "Restore": lambda lib, _: lib.LanceOperation.Restore(1),
    "UpdateConfig": lambda lib, _: lib.LanceOperation.UpdateConfig(
        config_updates=lib.LanceOperation.UpdateMap({"k": "v"})
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_have_the_same_rows_and_results(tmp_path: Path, name: str) -> None:
    results = []
    for library in (lance, lancelet):
        uri = str(tmp_path / library.__name__)
        write_history(library, uri)
        fragment = library.fragment.LanceFragment.create(uri, rows(7))
        operation = OPERATIONS[name](library, fragment)
        done = library.LanceDataset.commit(uri, operation, read_version=3)
        told = lance.dataset(uri).read_transaction(4)
        results.append((read(done), read(lance.dataset(uri)), type(told.operation).__name__))
    assert results[0] == results[1]
    assert results[0][2] == name
