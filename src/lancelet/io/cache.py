"""The cache of a session: file metadata, parts of indices and plans within one memory budget.

The least recently used entry is evicted first. The size of an entry is given when it is added; the
size of a value with `memory_bytes` is updated while it is used, because such values grow.

    budget 100    put a 10, put b 10, get a, ... put z 10     b is evicted first

Entries belong to scopes: a table, an open index segment or an open file. They are dropped when the
scope is garbage collected, so a closed table occupies no memory. Index entries and all other
entries can each have a limit within the budget.

`get_or_load` loads a value once for all threads that request it concurrently. If a load fails, only
the thread that ran it raises; other threads retry.

Cached values must never become stale. Objects of a dataset are immutable, but a dataset may be
deleted and recreated under the same name, so a key never consists of a name alone.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, Final, TypeVar, cast

import numpy as np
import pyarrow as pa

from lancelet.config import CACHE_BYTES
from lancelet.io.fork import reset_after_fork
from lancelet.values import dataclass

T = TypeVar("T")

INDEX: Final = "index"
METADATA: Final = "metadata"
"""The two kinds of entries, which sessions can limit separately."""

_ENTRY_BYTES: Final = 200
"""Estimated overhead of an entry in bytes."""

_OBJECT_BYTES: Final = 400
_KEY_BYTES: Final = 64
"""Estimated size in bytes of a small object without `memory_bytes`."""

_DEPTH_MAX: Final = 3
"""Maximum nesting depth of size estimates."""

_UPDATE_INTERVAL: Final = 4
"""Number of uses after which the size of a value that may grow is updated."""

_LIMIT_PER_ENTRY: Final = 2
"""The largest cached entry is the limit divided by this, so one entry cannot evict all others."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Cache statistics."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    budget_bytes: int
    index_bytes: int = 0
    """The number of bytes of index entries."""


class _Entry:
    """The bookkeeping of a cached value."""

    __slots__ = ("key", "kind", "last_use", "scope", "size_bytes", "uses")

    def __init__(
        self, scope: weakref.ref[CacheScope], key: Hashable, weight: int, kind: str
    ) -> None:
        self.scope, self.key, self.size_bytes, self.kind = scope, key, weight, kind
        self.last_use = self.uses = 0


