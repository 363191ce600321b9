import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from lancelet.testing.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A server that tests share; one that is killed or paused is the test's own."""
    with S3Server() as server:
        yield server


@pytest.fixture
def run_program() -> Callable[..., str]:
    """Run a program in an interpreter of its own and return what it printed.

    Programs that fork need that: the tests' own process holds threads, and modules that warn
    about forks. One that hangs is an error.
    """

    def run(program: str, *arguments: str) -> str:
        command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run
