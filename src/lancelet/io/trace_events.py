"""Trace events of datasets and files.

    lance::dataset_events   event=loading uri=t.lance
    lance::file_audit       mode=create type=data path=0a1b.lance
    lance::dataset_events   event=committed read_version=0 committed_version=1 operation=Overwrite

No events are emitted until a sink is added. File events cover stores that are opened afterwards.
Targets and arguments are those of pylance.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from lancelet import surroundings
from lancelet.about import __version__
from lancelet.io.store import Store
from lancelet.io.wrapped import Request, WrappedStore
from lancelet.values import dataclass

T = TypeVar("T")

DATASET_EVENTS: Final = "lance::dataset_events"
FILE_AUDIT: Final = "lance::file_audit"
_CREATES: Final = frozenset({"put", "put_if_absent", "close_writer", "rename_if_absent"})
_DELETES: Final = frozenset({"delete"})
_TYPES: Final = (("data/", "data"), ("_deletions/", "deletion"), ("_versions/", "manifest"))
_SUFFIXES: Final = (".lance", ".arrow", ".bin", ".manifest", ".blob")
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event of a dataset or file.

    Attributes:
        target: The category of the event.
        args: The arguments of the event as strings.
    """

    target: str
    args: dict[str, str]


@dataclass(frozen=True, slots=True)
class Span:
    """A completed request with its start and duration, in seconds of `time.perf_counter`."""

    name: str
    path: str
    started: float
    seconds: float


class EventSinks:
    """The registered sinks of events and spans."""

    def __init__(self) -> None:
        """Start without sinks."""
        self._event_sinks: list[Callable[[TraceEvent], None]] = []
        self._span_sinks: list[Callable[[Span], None]] = []

    def add(
        self,
        on_event: Callable[[TraceEvent], None],
        on_span: Callable[[Span], None] | None = None,
    ) -> None:
        """Register a sink for events and optionally one for spans of requests."""
        self._event_sinks.append(on_event)
        if on_span is not None:
            self._span_sinks.append(on_span)

    def clear(self) -> None:
        """Remove all sinks; wrapped stores remain wrapped but emit nothing."""
        self._event_sinks.clear()
        self._span_sinks.clear()

    def emit(self, target: str, **args: object) -> None:
        """Emit an event to all sinks."""
        if not self._event_sinks:
            return
        fields = {name: str(value) for name, value in args.items()}
        fields["timestamp"] = str(int(surroundings.time() * _MICROSECONDS))
        fields["client_version"] = __version__
        event = TraceEvent(target, fields)
        for sink in self._event_sinks:
            sink(event)

    def emit_span(self, span: Span) -> None:
        """Emit the span of a completed request."""
        for sink in self._span_sinks:
            sink(span)

    def wrap(self, store: Store) -> Store:
        """Return a store that emits events, or the store itself without sinks."""
        return WrappedStore(store, _Interceptor(self)) if self._event_sinks else store


EVENT_SINKS: Final = EventSinks()
"""The sinks of this process."""


@dataclass(frozen=True, slots=True)
class _Interceptor:
    """Emits the events and spans of the requests of a store."""

    sinks: EventSinks

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request, and emit its span and event if it succeeds."""
        started = time.perf_counter()
        result = action()
        seconds = time.perf_counter() - started
        self.sinks.emit_span(Span(request.operation, request.path, started, seconds))
        mode = "create" if request.operation in _CREATES else None
        mode = "delete" if request.operation in _DELETES else mode
        kind = next((kind for folder, kind in _TYPES if request.path.startswith(folder)), None)
        if mode is not None and kind is not None and request.path.endswith(_SUFFIXES):
            name = request.path.rpartition("/")[2]
            self.sinks.emit(FILE_AUDIT, mode=mode, type=kind, path=name)
        return result
