"""Goal: every operation can be decomposed, rebuilt and committed.

Method: an example of every kind is shown to a user, sent to another process and taken back; then
tables are changed by commits alone.
"""

from __future__ import annotations

import contextlib
import json
import pickle
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyroaring import BitMap

import lancelet
from lancelet import LanceDataset, LanceOperation
from lancelet.dataset.write.committing import transaction_from_user, transaction_to_user
from lancelet.errors import CommitConflictError, UnsupportedError, VersionNotFoundError
from lancelet.format import operation as op
from lancelet.format.base_paths import BasePath
from lancelet.format.fragment import DataFile as StoredFile
from lancelet.format.fragment import (
    DataOverlay,
    DeletionFile,
    DeletionFileType,
    Fragment,
    FragmentId,
    Inline,
)
from lancelet.format.index_metadata import AnyDetails, FragmentBitmap, IndexFile, IndexMetadata
from lancelet.format.roaring import render_bitmap
from lancelet.format.schema import Schema
from lancelet.format.transaction import Transaction
from lancelet.fragment import DataFile, FragmentMetadata, LanceFragment, write_fragments
from lancelet.schema import LanceSchema

ROWS = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"]})


def read(ds: LanceDataset) -> dict:
    return ds.to_table().to_pydict()


@pytest.fixture
def ds(tmp_path: Path) -> LanceDataset:
    return lancelet.write_dataset(ROWS, tmp_path / "t")


FRAGMENT = Fragment(
    FragmentId(4),
    (StoredFile("f.lance", (0, 1), (0, 1), 2, 2, 77, 1),),
    9,
    DeletionFile(DeletionFileType.BITMAP, 3, 5, 2),
    row_ids=Inline(b"\x0a\x02"),
)
SCHEMA = Schema.from_arrow(ROWS.schema)
INDEX = IndexMetadata(
    uuid.UUID(int=7),
    "by_a",
    (0,),
    3,
    FragmentBitmap([0, 4]),
    AnyDetails("/lance.table.BTreeIndexDetails", b"x"),
    index_version=2,
    created_at=1_700_000_000_000,
    base_id=0,
    files=(IndexFile("page.lance", 9),),
    covering_fields=(1,),
)
CHANGE = op.UpdateMap({"a": "1", "b": None}, replace=True)
OPERATIONS = [
    op.Append((FRAGMENT,)),
    op.Delete((FRAGMENT,), (1, 2), "a = 1"),
    op.Overwrite((FRAGMENT,), SCHEMA, {}, (BasePath(2, "/cold", True, "cold"),)),
    op.CreateIndex((INDEX,), (INDEX,)),
    op.Rewrite(
        (op.RewriteGroup((FRAGMENT,), (FRAGMENT,)),),
        (op.RewrittenIndex(uuid.UUID(int=1), uuid.UUID(int=2), AnyDetails("/x", b"y"), 3),),
    ),
    op.Merge((FRAGMENT,), SCHEMA, preserves_nullability=True),
    op.Restore(3),
    op.ReserveFragments(4),
    op.Update((1,), (FRAGMENT,), (FRAGMENT,), (0,), (), (1,), op.UpdateMode.REWRITE_COLUMNS),
    op.Update(updated_offsets={4: render_bitmap(BitMap([1, 3]))}),
    op.Project(SCHEMA, preserves_nullability=True),
    op.UpdateConfig(CHANGE, None, CHANGE, {3: CHANGE}),
    op.DataReplacement((op.DataReplacementGroup(4, FRAGMENT.files[0]),)),
    op.UpdateMemWalState((op.CompactedSsTable(uuid.UUID(int=3), 4),)),
    op.Clone(True, 3, "/t", None, "dev"),
    op.UpdateBases((BasePath(0, "/far"),)),
    op.AddOverlays(
        (op.OverlayGroup(4, (DataOverlay(FRAGMENT.files[0], render_bitmap(BitMap([1, 5])), 3),)),)
    ),
    op.UnknownOperation(b"\xfa\x3f\x00"),
]


def test_every_kind_of_operation_has_an_example() -> None:
    assert {type(each) for each in OPERATIONS} == set(op.Operation.__args__)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: type(each).__name__)
def test_operations_survive_the_way_to_users_and_back(operation: op.Operation) -> None:
    shown = transaction_to_user(Transaction(3, "id", operation, {"k": "v"}))
    assert isinstance(shown.operation, LanceOperation.BaseOperation)
    assert (shown.read_version, shown.transaction_properties) == (3, {"k": "v"})
    sent = pickle.loads(pickle.dumps(shown))
    assert sent == shown
    if isinstance(operation, op.Clone):
        with pytest.raises(UnsupportedError, match="shallow_clone"):
            transaction_from_user(sent)
    else:
        assert transaction_from_user(sent).operation == operation


