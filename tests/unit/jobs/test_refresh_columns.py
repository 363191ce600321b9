"""Refreshes in tasks compute each stale row once, and commit rounds of tasks."""

import os
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lancelet
import lancelet.jobs.refresh_columns as module
from lancelet import ComputedColumn
from lancelet.change.columns.refresh import RefreshOptions
from lancelet.change.columns.saved_results import RowKeys, SavedResults
from lancelet.errors import ColumnFunctionError, StorageUnavailableError
from lancelet.jobs.add_columns import BackfillOptions, add_columns
from lancelet.jobs.engine import Job
from lancelet.jobs.local import LocalEngine
from lancelet.jobs.refresh_columns import TaskOptions, refresh_columns
from lancelet.jobs.table_ref import TableRef


def twice(numbers):
    return pc.multiply(numbers, 2)


COLUMN = ComputedColumn("twice", twice, ("n",), pa.int64())


@pytest.fixture
def uri(tmp_path):
    """Fifty rows in ten fragments, of which every third row is out of date."""
    data = pa.table({"n": range(50)})
    path = str(tmp_path / "t")
    table = lancelet.write_dataset(data, path, max_rows_per_file=5, enable_stable_row_ids=True)
    table.add_columns(COLUMN)
    table.update({"n": "n + 1000"}, where="n % 3 = 0")
    table.insert(pa.table({"n": range(100, 110)}), max_rows_per_file=5)
    return path


def job():
    return Job(LocalEngine(1))


def check(uri):
    table = lancelet.dataset(uri)
    assert table.stale_rows().rows == 0
    found = table.to_table().to_pydict()
    assert found["twice"] == [2 * n for n in found["n"]]
    return sorted(found["n"])


def refresh(uri, functions=None, *, options=None, tasks=None):
    table = TableRef.of(uri)
    functions = functions or {"twice": twice}
    return refresh_columns(job(), table, functions, options or RefreshOptions(), tasks)


def test_a_round_of_tasks_is_one_version(uri):
    before = lancelet.dataset(uri)
    count = before.stale_rows().rows
    published, done = refresh(uri)
    assert (done.refreshed, done.remaining) == (count, 0)
    assert published.version == before.version + 1
    check(uri)


def test_smaller_rounds_are_several_versions(uri):
    before = lancelet.dataset(uri)
    tasks = TaskOptions(rows_per_task=1, tasks_per_commit=1)
    published, _ = refresh(uri, tasks=tasks)
    assert published.version == before.version + before.stale_rows().fragments
    check(uri)


def test_a_column_is_added_in_tasks_with_its_definition(tmp_path):
    uri = str(tmp_path / "t")
    data = pa.table({"n": range(50)})
    lancelet.write_dataset(data, uri, max_rows_per_file=5, enable_stable_row_ids=True)
    add_columns(job(), TableRef.of(uri), COLUMN, BackfillOptions(bytes_per_task=1))
    assert lancelet.dataset(uri).stale_rows().columns == {"twice": "twice(n)"}
    check(uri)
    add_columns(job(), TableRef.of(uri), ComputedColumn("half", "n / 2"))
    check(uri)


def test_a_deferred_column_is_added_without_tasks(tmp_path):
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"n": range(50)}), uri, enable_stable_row_ids=True)
    run = job()
    deferred = ComputedColumn("twice", twice, ("n",), pa.int64(), is_deferred=True)
    add_columns(run, TableRef.of(uri), deferred)
    assert run.report.work.rows == 0
    _, done = refresh(uri)
    assert done.refreshed == 50
    check(uri)


def test_budgets_are_kept_across_tasks(uri):
    count = lancelet.dataset(uri).stale_rows().rows
    tasks = TaskOptions(rows_per_task=1)
    _, done = refresh(uri, options=RefreshOptions(max_rows=7), tasks=tasks)
    assert (done.refreshed, done.remaining) == (7, count - 7)
    _, done = refresh(uri, options=RefreshOptions(max_seconds=0), tasks=tasks)
    assert done.refreshed == 0

    def slow(numbers):
        time.sleep(0.05)
        return twice(numbers)

    options = RefreshOptions(max_seconds=0.1, batch_rows=1)
    _, done = refresh(uri, {"twice": slow}, options=options, tasks=tasks)
    assert done.refreshed < count - 7
    refresh(uri)
    check(uri)


def test_tasks_that_end_before_an_error_are_committed(uri):
    count = lancelet.dataset(uri).stale_rows().rows

    def fail(numbers):
        if 102 in numbers.to_pylist():
            raise ValueError("the model failed")
        return twice(numbers)

    with pytest.raises(ColumnFunctionError, match="ValueError: the model failed"):
        refresh(uri, {"twice": fail}, tasks=TaskOptions(rows_per_task=1))
    assert lancelet.dataset(uri).stale_rows().rows == 5
    _, done = refresh(uri)
    assert (done.refreshed, count > 10) == (5, True)
    check(uri)


