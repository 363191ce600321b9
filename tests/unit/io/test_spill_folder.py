"""Spilled files are removed when their process ends, also if it is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lancelet.io.spill_folder import PREFIX, SpillFolder, _remove_stale

HOLDER = """
import sys, time
from lancelet.io.spill_folder import SpillFolder
folder = SpillFolder("test", sys.argv[1])
(folder.path / "runs").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
time.sleep(120)
"""

SORTER = """
import sys, time
import numpy as np, pyarrow as pa
from lancelet.index.parts.sorted_runs import sorted_parts
parts = ((pa.array(np.arange(100)), np.arange(100, dtype=np.uint64)) for _ in range(9))
rows = sorted_parts(parts, pa.int64(), run_bytes=1000)
next(rows)
print("sorting", flush=True)
time.sleep(120)
"""


def folders(place):
    return sorted(path for path in Path(place).iterdir() if path.name.startswith(PREFIX))


def holder(place):
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(place)], stdout=subprocess.PIPE, text=True
    )
    return child, Path(child.stdout.readline().strip())


def end(child):
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()


def sweep(place):
    """Spill as a new process does."""
    subprocess.run(
        [sys.executable, "-c", HOLDER.replace("time.sleep(120)", "folder.close()"), str(place)],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def test_a_folder_goes_with_its_block(tmp_path):
    with SpillFolder("test", tmp_path) as folder:
        (folder.path / "runs").write_bytes(b"x")
        assert folders(tmp_path) == [folder.path]
    assert not folders(tmp_path)


def test_an_unused_folder_is_deleted(tmp_path):
    folder = SpillFolder("test", tmp_path)
    assert folders(tmp_path) == [folder.path]
    del folder
    assert not folders(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files that are open are of POSIX")
def test_the_next_spill_deletes_files_of_killed_processes(tmp_path):
    child, left = holder(tmp_path)
    sweep(tmp_path)
    assert folders(tmp_path) == [left], "the folder of a process that lives stays"
    end(child)
    assert (left / "runs").exists()
    sweep(tmp_path)
    assert not folders(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="locks of files that are open are of POSIX")
def test_a_sort_that_was_killed_leaves_nothing_for_long(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    child = subprocess.Popen(
        [sys.executable, "-c", SORTER], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert child.stdout.readline() == "sorting\n"
    end(child)
    assert len(folders(tmp_path)) == 1
    sweep(tmp_path)
    assert not folders(tmp_path)


def test_folders_of_others_and_files_stay(tmp_path):
    (tmp_path / f"{PREFIX}file").write_bytes(b"x")
    (tmp_path / f"{PREFIX}without-lock").mkdir()
    (tmp_path / "other").mkdir()
    _remove_stale(str(tmp_path))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
def test_a_fork_deletes_nothing_of_its_parent(tmp_path):
    code = (
        "import os, sys\n"
        "from lancelet.io.spill_folder import SpillFolder\n"
        "folder = SpillFolder('test', sys.argv[1])\n"
        "if not os.fork():\n"
        "    folder.close()\n"
        "    sys.exit(0)\n"
        "os.wait()\n"
        "assert folder.path.exists()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert not folders(tmp_path)
