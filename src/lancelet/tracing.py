"""Tracing of dataset and file events. Mirrors the pylance module of this name.

The functions are:

    capture_trace_events(print)          calls a function for each event
    trace_to_chrome(file="trace.json")   a file for Perfetto or chrome://tracing
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lancelet import surroundings
from lancelet.io.trace_events import EVENT_SINKS, Span, TraceEvent

__all__ = ["TraceEvent", "capture_trace_events", "trace_to_chrome"]

_MICROSECONDS: Final = 1_000_000


def capture_trace_events(callback: Callable[[TraceEvent], None]) -> None:
    """Call a function for each event from now on.

    A separate thread calls the function shortly after each event, so the call times are not exact.
    Pending events are delivered before the program ends.
    """
    events: queue.SimpleQueue[TraceEvent | None] = queue.SimpleQueue()

    def deliver() -> None:
        while (event := events.get()) is not None:
            callback(event)

    thread = surroundings.start_thread(deliver, "lancelet-trace")

    def finish() -> None:
        events.put(None)
        thread.join()

    atexit.register(finish)
    EVENT_SINKS.add(events.put)


def trace_to_chrome(*, file: str | None = None) -> None:
    """Write events and requests to a file, which is complete when the program ends.

    Args:
        file: The path; by default `trace-` with the time in microseconds, in the current
            folder.
    """
    path = Path(f"trace-{int(surroundings.time() * _MICROSECONDS)}.json" if file is None else file)
    _ChromeFile(path)


class _ChromeFile:
    """A file in Chrome's trace event format: an array with one object per event."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self._file = path.open("w", encoding="utf-8")
        name = {"ph": "M", "name": "process_name", "pid": os.getpid(), "args": {"name": "lancelet"}}
        self._file.write("[\n" + json.dumps(name))
        atexit.register(self._finish)
        EVENT_SINKS.add(self._add_event, self._add_span)

    def _add_event(self, event: TraceEvent) -> None:
        name = event.args.get("event", event.target)
        self._add({"ph": "i", "s": "t", "name": name, "cat": event.target, "args": event.args})

    def _add_span(self, span: Span) -> None:
        self._add(
            {
                "ph": "X",
                "name": span.name,
                "cat": "lance::io",
                "dur": span.seconds * _MICROSECONDS,
                "args": {"path": span.path},
            },
            span.started,
        )

    def _add(self, entry: dict[str, Any], moment: float | None = None) -> None:
        moment = time.perf_counter() if moment is None else moment
        where = {"pid": os.getpid(), "tid": threading.get_native_id()}
        line = json.dumps({**entry, **where, "ts": (moment - self._started) * _MICROSECONDS})
        with self._lock:
            if not self._file.closed:
                self._file.write(",\n" + line)

    def _finish(self) -> None:
        with self._lock:
            self._file.write("\n]\n")
            self._file.close()
