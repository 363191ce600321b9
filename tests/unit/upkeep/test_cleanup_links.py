"""A cleanup deletes nothing that symbolic links lead to."""

import os
import time
from datetime import timedelta

import lance_namespace as ln
import pyarrow as pa
import pytest

import lancelet
from lancelet.namespace import DirectoryNamespace


def table_at(path):
    lancelet.write_dataset(pa.table({"x": range(3)}), str(path))
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (time.time() - 30 * 86_400,) * 2)
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_files_behind_a_link_are_those_of_others(tmp_path):
    other = table_at(tmp_path / "other.lance")
    table_at(tmp_path / "t.lance")
    for folder in ("data", "_transactions"):
        (tmp_path / "t.lance" / folder / "link").symlink_to(tmp_path / "other.lance" / folder)
    garbage = tmp_path / "t.lance" / "data" / "garbage.lance"
    garbage.write_bytes(b"x")
    lancelet.dataset(str(tmp_path / "t.lance")).cleanup_old_versions(
        timedelta(0), delete_unverified=True
    )
    assert {file: file.read_bytes() for file in other} == other
    assert not garbage.exists()


@pytest.mark.parametrize("delete_unverified", [False, True])
@pytest.mark.parametrize("folder", ["data", "_transactions", "_deletions", "_indices", "_versions"])
def test_a_folder_that_is_a_link_is_left_alone(tmp_path, folder, delete_unverified):
    table = tmp_path / "t.lance"
    dataset = lancelet.write_dataset(pa.table({"x": range(30)}), str(table))
    dataset.create_scalar_index("x", "BTREE")
    dataset.delete("x < 3")
    dataset.optimize.compact_files()
    elsewhere = tmp_path / "elsewhere"
    (table / folder).rename(elsewhere)
    (table / folder).symlink_to(elsewhere)
    (elsewhere / "of-others.lance").write_bytes(b"x")
    (elsewhere / ".lancelet-tmp-1").write_bytes(b"x")
    for file in tmp_path.rglob("*"):
        os.utime(file, (time.time() - 30 * 86_400,) * 2)
    before = {file: file.read_bytes() for file in elsewhere.rglob("*") if file.is_file()}
    dataset.cleanup_old_versions(timedelta(0), delete_unverified=delete_unverified)
    assert {file: file.read_bytes() for file in before} == before
    assert lancelet.dataset(str(table)).to_table(filter="x < 6")["x"].to_pylist() == [3, 4, 5]


def test_dropping_a_table_preserves_targets_of_links(tmp_path):
    others = table_at(tmp_path / "other.lance")
    root = tmp_path / "root"
    table_at(root / "t.lance")
    for folder in ("data", "_versions/link", "_indices"):
        target = tmp_path / "other.lance" / folder.partition("/")[0]
        link = root / "t.lance" / folder
        if folder == "data":
            link.rename(tmp_path / "moved")
        link.symlink_to(target)
    (root / "linked.lance").symlink_to(tmp_path / "other.lance")
    (root / "group").symlink_to(tmp_path)
    namespace = DirectoryNamespace(root=str(root))
    for name in ("t", "linked"):
        namespace.drop_table(ln.DropTableRequest(id=[name]))
        assert not (root / f"{name}.lance").is_symlink()
        assert not (root / f"{name}.lance").exists()
    asked = ln.RegisterTableRequest(id=["other"], location="group/other.lance")
    namespace.register_table(asked)
    with pytest.raises(ln.InvalidInputError, match="symbolic link"):
        namespace.drop_table(ln.DropTableRequest(id=["other"]))
    assert {file: file.read_bytes() for file in others} == others
    assert {file for file in (tmp_path / "other.lance").rglob("*") if file.is_file()} == set(others)
