"""Rules for tables of other writers, of branches and of clones, and for commits with lost files."""

import os
import uuid

import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

from lancelet.errors import (
    CommitConflictError,
    CommittedFilesMissingError,
    InternalError,
    UnsupportedError,
)
from lancelet.format.fragment import DataFile, Fragment, FragmentId
from lancelet.format.index_metadata import AnyDetails, IndexMetadata
from lancelet.format.manifest_file import write_manifest_file
from lancelet.format.operation import (
    Append,
    CreateIndex,
    DataReplacement,
    DataReplacementGroup,
    Delete,
    Overwrite,
    Project,
    Restore,
    Rewrite,
    RewriteGroup,
    RewrittenIndex,
    Update,
    UpdateMode,
)
from lancelet.format.paths import branch_path, manifest_path
from lancelet.format.refs import render_branch, with_checksum
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.table import landed
from lancelet.table.apply.dispatch import apply_operation
from lancelet.table.apply.state import CommitContext, State, column_ids
from lancelet.table.commit import commit
from lancelet.table.conflict.rules import judge
from lancelet.table.conflict.verdict import Outcome
from lancelet.table.fast_forward import fast_forward
from lancelet.table.location import TableLocation
from lancelet.table.manifests import VersionFolder, find_latest, open_manifest
from lancelet.table.new_files import check_new_files
from lancelet.table.refs import branch_location, create_branch, get_branch
from lancelet.table.snapshot import open_entry, open_snapshot
from lancelet.table.watermark import BatchWatermark
from lancelet.values import replace
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
    write_fragment,
)


@pytest.fixture
def main():
    return TableLocation.open(f"memory://rare-{uuid.uuid4()}/t")


def index(name: str = "i", **facts) -> IndexMetadata:
    made = IndexMetadata(
        uuid=uuid.uuid4(),
        name=name,
        fields=(0,),
        dataset_version=1,
        fragment_bitmap=FrozenBitMap([0]),
        details=None,
        index_version=0,
    )
    return replace(made, **facts)


def test_a_branch_of_a_branch_without_identifier_has_none(main) -> None:
    """Old writers stored none."""
    first = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    branch = create_branch(main, "a", first)
    stored = render_branch(replace(get_branch(main, "a"), identifier=None))
    main.store.put(branch_path("a"), with_checksum(stored))
    create_branch(main, "b", branch)
    assert get_branch(main, "b").identifier is None


def test_a_branch_with_newer_features_is_not_published(main) -> None:
    create_branch(main, "a", create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1)))
    latest = open_snapshot(branch_location(main, "a"))
    manifest = replace(latest.manifest, version=latest.version + 1, writer_flags=1 << 40)
    data, _ = write_manifest_file(manifest, latest.indices, b"")
    path = manifest_path(manifest.version, latest.entry.naming)
    latest.location.store.put(path, data)
    with pytest.raises(UnsupportedError):
        fast_forward(main, "a")


def test_an_empty_table_has_the_requested_version() -> None:
    context = CommitContext(version=1, data_version=FileVersion.V2_0)
    made = apply_operation(Overwrite((), SIMPLE_SCHEMA), None, context)
    assert made.manifest.data_version is FileVersion.V2_0


def test_a_version_is_not_restored_without_its_state(main) -> None:
    latest = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    state = State(latest.manifest, latest.indices.indices)
    with pytest.raises(InternalError) as caught:
        apply_operation(Restore(7), state, CommitContext(version=2))
    assert caught.value.facts["version"] == 7


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_remapped_index_keeps_its_base_if_it_keeps_its_files(main, is_moved) -> None:
    latest = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    before = index(base_id=3)
    change = RewrittenIndex(before.uuid, uuid.uuid4() if is_moved else before.uuid)
    state = State(latest.manifest, (before,))
    made = apply_operation(Rewrite((), (change,)), state, CommitContext(version=2))
    (after,) = made.indices
    assert after.base_id == (None if is_moved else 3)


def test_files_that_are_named_like_manifests_are_ignored(main) -> None:
    create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    found = find_latest(main.store)
    name = found.path.rpartition("/")[2].removesuffix(".manifest")
    for other in ("1" * len(name) + ".manifesx", "0" * (len(name) + 9)):
        main.store.put(f"_versions/{other}", b"x")
    assert find_latest(main.store).path == found.path
    assert VersionFolder.of(main.store).next_version(0) == 1


def test_missing_files_of_earlier_versions_are_not_those_of_a_commit(main) -> None:
    base = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 3))
    (fragment,) = base.fragments
    main.store.delete(f"data/{fragment.files[0].path}")
    changed = commit(main, new_transaction(1, Delete((fragment,))))
    check_new_files(changed, base)
    check_new_files(changed, base, folder=VersionFolder.of(main.store))
    with pytest.raises(CommittedFilesMissingError):
        check_new_files(changed, None)


def test_missing_files_are_reported_although_a_later_version_needs_none(main) -> None:
    base = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 3))
    appended = append_rows(main, base, simple_rows(3, 4))
    main.store.delete(f"data/{appended.fragments[1].files[0].path}")
    commit(main, new_transaction(2, Overwrite((), SIMPLE_SCHEMA)))
    with pytest.raises(CommittedFilesMissingError):
        check_new_files(appended, base, folder=VersionFolder.of(main.store))
    main.store.delete(appended.entry.path)
    check_new_files(appended, base, folder=VersionFolder.of(main.store))


def test_a_fragment_without_files_has_the_recorded_rows(main) -> None:
    snapshot = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 3))
    assert snapshot.physical_rows(Fragment(FragmentId(9), (), 0)) == 0
    counted = replace(snapshot.fragments[0], physical_rows=0)
    assert snapshot.physical_rows(counted) == 3


