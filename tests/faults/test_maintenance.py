"""Goal: compaction and cleanup lose nothing under request failures and concurrent changes.

Method: every storage request is refused once, and done once without a reply; after each the table
and all its versions are read by us and the latest by the reference. Then processes delete, update
and compact side by side.
"""

import contextlib
import itertools
import subprocess
import sys
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.errors import CommitOutcomeUnknownError, LanceletError, StorageError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from lancelet.upkeep.check import Level, Severity, check
from lancelet.upkeep.cleanup import CleanupPolicy, cleanup_old_versions
from lancelet.upkeep.compact import CompactionOptions, compact_files
from tests.kit.faults import Fault, FaultyStore

NO_SYNC = {"local_sync": "false"}


def rows(start, stop):
    return pa.table({"id": range(start, stop), "n": [0] * (stop - start)})


def make(uri):
    """Write rows 0 to 12 in four fragments, without row 4."""
    dataset = lancelet.write_dataset(rows(0, 12), uri, max_rows_per_file=3, storage_options=NO_SYNC)
    dataset.delete("id = 4")
    return TableLocation.open(uri, NO_SYNC)


def ids_of(location, version=None):
    dataset = lancelet.dataset(location.uri, version=version)
    return sorted(dataset.to_table()["id"].to_pylist())


def errors_of(location):
    snapshot = open_snapshot(TableLocation.open(location.uri))
    findings = check(snapshot, Level.DECODE, all_versions=True)
    return [finding for finding in findings if finding.severity is Severity.ERROR]


def compact(location: TableLocation) -> None:
    compact_files(open_snapshot(location), CompactionOptions())


def compact_over_others(location: TableLocation) -> None:
    """Compact a version after which somebody deleted row 7."""
    compact_files(open_snapshot(location, 2), CompactionOptions())


