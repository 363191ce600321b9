"""What happens to datasets and files, told to whoever listens.

    lance::dataset_events   event=loading uri=t.lance
    lance::file_audit       mode=create type=data path=0a1b.lance
    lance::dataset_events   event=committed read_version=0 committed_version=1 operation=Overwrite

Nothing is told until somebody listens; files are those of stores that are opened from then on.
Targets and arguments are those of pylance.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

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
    """Something that happened.

    Attributes:
        target: What kind of event it is.
        args: What is known of it, as text.
    """

    target: str
    args: dict[str, str]


@dataclass(frozen=True, slots=True)
class Span:
    """A request with when it began and how long it took, in seconds of `time.perf_counter`."""

    name: str
    path: str
    started: float
    seconds: float


class Listeners:
    """Those who listen; there is one list for the process."""

    def __init__(self) -> None:
        """Tell nobody."""
        self._events: list[Callable[[TraceEvent], None]] = []
        self._spans: list[Callable[[Span], None]] = []

    def add(
        self,
        on_event: Callable[[TraceEvent], None],
        on_span: Callable[[Span], None] | None = None,
    ) -> None:
        """Tell somebody of events from now on, and of requests if that is asked for."""
        self._events.append(on_event)
        if on_span is not None:
            self._spans.append(on_span)

    def forget(self) -> None:
        """Tell nobody any more; stores that are watched stay so, and have nobody to tell."""
        self._events.clear()
        self._spans.clear()

    def tell(self, target: str, **args: object) -> None:
        """Tell of an event."""
        if not self._events:
            return
        said = {name: str(value) for name, value in args.items()}
        said["timestamp"] = str(int(time.time() * _MICROSECONDS))
        said["client_version"] = __version__
        event = TraceEvent(target, said)
        for listener in self._events:
            listener(event)

    def tell_of_request(self, span: Span) -> None:
        """Tell of a request that ended."""
        for listener in self._spans:
            listener(span)

    def watched(self, store: Store) -> Store:
        """Return a store whose files are told of, if anybody listens."""
        return WrappedStore(store, _Watch(self)) if self._events else store


LISTENERS: Final = Listeners()
"""Those who listen in this process."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Tells of the requests of one store."""

    listeners: Listeners

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request and tell of it if it succeeded."""
        started = time.perf_counter()
        answer = action()
        seconds = time.perf_counter() - started
        self.listeners.tell_of_request(Span(request.operation, request.path, started, seconds))
        mode = "create" if request.operation in _CREATES else None
        mode = "delete" if request.operation in _DELETES else mode
        kind = next((kind for folder, kind in _TYPES if request.path.startswith(folder)), None)
        if mode is not None and kind is not None and request.path.endswith(_SUFFIXES):
            name = request.path.rpartition("/")[2]
            self.listeners.tell(FILE_AUDIT, mode=mode, type=kind, path=name)
        return answer
