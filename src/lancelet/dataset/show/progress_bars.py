"""Progress bars with rich or tqdm, or progress as lines of text.

    write rows: 120000, 1.0 s
    compact fragments: 3 of 12, 2.4 s

All are written to stderr, so the output of the program remains unchanged.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from lancelet import surroundings

if TYPE_CHECKING:
    from lancelet.dataset.show.progress import IndexProgress

_LINE_EVERY_SECONDS = 1.0


class Bars(Protocol):
    """Displays the progress of stages."""

    def __call__(self, event: IndexProgress) -> None:
        """Display an event."""

    def close(self) -> None:
        """Do nothing."""


def new_bars() -> Bars:
    """Return bars of the first installed library: rich, tqdm, or text.

    In notebooks, both libraries display bars with ipywidgets; without it, text is printed.
    """
    is_notebook = "ipykernel" in sys.modules
    if is_notebook and importlib.util.find_spec("ipywidgets") is None:
        return TextLines(sys.stderr)
    if importlib.util.find_spec("rich") is not None:
        return RichBars()
    if importlib.util.find_spec("tqdm") is not None:
        return TqdmBars()
    return TextLines(sys.stderr)


class RichBars:
    """Progress bars of rich, in a terminal or a notebook."""

    def __init__(self) -> None:
        """Create an empty display."""
        from rich import progress  # noqa: PLC0415 - optional
        from rich.console import Console  # noqa: PLC0415 - optional

        self._shown = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.MofNCompleteColumn(),
            progress.TimeElapsedColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[str, Any] = {}

    def __call__(self, event: IndexProgress) -> None:
        """Display an event."""
        if not self._tasks:
            self._shown.start()
        if event.stage not in self._tasks:
            self._tasks[event.stage] = self._shown.add_task(event.stage, total=None)
        done, total = event.completed or 0, event.total or None
        self._shown.update(self._tasks[event.stage], completed=done, total=total)

    def close(self) -> None:
        """Do nothing."""
        if self._tasks:
            self._shown.stop()


class TqdmBars:
    """Progress bars of tqdm, in a terminal or a notebook."""

    def __init__(self) -> None:
        """Create an empty display."""
        self._bars: dict[str, Any] = {}

    def __call__(self, event: IndexProgress) -> None:
        """Display an event."""
        bar = self._bars.get(event.stage)
        if bar is None:
            from tqdm.auto import tqdm  # noqa: PLC0415 - optional

            bar = self._bars[event.stage] = tqdm(desc=event.stage)
        bar.total = event.total or None
        bar.update((event.completed or 0) - bar.n)

    def close(self) -> None:
        """Do nothing."""
        for bar in self._bars.values():
            bar.close()


class TextLines:
    """One line per completed stage, and one per second for running stages."""

    def __init__(self, stream: TextIO) -> None:
        """Write to a stream."""
        self._stream = stream
        self._started: dict[str, float] = {}
        self._last = surroundings.monotonic()
        self._ended: set[str] = set()

    def __call__(self, event: IndexProgress) -> None:
        """Display an event."""
        now = surroundings.monotonic()
        started = self._started.setdefault(event.stage, now)
        is_last = bool(event.total) and event.completed == event.total
        if event.stage in self._ended or not (is_last or now - self._last >= _LINE_EVERY_SECONDS):
            return
        self._last = now
        if is_last:
            self._ended.add(event.stage)
        total = f" of {event.total}" if event.total else ""
        seconds = f"{now - started:.1f} s"
        print(f"{event.stage}: {event.completed or 0}{total}, {seconds}", file=self._stream)

    def close(self) -> None:
        """Do nothing."""