class _Load:
    """A load in progress, which other threads can wait for."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.value: Any = None
        self.is_loaded = False


class LruCache:
    """A least-recently-used cache with a budget in bytes, safe for concurrent use.

    >>> cache = LruCache(budget_bytes=10_000)
    >>> cache.put("key", [1, 2], value_bytes=16)
    >>> cache.get("key"), cache.get("other")
    ([1, 2], None)
    """

    def __init__(self, budget_bytes: int, limits: Mapping[str, int] | None = None) -> None:
        """Create an empty cache; a budget of zero disables it.

        Args:
          budget_bytes: The maximum size of all entries in bytes.
          limits: The maximum size of the entries of a kind in bytes, within the budget.
        """
        self._budget_bytes = budget_bytes
        self._limits = dict(limits or {})
        self._hits = self._misses = self._evictions = self._use_count = 0
        self._lock = threading.Lock()
        self._released: deque[dict[Hashable, _Entry]] = deque()
        self._order: dict[str, OrderedDict[_Entry, None]] = {
            INDEX: OrderedDict(),
            METADATA: OrderedDict(),
        }
        self._bytes = dict.fromkeys(self._order, 0)
        self._loads: dict[Hashable, _Load] = {}
        self._shared_scopes: weakref.WeakValueDictionary[Hashable, CacheScope] = (
            weakref.WeakValueDictionary()
        )
        self._default_scope = CacheScope(self)
        reset_after_fork(self, LruCache._reset)

    @property
    def stats(self) -> CacheStats:
        """The cache statistics."""
        with self._lock:
            self._release()
            return CacheStats(
                self._hits,
                self._misses,
                self._evictions,
                sum(map(len, self._order.values())),
                sum(self._bytes.values()),
                self._budget_bytes,
                self._bytes[INDEX],
            )

    def entry_bytes_max(self, kind: str = METADATA) -> int:
        """Return the maximum size in bytes of a cached entry of a kind."""
        return (
            min(self._budget_bytes, self._limits.get(kind, self._budget_bytes)) // _LIMIT_PER_ENTRY
        )

    def scope(self, kind: str = METADATA) -> CacheScope:
        """Create a scope of entries that are dropped together."""
        return CacheScope(self, kind)

    def scope_of(self, key: Hashable, kind: str = METADATA) -> CacheScope:
        """Return the shared scope with the given key."""
        with self._lock:
            scope = self._shared_scopes.get(key)
        if scope is None:
            new_scope = CacheScope(self, kind, key)
            with self._lock:
                scope = self._shared_scopes.setdefault(key, new_scope)
        return scope

    def get(self, key: Hashable) -> Any | None:
        """Return the cached value of a key, or None."""
        return self._default_scope.get(key)

    def put(self, key: Hashable, value: object, *, value_bytes: int) -> None:
        """Cache a value if the budget allows, replacing the previous value of the key."""
        self._default_scope.put(key, value, value_bytes=value_bytes)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key; create and cache it if absent."""
        return self._default_scope.get_or_make(key, make)

    def get_or_load(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """Return the cached value of a key; load and cache it with its size if absent."""
        while True:
            cached = self._default_scope.get(key)
            if cached is not None:
                return cast("T", cached)
            with self._lock:
                running = self._loads.get(key)
                if running is None:
                    running = self._loads[key] = _Load()
                    break
            if running.thread == threading.get_ident():
                # A recursive load is a bug, but must not deadlock.
                return load()[0]
            running.done.wait()
            if running.is_loaded:
                return cast("T", running.value)
        return self._run(key, load, running)

    def discard(self, matches: Callable[[Hashable], bool]) -> None:
        """Drop the unscoped entries with keys that match a predicate."""
        with self._lock:
            keys = [key for key in self._default_scope.entries if matches(key)]
            dropped = [self._remove(self._default_scope.entries[key]) for key in keys]
        del dropped

    def clear(self) -> None:
        """Drop all entries."""
        with self._lock:
            dropped = [
                self._remove(each) for entries in self._order.values() for each in list(entries)
            ]
        del dropped

    def resize(self, budget_bytes: int) -> None:
        """Change the budget, and evict entries that exceed it."""
        with self._lock:
            self._budget_bytes = budget_bytes
            dropped = self._evict()
        del dropped

    def get_in(self, scope: CacheScope, key: Hashable, default: Any = None) -> Any:
        """Return the cached value of a key in a scope, or the default."""
        dropped: list[Any] = []
        with self._lock:
            if self._released:
                self._release()
            entry = scope.entries.get(key)
            if entry is None:
                self._misses += 1
                return default
            self._hits += 1
            self._use_count += 1
            entry.last_use = self._use_count
            self._order[entry.kind].move_to_end(entry)
            value = scope.values[key]
            entry.uses += 1
            if not entry.uses % _UPDATE_INTERVAL:
                value_bytes = getattr(value, "memory_bytes", None)
                if value_bytes is not None:
                    self._update_size(entry, value_bytes, dropped)
        # Values are released outside of the lock, because finalizers may run any code.
        del dropped
        return value

    def put_in(
        self,
        scope: CacheScope,
        key: Hashable,
        value: Any,
        value_bytes: int,
        kind: str,
        *,
        replace: bool = True,
    ) -> Any:
        """Cache a value in a scope and return it, or the existing value unless `replace`."""
        dropped: list[Any] = []
        with self._lock:
            existing = scope.entries.get(key)
            if existing is not None and not replace:
                return scope.values[key]
            if existing is not None:
                dropped.append(self._remove(existing))
            entry_bytes = value_bytes + _ENTRY_BYTES
            if entry_bytes <= self.entry_bytes_max(kind):
                entry = _Entry(scope.reference, key, entry_bytes, kind)
                self._use_count += 1
                entry.last_use = self._use_count
                scope.values[key], scope.entries[key] = value, entry
                self._order[kind][entry] = None
                self._bytes[kind] += entry_bytes
            dropped += self._evict()
        del dropped
        return value

    def update_size_in(self, scope: CacheScope, key: Hashable) -> None:
        """Update the size of an entry in a scope, if it is still cached."""
        dropped: list[Any] = []
        with self._lock:
            entry = scope.entries.get(key)
            if entry is not None:
                self._update_size(entry, scope.values[key].memory_bytes, dropped)
        del dropped

    def release(self, entries: dict[Hashable, _Entry]) -> None:
        """Release the entries of a garbage collected scope, now or on the next use of the cache.

        Garbage collection may run within any cache operation, so this method must not block.
        """
        self._released.append(entries)
        if self._lock.acquire(blocking=False):
            try:
                self._release()
            finally:
                self._lock.release()

    def _release(self) -> None:
        while self._released:
            for entry in self._released.popleft().values():
                self._forget(entry)

    def _run(self, key: Hashable, load: Callable[[], tuple[T, int]], running: _Load) -> T:
        try:
            value, value_bytes = load()
            running.value, running.is_loaded = value, True
            self.put(key, value, value_bytes=value_bytes)
        finally:
            with self._lock:
                self._loads.pop(key, None)
            running.done.set()
        return value

    def _update_size(self, entry: _Entry, value_bytes: int, dropped: list[Any]) -> None:
        entry_bytes = value_bytes + _ENTRY_BYTES
        if entry_bytes == entry.size_bytes:
            return
        self._bytes[entry.kind] += entry_bytes - entry.size_bytes
        entry.size_bytes = entry_bytes
        if entry_bytes > self.entry_bytes_max(entry.kind):
            dropped.append(self._remove(entry))
            self._evictions += 1
        dropped += self._evict()

    def _forget(self, entry: _Entry) -> None:
        if self._order[entry.kind].pop(entry, _MISSING) is not _MISSING:
            self._bytes[entry.kind] -= entry.size_bytes

    def _remove(self, entry: _Entry) -> Any:
        """Drop an entry and return its value, to be released outside of the lock."""
        self._forget(entry)
        scope = entry.scope()
        if scope is None:
            return None
        scope.entries.pop(entry.key, None)
        return scope.values.pop(entry.key, None)

    def _evict(self) -> list[Any]:
        dropped = []
        for kind, limit in self._limits.items():
            while self._bytes[kind] > limit:
                dropped.append(self._remove(next(iter(self._order[kind]))))
        while sum(self._bytes.values()) > self._budget_bytes:
            oldest = [next(iter(entries)) for entries in self._order.values() if entries]
            dropped.append(self._remove(min(oldest, key=_last_use)))
        self._evictions += len(dropped)
        return dropped

    def _reset(self) -> None:
        """Reset the cache in a forked child, because another thread may have been modifying it."""
        self._lock = threading.Lock()
        self._released.clear()
        for entries in self._order.values():
            for entry in list(entries):  # Finalizers of values may release further scopes.
                scope = entry.scope()
                if scope is not None:
                    scope.entries.clear()
                    scope.values.clear()
            entries.clear()
        self._bytes = dict.fromkeys(self._order, 0)
        self._loads = {}


_MISSING: Final = object()


def _last_use(entry: _Entry) -> int:
    return entry.last_use


def _release(cache: weakref.ref[LruCache], entries: dict[Hashable, _Entry]) -> None:
    target = cache()
    if target is not None:
        target.release(entries)


class CacheScope:
    """A set of cache entries that are dropped with their owner, such as an open table.

    The scope references the values and the cache decides on eviction, so values may reference the
    owner of the scope.

    >>> scope = LruCache(10_000).scope()
    >>> scope.get_or_make("a", lambda: 1), scope.get_or_make("a", lambda: 2)
    (1, 1)
    """

    def __init__(
        self, cache: LruCache, kind: str = METADATA, shared_key: Hashable | None = None
    ) -> None:
        """Create an empty scope with entries of one kind, optionally shared under a key."""
        self.cache, self.shared_key = cache, shared_key
        self._kind = kind
        self.values: dict[Hashable, Any] = {}
        self.entries: dict[Hashable, _Entry] = {}
        """Bookkeeping of the values; both dictionaries are modified under the cache lock only."""
        self.reference = weakref.ref(self)
        self._pinned: dict[Hashable, object] = {}
        # A strong reference would create a cycle between the cache and its default scope.
        weakref.finalize(self, _release, weakref.ref(cache), self.entries).atexit = False

    @property
    def entry_bytes_max(self) -> int:
        """The maximum size in bytes of a cached entry."""
        return self.cache.entry_bytes_max(self._kind)

    def get(self, key: Hashable) -> Any | None:
        """Return the cached value of a key, or None."""
        return self.cache.get_in(self, key)

    def put(self, key: Hashable, value: object, *, value_bytes: int) -> None:
        """Cache a value if the budget allows, replacing the previous value of the key."""
        self.cache.put_in(self, key, value, value_bytes, self._kind)

    def nested(self, key: Hashable, kind: str) -> CacheScope:
        """Return a nested scope; it is shared if this scope is."""
        if self.shared_key is None:
            return self.cache.scope(kind)
        return self.cache.scope_of((self.shared_key, key), kind)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key; create and cache it if absent.

        Two threads may create a value concurrently; the first one to finish is cached.
        """
        cached = self.cache.get_in(self, key, _MISSING)
        if cached is not _MISSING:
            return cast("T", cached)
        created = make()
        value_bytes = estimate_bytes(created) + _key_bytes(key)
        return cast(
            "T", self.cache.put_in(self, key, created, value_bytes, self._kind, replace=False)
        )

    def pinned(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a small value that lives as long as the scope, such as a counter."""
        value = self._pinned.get(key)
        return cast("T", self._pinned.setdefault(key, make()) if value is None else value)

    def update_size(self, key: Hashable) -> None:
        """Update the size of a value that grew; it is evicted if it no longer fits."""
        self.cache.update_size_in(self, key)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether a key is cached."""
        return key in self.entries

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as an empty scope of the process cache; open files cannot be pickled."""
        return (_process_scope, (self._kind,))


def estimate_bytes(value: Any, depth: int = _DEPTH_MAX) -> int:
    """Estimate the memory use of a value in bytes, including nested arrays.

    A value with `memory_bytes` reports its own size. Nested objects other than plain values, such
    as the table version a value refers to, count as one small object.

    >>> estimate_bytes(np.zeros(1000)) >= 8000
    True
    """
    simple_bytes = _simple_bytes(value)
    if simple_bytes is not None:
        return simple_bytes
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif not hasattr(value, "__dict__"):
        parts = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))
    elif depth == _DEPTH_MAX:
        parts = vars(value).values()
    if not depth:
        return _OBJECT_BYTES
    return _OBJECT_BYTES + sum(estimate_bytes(each, depth - 1) for each in parts)


def _key_bytes(key: Hashable) -> int:
    """Estimate the memory use of a key in bytes without visiting nested names."""
    if not isinstance(key, tuple):
        return _KEY_BYTES
    return _KEY_BYTES * sum([len(part) if type(part) is tuple else 1 for part in key])


_SIZED: Final = frozenset({bytes, bytearray, str, int, float, bool, type(None)})
"""Most values have one of these types, which avoids the slower class patterns."""


def _simple_bytes(value: Any) -> int | None:
    if type(value) in _SIZED:
        return sys.getsizeof(value)
    match value:
        case np.ndarray():
            return int(value.nbytes)
        case bytes() | bytearray() | str() | int() | float():
            return sys.getsizeof(value)
        case pa.Array() | pa.ChunkedArray() | pa.RecordBatch() | pa.Table():
            return int(value.get_total_buffer_size())
    memory_bytes = getattr(value, "memory_bytes", None)
    return None if memory_bytes is None else int(memory_bytes)


CACHE: Final = LruCache(CACHE_BYTES)
"""The process-wide cache, used by tables without an explicit session."""


def _process_scope(kind: str) -> CacheScope:
    return CACHE.scope(kind)
