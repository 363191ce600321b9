"""Goal: tags, branches and clones behave as in pylance for every checked-out version."""

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import (
    AlreadyExistsError,
    CommitConflictError,
    RefNotFoundError,
    VersionNotFoundError,
)


def rows(*values: int) -> pa.Table:
    return pa.table({"a": list(values)})


def read(ds: lancelet.LanceDataset) -> list[int]:
    return ds.to_table()["a"].to_pylist()


@pytest.fixture
def ds(tmp_path: Path) -> lancelet.LanceDataset:
    """A table with [1] in version 1, [1, 2] in version 2, [1, 2, 3] in version 3."""
    uri = tmp_path / "t"
    lancelet.write_dataset(rows(1), uri)
    lancelet.write_dataset(rows(2), uri, mode="append")
    return lancelet.write_dataset(rows(3), uri, mode="append")


def test_a_tag_names_a_version_until_it_moves(ds) -> None:
    ds.tags.create("v1", 1)
    assert ds.tags.get_version("v1") == 1
    assert read(ds.checkout_version("v1")) == [1]
    assert read(lancelet.dataset(ds.uri, version="v1")) == [1]
    created = ds.tags.list()["v1"]
    assert created["created_at"] == created["updated_at"]
    assert created["branch"] is None
    ds.tags.update("v1", 2)
    moved = ds.tags.list()["v1"]
    assert read(ds.checkout_version("v1")) == [1, 2]
    assert moved["created_at"] == created["created_at"]
    assert moved["updated_at"] > created["updated_at"]
    ds.tags.replace_metadata("v1", {"by": "me"})
    assert ds.tags.list()["v1"] == {**moved, "metadata": {"by": "me"}}
    ds.tags.delete("v1")
    assert ds.tags.list() == {}


def test_tags_default_to_the_checked_out_version(ds) -> None:
    ds.checkout_version(2).tags.create("here")
    assert ds.tags.get_version("here") == 2


def test_names_that_are_taken_or_unknown_are_errors(ds) -> None:
    ds.tags.create("v1", 1)
    ds.create_branch("dev", 1)
    with pytest.raises(AlreadyExistsError):
        ds.tags.create("v1", 2)
    with pytest.raises(AlreadyExistsError):
        ds.create_branch("dev", 2)
    for call in (
        lambda: ds.tags.get_version("no"),
        lambda: ds.tags.update("no", 1),
        lambda: ds.tags.delete("no"),
        lambda: ds.tags.replace_metadata("no", {}),
        lambda: ds.branches.delete("no"),
        lambda: ds.branches.replace_metadata("no", {}),
        lambda: ds.checkout_version("no"),
        lambda: ds.checkout_version(("no", None)),
        lambda: lancelet.dataset(ds.uri, version="no"),
        lambda: ds.shallow_clone(ds.uri + "-clone", "no"),
    ):
        with pytest.raises(RefNotFoundError) as caught:
            call()
        assert isinstance(caught.value, ValueError)
        assert isinstance(caught.value, OSError)
    with pytest.raises(VersionNotFoundError):
        ds.tags.create("v9", 9)
    for bad in ("", "a b", "a/b", ".a"):
        with pytest.raises(OSError, match="a tag name must consist of"):
            ds.tags.create(bad, 1)


def test_ordered_lists_go_by_version_then_name(ds) -> None:
    for name, version in (("b", 1), ("a", 1), ("c", 3)):
        ds.tags.create(name, version)
        ds.create_branch(name, version)
    for found in (ds.tags, ds.branches):
        assert [name for name, _ in found.list_ordered()] == ["c", "a", "b"]
        assert [name for name, _ in found.list_ordered("desc")] == ["c", "a", "b"]
        assert [name for name, _ in found.list_ordered("asc")] == ["a", "b", "c"]
        with pytest.raises(ValueError, match="Invalid sort order"):
            found.list_ordered("up")


def test_branches_go_their_own_ways(ds) -> None:
    branch = ds.create_branch("dev/x", 1)
    branch.insert(rows(10))
    ds.insert(rows(4))
    assert (branch.version, read(branch)) == (2, [1, 10])
    assert (ds.version, read(ds)) == (4, [1, 2, 3, 4])
    assert read(ds.checkout_version(("dev/x", 1))) == [1]
    assert read(ds.checkout_version(("dev/x", None))) == [1, 10]
    assert read(lancelet.dataset(ds.uri, version=("dev/x", 2))) == [1, 10]
    assert ds.branches.list()["dev/x"]["parent_version"] == 1
    assert [each["version"] for each in branch.version_refs()] == [1, 2]
    nested = ds.create_branch("dev/y", ("dev/x", None))
    assert read(nested) == [1, 10]
    assert ds.branches.list()["dev/y"]["parent_branch"] == "dev/x"
    with pytest.raises(OSError, match="need the branch"):
        ds.branches.delete("dev/x")
    ds.branches.delete("dev/y")
    ds.branches.delete("dev/x")
    assert ds.branches.list() == {}
    assert read(ds) == [1, 2, 3, 4]