def clean_up(location: TableLocation) -> None:
    cleanup_old_versions(open_snapshot(location), CleanupPolicy(delete_unverified=True))


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize(
    ("change", "gone"),
    [
        pytest.param(compact, {4}, marks=pytest.mark.slow),
        (compact_over_others, {4, 7}),
        (clean_up, {4}),
    ],
)
def test_the_table_can_be_read_after_any_failed_request(
    tmp_path: Path, change, gone: set[int], fault: Fault
) -> None:
    expected = [number for number in range(12) if number not in gone]
    for request in itertools.count():
        plain = make(str(tmp_path / str(request)))
        if change is clean_up:
            compact(plain)
        if change is compact_over_others:
            lancelet.dataset(plain.uri).delete("id = 7")
        store = FaultyStore(plain.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            change(replace(plain, store=store))
        assert ids_of(plain) == expected
        assert errors_of(plain) == []
        assert lance.dataset(plain.uri).count_rows() == len(expected)
        # Who comes next is not disturbed, and a later cleanup finds what was left.
        compact(plain)
        clean_up(plain)
        assert ids_of(plain) == expected
        assert len(open_snapshot(plain).fragments) == 1
        assert len(list((tmp_path / str(request) / "data").iterdir())) == 1
        if not store.fired:
            break
    assert request > 10


WORKER = """
import sys, time
import lancelet
from lancelet.errors import CommitConflictError, CommitContentionError, VersionRemovedError
uri, role, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
sys.stdin.readline()
deadline, done, refused = time.monotonic() + seconds, 0, 0
while time.monotonic() < deadline:
    dataset = lancelet.dataset(uri, storage_options={"local_sync": "false"})
    try:
        match role.split():
            case ["delete", number]:
                dataset.delete(f"id = {2000 - 2 * done - int(number)}", conflict_retries=100)
            case ["update", number]:
                dataset.update(
                    {"n": "n + 1"},
                    where=f"id = {40 * int(number) + done % 40}",
                    conflict_retries=100,
                )
            case ["compact"]:
                dataset.optimize.compact_files(target_rows_per_fragment=500)
        done += 1
    except (CommitConflictError, CommitContentionError, VersionRemovedError):
        refused += 1
print(done, refused)
"""


def race(uri: str, roles: list[str], seconds: float) -> list[tuple[int, int]]:
    """Run workers side by side; return how often each succeeded, and how often it did not."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", WORKER, uri, role, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role in roles
    ]
    time.sleep(1)
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    counts = []
    for worker in workers:
        out, _ = worker.communicate(timeout=120)
        assert worker.returncode == 0
        done, refused = map(int, out.split())
        counts.append((done, refused))
    return counts


@pytest.mark.parametrize("stable", [pytest.param(False, marks=pytest.mark.slow), True])
def test_compaction_gets_through_while_others_delete_and_update(
    tmp_path: Path, stable: bool
) -> None:
    """The probe at which the reference compacted not once, and some more."""
    uri = str(tmp_path / "t")
    lancelet.write_dataset(
        rows(0, 2001),
        uri,
        max_rows_per_file=100,
        enable_stable_row_ids=stable,
        storage_options=NO_SYNC,
    )
    roles = ["update 0", "update 1", "delete 0", "delete 1", "compact"]
    counts = race(uri, roles, seconds=3)
    updates, deletes, (compactions, _) = counts[:2], counts[2:4], counts[4]
    assert [refused for _, refused in (*updates, *deletes)] == [0] * 4
    assert compactions > 0
    table = lancelet.dataset(uri).to_table()
    found = dict(zip(table["id"].to_pylist(), table["n"].to_pylist(), strict=True))
    assert len(found) == table.num_rows
    gone = {2000 - 2 * turn - number for number in (0, 1) for turn in range(deletes[number][0])}
    assert set(found) == set(range(2001)) - gone
    for number in (0, 1):
        changed = sum(found.get(40 * number + place, 0) for place in range(40))
        assert changed == updates[number][0]
    assert lance.dataset(uri).to_table().num_rows == table.num_rows
    findings = lancelet.dataset(uri).check("indices")
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []


def test_cleanup_while_others_write_leaves_every_version_readable(tmp_path: Path) -> None:
    """Workers may be refused, as on a busy machine, but every version stays readable.

    A reader that takes longer than versions are retained gets an error, and a compaction may lose
    all its commit attempts to faster writers.
    """
    uri = str(tmp_path / "t")
    lancelet.write_dataset(rows(0, 2001), uri, max_rows_per_file=100, storage_options=NO_SYNC)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, uri, role, "5"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role in ("delete 0", "update 0", "compact")
    ]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    cleaned = 0
    while any(worker.poll() is None for worker in workers):
        dataset = lancelet.dataset(uri, storage_options=NO_SYNC)
        dataset.cleanup_old_versions(older_than=timedelta(seconds=3))
        cleaned += 1
    said = [worker.communicate()[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 3
    assert sum(int(line.split()[0]) for line in said) > 0
    assert cleaned > 1
    assert errors_of(TableLocation.open(uri)) == []
    table = lancelet.dataset(uri).to_table()
    assert len(set(table["id"].to_pylist())) == table.num_rows
    assert lance.dataset(uri).to_table().num_rows == table.num_rows


def test_a_failed_task_leaves_no_files(tmp_path: Path) -> None:
    plain = make(str(tmp_path / "t"))
    before = sorted((tmp_path / "t" / "data").iterdir())
    (third, *_) = [f.files[0].path for f in open_snapshot(plain).fragments][2:]
    snapshot: Snapshot = open_snapshot(TableLocation.open(plain.uri))
    damaged = tmp_path / "t" / "data" / third
    content = damaged.read_bytes()
    damaged.unlink()
    damaged.write_bytes(b"\0" * len(content))
    with pytest.raises(LanceletError):
        compact_files(snapshot, CompactionOptions(target_rows_per_fragment=4))
    assert sorted((tmp_path / "t" / "data").iterdir()) == before
    assert open_snapshot(plain).version == 2
