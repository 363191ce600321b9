"""Goal: commits are atomic under request failures, races and crashes.

Method: every storage request of an operation is refused once, and once done without a reply.
Afterwards the table is read by us and by the reference, and has the rows from before or from
after. Then processes commit side by side, and are killed.
"""

import itertools
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pytest

from lancelet.errors import (
    CommitOutcomeUnknownError,
    StorageError,
)
from lancelet.format.operation import Delete, Overwrite
from lancelet.rowids.deletion import DeletionVector
from lancelet.table.commit import CommitOptions, commit
from lancelet.table.conflict.rebase import with_deletions
from lancelet.table.handlers import (
    CommitHandler,
    ExternalStore,
    PutIfAbsent,
    RenameIfAbsent,
)
from lancelet.table.handlers.sqlite import SqliteRecords
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from tests.kit.faults import Fault, FaultyStore
from tests.kit.tables import (
    SIMPLE_SCHEMA,
    append_rows,
    create_table,
    new_transaction,
    simple_rows,
)

NO_SYNC = {"local_sync": "false"}


def append(location: TableLocation) -> Snapshot:
    return append_rows(location, open_snapshot(location), simple_rows(3, 5))


def overwrite(location: TableLocation) -> Snapshot:
    snapshot = open_snapshot(location)
    transaction = new_transaction(snapshot.version, Overwrite((), SIMPLE_SCHEMA))
    return commit(location, transaction)


def delete(location: TableLocation) -> Snapshot:
    snapshot = open_snapshot(location)
    return delete_offsets(location, snapshot, [1])


def delete_offsets(location: TableLocation, snapshot: Snapshot, offsets: list[int]) -> Snapshot:
    fragment = snapshot.fragments.by_id(0)
    deleted = snapshot.deletions(fragment).union(DeletionVector.of(offsets).offsets)
    changed = with_deletions(fragment, deleted, read_version=snapshot.version)
    path = changed.deletion_file.path(0)
    location.store.put(path, deleted.render(path))
    return commit(
        location,
        new_transaction(snapshot.version, Delete((changed,))),
        CommitOptions(affected={0: np.asarray(offsets)}),
    )


HANDLERS = ("put", "rename", "sqlite")


def handler_named(name: str, root: Path) -> CommitHandler:
    match name:
        case "put":
            return PutIfAbsent()
        case "rename":
            return RenameIfAbsent()
        case _:
            return ExternalStore(SqliteRecords(str(root / "versions.db")), "t")


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize(("change", "after"), [(append, 5), (delete, 2), (overwrite, 0)])
def test_a_change_is_whole_or_absent_at_every_request(
    tmp_path: Path, change, after: int, fault: Fault, handler: str
) -> None:
    landed = 0
    for request in itertools.count():
        root = tmp_path / str(request)
        root.mkdir()
        plain = replace(
            TableLocation.open(str(root / "t"), NO_SYNC), handler=handler_named(handler, root)
        )
        create_table(plain, SIMPLE_SCHEMA, simple_rows(0, 3))
        store = FaultyStore(plain.store, fault, at=request)
        is_refused = False
        try:
            published = change(replace(plain, store=store))
            assert published.version == 2
        except CommitOutcomeUnknownError:
            pass
        except StorageError:
            is_refused = True
        found = open_snapshot(plain)
        assert not (is_refused and found.version == 2)
        assert found.num_rows == (after if found.version == 2 else 3)
        assert found.version in {1, 2}
        assert lance.dataset(root / "t").count_rows() == found.num_rows
        landed += found.version == 2
        # Who comes next is not disturbed by what was left behind.
        assert append(plain).num_rows == found.num_rows + 2
        if not store.fired:
            break
    assert request > 5
    assert landed > 1


@pytest.mark.parametrize("handler", HANDLERS)
def test_a_lost_reply_to_the_deciding_request_is_success(tmp_path: Path, handler: str) -> None:
    plain = replace(
        TableLocation.open(str(tmp_path / "t"), NO_SYNC), handler=handler_named(handler, tmp_path)
    )
    create_table(plain, SIMPLE_SCHEMA, simple_rows(0, 3))
    deciding = ("put_if_absent", "rename_if_absent", "copy")
    store = FaultyStore(
        plain.store, "lose_reply", at=0, only=lambda request: request.operation in deciding
    )
    assert append(replace(plain, store=store)).version == 2
    assert store.fired
    assert open_snapshot(plain).version == 2


