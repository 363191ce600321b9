"""Compaction changes only the location of rows, also with concurrent changes."""

import json
import pickle
import uuid
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lancelet
from lancelet.errors import (
    CommitConflictError,
    InvalidInputError,
    UnsupportedError,
    VersionNotFoundError,
)
from lancelet.optimize import Compaction, CompactionPlan, CompactionTask, RewriteResult
from lancelet.rowids.address import NO_ADDRESS, addresses_of
from lancelet.rowids.deletion import DeletionVector
from lancelet.rowids.moves import RowMoves, Source, Target
from lancelet.upkeep.compact import CompactionOptions, commit_results, execute_task, plan_compaction
from lancelet.upkeep.compact.run import compact_files

NO_SYNC = {"local_sync": "false"}
LINEAGE = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def fresh_uri():
    return f"memory://compact/{uuid.uuid4()}"


def table_of(start, stop):
    ids = np.arange(start, stop)
    return pa.table(
        {
            "id": ids,
            "name": pa.array(
                [None if i % 5 == 2 else f"row {i}" for i in ids.tolist()], pa.string()
            ),
            "tags": pa.array([list(range(i % 3)) for i in ids.tolist()], pa.list_(pa.int16())),
        }
    )


def make(uri, sizes, **options):
    """Write a dataset with a fragment of each size."""
    dataset, start = None, 0
    for size in sizes:
        mode = "create" if dataset is None else "append"
        dataset = lancelet.write_dataset(
            table_of(start, start + size), uri, mode=mode, storage_options=NO_SYNC, **options
        )
        start += size
    return dataset


def by_id(table):
    return table.sort_by("id").combine_chunks()


def sizes_of(dataset):
    return [fragment.count_rows() for fragment in dataset.get_fragments()]