def test_the_manifest_of_an_unchanged_file_is_parsed_once(tmp_path) -> None:
    location = TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    (path,) = (tmp_path / "t" / "_versions").glob("*.manifest")
    os.utime(path, (1e9, 1e9))
    (entry,) = location.handler.list_versions(location.store)
    first = open_manifest(location.store, entry)
    assert first.manifest.version == 1
    assert open_manifest(location.store, entry) is first


def test_a_later_version_that_vanishes_while_it_is_read_confirms_nothing(main, monkeypatch) -> None:
    """Another library removed versions 2 and 3 without a record, and ours came late as 2."""
    base = create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    ours = append_rows(main, base, simple_rows(1, 2))
    data = main.store.read(ours.entry.path)
    main.store.delete(ours.entry.path)
    theirs = base
    for number in range(2, 5):
        theirs = append_rows(main, theirs, simple_rows(number, number + 1))
    for number in (2, 3):
        entry = main.handler.find_version(main.store, number, uri=main.uri)
        main.store.delete(entry.path)
    main.store.put(ours.entry.path, data)
    reads = []

    def vanishing(location, entry):
        reads.append(entry.version)
        if len(reads) == 1:
            append_rows(main, theirs, simple_rows(9, 10))
            main.store.delete(entry.path)
        return open_entry(location, entry)

    monkeypatch.setattr(landed, "open_entry", vanishing)
    assert landed.confirm_version(ours, base, main.handler) is None
    assert reads == [4, 5]
    assert not main.store.exists(ours.entry.path)


def replacement(*fields: int) -> DataReplacement:
    file = DataFile("x.lance", fields, tuple(range(len(fields))), 2, 0)
    return DataReplacement((DataReplacementGroup(0, file),))


def test_replaced_columns_conflict_with_moved_rows_and_the_same_fields_only(main) -> None:
    fragment = write_fragment(main, simple_rows(0, 1), SIMPLE_SCHEMA)
    moved = Update(updated_fragments=(fragment,))
    rewritten = Update(
        updated_fragments=(fragment,), fields_modified=(1,), mode=UpdateMode.REWRITE_COLUMNS
    )
    assert judge(replacement(0), moved).outcome is Outcome.RETRY
    assert judge(replacement(0), rewritten).outcome is Outcome.COMPATIBLE
    assert judge(replacement(1), rewritten).outcome is Outcome.RETRY


def test_a_column_that_a_file_no_longer_has_is_not_dropped() -> None:
    project = Project(SIMPLE_SCHEMA, preserves_nullability=True)
    assert judge(replacement(0, -2), project).outcome is Outcome.COMPATIBLE
    assert judge(replacement(7), project).outcome is Outcome.INCOMPATIBLE


def test_indices_of_one_name_conflict() -> None:
    assert judge(CreateIndex((index(),)), CreateIndex((index(),))).outcome is Outcome.RETRY
    assert judge(CreateIndex((index(),)), CreateIndex((index("j"),))).outcome is Outcome.COMPATIBLE


def test_an_index_of_lists_conflicts_with_replaced_items_of_its_fragments_only() -> None:
    details = AnyDetails("/lance.table.LabelListIndexDetails", b"")
    build = CreateIndex((index(details=details, fields=(5,)),))
    there = index(details=details, fields=(5,), fragment_bitmap=FrozenBitMap([4]))
    assert judge(replacement(1), build).outcome is Outcome.RETRY
    assert judge(replacement(1), CreateIndex((there,))).outcome is Outcome.COMPATIBLE


def test_a_conflict_says_whether_a_repetition_helps(main) -> None:
    create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    commit(main, new_transaction(1, Overwrite((), SIMPLE_SCHEMA)))
    with pytest.raises(Exception, match=r"^Commit conflict for version 2.*would not help"):
        commit(main, new_transaction(1, Append(())))
    with pytest.raises(Exception, match=r"^Retryable commit conflict for version 2.*work again"):
        commit(main, new_transaction(1, Overwrite((), SIMPLE_SCHEMA)))


def test_a_compaction_conflicts_with_an_index_that_covers_its_fragments(main) -> None:
    create_table(main, SIMPLE_SCHEMA, simple_rows(0, 1))
    (fragment,) = open_snapshot(main).fragments
    rewrite = Rewrite((RewriteGroup((fragment,), (replace(fragment, id=FragmentId(5)),)),))
    unknown = index(fragment_bitmap=None)
    elsewhere = index(fragment_bitmap=FrozenBitMap([4]))
    assert judge(rewrite, CreateIndex((index(),))).outcome is Outcome.RETRY
    assert judge(rewrite, CreateIndex((unknown,))).outcome is Outcome.RETRY
    assert judge(rewrite, CreateIndex((elsewhere,))).outcome is Outcome.COMPATIBLE


def test_a_batch_follows_the_one_that_its_writer_has_read() -> None:
    config = BatchWatermark("s", 4).put({})
    BatchWatermark("s", 5, after=4).check(config, uri="t")
    for other in ({}, BatchWatermark("s", 5).put({})):
        with pytest.raises(CommitConflictError, match="another writer committed a batch"):
            BatchWatermark("s", 5, after=4).check(other, uri="t")


def test_packed_structs_are_one_column() -> None:
    packed = pa.field(
        "s", pa.struct([("x", pa.int64()), ("y", pa.int64())]), metadata={"packed": "true"}
    )
    plain = pa.field("t", pa.struct([("x", pa.int64())]))
    schema = Schema.from_arrow(pa.schema([packed, plain]))
    s, t = schema.fields
    assert column_ids(schema) == {s.id, *(each.id for each in (*s.children, *t.children))}
