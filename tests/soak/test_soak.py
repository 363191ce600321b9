"""Goal: acknowledged results hold while processes are killed and paused.

Method: `soak.py` for half a minute; `make soak` runs it for as long as is asked for. What judges it
is shown histories that break a promise.
"""

import importlib.util
import json
import subprocess
import sys

import pytest


@pytest.fixture
def soak(request, monkeypatch):
    specification = importlib.util.spec_from_file_location(
        "soak", request.path.with_name("soak.py")
    )
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "soak", module)
    specification.loader.exec_module(module)
    return module


def events(*steps):
    """Return what a process notes of operations on batch 1; without an answer if it was killed."""
    found = []
    for number, (kind, told) in enumerate(steps):
        found.append({"worker": 0, "number": number, "kind": kind, "table": "t", "batch": 1})
        if told is not None:
            found.append({"worker": 0, "number": number, "told": told})
    return found


APPENDED, BUMPED = ("append", "acknowledged"), ("bump", "acknowledged")


@pytest.mark.parametrize(
    ("steps", "values", "said"),
    [
        ([APPENDED], [0] * 4, None),
        ([APPENDED], [], "acknowledged are not there"),
        ([APPENDED], [0] * 3, "3 of 4"),
        ([APPENDED], [0] * 8, "8 of 4"),
        ([("append", "refused")], [0] * 4, "refused are there"),
        ([("append", None)], [0] * 4, None),
        ([("append", None)], [], None),
        ([APPENDED, BUMPED], [1] * 4, None),
        ([APPENDED, BUMPED], [0] * 4, "v is 0"),
        ([APPENDED, BUMPED], [2] * 4, "v is 2"),
        ([APPENDED, ("bump", None)], [1] * 4, None),
        ([APPENDED, ("bump", None)], [0, 1, 1, 1], "half there"),
        ([APPENDED, ("bump", "refused")], [1] * 4, "v is 1"),
        ([APPENDED, ("drop", "acknowledged")], [0] * 4, "deleted are there"),
        ([APPENDED, ("drop", None)], [], None),
        ([APPENDED, ("drop", "refused")], [], "acknowledged are not there"),
    ],
)
def test_violations_are_detected(soak, steps, values, said):
    found = {"t": {1: values} if values else {}}
    wrong = soak.judged(soak.replayed(events(*steps)), found)
    assert [each for each in wrong if said is None or said in each] == wrong
    assert bool(wrong) == (said is not None)


def test_unexpected_rows_and_changed_versions_are_detected(soak):
    assert soak.judged({}, {"t": {7: [0] * 4}}) == ["t, batch 7: nobody wrote it"]
    reads = [{"table": "t", "version": 3, "digest": each} for each in ("a", "b", "a")]
    assert len(soak.inconsistent(reads)) == 1
    assert soak.inconsistent(reads[::2]) == []


@pytest.mark.slow
def test_tables_hold_while_processes_are_killed_and_paused(request, tmp_path):
    program = request.path.with_name("soak.py")
    command = [sys.executable, program, "--seconds", "30"]
    done = subprocess.run(command, check=True, cwd=tmp_path, stdout=subprocess.PIPE)
    said = json.loads(done.stdout)
    assert said["ours"]["violations"] == 0
    assert said["ours"]["acknowledged"] > 20
    assert said["kills"] + said["pauses"] > 5
