"""Goal: tags and branches of the reference are read, and rendered byte for byte as it does."""

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancelet.format.paths import branch_path, branch_root, parse_ref_name, tag_path
from lancelet.format.refs import (
    check_branch_name,
    check_tag_name,
    parse_branch,
    parse_tag,
    render_branch,
    render_tag,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def table(tmp_path: Path) -> Path:
    root = tmp_path / "t"
    ds = lance.write_dataset(pa.table({"a": [1]}), root)
    lance.write_dataset(pa.table({"a": [1]}), root, mode="append")
    ds.tags.create("v1.0_x-y", 1)
    ds.create_branch("dev/x", 1)
    ds.create_branch("dev/y", ("dev/x", None))
    ds.tags.create("on-branch", ("dev/x", 1))
    ds.tags.update("v1.0_x-y", 2)
    return root


def test_files_are_rendered_byte_for_byte(table: Path) -> None:
    tags = {path.stem: path.read_bytes() for path in (table / "_refs/tags").iterdir()}
    assert {name: render_tag(parse_tag(data)) for name, data in tags.items()} == tags
    assert parse_tag(tags["on-branch"]).branch == "dev/x"
    assert parse_tag(tags["v1.0_x-y"]).version == 2
    branches = {path.name: path.read_bytes() for path in (table / "_refs/branches").iterdir()}
    assert {n: render_branch(parse_branch(data)) for n, data in branches.items()} == branches
    assert {parse_ref_name(name) for name in branches} == {"dev/x", "dev/y"}
    child = parse_branch(branches["dev%2Fy.json"])
    assert child.parent_branch == "dev/x"
    assert len(child.identifier) == 2


def test_paths_are_where_the_reference_puts_things(table: Path) -> None:
    assert (table / tag_path("on-branch")).exists()
    for branch in ("dev/x", "dev/y"):
        assert (table / branch_path(branch)).exists()
        assert (table / branch_root(branch) / "_versions").is_dir()


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "a.lock", "a b", "a/b", "-a", "lock"])
def test_tag_names_are_validated_identically(table: Path, name: str) -> None:
    ds = lance.dataset(table)
    assert refuses(lambda: check_tag_name(name)) == refuses(lambda: ds.tags.create(name, 1))


@pytest.mark.parametrize(
    "name", ["", "main", "a//b", "/a", "a/", "a/../b", "a.lock/b", "a/b.lock", "a/.b", "x/main"]
)
def test_branch_names_are_validated_identically(table: Path, name: str) -> None:
    ds = lance.dataset(table)
    assert refuses(lambda: check_branch_name(name)) == refuses(lambda: ds.create_branch(name, 1))


def refuses(action) -> bool:
    try:
        action()
    except (OSError, ValueError):
        return True
    return False
