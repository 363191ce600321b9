"""Run child processes that end with their parent, even if the parent is killed.

    test run     starts     cluster, server, driver         each in its own session
    kill -9      no code of the test run executes any more
    Linux        kills each child, as requested with PR_SET_PDEATHSIG

Grandchildren detect the end themselves: an executor notices that its worker has ended, a JVM that
its input is closed. On systems other than Linux, children may outlive the parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

# The parent may have died before the call above; the parent id has then changed.
_PROGRAM: Final = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def bound_to_us(command: Sequence[str]) -> list[str]:
    """Return a command that runs another command and is killed when this process ends.

    The thread that starts it must outlive it, because Linux observes the parent thread.
    """
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), *command]


def is_running(pid: int) -> bool:
    """Return whether a process is running; zombies are not."""
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(command, capture_output=True, check=False, text=True).stdout
    return bool(state.strip()) and not state.startswith("Z")
