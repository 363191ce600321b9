"""Heads of pages that were prepared once, kept in the cache of a session.

What a decoder works out from the head of a page (where its chunks are, say) is the same at every
read. It is kept for as long as the budget of all caches allows, under a name that belongs to one
open reader, since a file of the same path may be another file the next time it is opened.
"""

from __future__ import annotations

from typing import TypeVar

from lancelet.io.cache import CACHE, LruCache

T = TypeVar("T")


class CachedHeads:
    """The memo of one open file.

    >>> heads = CachedHeads(LruCache(10_000))
    >>> heads.put((0, 3), [7, 9], value_bytes=16)
    >>> heads.get((0, 3), list), heads.get((0, 3), dict), heads.get((1, 3), list)
    ([7, 9], None, None)
    """

    def __init__(self, cache: LruCache = CACHE) -> None:
        """Keep values in a cache."""
        self._scope = cache.scope()

    def get(self, key: tuple[int, int], kind: type[T]) -> T | None:
        """Return what was kept under `(column index, page index)`."""
        found = self._scope.get(key)
        return found if isinstance(found, kind) else None

    def put(self, key: tuple[int, int], value: object, *, value_bytes: int) -> None:
        """Keep a value, or not, as the budget allows."""
        self._scope.put(key, value, value_bytes=value_bytes)
