"""Compactions stay within their limits, report conflicts, and delete what they do not use."""

import uuid

import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitConflictError, InvalidInputError
from lancelet.format.index_metadata import FRAGMENT_REUSE_INDEX
from lancelet.table.fragment_reuse import fragment_reuse_of
from lancelet.upkeep.cleanup import parse_duration
from lancelet.upkeep.compact import CompactionOptions, execute_task, plan_compaction
from lancelet.upkeep.compact.commit import commit_compatible
from lancelet.upkeep.compact.plan import with_row_counts
from lancelet.values import replace


def fragments(count: int):
    return lancelet.write_dataset(
        pa.table({"id": range(10 * count)}),
        f"memory://compaction-limits-{uuid.uuid4()}/t",
        max_rows_per_file=10,
    )


@pytest.mark.parametrize("limit", ["max_source_rows", "max_source_bytes", "max_source_fragments"])
def test_a_plan_stays_within_each_limit(limit) -> None:
    snapshot = fragments(8).snapshot
    options = CompactionOptions(target_rows_per_fragment=20)
    tasks = plan_compaction(snapshot, options).tasks
    assert len(tasks) == 4
    size = {
        "max_source_rows": sum(task.num_rows for task in tasks[:2]),
        "max_source_bytes": sum(task.num_bytes for task in tasks[:2]),
        "max_source_fragments": sum(len(task.fragments) for task in tasks[:2]),
    }[limit]
    for most, count in ((size, 2), (size + 1, 2), (size - 1, 1)):
        assert len(plan_compaction(snapshot, replace(options, **{limit: most})).tasks) == count


def test_a_compaction_whose_results_all_conflict_raises() -> None:
    dataset = fragments(2)
    snapshot = dataset.snapshot
    options = CompactionOptions(target_rows_per_fragment=20)
    (task,) = plan_compaction(snapshot, options).tasks
    result = execute_task(snapshot, task)
    lancelet.dataset(dataset.uri).optimize.compact_files(target_rows_per_fragment=20)
    with pytest.raises(CommitConflictError):
        commit_compatible(snapshot, [result], options)


def test_missing_row_counts_are_read() -> None:
    snapshot = fragments(1).snapshot
    (fragment,) = snapshot.fragments
    assert with_row_counts(snapshot, replace(fragment, physical_rows=0)).physical_rows == 10
    assert with_row_counts(snapshot, fragment) is fragment


def test_recorded_moves_that_all_indices_have_are_removed() -> None:
    dataset = fragments(4)
    dataset.create_scalar_index("id", "BTREE")
    dataset.optimize.compact_files(target_rows_per_fragment=20, defer_index_remap=True)
    names = {each.name for each in dataset.snapshot.indices.indices}
    assert FRAGMENT_REUSE_INDEX in names
    before = moves(dataset)
    assert before
    dataset.optimize.compact_files(target_rows_per_fragment=40, defer_index_remap=True)
    assert len(moves(dataset)) > len(before)
    dataset.optimize.optimize_indices(retrain=True)
    assert moves(dataset) == ()
    assert dataset.to_table(filter="id = 7").num_rows == 1


def moves(dataset):
    return fragment_reuse_of(lancelet.dataset(dataset.uri).snapshot).versions


@pytest.mark.parametrize("text", ["1" * 5000 + "s", "9" * 21 + "s"])
def test_a_duration_with_too_many_digits_is_rejected(text) -> None:
    with pytest.raises(InvalidInputError, match="must be a number"):
        parse_duration(text)
