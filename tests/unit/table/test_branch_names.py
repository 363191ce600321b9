"""Branches with any name are found, opened, cleaned up and deleted, without side effects."""

from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import InvalidInputError
from lancelet.table.refs import RefInUseError

ROWS = pa.table({"x": range(3)})


@pytest.fixture
def uri(tmp_path):
    path = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, path)
    return path


def clean(dataset):
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=True)


def open_branch(uri, name):
    return lancelet.dataset(uri).checkout_version((name, None))


@pytest.mark.parametrize(
    "name", ["_wip", "team/_tmp", "data/exp1", "data", "_versions", "tree", "a/b", "plain", "br-ä"]
)
def test_cleaning_up_the_main_table_retains_files_of_branches(uri, name):
    lancelet.dataset(uri).create_branch(name)
    lancelet.write_dataset(ROWS, uri, mode="overwrite")
    clean(lancelet.dataset(uri))
    assert open_branch(uri, name).to_table() == ROWS
    assert lance.dataset(uri).checkout_version((name, None)).to_table() == ROWS


@pytest.mark.parametrize("module", [lance, lancelet])
def test_the_version_that_a_branch_started_from_stays(uri, module):
    for _ in range(3):
        lancelet.dataset(uri).insert(ROWS)
    lancelet.dataset(uri).checkout_version(2).create_branch("dev")
    module.dataset(uri).cleanup_old_versions(timedelta(0), delete_unverified=True)
    assert [each["version"] for each in lancelet.dataset(uri).versions()] == [2, 4]
    assert lancelet.dataset(uri, version=2).count_rows() == 6
    lancelet.dataset(uri).branches.delete("dev")
    clean(lancelet.dataset(uri))
    assert [each["version"] for each in lancelet.dataset(uri).versions()] == [4]


@pytest.mark.parametrize("name", ["x/data", "x/_versions", "a/b/_indices", "x/_refs/y"])
def test_no_branch_is_made_among_the_files_of_another(uri, name):
    with pytest.raises(InvalidInputError, match="table directory of another"):
        lancelet.dataset(uri).create_branch(name)


@pytest.mark.parametrize("inner", ["x/data", "x/_versions"])
def test_branches_of_the_reference_that_overlap_do_not_delete_each_other(uri, inner):
    other = lance.dataset(uri)
    other.create_branch("x").insert(ROWS)
    other.create_branch(inner).insert(ROWS)
    for name in ("x", inner):
        assert open_branch(uri, name).count_rows() == 6
    with pytest.raises(InvalidInputError, match="other branches are stored inside"):
        clean(open_branch(uri, "x"))
    with pytest.raises(RefInUseError) as raised:
        lancelet.dataset(uri).branches.delete("x")
    assert raised.value.facts["branches"] == [inner]
    clean(open_branch(uri, inner))
    assert lance.dataset(uri).checkout_version((inner, None)).count_rows() == 6
    lancelet.dataset(uri).branches.delete(inner)
    assert open_branch(uri, "x").count_rows() == 6
    assert lance.dataset(uri).checkout_version(("x", None)).count_rows() == 6
    clean(open_branch(uri, "x"))
    assert open_branch(uri, "x").count_rows() == 6
    lancelet.dataset(uri).branches.delete("x")


def test_nothing_is_left_of_a_branch(uri):
    dataset = lancelet.dataset(uri)
    dataset.create_branch("x/y/z").insert(ROWS)
    dataset.create_branch("x/w")
    dataset.branches.delete("x/y/z")
    tree = Path(uri) / "tree"
    assert [each.name for each in (tree / "x").iterdir()] == ["w"]
    dataset.branches.delete("x/w")
    assert not tree.exists()


def test_a_branch_around_others_is_deleted_without_them(uri):
    dataset = lancelet.dataset(uri)
    for name in ("x", "x/y", "x/z/w"):
        dataset.create_branch(name).insert(ROWS)
    dataset.branches.delete("x")
    assert {each.name for each in (Path(uri) / "tree" / "x").iterdir()} == {"y", "z"}
    for name in ("x/y", "x/z/w"):
        assert open_branch(uri, name).count_rows() == 6


def test_names_of_any_script_are_those_of_the_reference(uri):
    other = lance.dataset(uri)
    for name in ("brä", "a/ü", "日本"):
        other.create_branch(name).insert(ROWS)
        other.tags.create(name.replace("/", "-"), 1)
        lancelet.dataset(uri).create_branch(f"{name}-ours").insert(ROWS)
        lancelet.dataset(uri).tags.create(f"{name.replace('/', '-')}-ours", 1)
    dataset = lancelet.dataset(uri)
    assert sorted(dataset.branches.list()) == sorted(other.branches.list())
    assert sorted(dataset.tags.list()) == sorted(
        ["brä", "brä-ours", "a-ü", "a-ü-ours", "日本", "日本-ours"]
    )
    for name in ("brä", "a/ü", "日本"):
        assert open_branch(uri, name).count_rows() == 6
        assert other.checkout_version((f"{name}-ours", None)).count_rows() == 6
        tag = name.replace("/", "-")
        assert dataset.checkout_version(tag).count_rows() == 3
        assert other.checkout_version(f"{tag}-ours").count_rows() == 3
        dataset.branches.delete(name)
        dataset.branches.delete(f"{name}-ours")
        dataset.tags.delete(tag)
        dataset.tags.delete(f"{tag}-ours")
    assert not list((Path(uri) / "_refs").rglob("*.json"))


def test_a_branch_of_another_script_is_opened_by_its_uri(uri):
    branch = lancelet.dataset(uri).create_branch("brä")
    branch.insert(ROWS)
    opened = lancelet.dataset(branch.uri)
    assert opened.count_rows() == 6
    assert opened.branches.list().keys() == {"brä"}