def test_tasks_whose_storage_fails_are_left_to_the_engine(uri):
    def fail(_):
        raise StorageUnavailableError("the store is away")

    with pytest.raises(StorageUnavailableError):
        refresh(uri, {"twice": fail})
    refresh(uri)
    check(uri)


def test_a_killed_job_continues_with_the_results_of_its_batches(uri, tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    calls.mkdir()

    def counted(numbers):
        for number in numbers.to_pylist():
            (calls / f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()
        return twice(numbers)

    def die(*_, **__):
        raise KeyboardInterrupt

    options = RefreshOptions(batch_rows=2, checkpoint=str(tmp_path / "notes"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "publish_refreshed", die)
        with pytest.raises(KeyboardInterrupt):
            refresh(uri, {"twice": counted}, options=options)
    count = lancelet.dataset(uri).stale_rows().rows
    assert len(list(calls.iterdir())) == count
    lancelet.dataset(uri).delete("n = 1003")
    _, done = refresh(uri, {"twice": counted}, options=options)
    assert done.refreshed == count - 1
    assert len(list(calls.iterdir())) == count
    assert not list((tmp_path / "notes").rglob("*.arrow"))
    check(uri)


class Recorded:
    """An engine that records the functions of its tasks."""

    def __init__(self):
        self.engine, self.names = LocalEngine(1), []

    def run(self, function, tasks, control):
        self.names.append((function.func.__name__, len(tasks)))
        return self.engine.run(function, tasks, control)


def test_tasks_share_a_large_fragment_if_there_is_a_checkpoint(tmp_path):
    path, notes, engine = str(tmp_path / "t"), tmp_path / "notes", Recorded()
    table = lancelet.write_dataset(pa.table({"n": range(25)}), path, enable_stable_row_ids=True)
    deferred = ComputedColumn("twice", twice, ("n",), pa.int64(), is_deferred=True)
    table.add_columns(deferred)
    calls = tmp_path / "calls"
    calls.mkdir()

    def counted(numbers):
        if 17 in numbers.to_pylist() and not list(calls.glob("17-*")):
            (calls / "17-failed").touch()
            raise ValueError("the model failed")
        for number in numbers.to_pylist():
            (calls / f"{number}-{time.monotonic_ns()}").touch()
        return twice(numbers)

    def run():
        options = RefreshOptions(batch_rows=2, checkpoint=str(notes))
        tasks = TaskOptions(rows_per_task=10)
        functions = {"twice": counted}
        return refresh_columns(Job(engine), TableRef.of(path), functions, options, tasks)[1]

    with pytest.raises(ColumnFunctionError, match="the model failed"):
        run()
    assert engine.names == [("save_task", 3), ("compute_task", 1)]
    assert lancelet.dataset(path).stale_rows().rows == 4
    done = run()
    assert (done.refreshed, done.remaining) == (4, 0)
    assert len(list(calls.iterdir())) == 25 + 1
    assert not list(notes.rglob("*.arrow"))
    check(path)


def test_a_slice_reads_only_its_results(tmp_path):
    path = str(tmp_path / "t")
    table = lancelet.write_dataset(pa.table({"n": range(6)}), path, enable_stable_row_ids=True)
    table.add_columns(COLUMN)
    snapshot = table.snapshot
    fragment, notes = snapshot.fragments[0], str(tmp_path / "notes")
    keys = [
        RowKeys(np.arange(start, start + 3, dtype=np.uint64), np.ones(3, np.uint64))
        for start in (0, 3)
    ]
    saved = SavedResults.of(snapshot, notes)
    for each in keys:
        saved.add(fragment, each, pa.table({"twice": pa.array(each.ids * 2)}))
    for path in (tmp_path / "notes").rglob("0-2-*.arrow"):
        path.write_bytes(b"")
    found, values = SavedResults.of(snapshot, notes).find(fragment, keys[1])
    assert found.all()
    assert values["twice"].to_pylist() == [6, 8, 10]


@pytest.mark.parametrize("change", ["update", "delete", "append", "compact", "refresh"])
def test_changes_by_other_writers_during_a_job(uri, monkeypatch, change):
    publish, changed = module.publish_refreshed, []

    def after_a_change(*arguments, **options):
        if not changed:
            changed.append(change)
            other = lancelet.dataset(uri)
            match change:
                case "update":
                    other.update({"n": "5000"}, where="n = 102")
                case "delete":
                    other.delete("n = 102")
                case "append":
                    other.insert({"n": [300]})
                case "compact":
                    other.optimize.compact_files()
                case "refresh":
                    other.refresh_columns({"twice": twice})
        return publish(*arguments, **options)

    monkeypatch.setattr(module, "publish_refreshed", after_a_change)
    refresh(uri)
    refresh(uri)
    found = check(uri)
    assert (102 in found) == (change not in {"update", "delete"})
    assert (5000 in found) == (change == "update")
