"""Programs that do not outlive whoever started them, not even one that was killed.

    test run     starts     cluster, server, driver         each in a session of its own
    kill -9      nothing of the run's own code runs any more
    the system   kills each of them, since it asked for that before it became what it is

What those have started in turn notices by itself: an executor that its worker is gone, a JVM that
nobody holds its input any more. Where the system knows no such wish (it is Linux that does), a
program lives as long as it likes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

# Between the start of this process and its wish the parent may have died: then it is another one.
_PROGRAM: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def bound_to_us(command: Sequence[str]) -> list[str]:
    """Return a command that becomes another one, and ends at once when this process does.

    The thread that starts it must live as long as it, because that is what Linux looks at.
    """
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), *command]


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that ended and was not asked about yet does not."""
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")
