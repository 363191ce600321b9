"""One call compacts, indexes and cleans up a table, with concurrent writers and after crashes."""

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest

import lancelet
from lancelet.dataset.maintenance.maintain import TableOperations
from lancelet.errors import CommitConflictError, CommitContentionError, UnsupportedError
from lancelet.optimize import MaintenancePolicy, Outcome, StepKind
from lancelet.upkeep import maintain as module

NOW = MaintenancePolicy(older_than=timedelta(0))
KEY = {"lance-schema:unenforced-primary-key": "true"}


@pytest.fixture
def dataset(tmp_path):
    """Return a table with small fragments, deleted and unindexed rows, and 15 versions."""
    dataset = lancelet.write_dataset({"id": range(1000)}, tmp_path / "t.lance")
    dataset.create_scalar_index("id", "BTREE")
    for first in range(1000, 1120, 10):
        dataset.insert({"id": range(first, first + 10)})
    dataset.delete("id % 4 = 0")
    return dataset


def ids(dataset):
    return sorted(lancelet.dataset(dataset.uri).to_table()["id"].to_pylist())


def kinds(report):
    return [result.step.kind for result in report.steps]


def test_one_call_does_what_the_statistics_require(dataset):
    before = ids(dataset)
    report = dataset.maintain(NOW)
    assert kinds(report) == [StepKind.OPTIMIZE_INDEX, StepKind.COMPACT, StepKind.CLEANUP]
    assert report.is_complete
    assert (report.before.fragments, report.before.deleted_rows) == (13, 280)
    assert report.before.unindexed_rows == 90
    assert report.before.versions == 15
    after = report.after
    assert (after.fragments, after.deleted_rows) == (1, 0)
    assert (after.unindexed_rows, after.versions) == (0, 1)
    assert after.scan_requests < report.before.scan_requests
    assert after.bytes < report.before.bytes
    assert dataset.version == dataset.latest_version == after.version
    assert ids(dataset) == before
    assert dataset.check("indices") == []


def test_a_maintained_table_requires_nothing(dataset):
    dataset.maintain(NOW)
    again = dataset.maintain(NOW)
    assert again.steps == ()
    assert replace(again.before, oldest_age_seconds=again.after.oldest_age_seconds) == again.after
    assert repr(again).startswith("no maintenance required")


def test_a_dry_run_plans_the_same_steps_and_changes_nothing(dataset):
    files = sorted(dataset.all_files().read_all()["path"].to_pylist())
    planned = dataset.maintain(NOW, dry_run=True)
    assert dataset.latest_version == 15
    assert sorted(dataset.all_files().read_all()["path"].to_pylist()) == files
    assert {result.outcome for result in planned.steps} == {Outcome.PLANNED}
    done = dataset.maintain(NOW)
    assert kinds(planned) == kinds(done)


def test_reports_are_displayed_as_tables_and_are_json(dataset):
    planned = dataset.maintain(dry_run=True)
    lines = repr(planned).splitlines()
    assert lines[0].split() == ["step", "index", "reason", "read", "outcome", "effect"]
    assert "statistic" in repr(planned)
    assert "<table>" in planned._repr_html_()
    values = json.loads(json.dumps(dataset.maintain().to_dict()))
    assert [step["outcome"] for step in values["steps"]] == ["done", "done"]
    assert values["before"]["fragments"] == 13
    assert values["after"]["fragments"] == 1


def test_an_old_version_maintains_the_latest(dataset):
    old = dataset.checkout_version(3)
    old.maintain()
    assert old.version == dataset.latest_version > 15


def test_young_versions_tagged_versions_and_the_last_ones_are_retained(dataset):
    assert StepKind.CLEANUP not in kinds(dataset.maintain())
    dataset.tags.create("first", 1)
    report = dataset.maintain(MaintenancePolicy(older_than=timedelta(0), retain_versions=3))
    assert report.before.expired_versions == report.before.versions - 4
    versions = [version["version"] for version in dataset.versions()]
    assert versions[0] == 1
    assert len(versions) == 4
    assert (
        dataset.maintain(MaintenancePolicy(older_than=timedelta(0), retain_versions=3)).steps == ()
    )
    assert dataset.maintain(MaintenancePolicy(older_than=None), dry_run=True).steps == ()


def test_bytes_beyond_the_budget_are_not_rewritten(dataset):
    report = dataset.maintain(MaintenancePolicy(max_bytes=0))
    assert {result.outcome for result in report.steps} == {Outcome.OVER_BUDGET}
    assert dataset.latest_version == 15


def test_no_step_begins_after_the_time_is_over(dataset):
    report = dataset.maintain(MaintenancePolicy(max_seconds=0))
    assert {result.outcome for result in report.steps} == {Outcome.OUT_OF_TIME}
    assert dataset.latest_version == 15


