"""What a table's snapshots keep of its files: open readers, deletion vectors, sequences.

Files of a table never change, so what was read of one for a version serves every later version
that lists it. A handle keeps the things it used last and forgets the rest:

    kept 2     open a, open b, open a, open c     b is forgotten

Nothing is closed here, since somebody may be reading; what nobody holds is closed when it dies.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, TypeVar

from lancelet.io.fork import renew_after_fork

T = TypeVar("T")

KEPT_MAX: Final = 4096


class Kept:
    """Values by key, the least recently used of which goes first; for any number of threads.

    >>> kept = Kept(1)
    >>> kept.get_or_make("a", lambda: 1), kept.get_or_make("a", lambda: 2)
    (1, 1)
    """

    def __init__(self, most: int = KEPT_MAX) -> None:
        """Keep at most so many values."""
        self._most = most
        self._values: OrderedDict[Hashable, object] = OrderedDict()
        self._lock = threading.Lock()
        renew_after_fork(self, Kept._renew)

    def get_or_make(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what is kept under a key, or else what `make` returns, which is then kept.

        Two threads may both make a value at the same time; the first to finish is kept.
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]  # type: ignore[return-value]  # a key is of one kind
        made = make()
        with self._lock:
            kept = self._values.setdefault(key, made)
            dropped = self._values.popitem(last=False) if len(self._values) > self._most else None
        # What was dropped dies here, outside of the lock, since its end may run any code.
        del dropped
        return kept  # type: ignore[return-value]  # a key is of one kind

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as empty: open files do not travel."""
        return (Kept, (self._most,))

    def _renew(self) -> None:
        self._lock = threading.Lock()
