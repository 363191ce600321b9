"""Counts of requests for collectors: per operation and scheme, of stores that are opened later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.errors import ObjectNotFoundError
from lancelet.io.memory import MemoryStore
from lancelet.io.request_metrics import RequestMetrics


def by_name(metrics):
    return {
        (point.name.removeprefix("lance_object_store_"), point.attributes["operation"]): point
        for point in metrics.points()
    }


def test_nothing_is_counted_before_a_request():
    metrics = RequestMetrics()
    store = MemoryStore.unnamed()
    assert metrics.wrap(store, "memory") is store
    assert metrics.points() == []


def test_requests_bytes_and_times_are_counted():
    metrics = RequestMetrics()
    assert metrics.install()
    store = metrics.wrap(MemoryStore.unnamed(), "memory")
    store.put("a", b"12345")
    with store.open_writer("b") as writer:
        writer.write(b"678")
    assert store.read("a") == b"12345"
    with pytest.raises(ObjectNotFoundError):
        store.read("missing")
    found = by_name(metrics)
    assert found["requests_total", "put"].value == 3
    assert found["request_bytes_total", "put"].value == 8
    assert found["requests_total", "get"].value == 2
    assert found["request_bytes_total", "get"].value == 5
    assert found["in_flight_requests", "get"].value == 0
    times = found["request_duration_seconds", "get"]
    assert times.count == 2
    assert times.buckets[-1] == ("+Inf", 2)
    assert times.sum > 0
    assert ("errors_total", "get") not in found


def test_a_request_that_fails_is_an_error_and_not_under_way():
    metrics = RequestMetrics()
    metrics.install()

    class Broken(MemoryStore):
        def read(self, path):
            raise OSError(path)

    store = metrics.wrap(Broken("broken"), "memory")
    with pytest.raises(OSError, match="x"):
        store.read("x")
    found = by_name(metrics)
    assert found["errors_total", "get"].value == 1
    assert found["in_flight_requests", "get"].value == 0


@given(st.lists(st.floats(0, 1000), min_size=1))
def test_buckets_are_cumulative(times):
    metrics = RequestMetrics()
    key = ("get", "file")
    for seconds in times:
        metrics.begin(key)
        metrics.end(key, seconds, 0, failed=False)
    buckets = by_name(metrics)["request_duration_seconds", "get"].buckets
    for name, count in buckets:
        bound = float("inf") if name == "+Inf" else float(name)
        assert count == sum(seconds <= bound for seconds in times)
