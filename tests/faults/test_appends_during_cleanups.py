"""Goal: during cleanups, acknowledged appends exist once and refused ones do not exist.

Method: eight processes append single rows to a table that removes all old versions with each
commit, or all but two with every fifth. They run freely, or are stopped at random moments for
random times by SIGSTOP, so that what they were about to do comes late.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import lancelet

APPENDERS = """
import os, sys, traceback, warnings
import pyarrow as pa
import lancelet
from lancelet.errors import CommitOutcomeUnknownError, LanceletError

warnings.simplefilter("ignore")
lancelet.LanceDataset  # names are imported on demand, and this one brings all that follows

def run(uri, number, times):
    os.read(gate, 1)
    options = {"local_sync": "false"}
    told = os.open(f"{uri}.{number}", os.O_CREAT | os.O_WRONLY)
    dataset = lancelet.dataset(uri, storage_options=options)
    for row in range(number * 1_000_000, number * 1_000_000 + times):
        try:
            dataset.insert(pa.table({"id": [row]}))
            outcome = "acknowledged"
        except CommitOutcomeUnknownError:
            outcome = "unknown"
        except LanceletError as error:
            print(repr(error), file=sys.stderr)
            outcome = "refused"
        os.write(told, f"{outcome} {row}\\n".encode())

uri, times, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
gate, opened = os.pipe()
children = []
for number in range(count):
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            run(uri, number, times)
            failed = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(failed)
    children.append(child)
print(*children, flush=True)
os.write(opened, b"x" * len(children))
sys.exit(any([os.waitpid(child, 0)[1] for child in children]))
"""

CLEANUPS = {
    "everything": {"interval": 1, "older_than": "0s"},
    "all but two of five": {"interval": 5, "retain_versions": 2},
}


def append_beside_cleanups(root: Path, cleanup: str, times: int, *, stops: bool) -> Counter[str]:
    """Run the appenders, check what they were told, and return how often they were told what."""
    uri = str(root / "t")
    lancelet.write_dataset(pa.table({"id": [-1]}), uri, storage_options={"local_sync": "false"})
    config = {f"lance.auto_cleanup.{key}": str(value) for key, value in CLEANUPS[cleanup].items()}
    lancelet.dataset(uri).update_config(config)
    command = [sys.executable, "-c", APPENDERS, uri, str(times), "8"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    children = [int(child) for child in running.stdout.readline().split()]
    random = np.random.default_rng(5)
    while stops and running.poll() is None:
        stop_one(int(random.choice(children)), float(random.exponential(0.03)))
    _, said = running.communicate()
    assert running.returncode == 0, said
    told: dict[int, str] = {}
    for number in range(8):
        for line in Path(f"{uri}.{number}").read_text().splitlines():
            outcome, row = line.split()
            told[int(row)] = outcome
    assert len(told) == 8 * times
    table = lance.dataset(uri)
    table.validate()
    found = Counter(table.to_table()["id"].to_pylist())
    assert max(found.values()) == 1
    assert not [
        row for row, outcome in told.items() if outcome == "acknowledged" and not found[row]
    ]
    assert not [row for row, outcome in told.items() if outcome == "refused" and found[row]], said
    return Counter(told.values())


def stop_one(child: int, seconds: float) -> None:
    """Stop a process for a while, unless it has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(child, signal.SIGCONT)


@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize(
    "stops", [pytest.param(False, marks=pytest.mark.slow), True], ids=["free", "stopped"]
)
def test_acknowledged_rows_are_there_once(tmp_path, cleanup, stops) -> None:
    outcomes = append_beside_cleanups(tmp_path, cleanup, 15, stops=stops)
    assert outcomes == {"acknowledged": 120}


@pytest.mark.slow
@pytest.mark.parametrize("cleanup", CLEANUPS)
@pytest.mark.parametrize("stops", [False, True], ids=["free", "stopped"])
def test_ten_thousand_acknowledged_rows_are_there_once(tmp_path, cleanup, stops) -> None:
    outcomes = append_beside_cleanups(tmp_path, cleanup, 313, stops=stops)
    assert outcomes["acknowledged"] >= 2_500
