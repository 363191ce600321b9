"""Goal: branches, tags and clones of either implementation are those of the other.

Method: each makes them from one table; the other reads, writes and clones on. What is stored is
compared value by value where both did the same.
"""

from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import AlreadyExistsError
from lancelet.table.clone import deep_clone, shallow_clone
from lancelet.table.location import TableLocation
from lancelet.table.refs import (
    create_branch,
    create_tag,
    delete_branch,
    get_branch,
    get_tag,
    open_reference,
)
from lancelet.table.snapshot import Snapshot, open_snapshot
from tests.kit.tables import append_rows, simple_rows

pytestmark = pytest.mark.interop


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table with deletions, an index, blobs of their own and a base outside."""
    root = tmp_path / "t"
    bases = [lance.DatasetBasePath(str(tmp_path / "outside"), name="outside")]
    lance.write_dataset(
        simple_rows(0, 6), root, max_rows_per_file=3, initial_bases=bases, target_bases=["outside"]
    )
    ds = lance.write_dataset(simple_rows(6, 10), root, mode="append")
    ds.delete("id = 4")
    ds.create_scalar_index("id", "BTREE")
    return root


def located(path: Path) -> TableLocation:
    return TableLocation.open(str(path), {"local_sync": "false"})


def content(snapshot: Snapshot) -> tuple[object, ...]:
    manifest = replace(snapshot.manifest, timestamp_ns=0, transaction_file="", writer_version=None)
    fragments = tuple(snapshot.fragments)
    bases = sorted(manifest.base_paths, key=lambda base: base.id)
    return (
        replace(manifest, base_paths=(), fragments=manifest.fragments[:0]).__repr__(),
        fragments,
        bases,
        snapshot.indices.indices,
        snapshot.transaction.operation,
    )


def test_shallow_clones_and_clones_of_clones_are_the_same(table, tmp_path) -> None:
    ds = lance.dataset(table)
    ds.shallow_clone(str(tmp_path / "theirs"), ds.version)
    clone = shallow_clone(open_snapshot(located(table)), located(tmp_path / "ours"))
    assert content(clone) == content(open_snapshot(located(tmp_path / "theirs")))
    theirs = lance.dataset(tmp_path / "ours")
    theirs.validate()
    assert theirs.to_table() == ds.to_table()
    theirs.delete("id = 7")
    theirs.shallow_clone(str(tmp_path / "theirs of ours"), theirs.version)
    again = shallow_clone(open_snapshot(located(tmp_path / "ours")), located(tmp_path / "2"))
    assert content(again) == content(open_snapshot(located(tmp_path / "theirs of ours")))
    assert lance.dataset(tmp_path / "2").to_table(filter="id > 5")["id"].to_pylist() == [6, 8, 9]
    assert len(lance.dataset(table).to_table()) == 9


def test_deep_clones_need_nothing_of_the_source(table, tmp_path) -> None:
    ds = lance.dataset(table)
    before = ds.to_table()
    with pytest.raises(OSError, match="source metadata"):
        # The reference looks for files of a plain base in a folder `data` of it.
        ds.deep_clone(str(tmp_path / "theirs"), ds.version)
    clone = deep_clone(open_snapshot(located(table)), located(tmp_path / "ours"))
    table.rename(tmp_path / "gone")
    (tmp_path / "outside").rename(tmp_path / "gone too")
    theirs = lance.dataset(tmp_path / "ours")
    theirs.validate()
    assert theirs.to_table() == before
    assert theirs.to_table(filter="id = 3")["id"].to_pylist() == [3]
    with pytest.raises(AlreadyExistsError):
        deep_clone(clone, located(tmp_path / "ours"))


def test_deep_clones_are_the_same(tmp_path) -> None:
    lance.write_dataset(simple_rows(0, 6), tmp_path / "t", max_rows_per_file=3)
    ds = lance.dataset(tmp_path / "t")
    ds.create_scalar_index("id", "BTREE")
    ds.create_branch("b").delete("id = 4")
    on_branch = ds.checkout_version(("b", None))
    on_branch.deep_clone(str(tmp_path / "theirs"), on_branch.version)
    source = open_reference(located(tmp_path / "t"), ("b", None))
    clone = deep_clone(source, located(tmp_path / "ours"))
    assert content(clone) == content(open_snapshot(located(tmp_path / "theirs")))
    assert lance.dataset(tmp_path / "ours").count_rows() == 5


def test_deep_clones_copy_blob_files(tmp_path) -> None:
    blob = np.random.default_rng(1).bytes(5 << 20)
    column = lance.blob_array([blob, b"small"])
    rows = pa.table({"b": column}, schema=pa.schema([lance.blob_field("b")]))
    ds = lance.write_dataset(rows, tmp_path / "t", data_storage_version="2.2")
    assert list((tmp_path / "t/data").rglob("*.blob"))
    deep_clone(open_snapshot(located(tmp_path / "t")), located(tmp_path / "ours"))
    ds.deep_clone(str(tmp_path / "theirs"), 1)
    for name in ("ours", "theirs"):
        files = {p.relative_to(tmp_path / name) for p in (tmp_path / name / "data").rglob("*.*")}
        assert files == {p.relative_to(tmp_path / "t") for p in (tmp_path / "t/data").rglob("*.*")}
    (found,) = lance.dataset(tmp_path / "ours").take_blobs("b", indices=[0])
    assert found.readall() == blob


def test_branches_are_the_same_and_shared(table, tmp_path) -> None:
    ds = lance.dataset(table)
    main = located(table)
    ds.create_branch("theirs/x", ds.version)
    ours = create_branch(main, "ours/x", open_snapshot(main))
    expected = open_reference(main, ("theirs/x", None))
    operation = replace(expected.transaction.operation, branch_name="ours/x")
    mine, theirs = content(ours), content(expected)
    assert mine[1:4] == theirs[1:4]
    assert mine[4] == operation
    assert mine[0] == theirs[0].replace("theirs/x", "ours/x")
    branch = ds.checkout_version(("ours/x", None))
    assert branch.to_table() == ds.to_table()
    branch.delete("id = 1")
    latest = append_rows(ours.location, open_reference(main, ("ours/x", None)), simple_rows(20, 21))
    assert latest.num_rows == 9
    ours_of_theirs = create_branch(main, "child", expected)
    assert ds.branches.list()["child"]["parent_branch"] == "theirs/x"
    theirs_of_ours = ds.create_branch("other", ("ours/x", None))
    assert theirs_of_ours.count_rows() == 9
    assert get_branch(main, "other").identifier[0] == get_branch(main, "ours/x").identifier[0]
    assert ours_of_theirs.num_rows == 9
    child = content(ours_of_theirs)
    ds.create_branch("their-child", ("theirs/x", None))
    assert child[1:4] == content(open_reference(main, ("their-child", None)))[1:4]
    delete_branch(main, "child")
    assert "child" not in ds.branches.list()


def test_tags_are_shared(table) -> None:
    ds = lance.dataset(table)
    main = located(table)
    create_tag(main, "ours", 2)
    assert lance.dataset(table, version="ours").version == 2
    ds.tags.create("theirs", 3)
    assert open_reference(main, "theirs").version == 3
    ds.tags.create("twin", 2)
    mine, theirs = get_tag(main, "ours"), get_tag(main, "twin")
    assert replace(mine, created_at_ns=0, updated_at_ns=0) == replace(
        theirs, created_at_ns=0, updated_at_ns=0
    )
    create_branch(main, "b", open_snapshot(main))
    create_tag(main, "on-branch", ds.version, "b")
    assert lance.dataset(table, version="on-branch").count_rows() == 9
    with pytest.raises(OSError, match="referenced by tags"):
        ds.branches.delete("b")


@pytest.mark.parametrize("stable", [False, True])
def test_compacting_a_clone_writes_its_own_indices(tmp_path, stable) -> None:
    """The reference goes on looking in what was cloned, and then reads no more by the index."""
    rows = pa.table({"id": range(6)})
    source = lance.write_dataset(
        rows, tmp_path / "t", max_rows_per_file=2, enable_stable_row_ids=stable
    )
    source.create_scalar_index("id", "BTREE")
    source.shallow_clone(str(tmp_path / "clone"), source.version)
    clone = lancelet.dataset(tmp_path / "clone")
    clone.optimize.compact_files()
    assert [f.what for f in clone.check("indices") if f.severity.value != "note"] == []
    for module in (lancelet, lance):
        found = module.dataset(tmp_path / "clone").to_table(filter="id = 4")
        assert found["id"].to_pylist() == [4]
