"""A terminal progress bar for jobs.

    compact   [############........]  12/20  14.2 s

Pass an instance as the `progress` of any job, local or on a cluster.
"""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

from lancelet.jobs.engine import Progress

_WIDTH: Final = 20


class TerminalBar:
    """Shows the progress of each phase on a separate line."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Write to a stream, by default stderr."""
        self._stream = stream or sys.stderr
        self._phase: str | None = None
        self._started = 0.0

    def __call__(self, progress: Progress) -> None:
        """Show the progress of a phase."""
        if progress.phase != self._phase:
            self._phase, self._started = progress.phase, time.perf_counter()
        seconds = time.perf_counter() - self._started
        is_last = progress.done >= progress.total > 0
        self._stream.write("\r" + format_line(progress, seconds) + ("\n" if is_last else ""))
        self._stream.flush()
        if is_last:
            self._phase = None


def format_line(progress: Progress, seconds: float) -> str:
    """Return the line to show; without a bar if the number of tasks is unknown.

    >>> format_line(Progress("compact", 12, 20), 14.2)
    'compact   [############........]  12/20  14.2 s'
    """
    if not progress.total:
        return f"{progress.phase:10}{progress.done} tasks  {seconds:.1f} s"
    filled = _WIDTH * progress.done // progress.total
    bar = "#" * filled + "." * (_WIDTH - filled)
    return f"{progress.phase:10}[{bar}]  {progress.done}/{progress.total}  {seconds:.1f} s"