def test_appends_are_committed_from_fragments(ds: LanceDataset) -> None:
    fragments = write_fragments(ROWS, ds, max_rows_per_file=2)
    assert [fragment.num_rows for fragment in fragments] == [2, 1]
    assert ds.latest_version == 1
    sent = [FragmentMetadata.from_json(json.dumps(each.to_json())) for each in fragments]
    done = LanceDataset.commit(
        ds.uri, LanceOperation.Append(sent), read_version=1, commit_message="hello"
    )
    assert (done.version, done.count_rows()) == (2, 6)
    assert [fragment.fragment_id for fragment in done.get_fragments()] == [0, 1, 2]
    told = done.read_transaction(2)
    assert isinstance(told.operation, LanceOperation.Append)
    assert told.transaction_properties == {"__lance_commit_message": "hello"}
    assert [each.operation.__class__.__name__ for each in done.get_transactions()] == [
        "Append",
        "Overwrite",
    ]
    assert len(done.get_transactions(1)) == 1


def test_transactions_record_what_fragments_are_for(tmp_path: Path, ds: LanceDataset) -> None:
    fresh = write_fragments(ROWS, tmp_path / "new", return_transaction=True)
    assert (fresh.read_version, type(fresh.operation)) == (0, LanceOperation.Overwrite)
    created = LanceDataset.commit(tmp_path / "new", fresh)
    assert read(created) == ROWS.to_pydict()
    more = write_fragments(ROWS, created, return_transaction=True)
    assert (more.read_version, type(more.operation)) == (1, LanceOperation.Append)
    more.transaction_properties["who"] = "me"
    assert LanceDataset.commit(created, more).count_rows() == 6
    with pytest.raises(ValueError, match="commit_message is not supported"):
        LanceDataset.commit(created, more, commit_message="no")


def test_many_appends_become_one_version(ds: LanceDataset) -> None:
    appends = [write_fragments(ROWS, ds, return_transaction=True) for _ in range(3)]
    done = LanceDataset.commit_batch(ds, appends)
    assert (done["dataset"].version, done["dataset"].count_rows()) == (2, 12)
    assert len(done["merged"].operation.fragments) == 3
    with pytest.raises(ValueError, match="No transactions"):
        LanceDataset.commit_batch(ds, [])
    restore = lancelet.Transaction(1, LanceOperation.Restore(1))
    with pytest.raises(NotImplementedError, match="Only append"):
        LanceDataset.commit_batch(ds, [restore])


def test_overwrite_creates_and_replaces(tmp_path: Path) -> None:
    fragment = LanceFragment.create(tmp_path / "t", ROWS)
    operation = LanceOperation.Overwrite(ROWS.schema, [fragment])
    first = LanceDataset.commit(tmp_path / "t", operation, enable_stable_row_ids=True)
    assert first.has_stable_row_ids
    second = LanceDataset.commit(tmp_path / "t", LanceOperation.Overwrite(ROWS.schema, []))
    assert (second.version, second.count_rows()) == (2, 0)
    with pytest.raises(CommitConflictError):
        LanceDataset.commit(tmp_path / "t", operation, read_version=1, max_retries=0)
    back = LanceDataset.commit(tmp_path / "t", LanceOperation.Restore(1))
    assert read(back) == ROWS.to_pydict()


def test_delete_merge_project_and_config_are_committed(ds: LanceDataset) -> None:
    fragment = ds.get_fragment(0)
    rest = fragment.delete("a = 2")
    assert (rest.num_rows, ds.count_rows()) == (2, 3)
    ds = LanceDataset.commit(ds, LanceOperation.Delete([rest], [], "a = 2"), read_version=1)
    assert read(ds)["a"] == [1, 3]
    wider = LanceSchema.from_pyarrow(ROWS.schema.append(pa.field("c", pa.int32())))
    merge = LanceOperation.Merge([each.metadata for each in ds.get_fragments()], wider)
    ds = LanceDataset.commit(ds, merge, read_version=2)
    assert read(ds)["c"] == [None, None]
    narrow = LanceOperation.Project(LanceSchema.from_pyarrow(ROWS.schema.remove(1)))
    ds = LanceDataset.commit(ds, narrow, read_version=3)
    assert ds.schema.names == ["a"]
    change = LanceOperation.UpdateConfig(config_updates=LanceOperation.UpdateMap({"k": "v"}))
    ds = LanceDataset.commit(ds, change, read_version=4)
    assert ds.config() == {"k": "v"}
    gone = LanceOperation.Delete([], [0], "true")
    assert LanceDataset.commit(ds, gone, read_version=5).count_rows() == 0


