"""What operations make of a version where the reference's own histories do not lead."""

import shutil
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap

from lancelet.errors import (
    CommitConflictError,
    CorruptDataError,
    IndexNotFoundError,
    InvalidInputError,
    UnsupportedError,
)
from lancelet.format.flags import Feature
from lancelet.format.fragment import FragmentId, Inline
from lancelet.format.fragment_list import FragmentList
from lancelet.format.index_metadata import MEM_WAL_INDEX, AnyDetails, IndexMetadata
from lancelet.format.manifest_file import render_manifest_file
from lancelet.format.operation import (
    AddOverlays,
    Append,
    Clone,
    CompactedSsTable,
    CreateIndex,
    Delete,
    Merge,
    OverlayGroup,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    UnknownOperation,
    Update,
    UpdateMemWalState,
)
from lancelet.format.protos import index_details_pb
from lancelet.format.schema import Schema
from lancelet.format.version import FileVersion
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.sequence import RowIdSequence
from lancelet.table.apply import index_catchup
from lancelet.table.apply.coverage import without_overlaps
from lancelet.table.apply.mem_wal import DuplicateShardError, StaleCompactionError
from lancelet.table.apply.state import State, with_actual_version
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.lineage import created_versions_of, row_id_index_of, updated_versions_of
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
    write_fragment,
)

HISTORICAL = Path(__file__).parents[2] / "golden/historical"
SHARD = UUID(int=7)


@pytest.fixture
def location(tmp_path):
    return TableLocation.open(str(tmp_path / "t"), {"local_sync": "false"})


def commit_next(snapshot, operation, **options):
    transaction = new_transaction(snapshot.version, operation)
    return commit(snapshot.location, transaction, CommitOptions(**options))


def test_moved_rows_remember_when_they_were_created(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3), stable_row_ids=True)
    second = append_rows(location, first, simple_rows(3, 5))
    old, new = second.fragments
    fragment = write_fragment(location, simple_rows(10, 14), SIMPLE_SCHEMA)
    # Row 4 of version 2, row 1 of version 1, a row of an id that is nowhere, and an inserted row.
    moved = RowIdSequence.of(np.array([4, 1, 77], np.uint64))
    deletions = {old: DeletionVector.of([1]), new: DeletionVector.of([1])}
    updated = []
    for source, vector in deletions.items():
        changed = with_deletions(source, vector, read_version=2)
        path = changed.deletion_file.path(changed.id)
        location.store.put(path, vector.render(path))
        updated.append(changed)
    operation = Update(
        updated_fragments=tuple(updated),
        new_fragments=(replace(fragment, row_ids=Inline(moved.render())),),
    )
    third = commit_next(second, operation)
    made = third.fragments.by_id(2)
    assert created_versions_of(third, made).to_array().tolist() == [2, 1, 3, 3]
    assert updated_versions_of(third, made).to_array().tolist() == [3, 3, 3, 3]
    found = row_id_index_of(third).addresses(np.array([0, 4, 1, 5], np.uint64)).tolist()
    assert found == [0, 2 << 32, 2 << 32 | 1, 2 << 32 | 3]
    assert lance.dataset(location.uri).count_rows() == 7
    many = Inline(RowIdSequence.of_range(0, 9).render())
    with pytest.raises(CorruptDataError, match="more row ids than rows"):
        commit_next(third, Update(new_fragments=(replace(fragment, row_ids=many),)))


def test_rows_of_the_oldest_tables_are_counted_at_the_next_commit(tmp_path):
    root = tmp_path / "t"
    shutil.copytree(HISTORICAL / "v0.7.5/with_deletions", root)
    location = TableLocation.open(str(root), {"local_sync": "false"})
    before = open_snapshot(location)
    assert before.fragments.physical_rows.tolist() == [0]
    after = commit_next(before, ReserveFragments(1))
    assert after.manifest.num_rows == before.num_rows == lance.dataset(root).count_rows()
    assert after.fragments.num_deleted_rows.tolist() == [len(before.deletions(before.fragments[0]))]
    lance.dataset(root).validate()


def test_a_wrong_version_of_files_is_corrected_at_the_next_commit(tmp_path):
    root = tmp_path / "t"
    shutil.copytree(HISTORICAL / "v0.16.0/wrong_data_version_can_fix.lance", root)
    location = TableLocation.open(str(root), {"local_sync": "false"})
    before = open_snapshot(location)
    assert before.manifest.data_version is FileVersion.V0_1
    after = commit_next(before, ReserveFragments(1))
    assert after.manifest.data_version is FileVersion.V2_0
    assert after.manifest.reader_flags & Feature.MIXED_FILE_VERSIONS == 0
    assert lance.dataset(root).data_storage_version == "2.0"


def test_a_table_that_mixes_the_oldest_files_with_others_is_rejected(location):
    made = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3)).manifest
    (fragment,) = made.fragments
    (file,) = fragment.files
    oldest = replace(file, major_version=0, minor_version=1)
    fragments = [replace(fragment, files=(file,)), replace(fragment, files=(oldest,))]
    claimed = replace(made, data_version=FileVersion.V0_1)
    mixed = replace(claimed, fragments=FragmentList.of(fragments))
    assert with_actual_version(claimed).data_version is made.data_version
    with pytest.raises(OSError, match="mixture of file versions"):
        with_actual_version(mixed)


