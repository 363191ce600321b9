import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancelet.config import CACHE_BYTES
from lancelet.io.cache import _ENTRY_BYTES, CACHE, INDEX, LruCache, estimate_bytes

steps = st.lists(
    st.tuples(st.sampled_from(["get", "put"]), st.integers(0, 8), st.integers(0, 2000)),
    max_size=60,
)


@given(steps, st.integers(0, 12_000))
def test_cache_is_a_bounded_least_recently_used_map(steps, budget):
    """Against a plain list, most recent last."""
    cache = LruCache(budget)
    model: list[tuple[int, int]] = []
    for what, key, weight in steps:
        kept = next((entry for entry in model if entry[0] == key), None)
        if what == "get":
            assert cache.get(key) == (None if kept is None else ("value", *kept))
            if kept is not None:
                model.remove(kept)
                model.append(kept)
            continue
        cache.put(key, ("value", key, weight), value_bytes=weight)
        if kept is not None:
            model.remove(kept)
        if weight + _ENTRY_BYTES <= budget // 2:
            model.append((key, weight))
        while sum(weight + _ENTRY_BYTES for _, weight in model) > budget:
            model.pop(0)
    assert cache.stats.bytes == sum(weight + _ENTRY_BYTES for _, weight in model) <= budget
    assert cache.stats.entries == len(model)


def test_stats_count_hits_misses_and_evictions():
    cache = LruCache(8 * (_ENTRY_BYTES + 100))
    for key in range(10):
        cache.put(key, key, value_bytes=100)
    assert cache.get(0) is None
    assert cache.get(9) == 9
    stats = cache.stats
    assert (stats.hits, stats.misses, stats.evictions, stats.entries) == (1, 1, 2, 8)
    assert stats.budget_bytes == 8 * (_ENTRY_BYTES + 100)


def test_value_is_loaded_once_for_all_threads():
    cache = LruCache(10_000)
    started = threading.Barrier(8)
    loads: list[int] = []

    def load() -> tuple[str, int]:
        loads.append(1)
        time.sleep(0.05)
        return "value", 5

    def want(_: int) -> str:
        started.wait()
        return cache.get_or_load("key", load)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(want, range(8))) == ["value"] * 8
    assert len(loads) == 1


def test_value_too_large_to_keep_is_still_shared_and_returned():
    cache = LruCache(0)
    assert cache.get_or_load("key", lambda: (b"value", 5)) == b"value"
    assert cache.stats.entries == 0


def test_failed_load_fails_for_its_caller_and_is_tried_by_others():
    cache = LruCache(10_000)
    first_is_loading, second_may_end = threading.Event(), threading.Event()

    def fail() -> tuple[str, int]:
        first_is_loading.set()
        second_may_end.wait(5)
        raise KeyError

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_load, "key", fail)
        first_is_loading.wait(5)
        second = pool.submit(cache.get_or_load, "key", lambda: ("value", 5))
        second_may_end.set()
        assert second.result(5) == "value"
        with pytest.raises(KeyError):
            first.result(5)


def test_load_that_needs_itself_does_not_wait_for_ever():
    cache = LruCache(10_000)

    def outer() -> tuple[str, int]:
        return cache.get_or_load("key", lambda: ("inner", 1)) + "+outer", 1

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(cache.get_or_load, "key", outer).result(5) == "inner+outer"


def test_unwanted_entries_can_be_dropped():
    cache = LruCache(100_000)
    for owner in ("a", "b"):
        for number in range(3):
            cache.put((owner, number), number, value_bytes=10)
    cache.discard(lambda key: key[0] == "a")
    assert cache.get(("a", 0)) is None
    assert cache.get(("b", 0)) == 0
    cache.resize(_ENTRY_BYTES + 10)
    assert cache.stats.entries == 1
    cache.clear()
    assert cache.stats.bytes == 0


