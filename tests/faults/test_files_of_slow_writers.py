"""Goal: no commit is acknowledged after a cleanup deleted its files, even with skewed clocks.

Method: a cleanup runs between writing the files of a commit and publishing it, or between
publishing and acknowledging. Its clock is days ahead, or the files are older than a week.
"""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet import surroundings
from lancelet.errors import CommittedFilesMissingError, LanceletError
from lancelet.surroundings import Surroundings
from lancelet.table import commit as commit_module
from lancelet.table.handlers import PutIfAbsent
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from lancelet.upkeep.cleanup import CleanupPolicy, cleanup_old_versions
from lancelet.upkeep.cleanup import run as cleanup_run
from lancelet.upkeep.cleanup.plan import mentioned_since

WEEK = timedelta(days=8)
NO_SYNC = {"local_sync": "false"}


class Later(Surroundings):
    """The machine with a clock that is wrong by `offset`, and maybe another elapsed time."""

    def __init__(self, offset: timedelta, elapsed: timedelta | None = None) -> None:
        self.offset, self.elapsed = offset, elapsed or timedelta(0)

    def time_ns(self) -> int:
        return super().time_ns() + int(self.offset.total_seconds() * 1e9)

    def monotonic(self) -> float:
        return super().monotonic() + self.elapsed.total_seconds()


def rows(first: int, count: int = 10) -> pa.Table:
    return pa.table({"id": range(first, first + count), "x": [0] * count})


def age(path: Path, by: timedelta = WEEK) -> None:
    """Set the times of all files that are there back, as if they were written earlier."""
    moment = time.time() - by.total_seconds()
    for file in path.rglob("*"):
        if file.is_file():
            os.utime(file, (moment, moment))


def clean_up(uri: str, offset: timedelta = timedelta(0), *, unverified: bool = False) -> None:
    """Clean up as another process does, whose clock may be wrong."""
    with surroundings.replaced_by(Later(offset)):
        location = TableLocation.open(uri, NO_SYNC)
        policy = CleanupPolicy(
            retain_versions=1, delete_unverified=unverified, error_if_tagged_old_versions=False
        )
        cleanup_old_versions(open_snapshot(location), policy)


def check_readable(uri: str, num_rows: int) -> None:
    table = lancelet.dataset(uri).to_table()
    assert table.num_rows == num_rows


def appended(dataset):
    (fragment,) = lancelet.fragment.write_fragments(rows(10), dataset.uri)
    return lancelet.LanceOperation.Append([fragment])


def deleted(dataset):
    fragment = dataset.get_fragment(0).delete("id < 3")
    return lancelet.LanceOperation.Delete([fragment], [], "id < 3")


def merged(dataset):
    fragment, schema = dataset.get_fragment(0).merge_columns({"y": "id + 1"})
    return lancelet.LanceOperation.Merge([fragment], schema)


def overwritten(dataset):
    (fragment,) = lancelet.fragment.write_fragments(rows(10), dataset.uri)
    return lancelet.LanceOperation.Overwrite(dataset.schema, [fragment])


OPERATIONS = {
    "append": appended,
    "delete": deleted,
    "merge": merged,
    "overwrite": overwritten,
}


@pytest.mark.parametrize("reads_first", [True, False])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("cleaner", ["lancelet", "reference"])
def test_operation_whose_files_were_cleaned_up_is_rejected(
    tmp_path, operation, cleaner, reads_first
):
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    change = OPERATIONS[operation](dataset)
    age(tmp_path / "t")
    lancelet.dataset(dataset.uri).update_config({"k": "1"})
    if cleaner == "lancelet":
        clean_up(dataset.uri)
    else:
        lance.dataset(dataset.uri).cleanup_old_versions(retain_versions=1)
    version = dataset.version if reads_first else lancelet.dataset(dataset.uri).version
    before = lancelet.dataset(dataset.uri).version
    with pytest.raises(CommittedFilesMissingError, match="write the rows again") as raised:
        lancelet.LanceDataset.commit(dataset.uri, change, read_version=version)
    assert raised.value.facts["missing"]
    assert lancelet.dataset(dataset.uri).version == before
    check_readable(dataset.uri, 10)


