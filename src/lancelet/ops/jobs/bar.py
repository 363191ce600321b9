"""A bar on the terminal that shows how far a job is.

    compact   [############........]  12/20  14.2 s

Pass one as the `progress` of any job, on this machine or on a cluster.
"""

from __future__ import annotations

import sys
import time
from typing import Final, TextIO

from lancelet.ops.jobs.engine import Progress

_WIDTH: Final = 20


class TerminalBar:
    """Draws the progress of one phase after another, each on a line of its own."""

    def __init__(self, stream: TextIO | None = None) -> None:
        """Draw on a stream, by default where errors go."""
        self._stream = stream or sys.stderr
        self._phase: str | None = None
        self._started = 0.0

    def __call__(self, progress: Progress) -> None:
        """Draw how far a phase is."""
        if progress.phase != self._phase:
            self._phase, self._started = progress.phase, time.monotonic()
        seconds = time.monotonic() - self._started
        is_last = progress.done >= progress.total > 0
        self._stream.write("\r" + line_of(progress, seconds) + ("\n" if is_last else ""))
        self._stream.flush()
        if is_last:
            self._phase = None


def line_of(progress: Progress, seconds: float) -> str:
    """Return the line that is drawn; how many tasks there are is not always known.

    >>> line_of(Progress("compact", 12, 20), 14.2)
    'compact   [############........]  12/20  14.2 s'
    """
    if not progress.total:
        return f"{progress.phase:10}{progress.done} tasks  {seconds:.1f} s"
    filled = _WIDTH * progress.done // progress.total
    bar = "#" * filled + "." * (_WIDTH - filled)
    return f"{progress.phase:10}[{bar}]  {progress.done}/{progress.total}  {seconds:.1f} s"
