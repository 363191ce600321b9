"""Goal: updates and merges are atomic, and concurrent ones lose and duplicate nothing.

Method: every storage request is refused once, and once done without a reply; afterwards the table
has the rows from before or from after. Then processes upsert, append and delete side by side.
"""

import contextlib
import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lancelet
from lancelet.change.merge.execute import merge_rows
from lancelet.change.merge.spec import Matched, MergeSpec, RewriteMode
from lancelet.change.rows import read_rows
from lancelet.change.update import update_rows
from lancelet.errors import CommitOutcomeUnknownError, StorageError
from lancelet.table.location import TableLocation
from lancelet.table.snapshot import Snapshot, open_snapshot
from tests.kit.faults import Fault, FaultyStore

NO_SYNC = {"local_sync": "false"}
UPSERT = MergeSpec(("id",), Matched.UPDATE, inserts=True)
IN_PLACE = MergeSpec(("id",), Matched.UPDATE, mode=RewriteMode.COLUMNS)


def merge(spec: MergeSpec, rows: pa.Table):
    def change(snapshot: Snapshot) -> Snapshot:
        return merge_rows(snapshot, read_rows(rows), spec).snapshot

    return change


def update(snapshot: Snapshot) -> Snapshot:
    return update_rows(snapshot, {"n": "n + 100"}, "id IN (1, 4)").snapshot


BEFORE = {i: i for i in range(6)}
CHANGES = {
    "update": (update, {**BEFORE, 1: 101, 4: 104}),
    "upsert": (
        merge(UPSERT, pa.table({"id": [1, 4, 9], "n": [10, 40, 90]})),
        {**BEFORE, 1: 10, 4: 40, 9: 90},
    ),
    "in place": (
        merge(IN_PLACE, pa.table({"id": [1, 4, 9], "n": [10, 40, 90]})),
        {**BEFORE, 1: 10, 4: 40},
    ),
}


def contents(uri: str) -> dict[int, int]:
    table = lance.dataset(uri).to_table()
    ids = table.column("id").to_pylist()
    assert len(ids) == len(set(ids))
    return dict(zip(ids, table.column("n").to_pylist(), strict=True))


@pytest.mark.parametrize("fault", ["refuse", "lose_reply"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_whole_or_absent_at_every_request(
    tmp_path: Path, change: str, fault: Fault
) -> None:
    do, after = CHANGES[change]
    landed = 0
    for request in itertools.count():
        uri = str(tmp_path / str(request))
        rows = pa.table({"id": range(6), "n": range(6), "x": range(6)})
        lancelet.write_dataset(rows, uri, max_rows_per_file=3)
        plain = TableLocation.open(uri, NO_SYNC)
        store = FaultyStore(plain.store, fault, at=request)
        with contextlib.suppress(StorageError, CommitOutcomeUnknownError):
            assert do(open_snapshot(replace(plain, store=store))).version == 2
        found = open_snapshot(plain)
        assert found.version in {1, 2}
        assert contents(uri) == (after if found.version == 2 else BEFORE)
        landed += found.version == 2
        # Who comes next is not disturbed by what was left behind.
        lancelet.dataset(uri).update({"n": "7"}, where="id = 0")
        assert contents(uri)[0] == 7
        if not store.fired:
            break
    assert request > 10
    assert landed > 1


# One interpreter imports, and forks a process for each worker before any of them does a thing.
WORKERS = """
import os, sys, traceback
from datetime import timedelta
import pyarrow as pa
import lancelet

lancelet.LanceDataset  # names are imported on demand, and this one brings all that follows
FOREVER = timedelta(seconds=100)

def work(dataset, number, turn):
    match number % 4:
        case 0:
            start = 10_000 + 100 * number + turn
            dataset.insert(pa.table({"id": [start], "n": [number]}))
        case 1:
            dataset.delete(f"id = {10 * number + turn}", conflict_retries=1000,
                           retry_timeout=FOREVER)
        case 2:
            rows = pa.table({"id": [500, 600 + number, 700 + turn], "n": [1000 + number] * 3})
            builder = dataset.merge_insert("id").when_matched_update_all()
            builder.when_not_matched_insert_all().conflict_retries(1000)
            builder.retry_timeout(FOREVER).execute(rows)
        case 3:
            dataset.update({"n": "n + 1"}, where="id = 400", conflict_retries=1000,
                           retry_timeout=FOREVER)

def run(uri, number, times):
    os.read(gate, 1)
    dataset = lancelet.dataset(uri, storage_options={"local_sync": "false"})
    for turn in range(times):
        work(dataset, number, turn)

uri, times, numbers = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
gate, opened = os.pipe()
children = []
for number in numbers:
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            run(uri, int(number), times)
            failed = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(failed)
    children.append(child)
os.write(opened, b"x" * len(children))
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def run_workers(uri: str, numbers: list[int], times: int) -> None:
    command = [sys.executable, "-W", "ignore", "-c", WORKERS, uri, str(times), *map(str, numbers)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr


def test_sixteen_processes_lose_and_duplicate_nothing(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"id": range(450), "n": [0] * 450}), uri, max_rows_per_file=100)
    run_workers(uri, list(range(16)), times=2)
    found = contents(uri)
    assert lancelet.dataset(uri).version == 1 + 16 * 2
    deleted = {10 * number + turn for number in range(1, 16, 4) for turn in range(2)}
    inserted = {10_000 + 100 * number + turn for number in range(0, 16, 4) for turn in range(2)}
    upserted = {500, 700, 701} | {600 + number for number in range(2, 16, 4)}
    assert set(found) == set(range(450)) - deleted | inserted | upserted
    # Four processes added one twice, each.
    assert found[400] == 8
    assert {found[key] for key in upserted} <= {1000 + number for number in range(2, 16, 4)}


def test_one_key_that_eight_upsert_at_once_is_there_once(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    lancelet.write_dataset(pa.table({"id": [1], "n": [1]}), uri)
    run_workers(uri, [2 + 4 * number for number in range(8)], times=1)
    assert set(contents(uri)) == {1, 500, 700, *(602 + 4 * number for number in range(8))}