def test_operation_whose_files_exist_is_committed(tmp_path):
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    change = appended(dataset)
    age(tmp_path / "t", timedelta(days=5))
    clean_up(dataset.uri)
    lancelet.LanceDataset.commit(dataset.uri, change, read_version=dataset.version)
    check_readable(dataset.uri, 20)


@pytest.mark.parametrize("scheme", ["file", "memory"])
@pytest.mark.parametrize("days", [-8, 8, 400])
def test_cleanup_with_a_wrong_clock_and_a_commit_in_flight(tmp_path, monkeypatch, scheme, days):
    """The store has its own clock, or, in memory, that of the writer of each file."""
    uri = str(tmp_path / "t") if scheme == "file" else f"memory://clocks/{tmp_path.name}{days}"
    dataset = lancelet.write_dataset(rows(0), uri)
    publish = PutIfAbsent.publish
    cleaned = []

    def held_up(self, store, path, data, *, version):
        if not cleaned:
            cleaned.append(True)
            clean_up(uri, timedelta(days=days))
        publish(self, store, path, data, version=version)

    monkeypatch.setattr(PutIfAbsent, "publish", held_up)
    if scheme == "file" or days < 0:
        dataset.insert(rows(10))
        check_readable(uri, 20)
    else:
        with pytest.raises(CommittedFilesMissingError) as raised:
            dataset.insert(rows(10))
        assert raised.value.facts["is_published"]
        lancelet.dataset(uri, version=raised.value.facts["version"] - 1).restore()
        check_readable(uri, 10)
    assert cleaned


@pytest.mark.parametrize("clock", ["wall", "monotonic"])
@pytest.mark.parametrize("change", ["insert", "update", "delete", "compact", "index", "add column"])
def test_writer_that_is_paused_for_a_week(tmp_path, monkeypatch, change, clock):
    """The pause is between the last data file and the manifest; one clock may stand still."""
    path = tmp_path / "t"
    lancelet.write_dataset(rows(0), path)
    dataset = lancelet.write_dataset(rows(10), path, mode="append")
    others = lancelet.dataset(dataset.uri)
    later = Later(WEEK) if clock == "wall" else Later(timedelta(0), WEEK)
    prepare = commit_module.write_manifest_file
    paused = []

    def pause(*given, **named):
        if not paused and given[0].version == 3:
            paused.append(True)
            age(path)
            others.update_config({"k": "1"})
            clean_up(others.uri)
            entered = surroundings.replaced_by(later)
            entered.__enter__()
            paused.append(entered)
        return prepare(*given, **named)

    monkeypatch.setattr(commit_module, "write_manifest_file", pause)
    changes = {
        "insert": lambda: dataset.insert(rows(20)),
        "update": lambda: dataset.update({"x": "1"}, where="id = 3"),
        "delete": lambda: dataset.delete("id = 3"),
        "compact": dataset.optimize.compact_files,
        "index": lambda: dataset.create_scalar_index("id", "BTREE"),
        "add column": lambda: dataset.add_columns({"y": "id + 1"}),
    }
    try:
        changes[change]()
    except LanceletError:
        expected = {20}
    else:
        expected = {19, 20, 30}
    finally:
        for entered in paused[1:]:
            entered.__exit__(None, None, None)
    assert paused
    latest = lancelet.dataset(dataset.uri)
    assert latest.to_table().num_rows in expected
    assert [each for each in latest.check("indices") if each.severity.value == "error"] == []