FORK_WHILE_LOCKED = """
import os
from lancelet.io.cache import LruCache

cache = LruCache(100_000)
cache.put("kept", 1, value_bytes=1)
with cache._lock:  # as if another thread were half-way through
    child = os.fork()
    if child == 0:
        fine = cache.get("kept") is None and cache.get_or_load("x", lambda: (2, 1)) == 2
        os._exit(0 if fine else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), cache.get("kept"))
"""


def test_forked_child_starts_empty_and_does_not_wait(run_program):
    assert run_program(FORK_WHILE_LOCKED) == "0 1\n"


def test_values_that_hold_scopes_go_when_a_child_starts_empty():
    cache = LruCache(10_000)
    outer, inner = cache.scope(), cache.scope()
    outer.put("inner", inner, value_bytes=1)
    for key in range(3):
        inner.put(key, b"", value_bytes=1)
    del inner
    cache._reset()
    assert outer.get("inner") is None
    outer.put("a", 1, value_bytes=1)
    assert outer.get("a") == 1


def test_process_has_one_cache_with_the_configured_budget():
    assert CACHE.stats.budget_bytes == CACHE_BYTES


class Growing:
    memory_bytes = 0


def test_growing_entries_are_reweighed_and_evicted():
    cache = LruCache(10_000)
    scope, value = cache.scope(), Growing()
    assert scope.get_or_make("a", lambda: value) is value
    value.memory_bytes = 1000
    scope.update_size("a")
    before = cache.stats.bytes - 1000
    assert 0 < before < 400
    value.memory_bytes = 2000
    for _ in range(4):
        assert scope.get("a") is value
    assert cache.stats.bytes == before + 2000
    value.memory_bytes = 9000
    scope.update_size("a")
    assert scope.get("a") is None
    assert cache.stats.bytes == 0


def test_entries_go_with_their_scope_even_if_they_refer_to_it():
    cache = LruCache(10_000)
    scope = cache.scope(INDEX)
    scope.put("a", [scope], value_bytes=100)
    cache.put("b", 1, value_bytes=100)
    assert cache.stats.index_bytes > 0
    del scope
    gc.collect()
    assert cache.stats.index_bytes == 0
    assert cache.get("b") == 1


def test_scopes_of_one_key_are_one_as_long_as_somebody_has_it():
    cache = LruCache(10_000)
    first = cache.scope_of("table")
    first.put("a", 1, value_bytes=1)
    assert cache.scope_of("table").get("a") == 1
    inner = first.nested("segment", INDEX)
    assert cache.scope_of("table").nested("segment", INDEX) is inner
    assert cache.scope().nested("segment", INDEX) is not inner
    del first
    gc.collect()
    assert cache.scope_of("table").get("a") is None


def test_kinds_have_limits_within_the_budget():
    cache = LruCache(10_000, {INDEX: 2000})
    scope, other = cache.scope(INDEX), cache.scope()
    for number in range(10):
        scope.put(number, number, value_bytes=500)
        other.put(number, number, value_bytes=500)
    assert cache.stats.index_bytes <= 2000
    assert cache.stats.bytes - cache.stats.index_bytes == 10 * (500 + _ENTRY_BYTES)
    assert scope.get(9) == 9


def test_threads_share_scopes_that_come_and_go():
    """More threads than the budget permits, with scopes that end while others are evicted."""
    cache = LruCache(50_000, {INDEX: 20_000})

    def work(seed):
        for number in range(300):
            scope = cache.scope_of((seed + number) % 5, INDEX)
            for key in range(8):
                assert scope.get_or_make(key, lambda key=key: bytes(1000 + key)) == bytes(
                    1000 + key
                )
            scope.nested("x", INDEX).put(number, number, value_bytes=700)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    gc.collect()
    stats = cache.stats
    assert (stats.entries, stats.bytes, stats.index_bytes) == (0, 0, 0)


def test_weights_include_arrays_and_their_containers():
    array = np.zeros(1000)
    for value in (array, [array], {"a": array}, (1, (array,)), pa.array(array)):
        assert 8000 <= estimate_bytes(value) < 12_000
    assert estimate_bytes(Growing()) == 0
    assert estimate_bytes(None) < 100
