"""Storage metrics for OpenTelemetry. Mirrors the pylance module of this name.

    instrument_lance_metrics(meter_provider)      starts collecting requests, bytes and times

Requires the package `opentelemetry-api`. Histograms are exported as buckets, counts and sums,
because observable instruments do not support histograms.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lancelet.errors import UnsupportedError
from lancelet.io.request_metrics import CATALOG, REQUEST_METRICS, MetricDescription, MetricPoint
from lancelet.lance.functions import register_lance_metrics_recorder

__all__ = ["instrument_lance_metrics"]

_Values = Iterable[tuple[float, dict[str, str]]]
_done: set[str] = set()


class OpenTelemetryMissingError(UnsupportedError, ImportError):
    """The package for metrics is not installed."""


def instrument_lance_metrics(meter_provider: Any = None) -> bool:
    """Register the storage metrics with an OpenTelemetry meter provider.

    Args:
        meter_provider: The provider, by default the global one.

    Returns:
        Whether metrics are collected; they are registered once per process.
    """
    try:
        from opentelemetry import metrics  # type: ignore[attr-defined, import-not-found, unused-ignore]  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise OpenTelemetryMissingError(
            "instrument_lance_metrics requires OpenTelemetry: install `opentelemetry-sdk`"
        ) from error
    if not register_lance_metrics_recorder():
        warnings.warn("another recorder of metrics is installed in this process", stacklevel=2)
        return False
    if _done:
        return True
    meter = (meter_provider or metrics.get_meter_provider()).get_meter("lance")
    for each in CATALOG:
        _register(meter, each, metrics.Observation)
        _done.add(each.name)
    return True


def _register(meter: Any, metric: MetricDescription, observation: Any) -> None:
    def callback(values: Callable[[MetricPoint], _Values]) -> Callable[[Any], Iterator[Any]]:
        def observe(_options: Any) -> Iterator[Any]:
            for point in REQUEST_METRICS.points():
                if point.name == metric.name:
                    for value, attributes in values(point):
                        yield observation(value, attributes)

        return observe

    unit, description = metric.unit or "", metric.description
    if metric.kind == "gauge":
        meter.create_observable_gauge(metric.name, [callback(_value)], unit, description)
    elif metric.kind == "counter":
        meter.create_observable_counter(metric.name, [callback(_value)], unit, description)
    else:
        for name, values, own in (
            ("bucket", _buckets, ""),
            ("count", _count, ""),
            ("sum", _sum, unit),
        ):
            meter.create_observable_counter(
                f"{metric.name}_{name}", [callback(values)], own, f"{description} ({name})"
            )


def _value(point: MetricPoint) -> _Values:
    return [] if point.value is None else [(point.value, point.attributes)]


def _buckets(point: MetricPoint) -> _Values:
    return [(count, {**point.attributes, "le": bound}) for bound, count in point.buckets or ()]


def _count(point: MetricPoint) -> _Values:
    return [] if point.count is None else [(point.count, point.attributes)]


def _sum(point: MetricPoint) -> _Values:
    return [] if point.sum is None else [(point.sum, point.attributes)]
