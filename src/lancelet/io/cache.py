"""One budget of memory for everything that is kept: metadata, page heads, index parts.

The least recently used goes first. Keys say what a value is (`kind`) and whose; whoever puts a
value says what it weighs, and what weighs more than an eighth of the budget is not kept, so that
one giant cannot push out everything else.

    budget 100    put a 10, put b 10, get a, ... put z 10     b is the first to go

`get_or_load` loads a value once for all threads that want it at the same time. A load that fails
fails for the thread that ran it; the others try for themselves.

What is kept must never become wrong. Objects of a dataset are never changed in place, but a
dataset may be deleted and written again under the same name, so bytes of objects are kept by
their entity tag (`read_cached`), not by their name alone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from lancelet.config import CACHE_BYTES
from lancelet.io.fork import renew_after_fork
from lancelet.io.store import ObjectInfo, Store

T = TypeVar("T")

_ENTRY_BYTES: Final = 200
"""What the bookkeeping of an entry weighs, about."""

_LARGEST_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What the cache holds and how well it works."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    budget_bytes: int


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    weight: int


class _Load:
    """A load in progress, for other threads to wait for."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.entry: _Entry | None = None


class Cache:
    """A least-recently-used cache with a budget in bytes, for any number of threads.

    >>> cache = Cache(budget_bytes=10_000)
    >>> cache.put("key", [1, 2], value_bytes=16)
    >>> cache.get("key"), cache.get("other")
    ([1, 2], None)
    """

    def __init__(self, budget_bytes: int) -> None:
        """Start empty; a budget of zero keeps nothing."""
        self._budget_bytes = budget_bytes
        self._hits = self._misses = self._evictions = 0
        self._empty()
        renew_after_fork(self, Cache._empty)

    @property
    def stats(self) -> CacheStats:
        """What the cache holds and how well it works."""
        with self._lock:
            return CacheStats(
                self._hits,
                self._misses,
                self._evictions,
                len(self._entries),
                self._bytes,
                self._budget_bytes,
            )

    def get(self, key: Hashable) -> Any | None:
        """Return what is kept under a key, or None."""
        with self._lock:
            entry = self._look_up(key)
        return None if entry is None else entry.value

    def put(self, key: Hashable, value: object, *, value_bytes: int) -> None:
        """Keep a value if the budget allows, in place of what had the key."""
        entry = _Entry(value, value_bytes + _ENTRY_BYTES)
        with self._lock:
            dropped = self._keep(key, entry)
        # What was dropped dies here, outside of the lock, since its end may run any code.
        del dropped

    def get_or_load(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """Return what is kept under a key, or else what `load` returns with its weight in bytes."""
        while True:
            with self._lock:
                entry = self._look_up(key)
                if entry is not None:
                    return cast("T", entry.value)
                running = self._loads.get(key)
                if running is None:
                    running = self._loads[key] = _Load()
                    break
            if running.thread == threading.get_ident():
                # A load that needs itself is a mistake of its author, but must not wait for ever.
                return load()[0]
            running.done.wait()
            if running.entry is not None:
                return cast("T", running.entry.value)
        return self._run(key, load, running)

    def discard(self, is_unwanted: Callable[[Hashable], bool]) -> None:
        """Drop every entry whose key is unwanted."""
        with self._lock:
            keys = [key for key in self._entries if is_unwanted(key)]
            dropped = [self._entries.pop(key) for key in keys]
            self._bytes -= sum(entry.weight for entry in dropped)

    def clear(self) -> None:
        """Drop everything."""
        self.discard(lambda _: True)

    def resize(self, budget_bytes: int) -> None:
        """Change the budget, and drop what no longer fits."""
        with self._lock:
            self._budget_bytes = budget_bytes
            dropped = self._evict()
        del dropped

    def _run(self, key: Hashable, load: Callable[[], tuple[T, int]], running: _Load) -> T:
        try:
            value, value_bytes = load()
            running.entry = _Entry(value, value_bytes + _ENTRY_BYTES)
            self.put(key, value, value_bytes=value_bytes)
        finally:
            with self._lock:
                self._loads.pop(key, None)
            running.done.set()
        return value

    def _look_up(self, key: Hashable) -> _Entry | None:
        entry = self._entries.get(key)
        if entry is None:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return entry

    def _keep(self, key: Hashable, entry: _Entry) -> list[_Entry]:
        dropped = []
        if (old := self._entries.pop(key, None)) is not None:
            self._bytes -= old.weight
            dropped.append(old)
        if entry.weight <= self._budget_bytes // _LARGEST_SHARE:
            self._entries[key] = entry
            self._bytes += entry.weight
        return dropped + self._evict()

    def _evict(self) -> list[_Entry]:
        dropped = []
        while self._bytes > self._budget_bytes:
            _, entry = self._entries.popitem(last=False)
            self._bytes -= entry.weight
            self._evictions += 1
            dropped.append(entry)
        return dropped

    def _empty(self) -> None:
        """Start over; in a forked child another thread may have been half-way through."""
        self._lock = threading.RLock()
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._loads: dict[Hashable, _Load] = {}
        self._bytes = 0


CACHE: Final = Cache(CACHE_BYTES)
"""The cache of this process."""


def read_cached(store: Store, info: ObjectInfo, *, cache: Cache = CACHE) -> bytes:
    """Return all bytes of an object that was listed, from the cache when it is unchanged.

    Objects without an entity tag are read each time.
    """
    if info.etag is None:
        return store.read(info.path)

    def load() -> tuple[bytes, int]:
        data = store.read(info.path)
        return data, len(data)

    return cache.get_or_load(("object", store.uri, info.path, info.etag, info.size), load)
