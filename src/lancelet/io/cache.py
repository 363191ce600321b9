"""The cache of a session: metadata of files, parts of indices and plans in one budget of bytes.

The least recently used entry goes first. An entry says what it weighs when it is put; one whose
value has `memory_bytes` is weighed again as it is used, since such values grow.

    budget 100    put a 10, put b 10, get a, ... put z 10     b is the first to go

Entries belong to scopes: a table, an open index segment, an open file. What belongs to a scope is
dropped when the scope dies, so nothing is held for a table that nobody has open. Entries are of
indices or of all else, and each of the two may have a limit of its own within the budget.

`get_or_load` loads a value once for all threads that want it at the same time. A load that fails
fails for the thread that ran it; the others try for themselves.

What is cached must never become wrong. Objects of a dataset are never changed in place, but a
dataset may be deleted and written again under the same name, so no key is a name alone.
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
from lancelet.io.fork import renew_after_fork
from lancelet.values import dataclass

T = TypeVar("T")

INDEX: Final = "index"
METADATA: Final = "metadata"
"""The two kinds of entries, which sessions may limit apart."""

_ENTRY_BYTES: Final = 200
"""What the bookkeeping of an entry weighs, about."""

_OBJECT_BYTES: Final = 400
_KEY_BYTES: Final = 64
"""What a small object weighs that does not say."""

_DEPTH: Final = 3
"""How far into a value its parts are weighed."""

_WEIGHED_EVERY: Final = 4
"""A value that may grow is weighed again when it was used so often; what grows much says so."""

_LARGEST_SHARE: Final = 2
"""An entry may take one part in so many of its limit, so that one cannot push out all others."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What a cache holds and how well it works."""

    hits: int
    misses: int
    evictions: int
    entries: int
    bytes: int
    budget_bytes: int
    index_bytes: int = 0
    """How many of the bytes are of indices."""


class _Entry:
    """What a cache knows of a value that a scope holds."""

    __slots__ = ("key", "kind", "scope", "used", "uses", "weight")

    def __init__(
        self, scope: weakref.ref[CacheScope], key: Hashable, weight: int, kind: str
    ) -> None:
        self.scope, self.key, self.weight, self.kind = scope, key, weight, kind
        self.used = self.uses = 0