@pytest.fixture
def held_up_cleanup(monkeypatch):
    """Returns a function that starts a cleanup, which waits after it has read the versions."""
    looked, may_delete = threading.Event(), threading.Event()
    threads = []

    def mentioned(plan, retained):
        references = mentioned_since(plan, retained)
        looked.set()
        assert may_delete.wait(600)
        return references

    def start(uri):
        threads.append(threading.Thread(target=clean_up, args=(uri,)))
        threads[0].start()
        assert looked.wait(600)

    def finish():
        may_delete.set()
        for thread in threads:
            thread.join()

    monkeypatch.setattr(cleanup_run, "mentioned_since", mentioned)
    yield start, finish
    finish()


@pytest.mark.parametrize("operation", OPERATIONS)
def test_week_old_files_are_not_committed_while_a_cleanup_may_delete_them(
    tmp_path, operation, held_up_cleanup
):
    start, finish = held_up_cleanup
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    change = OPERATIONS[operation](dataset)
    age(tmp_path / "t")
    start(dataset.uri)
    with pytest.raises(CommittedFilesMissingError, match="nothing was committed"):
        lancelet.LanceDataset.commit(dataset.uri, change, read_version=1)
    finish()
    assert lancelet.dataset(dataset.uri).version == 1
    check_readable(dataset.uri, 10)


def test_a_cleanup_that_starts_before_the_put_of_week_old_files(
    tmp_path, monkeypatch, held_up_cleanup
):
    start, finish = held_up_cleanup
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    change = appended(dataset)
    age(tmp_path / "t")
    publish = PutIfAbsent.publish

    def held_up(self, store, path, data, *, version):
        start(dataset.uri)
        publish(self, store, path, data, version=version)

    monkeypatch.setattr(PutIfAbsent, "publish", held_up)
    with pytest.raises(CommittedFilesMissingError, match="version 2 was published"):
        lancelet.LanceDataset.commit(dataset.uri, change, read_version=1)
    finish()
    monkeypatch.undo()
    lancelet.dataset(dataset.uri, version=1).restore()
    check_readable(dataset.uri, 10)


def test_files_of_a_retained_version_are_committed_again_after_a_cleanup(tmp_path):
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    fragments = [fragment.metadata for fragment in dataset.get_fragments()]
    dataset.tags.create("first", 1)
    appended(dataset)
    age(tmp_path / "t")
    newer = lancelet.write_dataset(rows(10), dataset.uri, mode="overwrite")
    clean_up(dataset.uri)
    again = lancelet.LanceOperation.Overwrite(newer.schema, fragments)
    lancelet.LanceDataset.commit(dataset.uri, again, read_version=newer.version)
    check_readable(dataset.uri, 10)


def test_files_that_are_gone_after_the_put_are_reported(tmp_path, monkeypatch):
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    publish = PutIfAbsent.publish

    def delete_before_put(self, store, path, data, *, version):
        if version == 2:
            (new,) = set((tmp_path / "t/data").iterdir()) - old
            new.unlink()
        publish(self, store, path, data, version=version)

    old = set((tmp_path / "t/data").iterdir())
    monkeypatch.setattr(PutIfAbsent, "publish", delete_before_put)
    change = appended(dataset)
    with pytest.raises(CommittedFilesMissingError, match="restore version 1") as raised:
        lancelet.LanceDataset.commit(dataset.uri, change, read_version=1)
    assert raised.value.facts["version"] == 2
    lancelet.dataset(dataset.uri, version=1).restore()
    check_readable(dataset.uri, 10)


def test_marker_of_a_cleanup_is_replaced_by_the_next(tmp_path):
    dataset = lancelet.write_dataset(rows(0), tmp_path / "t")
    for _ in range(3):
        appended(dataset)
        clean_up(dataset.uri, unverified=True)
        dataset.insert(rows(20))
    markers = [file for file in (tmp_path / "t/_versions").iterdir() if "swept" in file.name]
    assert len(markers) == 1
    assert lance.dataset(dataset.uri).count_rows() == 40