def test_a_first_version_whose_reply_was_lost_is_ours(tmp_path: Path) -> None:
    plain = TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    store = FaultyStore(
        plain.store, "lose_reply", at=0, only=lambda request: request.operation == "put_if_absent"
    )
    transaction = new_transaction(0, Overwrite((), SIMPLE_SCHEMA))
    created = commit(replace(plain, store=store), transaction, CommitOptions(must_create=True))
    assert created.version == 1
    assert store.fired


def test_another_writers_version_is_not_taken_for_ours(tmp_path: Path) -> None:
    """The put is refused without a reply, and another writer's version lands before we look."""
    plain = TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    first = create_table(plain, SIMPLE_SCHEMA, simple_rows(0, 3))

    class Unanswered(PutIfAbsent):
        asked = 0

        def publish(self, store, path, data, *, version):
            Unanswered.asked += 1
            if Unanswered.asked == 1:
                append_rows(plain, first, simple_rows(3, 5))
                raise CommitOutcomeUnknownError("this reply was made to be lost")
            super().publish(store, path, data, version=version)

    latest = append_rows(replace(plain, handler=Unanswered()), first, simple_rows(5, 6))
    assert latest.version == 3
    assert latest.num_rows == 6


WRITER = """
import sys
import numpy as np
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import open_snapshot
from tests.kit.tables import append_rows, simple_rows
sys.path.insert(0, {tests!r})
from test_commit import delete_offsets
location = TableLocation.open({uri!r}, {{"local_sync": "false"}})
number, times = int(sys.argv[1]), int(sys.argv[2])
sys.stdin.readline()
for turn in range(times):
    if number % 2:
        start = 1000 * number + turn
        append_rows(location, open_snapshot(location), simple_rows(start, start + 1))
    else:
        delete_offsets(location, open_snapshot(location), [10 * number + turn])
    print("done", flush=True)
"""


def start_writer(location: TableLocation, number: int, times: int) -> subprocess.Popen[str]:
    program = WRITER.format(uri=location.uri, tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-c", program, str(number), str(times)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_sixteen_processes_on_one_table_lose_nothing(tmp_path: Path) -> None:
    location = TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 200))
    writers = [start_writer(location, number, times=2) for number in range(16)]
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        out, _ = writer.communicate(timeout=600)
        assert writer.returncode == 0
        assert out.split() == ["done", "done"]
    latest = open_snapshot(location)
    assert latest.version == 1 + 16 * 2
    deleted = {10 * number + turn for number in range(0, 16, 2) for turn in range(2)}
    appended = {1000 * number + turn for number in range(1, 16, 2) for turn in range(2)}
    ids = lance.dataset(location.uri).to_table()["id"].to_pylist()
    assert len(ids) == len(set(ids))
    assert set(ids) == set(range(200)) - deleted | appended


def test_a_writer_that_is_killed_leaves_a_table_that_reads(tmp_path: Path) -> None:
    location = TableLocation.open(str(tmp_path / "t"), NO_SYNC)
    create_table(location, SIMPLE_SCHEMA, simple_rows(0, 3))
    random = np.random.default_rng(7)
    for number in (1, 3, 5):
        writer = start_writer(location, number, times=10_000)
        writer.stdin.write("go\n")
        writer.stdin.flush()
        assert writer.stdout.readline() == "done\n"
        time.sleep(float(random.uniform(0, 0.1)))
        os.kill(writer.pid, signal.SIGKILL)
        writer.communicate()
        latest = open_snapshot(location)
        assert latest.num_rows == latest.version + 2
        dataset = lance.dataset(location.uri)
        dataset.validate()
        assert len(dataset.to_table()) == latest.num_rows
    # What is left of unfinished files has names that listings do not show.
    assert append(location).version == latest.version + 1