class _Load:
    """A load in progress, for other threads to wait for."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.done = threading.Event()
        self.value: Any = None
        self.is_loaded = False


class LruCache:
    """A least-recently-used cache with a budget in bytes, for any number of threads.

    >>> cache = LruCache(budget_bytes=10_000)
    >>> cache.put("key", [1, 2], value_bytes=16)
    >>> cache.get("key"), cache.get("other")
    ([1, 2], None)
    """

    def __init__(self, budget_bytes: int, limits: Mapping[str, int] | None = None) -> None:
        """Start empty; a budget of zero keeps nothing.

        Args:
            budget_bytes: The most bytes of all entries together.
            limits: The most bytes of entries of one kind, within the budget.
        """
        self._budget_bytes = budget_bytes
        self._limits = dict(limits or {})
        self._hits = self._misses = self._evictions = self._used = 0
        self._lock = threading.Lock()
        self._dead: deque[dict[Hashable, _Entry]] = deque()
        self._order: dict[str, OrderedDict[_Entry, None]] = {
            INDEX: OrderedDict(),
            METADATA: OrderedDict(),
        }
        self._bytes = dict.fromkeys(self._order, 0)
        self._loads: dict[Hashable, _Load] = {}
        self._named: weakref.WeakValueDictionary[Hashable, CacheScope] = (
            weakref.WeakValueDictionary()
        )
        self._own = CacheScope(self)
        renew_after_fork(self, LruCache._renew)

    @property
    def stats(self) -> CacheStats:
        """What the cache holds and how well it works."""
        with self._lock:
            self._bury()
            return CacheStats(
                self._hits,
                self._misses,
                self._evictions,
                sum(map(len, self._order.values())),
                sum(self._bytes.values()),
                self._budget_bytes,
                self._bytes[INDEX],
            )

    def largest_bytes(self, kind: str = METADATA) -> int:
        """Return what an entry of a kind may weigh at most to be kept."""
        return min(self._budget_bytes, self._limits.get(kind, self._budget_bytes)) // _LARGEST_SHARE

    def scope(self, kind: str = METADATA) -> CacheScope:
        """Return room for entries that die together."""
        return CacheScope(self, kind)

    def scope_of(self, key: Hashable, kind: str = METADATA) -> CacheScope:
        """Return the scope of something with this key, which all who have it share."""
        with self._lock:
            found = self._named.get(key)
        if found is None:
            made = CacheScope(self, kind, key)
            with self._lock:
                found = self._named.setdefault(key, made)
        return found

    def get(self, key: Hashable) -> Any | None:
        """Return what is cached under a key, or None."""
        return self._own.get(key)

    def put(self, key: Hashable, value: object, *, value_bytes: int) -> None:
        """Cache a value if the budget allows, in place of what had the key."""
        self._own.put(key, value, value_bytes=value_bytes)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is cached under a key, or else what `make` returns, which then is."""
        return self._own.get_or_make(key, make)

    def get_or_load(self, key: Hashable, load: Callable[[], tuple[T, int]]) -> T:
        """Return what is cached under a key, or else what `load` returns with its bytes."""
        while True:
            found = self._own.get(key)
            if found is not None:
                return cast("T", found)
            with self._lock:
                running = self._loads.get(key)
                if running is None:
                    running = self._loads[key] = _Load()
                    break
            if running.thread == threading.get_ident():
                # A load that needs itself is a mistake of its author, but must not wait for ever.
                return load()[0]
            running.done.wait()
            if running.is_loaded:
                return cast("T", running.value)
        return self._run(key, load, running)

    def discard(self, is_unwanted: Callable[[Hashable], bool]) -> None:
        """Drop every entry that no scope owns and whose key is unwanted."""
        with self._lock:
            keys = [key for key in self._own.entries if is_unwanted(key)]
            dropped = [self._remove(self._own.entries[key]) for key in keys]
        del dropped

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            dropped = [self._remove(each) for own in self._order.values() for each in list(own)]
        del dropped

    def resize(self, budget_bytes: int) -> None:
        """Change the budget, and drop what no longer fits."""
        with self._lock:
            self._budget_bytes = budget_bytes
            dropped = self._evict()
        del dropped

    def get_in(self, scope: CacheScope, key: Hashable, default: Any = None) -> Any:
        """Return what a scope has under a key, or the default."""
        dropped: list[Any] = []
        with self._lock:
            if self._dead:
                self._bury()
            entry = scope.entries.get(key)
            if entry is None:
                self._misses += 1
                return default
            self._hits += 1
            self._used += 1
            entry.used = self._used
            self._order[entry.kind].move_to_end(entry)
            value = scope.values[key]
            entry.uses += 1
            if not entry.uses % _WEIGHED_EVERY:
                now = getattr(value, "memory_bytes", None)
                if now is not None:
                    self._weigh(entry, now, dropped)
        # What was dropped dies here, outside of the lock, since its end may run any code.
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
        """Cache a value of a scope, and return it; or what is there if that is not replaced."""
        dropped: list[Any] = []
        with self._lock:
            old = scope.entries.get(key)
            if old is not None and not replace:
                return scope.values[key]
            if old is not None:
                dropped.append(self._remove(old))
            weight = value_bytes + _ENTRY_BYTES
            if weight <= self.largest_bytes(kind):
                entry = _Entry(scope.reference, key, weight, kind)
                self._used += 1
                entry.used = self._used
                scope.values[key], scope.entries[key] = value, entry
                self._order[kind][entry] = None
                self._bytes[kind] += weight
            dropped += self._evict()
        del dropped
        return value

    def weigh_in(self, scope: CacheScope, key: Hashable) -> None:
        """Weigh an entry of a scope again, if it is still there."""
        dropped: list[Any] = []
        with self._lock:
            entry = scope.entries.get(key)
            if entry is not None:
                self._weigh(entry, scope.values[key].memory_bytes, dropped)
        del dropped

    def bury(self, entries: dict[Hashable, _Entry]) -> None:
        """Forget the entries of a scope that died, now or when the cache is next used.

        Scopes die anywhere, as in the middle of what is done here; so this never waits.
        """
        self._dead.append(entries)
        if self._lock.acquire(blocking=False):
            try:
                self._bury()
            finally:
                self._lock.release()

    def _bury(self) -> None:
        while self._dead:
            for entry in self._dead.popleft().values():
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

    def _weigh(self, entry: _Entry, value_bytes: int, dropped: list[Any]) -> None:
        weight = value_bytes + _ENTRY_BYTES
        if weight == entry.weight:
            return
        self._bytes[entry.kind] += weight - entry.weight
        entry.weight = weight
        if weight > self.largest_bytes(entry.kind):
            dropped.append(self._remove(entry))
            self._evictions += 1
        dropped += self._evict()

    def _forget(self, entry: _Entry) -> None:
        if self._order[entry.kind].pop(entry, _GONE) is not _GONE:
            self._bytes[entry.kind] -= entry.weight

    def _remove(self, entry: _Entry) -> Any:
        """Drop an entry, and return what it was of, which dies with its last user."""
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
            oldest = [next(iter(own)) for own in self._order.values() if own]
            dropped.append(self._remove(min(oldest, key=_last_use)))
        self._evictions += len(dropped)
        return dropped

    def _renew(self) -> None:
        """Start over in a forked child, where another thread may have been half-way through."""
        self._lock = threading.Lock()
        self._dead.clear()
        for own in self._order.values():
            for entry in list(own):  # values that die bury the entries of scopes they held
                scope = entry.scope()
                if scope is not None:
                    scope.entries.clear()
                    scope.values.clear()
            own.clear()
        self._bytes = dict.fromkeys(self._order, 0)
        self._loads = {}


_GONE: Final = object()


