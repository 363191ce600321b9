"""Programs that are bound to their parent run as they would, and end when it is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.kit.child import bound_to_us, is_running

PARENT = """
import subprocess, sys, time
from tests.kit.child import bound_to_us
command = [sys.executable, "-c", "import time; time.sleep(60)"]
child = subprocess.Popen(bound_to_us(command), start_new_session=True)
print(child.pid, flush=True)
time.sleep(60)
"""


def test_a_bound_program_has_its_arguments_its_environment_and_its_number():
    program = "import os, sys; print(os.environ['WORD'], os.getpid(), *sys.argv[1:])"
    command = bound_to_us([sys.executable, "-c", program, "a b", "c"])
    environment = os.environ | {"WORD": "seven"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate()[0].strip() == f"seven {process.pid} a b c"
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform != "linux", reason="no other system ends children so")
def test_a_bound_program_ends_with_a_parent_that_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        deadline = time.monotonic() + 20
        while is_running(child):
            assert time.monotonic() < deadline, "the child outlives its parent"
            time.sleep(0.05)


def test_a_program_whose_parent_is_gone_before_it_starts_never_runs(tmp_path):
    """The number of another process than the parent is what such a program sees."""
    command = bound_to_us([sys.executable, "-c", f"open({str(tmp_path / 'ran')!r}, 'w')"])
    place = command.index(str(os.getpid()))
    subprocess.run([*command[:place], "1", *command[place + 1 :]], check=True)
    assert not (tmp_path / "ran").exists()
