"""Metrics of the storage requests of the process, by operation and scheme.

    lance_object_store_requests_total             {operation: get, base: s3}   12
    lance_object_store_request_bytes_total        {operation: get, base: s3}   9000
    lance_object_store_request_duration_seconds   {operation: get, base: s3}   0.005: 3, 0.01: 11

Metrics are disabled until `RequestMetrics.install` is called, and cover stores opened afterwards.
Names and units are those of pylance.
"""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable
from dataclasses import field
from typing import Final, TypeVar

from lancelet.errors import ObjectNotFoundError
from lancelet.io.fork import reset_after_fork
from lancelet.io.store import Store
from lancelet.io.wrapped import Request, WrappedStore, result_bytes
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
    """The description of a metric of kind `counter`, `gauge` or `histogram`."""

    name: str
    kind: str
    unit: str | None
    description: str


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """The current value of a metric, or the cumulative bucket counts of a histogram."""

    name: str
    attributes: dict[str, str]
    value: float | None = None
    buckets: list[tuple[str, int]] | None = None
    count: int | None = None
    sum: float | None = None


CATALOG: Final = (
    MetricDescription(_REQUESTS, "counter", None, "Storage requests, by operation and scheme."),
    MetricDescription(
        _BYTES, "counter", "B", "Bytes transferred by requests, by operation and scheme."
    ),
    MetricDescription(_ERRORS, "counter", None, "Failed requests, by operation and scheme."),
    MetricDescription(_SECONDS, "histogram", "s", "Duration of requests in seconds."),
    MetricDescription(_IN_FLIGHT, "gauge", None, "Requests in flight."),
    MetricDescription(
        f"{_PREFIX}retryable_responses_total",
        "counter",
        None,
        "Responses that cause a retry, by scheme.",
    ),
    MetricDescription(
        f"{_PREFIX}throttle_total", "counter", None, "Throttling responses, by scheme."
    ),
)
"""All metrics."""


@dataclass(slots=True)
class _Series:
    """The counts of one operation and scheme."""

    requests: int = 0
    bytes: int = 0
    errors: int = 0
    in_flight: int = 0
    seconds: float = 0.0
    bucket_counts: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS) + 1))


class RequestMetrics:
    """Counts the requests of the process."""

    def __init__(self) -> None:
        """Create disabled metrics."""
        self.is_installed = False
        self._lock = threading.Lock()
        self._series: dict[tuple[str, str], _Series] = {}
        reset_after_fork(self, RequestMetrics._reset)

    def install(self) -> bool:
        """Enable the metrics and return True, as pylance does on success."""
        self.is_installed = True
        return True

    def wrap(self, store: Store, scheme: str) -> Store:
        """Return a store that counts requests, or the store itself if metrics are disabled."""
        return WrappedStore(store, _Interceptor(self, scheme)) if self.is_installed else store

    def points(self) -> list[MetricPoint]:
        """Return the current values of all metrics."""
        with self._lock:
            return [point for key, series in self._series.items() for point in _points(key, series)]

    def begin(self, key: tuple[str, str]) -> None:
        """Count the start of a request."""
        with self._lock:
            self._series.setdefault(key, _Series()).in_flight += 1

    def end(self, key: tuple[str, str], seconds: float, num_bytes: int, *, failed: bool) -> None:
        """Count the end of a request."""
        with self._lock:
            series = self._series[key]
            series.in_flight -= 1
            series.requests += 1
            series.bytes += num_bytes
            series.errors += failed
            series.seconds += seconds
            series.bucket_counts[bisect.bisect_left(_BOUNDS, seconds)] += 1

    def _reset(self) -> None:
        self._lock = threading.Lock()


REQUEST_METRICS: Final = RequestMetrics()
"""The request metrics of this process."""


@dataclass(frozen=True, slots=True)
class _Interceptor:
    """Counts the requests of one store."""

    metrics: RequestMetrics
    scheme: str

    def request(self, request: Request, action: Callable[[], T]) -> T:
        """Run a request and count it."""
        operation = _OPERATIONS.get(request.operation)
        if operation is None:
            return action()
        key = operation, self.scheme
        start = time.perf_counter()
        self.metrics.begin(key)
        num_bytes, failed = 0, True
        try:
            result = action()
            num_bytes = request.written_bytes or (result_bytes(result) if operation == "get" else 0)
            failed = False
        except ObjectNotFoundError:
            failed = False  # A missing object is a valid response.
            raise
        finally:
            self.metrics.end(key, time.perf_counter() - start, num_bytes, failed=failed)
        return result


def _points(key: tuple[str, str], series: _Series) -> list[MetricPoint]:
    attributes = {"operation": key[0], "base": key[1]}
    counts: list[tuple[str, float]] = [(_REQUESTS, series.requests), (_IN_FLIGHT, series.in_flight)]
    counts += [(_BYTES, series.bytes)] if series.bytes else []
    counts += [(_ERRORS, series.errors)] if series.errors else []
    cumulative, buckets = 0, []
    for bound, count in zip(_BOUND_NAMES, series.bucket_counts, strict=True):
        cumulative += count
        buckets.append((bound, cumulative))
    return [
        *(MetricPoint(name, attributes, float(value)) for name, value in counts),
        MetricPoint(_SECONDS, attributes, None, buckets, series.requests, series.seconds),
    ]
