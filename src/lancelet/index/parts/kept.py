"""Parts of an index that stay in memory, the least recently used of which go first.

at most 10 bytes    a 6, b 4, a again, c 3     b is forgotten
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from lancelet.io.fork import renew_after_fork

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class KeptByBytes(Generic[K, V]):
    """Values by key, for any number of threads.

    >>> kept = KeptByBytes[str, str](10)
    >>> kept.get_or_make("a", lambda: "x" * 6, len), kept.get_or_make("a", lambda: "", len)
    ('xxxxxx', 'xxxxxx')
    """

    def __init__(self, bytes_max: int) -> None:
        """Keep at most so many bytes, and what was used last however large it is."""
        self._bytes_max, self._bytes = bytes_max, 0
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self, KeptByBytes._renew)

    def get_or_make(self, key: K, make: Callable[[], V], size_of: Callable[[V], int]) -> V:
        """Return what is kept under a key, or else what `make` returns, which is then kept."""
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                return found[0]
        made = make()
        with self._lock:
            kept = self._values.setdefault(key, (made, size_of(made)))
            if kept[0] is made:
                self._bytes += kept[1]
            while self._bytes > self._bytes_max and len(self._values) > 1:
                _, (_, size) = self._values.popitem(last=False)
                self._bytes -= size
        return kept[0]

    def __contains__(self, key: K) -> bool:
        """Return whether something is kept under a key."""
        return key in self._values

    def _renew(self) -> None:
        self._lock = threading.Lock()