def _last_use(entry: _Entry) -> int:
    return entry.used


def _bury(cache: weakref.ref[LruCache], entries: dict[Hashable, _Entry]) -> None:
    own = cache()
    if own is not None:
        own.bury(entries)


class CacheScope:
    """Entries of a cache that die with what they are about, such as an open table.

    The scope holds the values, and the cache says when one is to go; so values may refer to what
    holds the scope.

    >>> scope = LruCache(10_000).scope()
    >>> scope.get_or_make("a", lambda: 1), scope.get_or_make("a", lambda: 2)
    (1, 1)
    """

    def __init__(
        self, cache: LruCache, kind: str = METADATA, shared_as: Hashable | None = None
    ) -> None:
        """Begin empty; entries are of a kind, and others share them under a key if there is one."""
        self.cache, self.shared_as = cache, shared_as
        self._kind = kind
        self.values: dict[Hashable, Any] = {}
        self.entries: dict[Hashable, _Entry] = {}
        """What the cache knows of the values; both change under its lock only."""
        self.reference = weakref.ref(self)
        self._pinned: dict[Hashable, object] = {}
        # The cache is referred to weakly, or one of its own scopes would keep it for ever.
        weakref.finalize(self, _bury, weakref.ref(cache), self.entries).atexit = False

    @property
    def largest_bytes(self) -> int:
        """What an entry may weigh at most to be kept."""
        return self.cache.largest_bytes(self._kind)

    def get(self, key: Hashable) -> Any | None:
        """Return what is cached under a key, or None."""
        return self.cache.get_in(self, key)

    def put(self, key: Hashable, value: object, *, value_bytes: int) -> None:
        """Cache a value, if there is room, in place of what had the key."""
        self.cache.put_in(self, key, value, value_bytes, self._kind)

    def within(self, key: Hashable, kind: str) -> CacheScope:
        """Return a scope of something within, shared by those who share this one."""
        if self.shared_as is None:
            return self.cache.scope(kind)
        return self.cache.scope_of((self.shared_as, key), kind)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is cached under a key, or else what `make` returns, which then is.

        Two threads may both make a value at the same time; the first to finish is cached.
        """
        found = self.cache.get_in(self, key, _GONE)
        if found is not _GONE:
            return cast("T", found)
        made = make()
        weight = weight_of(made) + _key_weight(key)
        return cast("T", self.cache.put_in(self, key, made, weight, self._kind, replace=False))

    def pinned(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return something small that stays for as long as the scope, such as a counter."""
        found = self._pinned.get(key)
        return cast("T", self._pinned.setdefault(key, make()) if found is None else found)

    def weigh(self, key: Hashable) -> None:
        """Weigh a value again that grew; if there is no room for it any more it is dropped."""
        self.cache.weigh_in(self, key)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether something is cached under a key."""
        return key in self.entries

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as an empty scope of the cache of the process: open files do not travel."""
        return (_scope_of_process, (self._kind,))


def weight_of(value: Any, depth: int = _DEPTH) -> int:
    """Return about how many bytes a value takes: its arrays, and those of values within it.

    A value that has `memory_bytes` says it itself. Objects that are more than plain values, such
    as the version that something is about, count as one small object where they are referred to.

    >>> weight_of(np.zeros(1000)) >= 8000
    True
    """
    own = _own_weight(value)
    if own is not None:
        return own
    parts: Iterable[Any] = ()
    if isinstance(value, dict):
        parts = [*value.keys(), *value.values()]
    elif isinstance(value, list | tuple | set | frozenset):
        parts = value
    elif not hasattr(value, "__dict__"):
        parts = (getattr(value, name, None) for name in getattr(type(value), "__slots__", ()))
    elif depth == _DEPTH:
        parts = vars(value).values()
    if not depth:
        return _OBJECT_BYTES
    return _OBJECT_BYTES + sum(weight_of(each, depth - 1) for each in parts)


def _key_weight(key: Hashable) -> int:
    """Return about how many bytes a key takes, without looking at each name within it."""
    if not isinstance(key, tuple):
        return _KEY_BYTES
    return _KEY_BYTES * sum([len(part) if type(part) is tuple else 1 for part in key])


_SIZED: Final = frozenset({bytes, bytearray, str, int, float, bool, type(None)})
"""Most values are of these types, and need not be matched with classes."""


def _own_weight(value: Any) -> int | None:
    if type(value) in _SIZED:
        return sys.getsizeof(value)
    match value:
        case np.ndarray():
            return int(value.nbytes)
        case bytes() | bytearray() | str() | int() | float():
            return sys.getsizeof(value)
        case pa.Array() | pa.ChunkedArray() | pa.RecordBatch() | pa.Table():
            return int(value.get_total_buffer_size())
    found = getattr(value, "memory_bytes", None)
    return None if found is None else int(found)


CACHE: Final = LruCache(CACHE_BYTES)
"""The cache of this process, which tables use that were given no session with sizes."""


def _scope_of_process(kind: str) -> CacheScope:
    return CACHE.scope(kind)
