"""A cache of decoded page headers.

Decoders derive data such as chunk positions from the header of a page. It is cached within the
memory limit of the process. The keys are scoped to one open reader, because the file at a path may
have been replaced when it is opened again.
"""

from __future__ import annotations

from typing import TypeVar

from lancelet.io.cache import CACHE, LruCache

T = TypeVar("T")


class PageHeaderCache:
    """The cached page headers of one open file.

    >>> heads = PageHeaderCache(LruCache(10_000))
    >>> heads.put((0, 3), [7, 9], value_bytes=16)
    >>> heads.get((0, 3), list), heads.get((0, 3), dict), heads.get((1, 3), list)
    ([7, 9], None, None)
    """

    def __init__(self, cache: LruCache = CACHE) -> None:
        """Open a scope of `cache`."""
        self._scope = cache.scope()

    def get(self, key: tuple[int, int], kind: type[T]) -> T | None:
        """Return the cached value of `(column index, page index)`, or None."""
        cached = self._scope.get(key)
        return cached if isinstance(cached, kind) else None

    def put(self, key: tuple[int, int], value: object, *, value_bytes: int) -> None:
        """Cache a value if the memory limit allows it."""
        self._scope.put(key, value, value_bytes=value_bytes)
