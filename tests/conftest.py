"""Settings and fixtures shared by all tests."""

import os
import subprocess
import sys
from collections.abc import Callable

import lance.arrow  # noqa: F401 - it cannot be imported once another has registered types of its names
import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "dev", max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "ci",
    max_examples=50,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile(
    "nightly", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev"))


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