@st.composite
def histories(draw):
    """Sizes of fragments, which rows are deleted, and how to compact."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    total = sum(sizes)
    deleted = draw(st.sets(st.integers(0, total - 1), max_size=total - 1))
    return sizes, sorted(deleted), draw(options())


def options():
    return st.fixed_dictionaries(
        {"target_rows_per_fragment": st.integers(1, 100)},
        optional={
            "materialize_deletions": st.booleans(),
            "materialize_deletions_threshold": st.floats(0, 1.2),
            "max_bytes_per_file": st.sampled_from([1, 10_000]),
            "batch_size": st.integers(1, 50),
            "num_threads": st.integers(1, 3),
            "max_source_fragments": st.integers(1, 5),
            "compaction_mode": st.sampled_from(["reencode", "try_binary_copy"]),
        },
    )


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
@settings(max_examples=15)
@given(histories())
def test_rows_and_their_order_stay(version, history):
    sizes, deleted, wishes = history
    uri = fresh_uri()
    dataset = make(uri, sizes, data_storage_version=version)
    if deleted:
        dataset.delete(f"id IN ({', '.join(map(str, deleted))})")
    before = dataset.to_table()
    metrics = dataset.optimize.compact_files(**wishes)
    assert by_id(dataset.to_table()).equals(by_id(before))
    dataset.validate()
    again = lancelet.dataset(uri)
    assert by_id(again.to_table()).equals(by_id(before))
    # Rewritten rows follow other rows; the order within fragments is preserved.
    for fragment in again.get_fragments():
        ids = fragment.to_table(columns=["id"])["id"].to_pylist()
        assert ids == sorted(ids)
    assert metrics.files_removed >= metrics.fragments_removed


@settings(max_examples=15)
@given(histories())
def test_row_ids_and_versions_stay(history):
    sizes, deleted, wishes = history
    uri = fresh_uri()
    dataset = make(uri, sizes, enable_stable_row_ids=True)
    dataset.update({"name": "'changed'"}, where="id % 4 = 1")
    if deleted:
        dataset.delete(f"id IN ({', '.join(map(str, deleted))})")
    before = by_id(dataset.to_table(columns=LINEAGE))
    dataset.optimize.compact_files(**wishes)
    assert by_id(dataset.to_table(columns=LINEAGE)).equals(before)
    dataset.validate()


@settings(max_examples=20)
@given(histories(), st.data())
def test_deletions_of_others_are_followed(history, data):
    """Rows deleted by others between reading and committing are deleted in the result.

    Method: tasks are run on one version, rows deleted in the next, and then the tasks committed.
    """
    sizes, deleted, wishes = history
    uri = fresh_uri()
    stable = data.draw(st.booleans())
    dataset = make(uri, sizes, enable_stable_row_ids=stable)
    if deleted:
        dataset.delete(f"id IN ({', '.join(map(str, deleted))})")
    plan = Compaction.plan(dataset, wishes)
    results = [task.execute(dataset) for task in plan.tasks]
    other = lancelet.dataset(uri)
    # Whole fragments too, and rows that are deleted already.
    start = data.draw(st.integers(0, sum(sizes)))
    stop = data.draw(st.integers(start, sum(sizes)))
    single = data.draw(st.integers(0, sum(sizes)))
    other.delete(f"(id >= {start} AND id < {stop}) OR id = {single}")
    columns = LINEAGE if stable else ["id", "name", "tags"]
    expected = by_id(other.to_table(columns=columns))
    Compaction.commit(dataset, results)
    dataset.checkout_latest()
    assert by_id(dataset.to_table(columns=columns)).equals(expected)
    dataset.validate()


def test_rows_that_others_move_meanwhile_are_neither_lost_nor_doubled(tmp_path):
    for stable in (False, True):
        uri = str(tmp_path / str(stable))
        dataset = make(uri, [10] * 6, enable_stable_row_ids=stable)
        results = [
            task.execute(dataset)
            for task in Compaction.plan(dataset, {"target_rows_per_fragment": 30}).tasks
        ]
        other = lancelet.dataset(uri)
        other.update({"name": "'moved'"}, where="id % 7 = 3")
        other.delete("id >= 40 AND id < 50")
        expected = sorted(other.to_table(columns=["id", "name", "_rowid"]).to_pylist(), key=str)
        Compaction.commit(dataset, results)
        found = dataset.to_table(columns=["id", "name", "_rowid"]).to_pylist()
        if not stable:
            for row in (*expected, *found):
                del row["_rowid"]
        assert sorted(found, key=str) == sorted(expected, key=str)
        assert len(dataset.get_fragments()) == 3


def test_conflicting_results_are_omitted_and_retried(tmp_path):
    """A column of one fragment is rewritten between reading and committing."""
    uri = str(tmp_path / "t")
    dataset = make(uri, [10] * 6)
    snapshot = dataset.snapshot
    wishes = CompactionOptions(target_rows_per_fragment=30)
    results = [execute_task(snapshot, task) for task in plan_compaction(snapshot, wishes).tasks]
    assert len(results) == 2
    lancelet.dataset(uri).optimize.compact_files(
        target_rows_per_fragment=30, excluded_fragment_ids=[3, 4, 5]
    )
    with pytest.raises(CommitConflictError) as caught:
        commit_results(snapshot, results, wishes)
    assert caught.value.retryable
    assert caught.value.facts["fragments"] == [0, 1, 2]
    files_before = {path.name for path in (tmp_path / "t" / "data").iterdir()}
    done = compact_files(snapshot, wishes)
    assert [int(fragment.physical_rows) for fragment in done.snapshot.fragments] == [30, 30]
    assert done.metrics.fragments_removed == 3
    # The omitted result has no files.
    files_after = {path.name for path in (tmp_path / "t" / "data").iterdir()}
    assert len(files_after - files_before) == 1
    assert lancelet.dataset(uri).to_table().equals(table_of(0, 60))


def test_without_anything_to_do_there_is_no_version(tmp_path):
    dataset = make(str(tmp_path / "t"), [20, 30])
    metrics = dataset.optimize.compact_files(target_rows_per_fragment=10)
    assert dataset.version == 2
    assert metrics == lancelet.optimize.CompactionMetrics()


def test_a_dry_run_reports_what_would_be_written_and_writes_nothing(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 6)
    behind = lancelet.dataset(dataset.uri, version=6)
    before = sorted(path for path in tmp_path.rglob("*"))
    report = dataset.optimize.compact_files(target_rows_per_fragment=30, dry_run=True)
    assert (report.operation, report.rows, report.files, report.conflicts) == ("Rewrite", 60, 2, ())
    assert sorted(path for path in tmp_path.rglob("*")) == before
    dataset.optimize.compact_files(target_rows_per_fragment=30)
    files = [file for fragment in dataset.snapshot.fragments for file in fragment.files]
    assert sum(file.size_bytes for file in files) == report.bytes
    late = behind.optimize.compact_files(dry_run=True)
    assert "same fragments" in late.conflicts[0]
    assert dataset.optimize.compact_files(target_rows_per_fragment=5, dry_run=True).files == 0


def test_limits_of_a_run_and_excluded_fragments(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 8)
    optimize = dataset.optimize
    optimize.compact_files(target_rows_per_fragment=20, max_source_rows=45)
    assert sizes_of(dataset) == [10, 10, 10, 10, 20, 20]
    optimize.compact_files(target_rows_per_fragment=20, excluded_fragment_ids=[5])
    assert sizes_of(dataset) == [10, 10, 20, 20, 20]
    with pytest.raises(InvalidInputError, match="max_source_rows"):
        optimize.compact_files(max_source_rows=0)


def test_options_come_from_the_call_then_the_config_then_the_defaults(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 4)
    prefix = "lance.compaction."
    dataset.update_config(
        {
            f"{prefix}target_rows_per_fragment": "20",
            f"{prefix}materialize_deletions": "false",
            "other": "x",
        }
    )
    plan = json.loads(Compaction.plan(dataset, {"batch_size": 3}).json())
    assert plan["options"]["target_rows_per_fragment"] == 20
    assert plan["options"]["materialize_deletions"] is False
    assert plan["options"]["batch_size"] == 3
    assert plan["options"]["max_rows_per_group"] == 1024
    dataset.optimize.compact_files()
    assert sizes_of(dataset) == [20, 20]
    dataset.update_config({f"{prefix}batch_size": "many"})
    with pytest.raises(InvalidInputError, match="config of the table"):
        dataset.optimize.compact_files()
    with pytest.raises(InvalidInputError, match="Invalid compaction option: fuu"):
        Compaction.plan(dataset, {"fuu": 1})
    with pytest.raises(InvalidInputError, match='Invalid compaction mode "x"'):
        CompactionOptions.parse({"compaction_mode": "x"})


def test_steps_travel_as_json_and_pickled(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 5, enable_stable_row_ids=True)
    dataset.delete("id = 3")
    plan = Compaction.plan(dataset, {"target_rows_per_fragment": 20})
    assert CompactionPlan.from_json(plan.json()) == plan
    assert pickle.loads(pickle.dumps(plan)) == plan
    results = []
    for task in plan.tasks:
        assert CompactionTask.from_json(task.json()) == task
        assert pickle.loads(pickle.dumps(task)) == task
        assert repr(task).startswith("CompactionTask(read_version=6, fragments=[Fragment")
        results.append(CompactionTask.from_json(task.json()).execute(dataset))
    for result in results:
        assert RewriteResult.from_json(result.json()) == result
        assert pickle.loads(pickle.dumps(result)) == result
    before = dataset.to_table(columns=LINEAGE)
    metrics = Compaction.commit(dataset, results[1:])
    assert metrics == results[1].metrics
    assert dataset.to_table(columns=LINEAGE).equals(before)
    with pytest.raises(InvalidInputError, match="of a compaction step"):
        RewriteResult.from_json("{}")


def test_a_task_runs_on_the_version_it_was_planned_for(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 4)
    (task, *_) = Compaction.plan(dataset, {}).tasks
    dataset.delete("id < 5")
    assert [fragment.physical_rows for fragment in task.execute(dataset).new_fragments] == [40]


def test_deferring_needs_rows_without_stable_ids(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 4, enable_stable_row_ids=True)
    with pytest.raises(UnsupportedError, match="stable row ids"):
        dataset.optimize.compact_files(defer_index_remap=True)
    assert dataset.version == 4


def test_a_version_of_another_family_is_rejected(tmp_path):
    dataset = make(str(tmp_path / "t"), [10] * 4)
    with pytest.raises(InvalidInputError, match="cannot combine files"):
        dataset.optimize.compact_files(data_storage_version="0.1")
    dataset.optimize.compact_files(data_storage_version="2.1")
    files = [file for each in dataset.snapshot.fragments for file in each.files]
    assert [file.version.value for file in files] == ["2.1"]


def test_auto_cleanup_is_a_setting(tmp_path):
    dataset = make(str(tmp_path / "t"), [10])
    seconds = int(timedelta(days=1).total_seconds())
    dataset.optimize.enable_auto_cleanup({"interval": 3, "older_than_seconds": seconds})
    assert dataset.config() == {
        "lance.auto_cleanup.interval": "3",
        "lance.auto_cleanup.older_than": "86400s",
    }
    dataset.optimize.disable_auto_cleanup()
    assert dataset.config() == {}


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sets(st.integers(0, 29))), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_rows_move_as_a_list_of_them_would(fragments, rows_per_target):
    sources = [
        Source(7 * place, rows, DeletionVector.of(sorted(x for x in gone if x < rows)))
        for place, (rows, gone) in enumerate(fragments)
    ]
    live = [
        address
        for source in sources
        for address in addresses_of(
            source.fragment_id, source.deleted.live_offsets(source.physical_rows)
        ).tolist()
    ]
    counts = [
        min(rows_per_target, len(live) - start) for start in range(0, len(live), rows_per_target)
    ]
    moves = RowMoves.of(sources, [Target(100 + place, count) for place, count in enumerate(counts)])
    new = [
        address
        for place, count in enumerate(counts)
        for address in addresses_of(100 + place, np.arange(count)).tolist()
    ]
    expected = dict(zip(live, new, strict=True))
    asked = np.concatenate([addresses_of(s.fragment_id, np.arange(32)) for s in sources])
    found = moves.translate(asked)
    assert found.tolist() == [expected.get(a, int(NO_ADDRESS)) for a in asked.tolist()]
    elsewhere = addresses_of(5, np.arange(3))
    assert (moves.translate(elsewhere) == elsewhere).all()


def indexed_and_planned(tmp_path):
    """Return a table with an index, and the result of a compaction task of its first rows."""
    uri = str(tmp_path / "t")
    make(uri, [10, 10, 10, 10]).create_scalar_index("id", "BTREE")
    dataset = lancelet.dataset(uri)
    task = Compaction.plan(
        dataset, {"excluded_fragment_ids": [2, 3], "target_rows_per_fragment": 20}
    )
    return dataset, [each.execute(dataset) for each in task.tasks]


def test_a_compaction_reapplies_concurrent_changes_of_its_remapped_index(tmp_path):
    stale, results = indexed_and_planned(tmp_path)
    other = lancelet.dataset(stale.uri)
    other.optimize.compact_files(target_rows_per_fragment=20, excluded_fragment_ids=[0, 1])
    with pytest.raises(CommitConflictError, match="changed indices") as caught:
        Compaction.commit(stale, results)
    assert caught.value.retryable
    stale = lancelet.dataset(stale.uri)
    stale.optimize.compact_files(target_rows_per_fragment=20)
    assert stale.to_table(filter="id = 25")["id"].to_pylist() == [25]
    assert len(stale.get_fragments()) == 2


def test_a_dropped_index_is_not_remapped(tmp_path):
    stale, results = indexed_and_planned(tmp_path)
    lancelet.dataset(stale.uri).drop_index("id_idx")
    with pytest.raises(CommitConflictError, match="changed indices") as caught:
        Compaction.commit(stale, results)
    assert caught.value.retryable


def test_an_index_is_dropped_that_another_remapped(tmp_path):
    stale, _ = indexed_and_planned(tmp_path)
    lancelet.dataset(stale.uri).optimize.compact_files(target_rows_per_fragment=20)
    stale.drop_index("id_idx")
    assert lancelet.dataset(stale.uri).describe_indices() == []


def test_a_compaction_changes_no_other_table_at_its_path(tmp_path):
    uri = tmp_path / "t"
    lancelet.write_dataset(pa.table({"id": [1, 2]}), uri).insert(pa.table({"id": [3]}))
    dataset = lancelet.dataset(uri)
    assert dataset.to_table().num_rows == 3  # so that its files remain open
    uri.rename(tmp_path / "elsewhere")
    lancelet.write_dataset(pa.table({"id": [50]}), uri).insert(pa.table({"id": [51]}))
    with pytest.raises(VersionNotFoundError):
        dataset.optimize.compact_files()
    assert lancelet.dataset(uri).to_table()["id"].to_pylist() == [50, 51]
