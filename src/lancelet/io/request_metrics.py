"""What all stores of the process were asked for, by operation and scheme, for collectors.

    lance_object_store_requests_total             {operation: get, base: s3}   12
    lance_object_store_request_bytes_total        {operation: get, base: s3}   9000
    lance_object_store_request_duration_seconds   {operation: get, base: s3}   0.005: 3, 0.01: 11

Nothing is counted until somebody asks for it, and then requests of the stores that are opened
from then on. Names and units are those of pylance.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable
from dataclasses import field
from typing import Final, TypeVar

from lancelet.errors import ObjectNotFoundError
from lancelet.io.fork import renew_after_fork
from lancelet.io.store import Store
from lancelet.io.wrapped import Request, WrappedStore, answer_bytes
from lancelet.values import dataclass

T = TypeVar("T")

_OPERATIONS: Final = {
    "read": "get",
    "read_together": "get",
    "read_ranges": "get",
    "read_tail": "get",
    "info": "head",
    "list": "list",
    "list_delimited": "list",
    "put": "put",
    "put_if_absent": "put",
    "write": "put",
    "close_writer": "put",
    "copy": "copy",
    "rename_if_absent": "rename",
    "delete": "delete",
    "delete_many": "delete",
    "delete_folder": "delete",
    "remove_if_empty": "delete",
    "sweep_temporaries": "delete",
}
_BOUNDS: Final = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
    *(20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 150.0, 180.0, 240.0, 300.0),
)
_BOUND_NAMES: Final = (*(f"{bound:g}" for bound in _BOUNDS), "+Inf")
_PREFIX: Final = "lance_object_store_"
_REQUESTS: Final = f"{_PREFIX}requests_total"
_BYTES: Final = f"{_PREFIX}request_bytes_total"
_ERRORS: Final = f"{_PREFIX}errors_total"
_SECONDS: Final = f"{_PREFIX}request_duration_seconds"
_IN_FLIGHT: Final = f"{_PREFIX}in_flight_requests"


@dataclass(frozen=True, slots=True)
class MetricDescription:
    """What a metric counts: its kind is `counter`, `gauge` or `histogram`."""

    name: str
    kind: str
    unit: str | None
    description: str


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """What a metric is now for some attributes: a value, or how many values were under bounds."""

    name: str
    attributes: dict[str, str]
    value: float | None = None
    buckets: list[tuple[str, int]] | None = None
    count: int | None = None
    sum: float | None = None


CATALOG: Final = (
    MetricDescription(_REQUESTS, "counter", None, "Requests of stores, by operation and scheme."),
    MetricDescription(_BYTES, "counter", "B", "Bytes moved by requests, by operation and scheme."),
    MetricDescription(_ERRORS, "counter", None, "Requests that failed, by operation and scheme."),
    MetricDescription(_SECONDS, "histogram", "s", "How long requests took, in seconds."),
    MetricDescription(_IN_FLIGHT, "gauge", None, "Requests that are under way."),
    MetricDescription(
        f"{_PREFIX}retryable_responses_total",
        "counter",
        None,
        "Answers after which a request is tried again, by scheme.",
    ),
    MetricDescription(
        f"{_PREFIX}throttle_total", "counter", None, "Answers that ask to slow down, by scheme."
    ),
)
"""All metrics that there are."""


@dataclass(slots=True)
class _Series:
    """The counts of one operation on one kind of store."""

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    under: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))


class RequestMetrics:
    """Counts of requests; there is one for the process."""

    def __init__(self) -> None:
        """Count nothing until `install`."""
        self.is_installed = False
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], _Series] = {}
        renew_after_fork(self, RequestMetrics._renew)

    def install(self) -> bool:
        """Begin to count; the answer is True, as nothing else can be in the way."""
        self.is_installed = True
        return True

    def watched(self, store: Store, scheme: str) -> Store:
        """Return a store whose requests are counted, if anybody asked for it."""
        return WrappedStore(store, _Watch(self, scheme)) if self.is_installed else store

    def points(self) -> list[MetricPoint]:
        """Return what was counted so far."""
        with self._lock:
            return [point for key, series in self._series.items() for point in _points(key, series)]

    def begin(self, key: tuple[str, str]) -> None:
        """Count a request that starts."""
        with self._lock:
            self._series.setdefault(key, _Series()).in_flight += 1

    def end(self, key: tuple[str, str], seconds: float, moved: int, *, failed: bool) -> None:
        """Count a request that ended."""
        with self._lock:
            series = self._series[key]
            series.in_flight -= 1
            series.requests += 1
            series.bytes += moved
            series.errors += failed
            series.seconds += seconds
            series.under[bisect.bisect_left(_BOUNDS, seconds)] += 1

    def _renew(self) -> None:
        self._lock = threading.Lock()


REQUEST_METRICS: Final = RequestMetrics()
"""What the stores of this process were asked for."""


@dataclass(frozen=True, slots=True)
class _Watch:
    """Counts the requests of one store."""

    metrics: RequestMetrics
    scheme: str

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request and count it."""
        operation = _OPERATIONS.get(request.operation)
        if operation is None:
            return action()
        key = operation, self.scheme
        started = time.perf_counter()
        self.metrics.begin(key)
        moved, failed = 0, True
        try:
            answer = action()
            moved = request.written_bytes or (answer_bytes(answer) if operation == "get" else 0)
            failed = False
        except ObjectNotFoundError:
            failed = False  # an answer like any other
            raise
        finally:
            self.metrics.end(key, time.perf_counter() - started, moved, failed=failed)
        return answer


def _points(key: tuple[str, str], series: _Series) -> list[MetricPoint]:
    attributes = {"operation": key[0], "base": key[1]}
    counts: list[tuple[str, float]] = [(_REQUESTS, series.requests), (_IN_FLIGHT, series.in_flight)]
    counts += [(_BYTES, series.bytes)] if series.bytes else []
    counts += [(_ERRORS, series.errors)] if series.errors else []
    cumulative, buckets = 0, []
    for bound, count in zip(_BOUND_NAMES, series.under, strict=True):
        cumulative += count
        buckets.append((bound, cumulative))
    return [
        *(MetricPoint(name, attributes, float(value)) for name, value in counts),
        MetricPoint(_SECONDS, attributes, None, buckets, series.requests, series.seconds),
    ]