def test_a_limited_compaction_commits_in_rounds(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_ROUND_BYTES", 1)
    dataset = lancelet.write_dataset({"id": range(160)}, tmp_path / "t", max_rows_per_file=10)
    policy = MaintenancePolicy(target_rows_per_fragment=80, max_seconds=600)
    report = dataset.maintain(policy)
    assert len(dataset.get_fragments()) == 2
    rewrites = [
        each.operation for each in dataset.get_transactions() if "Rewrite" in str(each.operation)
    ]
    assert len(rewrites) == 2
    assert report.steps[0].detail == "8 fragments became 1; 8 fragments became 1"
    assert dataset.to_table()["id"].to_pylist() == list(range(160))


def test_settings_of_the_table_apply(dataset):
    dataset.update_config({"lance.compaction.target_rows_per_fragment": "10"})
    report = dataset.maintain(MaintenancePolicy(max_deleted_share=1.0), dry_run=True)
    assert StepKind.COMPACT not in kinds(report)


def test_a_policy_of_another_type_is_refused(dataset):
    with pytest.raises(TypeError, match="policy"):
        dataset.maintain({"min_fragments": 2})


def test_indices_of_dropped_columns_are_left_alone(tmp_path):
    dataset = lancelet.write_dataset({"id": range(10), "a": range(10)}, tmp_path / "t")
    dataset.create_scalar_index("a", "BTREE")
    dataset.drop_columns(["a"])
    dataset.insert({"id": range(10)})
    assert dataset.maintain().steps == ()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (CommitConflictError("another writer came first"), Outcome.CONFLICT),
        (CommitContentionError("other writers published every version"), Outcome.CONFLICT),
        (UnsupportedError("an unknown kind"), Outcome.UNSUPPORTED),
    ],
)
def test_a_step_that_fails_is_reported_and_the_others_run(dataset, monkeypatch, error, outcome):
    def fail(self, request):
        raise error

    monkeypatch.setattr(TableOperations, "optimize_indices", fail)
    report = dataset.maintain(NOW)
    assert [result.outcome for result in report.steps] == [outcome, Outcome.DONE, Outcome.DONE]
    assert not report.is_complete
    assert report.steps[0].detail == error.message


@pytest.mark.parametrize("crash", ["compact", "optimize_indices", "cleanup"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_the_call_after_a_crash_between_steps_continues(dataset, monkeypatch, crash, moment):
    class ProcessEndedError(BaseException):
        pass

    before = ids(dataset)
    work = getattr(TableOperations, crash)

    def crashing(self, argument):
        if moment == "after":
            work(self, argument)
        raise ProcessEndedError

    with monkeypatch.context() as patched:
        patched.setattr(TableOperations, crash, crashing)
        with pytest.raises(ProcessEndedError):
            dataset.maintain(NOW)
    reopened = lancelet.dataset(dataset.uri)
    assert ids(reopened) == before
    assert reopened.check("indices") == []
    reopened.maintain(NOW)
    assert reopened.maintain(NOW).steps == ()
    assert ids(reopened) == before
    assert reopened.check("indices") == []


def test_writers_continue_during_maintenance(dataset):
    policy = MaintenancePolicy(
        min_fragments=2, max_unindexed_share=0.0, older_than=timedelta(0), retain_versions=20
    )
    begun = threading.Barrier(3)
    errors = []

    def guarded(work):
        def run():
            try:
                begun.wait(60)
                work(lancelet.dataset(dataset.uri))
            except Exception as error:  # noqa: BLE001 - reported by the main thread
                errors.append(error)

        return threading.Thread(target=run)

    def append(table):
        for first in range(2000, 2100, 10):
            table.insert({"id": range(first, first + 10)})

    def delete(table):
        for number in range(1, 100, 10):
            table.delete(f"id = {number}")

    writers = [guarded(append), guarded(delete)]
    for writer in writers:
        writer.start()
    begun.wait(60)
    reports = [dataset.maintain(policy)]
    while any(writer.is_alive() for writer in writers):
        reports.append(dataset.maintain(policy))
    for writer in writers:
        writer.join()
    assert errors == []
    reports.append(dataset.maintain(policy))
    expected = {each for each in range(1120) if each % 4} | set(range(2000, 2100))
    expected -= set(range(1, 100, 10))
    assert ids(dataset) == sorted(expected)
    assert dataset.check("indices") == []
    assert reports[-1].after.unindexed_rows == 0
    assert dataset.to_table(filter="id = 2055")["id"].to_pylist() == [2055]


def test_several_calls_at_once_leave_a_valid_table(dataset):
    before = ids(dataset)
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: lancelet.dataset(dataset.uri).maintain(), range(4)))
    outcomes = {result.outcome for report in reports for result in report.steps}
    assert outcomes <= {Outcome.DONE, Outcome.CONFLICT}
    dataset.checkout_latest()
    dataset.maintain()
    assert dataset.maintain().steps == ()
    assert ids(dataset) == before
    assert dataset.check("indices") == []


def test_branches_and_tables_in_memory_are_maintained():
    main = lancelet.write_dataset({"id": range(10)}, "memory://maintained")
    branch = main.create_branch("side")
    for number in range(10):
        branch.insert({"id": [number]})
    report = branch.maintain(NOW)
    assert StepKind.COMPACT in kinds(report)
    assert (branch.count_rows(), len(branch.get_fragments())) == (20, 1)
    assert (main.count_rows(), main.latest_version) == (10, 1)


def test_the_log_is_merged_before_indices_are_optimized(tmp_path):
    field = pa.field("id", pa.int64(), nullable=False, metadata=KEY)
    rows = pa.table({"id": range(100)}, pa.schema([field]))
    dataset = lancelet.write_dataset(rows, tmp_path / "t")
    dataset.create_scalar_index("id", "BTREE")
    dataset.initialize_mem_wal(unsharded=True)
    with dataset.mem_wal_writer(str(uuid.uuid4()), max_memtable_rows=20) as writer:
        writer.put(pa.table({"id": range(100, 120)}, rows.schema))
    policy = MaintenancePolicy(max_log_tables=0)
    report = dataset.maintain(policy)
    assert report.before.log.tables == 1
    assert kinds(report) == [StepKind.MERGE_LOG, StepKind.OPTIMIZE_INDEX]
    assert report.after.log.tables == report.after.unindexed_rows == 0
    assert dataset.count_rows() == 120
    assert dataset.maintain(policy).steps == ()
