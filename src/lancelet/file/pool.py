"""The threads of the process: one pool for decoding, a wider one for waiting on a network.

Work that may be split is given to `map_ordered`, which keeps a window of tasks in flight and
hands the results out in order, so memory is bounded by the window and not by the input:

    items     0 1 2 3 4 5 ...
    running   [2 3 4 5]           window of 4: item 6 starts when the result of 2 was taken
    handed out 0 1

Tasks never wait for other tasks of the pool: a task that calls `map_ordered` itself runs its
items in its own thread. So no arrangement of callers can block the pool.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from itertools import islice
from typing import Final, TypeVar

from lancelet import surroundings
from lancelet.config import CPU_THREADS, IO_THREADS
from lancelet.surroundings import Pool

T = TypeVar("T")
R = TypeVar("R")

FEW_TASKS: Final = 4
"""Fewer tasks than this run in the caller's thread, since starting others costs more."""

FEW_LONG_TASKS: Final = 2
"""The same where each is known to compute for milliseconds."""

_worker = threading.local()


class _Pools:
    """The pools of this process, made when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pools: dict[str, Pool] = {}

    def get(self, name: str, threads: int) -> Pool:
        with self._lock:
            pool = self._pools.get(name)
            if pool is None:
                pool = Pool(
                    threads, thread_name_prefix=f"lancelet-{name}", initializer=_enter_worker
                )
                self._pools[name] = pool
            return pool

    def forget(self) -> None:
        """Start over in a forked child, whose copies of the pools have no threads."""
        self._lock = threading.Lock()
        self._pools = {}


_POOLS: Final = _Pools()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_POOLS.forget)


def map_ordered(
    task: Callable[[T], R],
    items: Iterable[T],
    *,
    waits: bool = False,
    window: int | None = None,
    few: int = FEW_TASKS,
) -> Iterator[R]:
    """Yield `task(item)` for each item, in order, working ahead by `window` items.

    Args:
        task: Runs in some thread; an error it raises is raised here, at its turn.
        items: Taken one by one, as the window moves.
        waits: Whether tasks mostly wait for a network, so that more of them should run at once.
        window: How many tasks may be started before the first result is taken.
        few: Fewer tasks than this, 2 at least, run in the caller's thread.

    >>> list(map_ordered(abs, range(-5, 0)))
    [5, 4, 3, 2, 1]
    """
    threads = IO_THREADS if waits else CPU_THREADS
    ahead = window or 2 * threads
    source = iter(items)
    first = list(islice(source, 1 if waits else few - 1))
    following = list(islice(source, 1))
    if is_worker() or threads == 1 or not following:
        yield from map(task, first)
        yield from map(task, following)
        yield from map(task, source)
        return
    pool = _POOLS.get("wait" if waits else "work", threads)
    running: deque[Future[R]] = deque()
    try:
        for item in _chained(first, following, source):
            running.append(surroundings.submit(pool, task, item))
            if len(running) >= ahead:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        # Whoever stops taking results may close the file next, so nothing may go on reading it.
        for future in running:
            future.cancel()
        wait(running)


def submit(task: Callable[[], R]) -> Future[R]:
    """Start one task of computation; its future is done at once where threads do not help."""
    if CPU_THREADS > 1 and not is_worker():
        pool = _POOLS.get("work", CPU_THREADS)
        return surroundings.submit(pool, lambda _: task(), None)
    future: Future[R] = Future()
    future.set_result(task())
    return future


def is_worker() -> bool:
    """Say whether the calling thread belongs to a pool, and so must not wait for it."""
    return getattr(_worker, "entered", False)


def _enter_worker() -> None:
    _worker.entered = True


def _chained(*parts: Iterable[T]) -> Iterator[T]:
    for part in parts:
        yield from part