def test_files_of_another_version_are_flagged_and_0_1_is_rejected(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    (fragment,) = first.fragments
    for version, flagged in ((FileVersion.V2_0, True), (first.manifest.data_version, False)):
        major, minor = version.entry_numbers
        (file,) = fragment.files
        other = replace(
            fragment,
            id=FragmentId(0),
            files=(replace(file, major_version=major, minor_version=minor),),
        )
        for operation in (Append((other,)), Update(new_fragments=(other,))):
            made = commit_next(first, operation, detached=True).manifest
            both = made.reader_flags & made.writer_flags & Feature.MIXED_FILE_VERSIONS
            assert bool(both) is flagged
    major, minor = FileVersion.V0_1.entry_numbers
    legacy = replace(file, major_version=major, minor_version=minor)
    with pytest.raises(InvalidInputError, match=r"0\.1 cannot be in one table"):
        commit_next(first, Append((replace(fragment, files=(legacy,)),)))


def test_counters_never_go_back(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    counting = replace(
        first.manifest,
        writer_flags=first.manifest.writer_flags | Feature.NON_REUSABLE_FIELD_IDS,
        max_allocated_field_id=9,
        max_clustering_id=4,
        version=2,
    )
    path = first.entry.path.replace("4.manifest", "3.manifest")
    location.store.put(path, render_manifest_file(counting, first.indices, None))
    second = open_snapshot(location)
    schema = Schema.from_arrow(pa.schema([("x", pa.int64())]))
    replaced = commit_next(second, Overwrite((), schema))
    assert replaced.manifest.max_allocated_field_id == 9
    restored = commit_next(replaced, Restore(1))
    assert restored.manifest.max_allocated_field_id == 9
    assert restored.manifest.max_clustering_id == 4
    assert open_snapshot(location).version == 4


def test_a_merge_lists_every_fragment_with_its_rows(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3), simple_rows(3, 5))
    one, two = first.fragments
    with pytest.raises(InvalidInputError, match="every fragment") as caught:
        commit_next(first, Merge((one,), first.schema))
    assert caught.value.facts["missing"] == [1]
    with pytest.raises(InvalidInputError, match="number of rows"):
        commit_next(first, Merge((one, replace(two, physical_rows=9)), first.schema))
    assert commit_next(first, Merge((one, two), first.schema)).num_rows == 5


def index_on(field_id, kind, *, version=0, covers=(0, 1)):
    return IndexMetadata(
        UUID(int=len(kind) * 100 + version),
        kind,
        (field_id,),
        1,
        FrozenBitMap(covers),
        AnyDetails(f"/lance.table.{kind}IndexDetails", b""),
        version,
    )


def test_indices_that_know_rows_by_id_follow_them(location):
    first = create_table(
        location, SIMPLE_SCHEMA, simple_rows(0, 3), simple_rows(3, 5), stable_row_ids=True
    )
    indices = (
        index_on(0, "BTree", version=1),
        index_on(0, "Bitmap"),
        index_on(0, "ZoneMap"),
        index_on(0, "Strange"),
    )
    second = commit_next(first, CreateIndex(indices))
    fragment = write_fragment(location, simple_rows(0, 5), SIMPLE_SCHEMA)
    group = RewriteGroup(tuple(second.fragments), (fragment,))
    with pytest.raises(InvalidInputError, match="row ids"):
        commit_next(second, Rewrite((group,)))
    ids = Inline(RowIdSequence.of_range(0, 5).render())
    group = replace(group, new_fragments=(replace(fragment, row_ids=ids),))
    third = commit_next(second, Rewrite((group,)))
    covered = {index.name: set(index.fragment_bitmap) for index in third.indices.indices}
    assert covered == {"BTree": set(), "Bitmap": {2}, "ZoneMap": set(), "Strange": set()}
    partly = commit_next(third, CreateIndex((index_on(0, "Bitmap", covers=(9,)),)), detached=True)
    assert [set(index.fragment_bitmap) for index in partly.indices.indices][-1] == {9}


@pytest.mark.parametrize("stable_row_ids", [False, True])
@pytest.mark.parametrize("kind", ["BTree", "Inverted", "Vector", "Strange"])
@pytest.mark.parametrize("change", ["delete", "update", "update in place"])
def test_index_without_covered_fragments_keeps_its_oldest_segment(
    location, kind, stable_row_ids, change
):
    tables = (simple_rows(0, 3), simple_rows(3, 5))
    first = create_table(location, SIMPLE_SCHEMA, *tables, stable_row_ids=stable_row_ids)
    newer = replace(index_on(0, kind, covers=(1,)), uuid=UUID(int=1), dataset_version=2)
    older = index_on(0, kind, covers=(0,))
    second = commit_next(first, CreateIndex((newer, older)))
    if change == "delete":
        operation = Delete((), tuple(fragment.id for fragment in second.fragments), "true")
    elif change == "update":
        moved = write_fragment(location, simple_rows(0, 5), SIMPLE_SCHEMA)
        operation = Update(
            removed_fragment_ids=tuple(fragment.id for fragment in second.fragments),
            new_fragments=(moved,),
        )
    else:
        operation = Update(updated_fragments=tuple(second.fragments), fields_modified=(0,))
    third = commit_next(second, operation)
    assert [index.uuid for index in third.indices.indices] == [older.uuid]


def test_generations_of_shards_only_grow(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    merged = UpdateMemWalState((CompactedSsTable(SHARD, 5),))
    with pytest.raises(IndexNotFoundError, match="MemWAL"):
        commit_next(first, merged)
    details = AnyDetails("/lance.table.MemWalIndexDetails", b"")
    system = IndexMetadata(UUID(int=1), MEM_WAL_INDEX, (), 1, None, details, 0)
    second = commit_next(first, CreateIndex((system,)))
    third = commit_next(second, merged)
    assert generations(third) == {SHARD: 5}
    assert generations(commit_next(third, UpdateMemWalState())) == {SHARD: 5}
    stale = new_transaction(second.version, UpdateMemWalState((CompactedSsTable(SHARD, 4),)))
    with pytest.raises(CommitConflictError) as caught:
        commit(location, stale)
    assert caught.value.facts["retryable"] is False
    other = CompactedSsTable(UUID(int=8), 1)
    with_rows = commit_next(open_snapshot(location), Update(compacted_sstables=(other,)))
    assert generations(with_rows) == {SHARD: 5, UUID(int=8): 1}
    for generation in (4, 5):
        again = UpdateMemWalState((CompactedSsTable(SHARD, generation),))
        with pytest.raises(StaleCompactionError, match="already in the table"):
            commit_next(with_rows, again)
        with pytest.raises(StaleCompactionError):
            commit_next(with_rows, Update(compacted_sstables=again.compacted_sstables))
    twice = (CompactedSsTable(SHARD, 6), CompactedSsTable(SHARD, 7))
    with pytest.raises(DuplicateShardError, match="once"):
        commit_next(with_rows, UpdateMemWalState(twice))
    assert generations(open_snapshot(location)) == {SHARD: 5, UUID(int=8): 1}


def generations(snapshot):
    (index,) = snapshot.indices.indices
    details = index_details_pb.MemWalIndexDetails.FromString(index.details.value)
    return {UUID(bytes=e.shard_id.uuid): e.generation for e in details.compacted_sstables}


def test_removed_or_unrecorded_versions_require_a_retry(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    second = commit_next(first, ReserveFragments(1))
    commit_next(second, ReserveFragments(1))
    location.store.delete(second.entry.path)
    with pytest.raises(CommitConflictError, match="cleaned up") as caught:
        commit_next(first, ReserveFragments(1))
    assert caught.value.facts["retryable"] is True
    assert caught.value.facts["version"] == 2
    silent = render_manifest_file(
        replace(second.manifest, transaction_file=""), second.indices, None
    )
    location.store.put(second.entry.path, silent)
    with pytest.raises(CommitConflictError, match="does not record"):
        commit_next(first, ReserveFragments(1))


def test_an_overwrite_without_retries_must_follow_its_read_version(location):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    commit_next(first, ReserveFragments(1))
    with pytest.raises(CommitConflictError, match="without retries"):
        commit_next(first, Overwrite((), SIMPLE_SCHEMA), attempts=0)
    assert commit_next(first, Overwrite((), SIMPLE_SCHEMA)).version == 3
    latest = open_snapshot(location)
    assert commit_next(latest, Overwrite((), SIMPLE_SCHEMA), attempts=0).version == 4


@pytest.mark.parametrize(
    ("operation", "error"),
    [
        (AddOverlays((OverlayGroup(9, ()),)), InvalidInputError),
        (UnknownOperation(b""), UnsupportedError),
        (Clone(is_shallow=True, ref_version=1, ref_path="/x"), InvalidInputError),
        (Delete(deleted_fragment_ids=(9,)), LookupError),
        (Project(SIMPLE_SCHEMA), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_input_that_cannot_be_applied_is_rejected(location, operation, error):
    first = create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    if error is None:
        assert commit_next(first, operation).schema == SIMPLE_SCHEMA
        return
    with pytest.raises(error):
        commit_next(first, operation)
    assert open_snapshot(location).version == 1


def test_overlapping_segments_of_an_index_cover_each_fragment_once():
    def segment(number, name, *fragments):
        return IndexMetadata(UUID(int=number), name, (0,), 1, FrozenBitMap(fragments))

    found = without_overlaps(
        (segment(1, "a", 1, 2), segment(2, "b", 2), segment(3, "a", 2, 3), segment(4, "a", 3, 4))
    )
    assert [sorted(each.fragment_bitmap) for each in found] == [[1, 2], [2], [3], [4]]


def test_no_segments_cover_a_version_without_fragments(location):
    empty = create_table(location, SIMPLE_SCHEMA)
    read = State(empty.manifest, ())
    assert not index_catchup._covers({UUID(int=1): frozenset({1})}, read)
