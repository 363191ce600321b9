"""The number of threads of a process, as set by its environment."""

import subprocess
import sys

import pytest

from lancelet.config import available_cpus

PROGRAM = "from lancelet.config import CPU_THREADS; print(CPU_THREADS)"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, available_cpus()),
        ({"OMP_NUM_THREADS": "1"}, 1),
        ({"OMP_NUM_THREADS": "7"}, 7),
        ({"OMP_NUM_THREADS": "4,2"}, available_cpus()),
        ({"OMP_NUM_THREADS": "0"}, available_cpus()),
        ({"OMP_NUM_THREADS": "1", "LANCELET_CPU_THREADS": "3"}, 3),
    ],
)
def test_threads_are_as_many_as_the_environment_sets(given, expected, monkeypatch):
    for name in ("OMP_NUM_THREADS", "LANCELET_CPU_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    assert int(done.stdout) == expected