@pytest.mark.parametrize("stable", [False, True])
def test_a_branch_is_brought_to_its_parent(tmp_path: Path, stable: bool) -> None:
    uri = tmp_path / "t"
    ds = lancelet.write_dataset(rows(1, 2), uri, enable_stable_row_ids=stable)
    branch = ds.create_branch("dev")
    assert ds.branches.fast_forward("dev").version == 1
    branch.insert(rows(3))
    branch.delete("a = 1")
    branch.insert(rows(4))
    nested = branch.create_branch("dev/more")
    nested.insert(rows(5))
    assert ds.branches.fast_forward("dev/more").uri == branch.uri
    done = ds.branches.fast_forward("dev")
    assert (done.version, done.uri, read(done)) == (2, str(uri), [2, 3, 4, 5])
    assert done.base_paths() == {}
    ds.branches.delete("dev/more")
    ds.branches.delete("dev")
    done.insert(rows(6))
    done.validate()
    assert read(lancelet.dataset(uri)) == [2, 3, 4, 5, 6]
    assert read(ds) == [1, 2]
    if stable:
        found = done.to_table(columns=["a", "_rowid", "_row_created_at_version"]).to_pydict()
        assert len(set(found["_rowid"])) == 5
        assert found["_row_created_at_version"] == [1, 2, 2, 2, 3]


def test_a_branch_whose_parent_moved_on_cannot_just_follow(ds) -> None:
    branch = ds.create_branch("dev")
    branch.insert(rows(10))
    ds.insert(rows(4))
    with pytest.raises(CommitConflictError, match="newer versions") as caught:
        ds.branches.fast_forward("dev")
    assert not caught.value.retryable
    with pytest.raises(RefNotFoundError):
        ds.branches.fast_forward("none")
    assert read(lancelet.dataset(ds.uri)) == [1, 2, 3, 4]


def test_references_are_seen_from_the_branch_looked_at(ds) -> None:
    ds.tags.create("v2", 2)
    branch = ds.create_branch("dev", 1)
    branch.insert(rows(10))
    assert read(branch.checkout_version(2)) == [1, 10]
    assert read(branch.checkout_version((None, 2))) == [1, 2]
    assert read(branch.checkout_version(("main", None))) == [1, 2, 3]
    assert read(branch.checkout_version("v2")) == [1, 2]
    branch.tags.create("own")
    assert ds.tags.list()["own"]["branch"] == "dev"
    assert read(lancelet.dataset(ds.uri, version="own")) == [1, 10]
    opened = lancelet.dataset(branch.uri)
    assert set(opened.tags.list()) == {"v2", "own"}
    assert set(opened.branches.list()) == {"dev"}
    assert read(opened.create_branch("more")) == [1, 10]


@pytest.mark.parametrize("wrong", [None, 1.5, ("main", "v1"), ("a", 1, 2)])
def test_invalid_versions_are_rejected(ds, wrong) -> None:
    with pytest.raises((ValueError, TypeError)):
        ds.checkout_version(wrong)


def test_negative_versions_overflow_as_in_the_reference(ds) -> None:
    with pytest.raises(OverflowError):
        ds.checkout_version(-1)


def test_asof_opens_the_latest_version_at_a_time(ds) -> None:
    times = {each["version"]: each["timestamp"] for each in ds.versions()}
    assert lancelet.dataset(ds.uri, asof=times[2]).version in {1, 2}
    assert lancelet.dataset(ds.uri, asof=datetime.now().isoformat()).version == 3  # noqa: DTZ005
    with pytest.raises(ValueError, match="earlier than the first"):
        lancelet.dataset(ds.uri, asof="2000-01-01")
    with pytest.raises(ValueError, match="cannot be combined"):
        lancelet.dataset(ds.uri, version=1, asof="2000-01-01")


def test_restore_brings_an_old_version_back(ds) -> None:
    old = ds.checkout_version(1)
    old.restore()
    assert (old.version, read(old)) == (4, [1])


def test_clones_of_clones_read_the_first_files(ds, tmp_path: Path) -> None:
    first = ds.shallow_clone(tmp_path / "c1", 2)
    first.insert(rows(20))
    second = first.shallow_clone(tmp_path / "c2", 3)
    second.insert(rows(30))
    assert (first.version, read(first)) == (3, [1, 2, 20])
    assert (second.version, read(second)) == (4, [1, 2, 20, 30])
    copy = second.deep_clone(tmp_path / "c3", 4)
    for gone in ("c1", "c2"):
        lancelet.LanceDataset.drop(tmp_path / gone)
    lancelet.LanceDataset.drop(ds.uri)
    assert read(lancelet.dataset(tmp_path / "c3")) == [1, 2, 20, 30]
    with pytest.raises(AlreadyExistsError):
        copy.shallow_clone(tmp_path / "c3", 4)