def test_update_rewrite_and_replacement_are_committed(ds: LanceDataset) -> None:
    moved = LanceFragment.create(ds.uri, pa.table({"a": [9], "b": ["q"]}))
    rest = ds.get_fragment(0).delete_rows([0])
    update = LanceOperation.Update(updated_fragments=[rest], new_fragments=[moved])
    ds = LanceDataset.commit(ds, update, read_version=1)
    assert read(ds)["a"] == [2, 3, 9]
    old = [fragment.metadata for fragment in ds.get_fragments()]
    new = LanceFragment.create(ds.uri, ds.to_table(), fragment_id=17)
    rewrite = LanceOperation.Rewrite([LanceOperation.RewriteGroup(old, [new])], [])
    ds = LanceDataset.commit(ds, rewrite, read_version=2)
    assert ([each.fragment_id for each in ds.get_fragments()], read(ds)["a"]) == ([17], [2, 3, 9])
    other = LanceFragment.create(ds.uri, pa.table({"a": [5, 6, 7]})).files[0]
    other = DataFile.create(ds, other.path)
    group = LanceOperation.DataReplacementGroup(17, other)
    with contextlib.suppress(ValueError):  # not a file of the same fields: refused or applied
        ds = LanceDataset.commit(ds, LanceOperation.DataReplacement([group]), read_version=3)
        assert read(ds)["a"] == [5, 6, 7]


def test_detached_versions_are_found_by_number_only(ds: LanceDataset) -> None:
    fragments = write_fragments(ROWS, ds)
    done = LanceDataset.commit(ds, LanceOperation.Append(fragments), read_version=1, detached=True)
    assert done.version >= 1 << 63
    assert done.count_rows() == 6
    assert lancelet.dataset(ds.uri).version == 1
    assert [each["version"] for each in ds.versions()] == [1]
    assert lancelet.dataset(ds.uri, version=done.version).count_rows() == 6


def test_input_that_cannot_be_committed_is_rejected(tmp_path: Path, ds: LanceDataset) -> None:
    append = LanceOperation.Append([])
    with pytest.raises(ValueError, match="read_version is required"):
        LanceDataset.commit(ds, append)
    with pytest.raises(VersionNotFoundError) as caught:
        LanceDataset.commit(ds, append, read_version=77)
    assert isinstance(caught.value, OSError)
    with pytest.raises(FileNotFoundError):
        LanceDataset.commit(tmp_path / "no", append, read_version=1)
    with pytest.raises(TypeError, match="operation must be"):
        LanceDataset.commit(ds, "append", read_version=1)
    with pytest.raises(TypeError, match="base_uri must be"):
        LanceDataset.commit(7, append, read_version=1)
    with pytest.raises(TypeError, match="commit_lock must be"):
        LanceDataset.commit(ds, append, read_version=1, commit_lock=7)
    for make in (
        lambda: LanceOperation.Append(["x"]),
        lambda: LanceOperation.Append("x"),
        lambda: LanceOperation.Delete([1], [], ""),
        lambda: LanceOperation.Update(new_fragments=[1]),
    ):
        with pytest.raises(TypeError, match="fragments must be list"):
            make()
    with pytest.warns(DeprecationWarning, match="LanceSchema"):
        LanceOperation.Merge([], ROWS.schema)
    with pytest.raises(ValueError, match="together"):
        LanceDataset.commit(ds, append, read_version=1, table_id=["t"])
    assert ds.latest_version == 1


def test_locks_are_held_while_a_version_is_published(ds: LanceDataset) -> None:
    seen = []

    @contextlib.contextmanager
    def lock(version: int):
        seen.append(version)
        yield

    append = LanceOperation.Append(write_fragments(ROWS, ds))
    LanceDataset.commit(ds.uri, append, read_version=1, commit_lock=lock)
    LanceDataset.commit(ds, append, read_version=1, commit_lock=lock)
    assert seen == [2, 3]


def test_manifests_are_renamed_once(tmp_path: Path) -> None:
    uri = tmp_path / "t"
    lancelet.write_dataset(ROWS, uri, enable_v2_manifest_paths=False)
    ds = lancelet.write_dataset(ROWS, uri, mode="append")
    names = lambda: sorted(path.name for path in (uri / "_versions").glob("*.manifest"))  # noqa: E731
    assert names() == ["1.manifest", "2.manifest"]
    for _ in range(2):
        ds.migrate_manifest_paths_v2()
        assert names() == ["18446744073709551613.manifest", "18446744073709551614.manifest"]
    ds.insert(ROWS)
    assert (ds.version, ds.count_rows(), len(ds.versions())) == (3, 9, 3)
    assert lancelet.dataset(uri, version=1).count_rows() == 3
